/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Transitions of the state machine. Only usiw_cm.c and usiw_cm_receive.c use them.
 *
 * Several events lead to the same transition: a connection ends by a call of its user, by a report
 * of its engine, by a RESET of its peer and by a timer. Each transition is therefore one function
 * here. It sets the state and its timers, and returns the actions (USIW_CM_A_*) that are due.
 * usiw_cm.c (calls, clock) and usiw_cm_receive.c (datagrams) decide which transition an event
 * causes.
 */
#ifndef USIW_CM_TRANSITION_H
#define USIW_CM_TRANSITION_H

#include "usiw_cm_types.h"

/* Returns the smaller of both. */
static inline __u16 usiw_cm_at_most(__u16 value, __u16 limit)
{
	return value < limit ? value : limit;
}

/* ---- Timers and datagrams ---------------------------------------------- */

/*
 * Returns the sum of the waits after @tries transmissions, us. Each wait is twice the wait before
 * it.
 */
__u64 usiw_cm_total_wait(unsigned int tries);

/* Returns the wait after the last of c->tries transmissions, us. */
__u64 usiw_cm_interval(const struct usiw_cm_conn *c);

/* Sets both timers of the state, and c->deadline_us to the earlier one. 0: no such timer. */
void usiw_cm_set_timer(struct usiw_cm_conn *c, __u64 repeat_us, __u64 expire_us);

/*
 * Returns A_TX, for which usiw_cm_build() then builds the datagram with this opcode and these
 * flags.
 */
__u32 usiw_cm_transmit(struct usiw_cm_conn *c, __u8 opcode, __u16 flags);

/* Stores the private data of a datagram in c->peer_pd. */
void usiw_cm_set_peer_private_data(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt);

/* ---- Into a connection ------------------------------------------------- */

/*
 * Enters @state and transmits the first @opcode. The timers repeat @opcode with back-off, up to
 * @tries transmissions in all. The state expires when the wait after the last one has passed. For a
 * REQ, an answer such as PENDING may change these timers.
 */
__u32 usiw_cm_transmit_repeatedly(struct usiw_cm_conn *c, __u8 state, __u8 opcode,
				  unsigned int tries, __u64 now_us);

/* Transmits another REQ of a silent initiator, and schedules the next. */
__u32 usiw_cm_ask_again(struct usiw_cm_conn *c, __u64 now_us);

/* Enters INSTALLING. */
__u32 usiw_cm_install(struct usiw_cm_conn *c, __u64 now_us);

/* Enters ESTABLISHED. */
__u32 usiw_cm_establish(struct usiw_cm_conn *c);

/* ---- Out of it --------------------------------------------------------- */

/*
 * Returns ABORT, with @reason (enum usiw_abort_reason), if the engine has the connection or is
 * about to get it; else 0. The caller then leaves the state by one of the functions below.
 */
__u32 usiw_cm_abort_engine(struct usiw_cm_conn *c, __u8 reason);

/* Enters DEAD. */
__u32 usiw_cm_die(struct usiw_cm_conn *c);

/*
 * Enters LINGER from any earlier state, or DEAD if the connection is silent. Returns RELEASE, and the events that iw_cm is owed in the
 * old state, with @status. @disconnect: in ESTABLISHED and CLOSING, DISCONNECT comes before CLOSE.
 * In other states it has no effect. @answer: the opcode that answers late datagrams, or 0.
 */
__u32 usiw_cm_finish(struct usiw_cm_conn *c, int status, int disconnect, __u8 answer, __u64 now_us);

/*
 * Calls usiw_cm_finish(), and notifies the peer by a RESET, which is repeated in LINGER. A peer
 * verifies a RESET by both ISNs. If this end does not know the peer's ISN yet, it sends RESET in
 * answer to a later ACCEPT.
 */
__u32 usiw_cm_finish_with_reset(struct usiw_cm_conn *c, int status, int disconnect, __u64 now_us);

/* Calls usiw_cm_abort_engine(), then usiw_cm_finish_with_reset() with @disconnect 0. */
__u32 usiw_cm_abort_with_reset(struct usiw_cm_conn *c, __u8 reason, int status, __u64 now_us);

/*
 * Ends a request that was never accepted, and sends a REJECT with @reason. In LINGER each repeated
 * REQ is answered by the same REJECT.
 */
__u32 usiw_cm_finish_with_reject(struct usiw_cm_conn *c, __u8 reason, __u64 now_us);

#endif /* USIW_CM_TRANSITION_H */
