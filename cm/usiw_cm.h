/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connection state machine of TRP.
 *
 * A kernel, a process that emulates one and a simulation all have to make connections by the same
 * rules. So the rules are here without a kernel: a function gets a connection, an event and the
 * time, changes the state, and returns the actions that are due. It has no I/O, no allocation, no
 * clock and no lock.
 *
 * The caller serialises the calls on one connection, and carries out the actions in the order of
 * their bits. The module, usiw-run, the simulation and the fuzzers all link this code.
 *
 * Life of a connection (I: initiator, R: responder):
 *
 *   I: IDLE -connect-> REQ_SENT -ACCEPT-> INSTALLING -ready-> ESTABLISHED
 *   R: REQ_RCVD -accept-> INSTALLING -ready-> ACCEPT_SENT -CONFIRM-> ESTABLISHED
 *   R: REQ_RCVD -reject-> LINGER (answers a repeated REQ) -> DEAD
 *   ESTABLISHED -disconnect-> CLOSING -closed-> LINGER -> DEAD
 *   REQ_SENT, INSTALLING to CLOSING -abort-> LINGER (sends RESETs if the ISN is known) -> DEAD
 *   REQ_SENT to CLOSING -RESET of the peer-> LINGER (answers it by RESET) -> DEAD
 *
 * Every state but IDLE, ESTABLISHED and DEAD has a time-out. After DEAD the object may be freed.
 * Any call is allowed in any state: a call that is not due changes nothing and returns 0.
 *
 * Rules for the caller:
 * - The caller builds and sends the datagram of A_TX before the next call.
 * - A connection in REQ_RCVD may end (time-out, RESET, abort) before the user has called accept or
 *   reject. RELEASE is then returned, but the user may still make that call. So what names the
 *   connection to the user must survive it: the module gives iw_cm an id, not a pointer.
 *   usiw_cm_accept() fails with -ECONNRESET in this case.
 * - An object in LINGER serves only the peer. The caller may drop it at any time, for a new
 *   connection of the same 4-tuple or when the device is removed.
 * - usiw_cm_receive() may return DEAD for a REQ: if a responder is in LINGER and the REQ has
 *   another ISN, or if this end's attempt gives way to the REQ. The caller then treats the REQ as
 *   one that has no connection.
 * - The caller answers DATA, SHUTDOWN and SACK on a 4-tuple without an object by
 *   usiw_cm_build_stray_reset(), at a bounded rate. So an end learns that its peer has forgotten
 *   the connection.
 */
#ifndef USIW_CM_H
#define USIW_CM_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * usiw_cm_needs_pending - true if this end must answer PENDING before it gives way to a REQ
 * @c:		connection
 * @pkt:	datagram of its 4-tuple
 *
 * Both ends may send a REQ to each other at the same time, between the same ports. Then the attempt
 * with the smaller ISN goes on. The end with the larger ISN gives way: its attempt ends with
 * -ECONNREFUSED, and its listener gets the REQ of the peer. But anybody can send a REQ with a small
 * PSN from a false address. So the end with the larger ISN first answers PENDING with
 * usiw_cm_asked_isn(). It gives way only to a REQ that has this number as its ACK PSN.
 */
int usiw_cm_needs_pending(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt);

/*
 * Returns the PSN of the PENDING that usiw_cm_needs_pending() calls for: the complement of this
 * end's ISN. PENDING must not carry the ISN itself. A peer without a connection answers PENDING by
 * a RESET with both PSNs of the PENDING, and a RESET with both ISNs would end this attempt.
 */
__u32 usiw_cm_asked_isn(const struct usiw_cm_conn *c);

/**
 * usiw_cm_decode - decode a handshake datagram
 * @data:	UDP payload, any alignment
 * @len:	bytes
 *
 * In every wire version the opcode, the PSNs, the version (the first payload byte) and the reason
 * of a REJECT are at the same offsets. So a REJECT of another version decodes, but without its
 * private data.
 *
 * Return: 0; -EINVAL if the datagram is malformed (too short, lengths that do not fit, flags that
 * its opcode does not have, a window of 0, not a handshake opcode); -EPROTONOSUPPORT for a REQ or
 * an ACCEPT of another version. Then @pkt->opcode, @pkt->psn and @pkt->version are valid, so that
 * usiw_cm_build_refusal() can answer a REQ.
 */
int usiw_cm_decode(struct usiw_cm_packet *pkt, const void *data, __u32 len);

/*
 * Sets up an initiator, in state IDLE. All parameters describe this end. Returns 0; -EINVAL if
 * @pd_len exceeds 512 or @window is 0.
 */
int usiw_cm_init_active(struct usiw_cm_conn *c, __u32 isn, __u16 ird, __u16 ord, __u16 mtu,
			__u16 window, const void *pd, __u16 pd_len);

/*
 * Sets up a responder from a decoded REQ, in state REQ_RCVD. Returns 0, or a positive enum
 * usiw_reject_reason with which to refuse the REQ: unknown features among the upper 16 bits, an MTU
 * of either end below USIW_MIN_MTU, a window of 0 at this end, or another datagram than a REQ.
 */
int usiw_cm_init_passive(struct usiw_cm_conn *c, const struct usiw_cm_packet *req, __u32 isn,
			 __u16 mtu, __u16 window, __u64 now_us);

/*
 * Adds @features, which only some ends have, to those that every end has. An initiator calls it
 * before it connects, and then offers all of @features. A responder calls it before it accepts, and
 * then agrees to those of @features that its peer has offered. At any other time the call changes
 * nothing.
 */
void usiw_cm_offer(struct usiw_cm_conn *c, __u32 features);

/*
 * Makes a new connection silent, as QPs of InfiniBand and RoCE are that connect without a connection
 * manager. Call it directly after usiw_cm_init_active() or usiw_cm_init_passive(). Then:
 * - An initiator asks until the connection is made or aborted. No answer but ACCEPT ends that.
 * - No state expires. A responder repeats its ACCEPT a limited number of times, and again in answer
 *   to each REQ.
 * - The end sends nothing: LINGER is left at once, and a RESET of the peer is ignored. So a peer
 *   learns of the end only by its own data, which nobody acknowledges.
 */
void usiw_cm_set_silent(struct usiw_cm_conn *c);

/*
 * The calls of the user and of the engine follow. Each returns the actions to carry out. @error is
 * -errno. Any other value counts as -EIO, so that no error looks like success.
 */
/* Sends the REQ of a connection in IDLE. */
__u32 usiw_cm_connect(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Connects an initiator in IDLE, which is silent, to itself: there is no handshake, and both
 * directions have the ISN of this end.
 */
__u32 usiw_cm_connect_itself(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Accepts the REQ. @ird, @ord: READ depths that the user requests. The call lowers both to the
 * limits of this device, and @ord also to the peer's IRD, and stores them in c->ird and c->ord.
 * *err: 0; -EINVAL if @pd_len exceeds 512, and the state stays REQ_RCVD; -ECONNRESET if the state
 * is no longer REQ_RCVD. After an error there are no actions, and no event follows.
 */
__u32 usiw_cm_accept(struct usiw_cm_conn *c, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		     __u64 now_us, int *err);
/* Rejects the REQ, with private data of the user. */
__u32 usiw_cm_reject(struct usiw_cm_conn *c, const void *pd, __u16 pd_len, __u64 now_us);
/*
 * Begins the orderly end: the engine drains its send queue and sends SHUTDOWN. Before ESTABLISHED
 * the call is an abort with USIW_ABORT_LOCAL.
 */
__u32 usiw_cm_disconnect(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Ends the connection at once. Sends REJECT in REQ_RCVD, else RESET if the peer's ISN is known.
 * Changes nothing in LINGER and DEAD.
 */
__u32 usiw_cm_abort(struct usiw_cm_conn *c, __u8 abort_reason, __u64 now_us);
/*
 * Ends the connection without a datagram and without a notice. The caller may use it only for an
 * object in LINGER, or for one that no user and no engine knows.
 */
__u32 usiw_cm_forget(struct usiw_cm_conn *c);
/*
 * Ends a silent connection of a responder that its peer has not confirmed, because the peer asks for
 * another one. Neither user nor engine is notified. The engine gets the other connection in place
 * of this one.
 */
__u32 usiw_cm_yield(struct usiw_cm_conn *c);
/* True if usiw_cm_yield() may end the connection. */
int usiw_cm_may_yield(const struct usiw_cm_conn *c);
/* Handles READY: the engine has installed the connection. */
__u32 usiw_cm_ready(struct usiw_cm_conn *c, __u64 now_us);
/* Handles REFUSED: the engine could not install the connection. */
__u32 usiw_cm_refused(struct usiw_cm_conn *c, int error, __u64 now_us);
/*
 * Handles CLOSED and PEER_CLOSED: the peer has acknowledged the engine's SHUTDOWN, or the engine
 * has received the peer's.
 */
__u32 usiw_cm_closed(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Handles FAILED: the engine has set the QP to ERROR by itself. Before it reports this, the engine
 * has delivered its Terminate or given that up, because the RESET of this call would overtake the
 * Terminate.
 */
__u32 usiw_cm_failed(struct usiw_cm_conn *c, int error, __u64 now_us);
/*
 * Calls the function above that handles a report of the provider. @kind: enum usiw_report_kind. For
 * reports that do not concern the state machine it does nothing and returns 0.
 */
__u32 usiw_cm_report(struct usiw_cm_conn *c, __u32 kind, int error, __u64 now_us);

/* The calls of the network and of the clock follow. Each returns the actions to carry out. */
/* Handles a handshake datagram of the 4-tuple, decoded by usiw_cm_decode(). */
__u32 usiw_cm_receive(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us);
/*
 * Handles DATA or SHUTDOWN, which counts as CONFIRM. The caller passes only a datagram for which
 * usiw_cm_confirms() is true: its PSN is in [peer_isn, peer_isn + window), and its ACK PSN in
 * [local_isn, local_isn + window], where window is USIW_TRP_MAX_WINDOW. So a sender that does not
 * know the ISNs cannot confirm the connection, nor can a peer that still has an earlier connection
 * of the 4-tuple.
 */
__u32 usiw_cm_data_seen(struct usiw_cm_conn *c);
/*
 * Handles an ICMP message that quotes the REQ. @answer: by usiw_cm_icmp4_answer() or
 * usiw_cm_icmp6_answer().
 */
__u32 usiw_cm_icmp(struct usiw_cm_conn *c, enum usiw_cm_answer answer, __u64 now_us);
/* Handles the timer that is due. A call before c->deadline_us does nothing. */
__u32 usiw_cm_timer(struct usiw_cm_conn *c, __u64 now_us);

/**
 * usiw_cm_build - build the datagram that A_TX asks for
 * @buf:	at least USIW_CM_MAX_DATAGRAM bytes
 * Return: its length in bytes
 */
__u32 usiw_cm_build(const struct usiw_cm_conn *c, void *buf);

/*
 * Builds the ACCEPT with PENDING that answers @req. @isn: its PSN, which is the ISN of this end or
 * usiw_cm_asked_isn(). Returns the length.
 */
__u32 usiw_cm_build_pending(const struct usiw_cm_packet *req, __u32 isn, void *buf);

/* Builds a REJECT to @req without using a connection object. Returns the length. */
__u32 usiw_cm_build_refusal(const struct usiw_cm_packet *req, __u8 reason, void *buf);

/*
 * Builds the RESET that answers a datagram of a connection that this host does not have. @data,
 * @len: UDP payload of the datagram. The RESET has the PSNs of the datagram, exchanged. It has the
 * flag STRAY if the datagram is DATA, SHUTDOWN or SACK. In answer to ACCEPT and CONFIRM these PSNs
 * are both ISNs, and the flag is not set. Returns the length, or 0 if no answer must be sent (REQ,
 * REJECT, RESET, an unknown opcode, or no complete header). The function checks nothing else.
 */
__u32 usiw_cm_build_stray_reset(const void *data, __u32 len, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_H */
