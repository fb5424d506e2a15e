/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Transitions of the state machine, for the files of struct usiw_cm_conn only.
 *
 * Several events lead to the same transition: a connection ends by a call of its user, by a report
 * of its engine, by a RESET of its peer and by a timer. Each transition is therefore one function
 * here. It sets the state and its timers, and returns the actions (USIW_CM_A_*) that are due.
 * usiw_cm.c (calls, clock) and usiw_cm_receive.c (datagrams) decide which transition an event
 * causes.
 *
 * A function that returns nothing but a time or a number changes no state.
 */
#ifndef USIW_CM_TRANSITION_H
#define USIW_CM_TRANSITION_H

#include "usiw_cm_types.h"

static inline __u16 usiw_cm_at_most(__u16 value, __u16 limit)
{
	return value < limit ? value : limit;
}

/* ---- Timers and datagrams ---------------------------------------------- */

/* Returns how long @tries transmissions with back-off take, each wait twice the one before, us. */
__u64 usiw_cm_total_wait(unsigned int tries);

/* Returns the wait after the last of c->tries transmissions, us. */
__u64 usiw_cm_interval(const struct usiw_cm_conn *c);

/* Sets both timers of the state, and c->deadline_us to the earlier one. 0: no such timer. */
void usiw_cm_set_timer(struct usiw_cm_conn *c, __u64 repeat_us, __u64 expire_us);

/* Has usiw_cm_build() build this datagram. */
__u32 usiw_cm_transmit(struct usiw_cm_conn *c, __u8 opcode, __u16 flags);

void usiw_cm_set_peer_private_data(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt);

/* ---- Into a connection ------------------------------------------------- */

/* Enters @state, which sends @opcode @tries times with back-off and then expires. */
__u32 usiw_cm_transmit_repeatedly(struct usiw_cm_conn *c, __u8 state, __u8 opcode,
				  unsigned int tries, __u64 now_us);

/* Enters INSTALLING. */
__u32 usiw_cm_install(struct usiw_cm_conn *c, __u64 now_us);

/* Enters ESTABLISHED. */
__u32 usiw_cm_establish(struct usiw_cm_conn *c);

/* ---- Out of it --------------------------------------------------------- */

/*
 * Takes the connection from the engine, if the engine has it. @reason: enum usiw_abort_reason. The
 * caller then leaves the state by one of the functions below.
 */
__u32 usiw_cm_abort_engine(struct usiw_cm_conn *c, __u8 reason);

/* Enters DEAD. */
__u32 usiw_cm_die(struct usiw_cm_conn *c);

/*
 * Leaves a state before LINGER for LINGER. The actions are the events that iw_cm is owed in the old
 * state, with @status, and RELEASE. @disconnect: DISCONNECT comes before CLOSE, if the old state
 * leaves the choice. @answer: the opcode that answers late datagrams, or 0.
 */
__u32 usiw_cm_finish(struct usiw_cm_conn *c, int status, int disconnect, __u8 answer, __u64 now_us);

/*
 * The same, and notifies the peer by a RESET, which LINGER repeats. A peer verifies a RESET by both
 * ISNs. If the ISN of the peer is not known yet, the RESET waits for an ACCEPT that it answers.
 */
__u32 usiw_cm_finish_with_reset(struct usiw_cm_conn *c, int status, int disconnect, __u64 now_us);

/* Takes the connection from the engine, and ends it by a RESET, without DISCONNECT. */
__u32 usiw_cm_abort_with_reset(struct usiw_cm_conn *c, __u8 reason, int status, __u64 now_us);

/* Ends a request that was never accepted, by a REJECT. In LINGER a repeated REQ draws it again. */
__u32 usiw_cm_finish_with_reject(struct usiw_cm_conn *c, __u8 reason, __u64 now_us);

#endif /* USIW_CM_TRANSITION_H */
