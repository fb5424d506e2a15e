/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The functions of struct usiw_cm_host, and others that act on a connection. Callers hold
 * conn->lock. Only usiw_conn_leave_backlog() may also run without it, after the last reference was
 * dropped.
 */
#ifndef USIW_CONN_ACT_H
#define USIW_CONN_ACT_H

#include "../cm/usiw_cm_end.h"

struct iw_cm_id;
struct usiw_conn;
struct usiw_qp;
struct usiw_sender;

/*
 * Maximum length, bytes, of private data in an event of iw_cm, which has one byte for the length.
 */
#define USIW_IW_MAX_PRIVATE_DATA	255

/* Interval, us, of usiw_conn_check_waiter() for a connection whose user waits for an answer. */
#define USIW_OWNER_US		200000

extern const struct usiw_cm_host usiw_conn_host;
void usiw_conn_arm(struct usiw_cm_end *end);
void usiw_conn_leave_backlog(struct usiw_cm_end *end);
int usiw_conn_notify_request(struct usiw_conn *conn);
int usiw_conn_attach_qp(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			const struct usiw_sender *sender);

#endif /* USIW_CONN_ACT_H */
