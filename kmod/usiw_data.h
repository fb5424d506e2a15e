/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Data sockets: connected UDP sockets that carry the data of a connection in place of raw packets.
 */
#ifndef USIW_DATA_H
#define USIW_DATA_H

#include <linux/types.h>

struct file;
struct sk_buff;
struct sock;
struct usiw_conn;

int usiw_data_open(struct usiw_conn *conn, struct file **file);
void usiw_data_close(struct usiw_conn *conn);
bool usiw_data_is_open(const struct usiw_conn *conn);
void usiw_data_by_packets(struct usiw_conn *conn, bool yes);
struct sock *usiw_data_receiver(struct usiw_conn *conn, const struct sk_buff *skb);
void usiw_data_too_big(struct usiw_conn *conn, u32 mtu);

#endif /* USIW_DATA_H */
