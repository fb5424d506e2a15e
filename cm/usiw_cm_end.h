/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * One end of a connection: the state machine of usiw_cm.h with its user, its QP and its path.
 *
 * The state machine only returns actions. To carry them out, a host has to know more: which notices
 * the user (an id of rdma_cm) is still owed, whether the engine has the connection, and whether raw
 * packets may still be sent by the present route. Three hosts need this: the module, usiw-run and
 * the simulation. So this code is here once, and each host supplies a table of calls: send a
 * datagram, notify the user, set the state of the QP, queue a record for the engine, look up the
 * route, and so on.
 *
 * Rules for a host:
 * - It serialises all calls on one end, by the lock of the connection or by one lock for all. It
 *   holds that lock during its own calls too, so they must not call back into the end.
 * - It passes the time (microseconds of a monotonic clock, never 0) and calls usiw_cm_end_tick() at
 *   usiw_cm_end_deadline().
 * - It keeps an end in memory until forget() was called and neither user, QP nor event stream
 *   refers to the end.
 *
 * Each call below runs the state machine, carries out its actions from the lowest bit to the
 * highest, and arms the clock. Exceptions are usiw_cm_end_init(), _attach(), _leave() and the calls
 * that only return a value. docs/control-plane.md draws the states.
 */
#ifndef USIW_CM_END_H
#define USIW_CM_END_H

#include "usiw_cm.h"
#include "usiw_cm_end_types.h"
#include "usiw_cm_input.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroes @end, and sets its host, id and 4-tuple. The end has no QP and no user yet. */
void usiw_cm_end_init(struct usiw_cm_end *end, const struct usiw_cm_host *host, __u32 id,
		      const struct usiw_cm_tuple *tuple);

/*
 * Sets the ports (USIW_CM_*) that the end may use. The host calls this function when the end has
 * got a QP and a user, before usiw_cm_end_connect() or usiw_cm_end_accept().
 */
void usiw_cm_end_attach(struct usiw_cm_end *end, __u8 ports);

/* ---- The user ---- */

/*
 * Starts to connect. Before this call, the host must call usiw_cm_init_active() for end->cm, and
 * usiw_cm_end_attach(). From here on the user gets exactly one REPLY, unless the user leaves
 * (usiw_cm_end_leave()).
 */
void usiw_cm_end_connect(struct usiw_cm_end *end, __u64 now_us);
/* Connects a silent end to itself. Else like usiw_cm_end_connect(). */
void usiw_cm_end_connect_itself(struct usiw_cm_end *end, __u64 now_us);
/*
 * Accepts the request. Before this call, the host must call usiw_cm_init_passive() for end->cm,
 * then usiw_cm_end_may_accept(), which must return 0, and then usiw_cm_end_attach(). Returns 0 or
 * the error of usiw_cm_accept(). After 0 the user gets exactly one ESTABLISHED, unless the user
 * leaves. After an error the user gets no notice.
 */
int usiw_cm_end_accept(struct usiw_cm_end *end, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		       __u64 now_us);
/* Returns 0 if the user may accept; -ECONNRESET if the request has ended or was answered. */
int usiw_cm_end_may_accept(const struct usiw_cm_end *end);
void usiw_cm_end_reject(struct usiw_cm_end *end, const void *pd, __u16 pd_len, __u64 now_us);
void usiw_cm_end_disconnect(struct usiw_cm_end *end, __u64 now_us);
/*
 * Ends the connection at once: see usiw_cm_abort(). When the call returns, the user has had its
 * last notice, and user and QP are released. Only an end that has neither connected nor received a
 * REQ keeps them.
 */
void usiw_cm_end_abort(struct usiw_cm_end *end, enum usiw_abort_reason reason, __u64 now_us);
/*
 * Releases the user, which gets no more notices. The connection goes on. The host calls this
 * function when the user destroys its id or rejects after its accept, or if its accept has failed.
 */
void usiw_cm_end_leave(struct usiw_cm_end *end);
/*
 * Ends the connection and forgets it, without LINGER, because the device is being removed. The peer
 * gets at most one datagram, as usiw_cm_abort() describes.
 */
void usiw_cm_end_flush(struct usiw_cm_end *end, __u64 now_us);
/*
 * Forgets an end without sending a datagram. The host may call it only if the end is in LINGER, or
 * if no user was notified of the end.
 */
void usiw_cm_end_drop(struct usiw_cm_end *end);

/*
 * Gives way to another connection of the same 4-tuple: see usiw_cm_yield(). The QP keeps its state,
 * and no record is queued.
 */
void usiw_cm_end_yield(struct usiw_cm_end *end, __u64 now_us);

/* ---- The engine ---- */

/*
 * Handles a report of the provider. Ignores it if it is about another connection of the QP, or if
 * the engine was not given this one.
 */
void usiw_cm_end_report(struct usiw_cm_end *end, const struct usiw_qp_report *report, __u64 now_us);

/* ---- The network ---- */

/*
 * Handles a datagram of the 4-tuple as usiw_cm_input() does, and carries out the actions of the
 * verdict. The host carries out the rest of the verdict.
 */
void usiw_cm_end_input(struct usiw_cm_end *end, struct usiw_cm_verdict *verdict, const void *data,
		       __u32 len, void *answer, __u64 now_us);
/* Handles DATA or SHUTDOWN for which usiw_cm_confirms() is true. */
void usiw_cm_end_data_seen(struct usiw_cm_end *end, __u64 now_us);
/* Handles an ICMP message for which usiw_cm_quotes() is true. */
void usiw_cm_end_icmp(struct usiw_cm_end *end, enum usiw_cm_answer answer, __u64 now_us);
/*
 * Looks up the route, which may have changed, and shows the engine the new path if it differs.
 * Without a route the connection goes on as before, and while the MAC of the next hop is not known
 * it keeps the old MAC. If the route or a policy forbids raw packets, a connection that does not
 * leave them in time ends.
 */
void usiw_cm_end_follow(struct usiw_cm_end *end, __u64 now_us);

/* ---- The clock ---- */

/* Handles the timers that are due. */
void usiw_cm_end_tick(struct usiw_cm_end *end, __u64 now_us);
/* Returns the time of the next tick, us; 0: never. */
__u64 usiw_cm_end_deadline(const struct usiw_cm_end *end);

/* ---- Checks ---- */

/* Returns NULL, or a text about an invariant that does not hold. All hold between any two calls. */
const char *usiw_cm_end_check(const struct usiw_cm_end *end);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_END_H */
