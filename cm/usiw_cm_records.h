/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Keeps the event records of one connection that its process has not read yet.
 *
 * A process reads the records of its connections from an event stream. It may be slow, stopped or
 * gone, so a host must not queue without bound. A connection therefore has at most one unread
 * record of each type, and all of them show the newest struct usiw_conn_info. The process reads
 * them in a fixed order, whatever the order in which they were queued.
 *
 * The host serialises the calls on a struct usiw_cm_records. The module uses the lock of the event
 * stream, not the lock of the connection: a reader must not wait for a connection that is busy.
 */
#ifndef USIW_CM_RECORDS_H
#define USIW_CM_RECORDS_H

#include "../uapi/usiw_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct usiw_cm_records - unread records of one connection; zeroed at first
 * @pending:	bit (1 << type) for each unread record; type: enum usiw_event_type
 * @info:	state of the connection that all of these records show
 */
struct usiw_cm_records {
	__u32 pending;
	struct usiw_conn_info info;
};

/*
 * Queues a record of @type. ABORT replaces all other unread records, because they are out of date.
 * If it replaces CONNECT, the provider does not know the connection. The provider still flushes the
 * QP, because the kernel reports the QP to be in ERR.
 */
void usiw_cm_records_push(struct usiw_cm_records *r, __u32 type, const struct usiw_conn_info *info);

/* Fills in the next unread record, except qpn and conn_id. Returns false if there is none. */
int usiw_cm_records_peek(const struct usiw_cm_records *r, struct usiw_event *record);

/*
 * Removes @record, which usiw_cm_records_peek() has returned and the process has read. A PATH
 * record stays if the path has changed since then. Returns true if unread records are left.
 */
int usiw_cm_records_pop(struct usiw_cm_records *r, const struct usiw_event *record);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_RECORDS_H */
