/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The kinds of ports, raw packets or data sockets, that the two ends of a connection can use.
 */
#ifndef USIW_PORTS_H
#define USIW_PORTS_H

#include <linux/types.h>

struct usiw_conn;
struct usiw_qp;
struct usiw_sender;

u8 usiw_ports_of_qp(const struct usiw_qp *qp);
u8 usiw_conn_peer_ports(const struct usiw_conn *conn);
int usiw_conn_check_way(const struct usiw_conn *conn, const struct usiw_qp *qp,
			const struct usiw_sender *sender);

#endif /* USIW_PORTS_H */
