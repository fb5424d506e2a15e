/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Makes connections, and handles their inputs: calls by which iw_cm ends a connection, reports of
 * the provider, and datagrams from the port's worker.
 */
#ifndef USIW_CONN_RUN_H
#define USIW_CONN_RUN_H

#include <linux/types.h>

#include "../cm/usiw_cm_end.h"

struct usiw_conn;
struct usiw_device;
struct usiw_tuple;

struct usiw_conn *usiw_conn_alloc(struct usiw_device *dev, const struct usiw_tuple *tuple,
				  gfp_t flags);
void usiw_conn_disconnect(struct usiw_conn *conn);
void usiw_conn_abort(struct usiw_conn *conn);
void usiw_conn_report(struct usiw_conn *conn, const struct usiw_qp_report *report);
void usiw_conn_input(struct usiw_conn *conn, struct usiw_cm_verdict *verdict, const void *data,
		     u32 len, void *answer);

#endif /* USIW_CONN_RUN_H */
