// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Handles the input of the state machine from the network, in each state: handshake datagrams, DATA
 * and ICMP. docs/protocol.md has the table of states and datagrams.
 *
 * Anybody can send a datagram from a false address. So a datagram establishes or ends a connection
 * only if its sender has received from this end. A handshake datagram then carries the ISN of this
 * end, a REQ the complement of this ISN, and DATA an ACK PSN close to it. An ICMP message counts
 * only while the connection waits for an answer to its REQ. A responder in LINGER serves nobody but
 * its peer, so it gives way to any new REQ.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#else
#include <errno.h>
#endif

#include "../uapi/usiw_abi.h"
#include "usiw_cm.h"
#include "usiw_cm_hint.h"
#include "usiw_cm_transition.h"

/* True if a datagram carries the ISNs of both ends. */
static int both_match(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return c->peer_known && pkt->psn == c->peer_isn && pkt->ack_psn == c->local_isn;
}

/*
 * Takes the final parameters from an ACCEPT. Returns false if the ACCEPT has a feature that this
 * end did not offer, an ORD above the IRD of this end, or an MTU below USIW_MIN_MTU. Lowers an MTU
 * or IRD that is too large.
 */
static int agree(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	if ((pkt->features & ~c->features) || pkt->ord > c->ird || pkt->mtu < USIW_MIN_MTU)
		return 0;
	c->features = pkt->features;
	c->peer_ird = usiw_cm_at_most(pkt->ird, USIW_MAX_IRD);
	c->peer_ord = pkt->ord;
	c->ord = usiw_cm_at_most(c->ord, c->peer_ird);
	c->ird = pkt->ord;
	c->mtu = usiw_cm_at_most(c->mtu, pkt->mtu);
	c->peer_window = pkt->window;
	usiw_cm_set_peer_private_data(c, pkt);
	return 1;
}

/*
 * True if both ends have sent a REQ for the same 4-tuple, and the attempt of the other end goes on,
 * because the ISN of that end is smaller.
 */
static int yields_to(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return pkt->opcode == USIW_TRP_REQ && c->initiator && c->state == USIW_CM_REQ_SENT &&
	       pkt->psn < c->local_isn;
}

__u32 usiw_cm_asked_isn(const struct usiw_cm_conn *c)
{
	return ~c->local_isn;
}

int usiw_cm_needs_pending(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return yields_to(c, pkt) && pkt->ack_psn != usiw_cm_asked_isn(c);
}

/*
 * Ends an attempt without LINGER. usiw_cm_finish() is called first, because it reads the state that
 * usiw_cm_die() changes.
 */
static __u32 end_at_once(struct usiw_cm_conn *c, int status, __u64 now_us)
{
	const __u32 actions = usiw_cm_finish(c, status, 0, 0, now_us);

	return actions | usiw_cm_die(c);
}

static __u32 receive_req(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	/* The REQ repeats the PSN of this end's PENDING, so it comes from the peer: give way. */
	if (yields_to(c, pkt) && !usiw_cm_needs_pending(c, pkt))
		return end_at_once(c, -ECONNREFUSED, now_us);
	if (c->initiator || pkt->psn != c->peer_isn) {
		/*
		 * The REQ asks for another connection on the same 4-tuple. The peer may have
		 * forgotten the present connection. A keepalive probe finds out: a host without a
		 * connection of the 4-tuple answers the probe by a RESET.
		 */
		if (c->state == USIW_CM_LINGER && !c->initiator)
			return usiw_cm_die(c);
		if (c->state == USIW_CM_ESTABLISHED || c->state == USIW_CM_CLOSING)
			return USIW_CM_A_PROBE;
		return 0;
	}
	switch (c->state) {
	case USIW_CM_REQ_RCVD:
	case USIW_CM_INSTALLING:
		return usiw_cm_transmit(c, USIW_TRP_ACCEPT, USIW_TRP_F_PENDING);
	case USIW_CM_ACCEPT_SENT:
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		return usiw_cm_transmit(c, USIW_TRP_ACCEPT, 0);
	case USIW_CM_LINGER:
		return c->linger ? usiw_cm_transmit(c, c->linger, 0) : 0;
	default:
		return 0;
	}
}

/*
 * Handles a PENDING of a silent initiator, which goes on asking as before. It answers each new PSN
 * at once by a REQ that repeats this PSN. The peer has a new PSN after 67 s, after a restart, and
 * in each attempt to connect. Two PSNs may be valid at a time. If datagrams with both were under
 * way, the two ends would answer each other without a pause, so the number of REQs at once is
 * limited between two repetitions by the clock.
 */
static __u32 silent_pending(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	int answered = c->peer_known && c->peer_isn == pkt->psn;

	c->peer_isn = pkt->psn;
	c->peer_known = 1;
	if (answered || c->pending >= USIW_CM_SILENT_ANSWERS)
		return 0;
	c->pending++;
	return usiw_cm_transmit(c, USIW_TRP_REQ, 0);
}

static __u32 receive_pending(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	__u64 repeat_us = c->repeat_us;
	__u64 expire_us = now_us + USIW_CM_PENDING_US;
	__u64 limit_us = c->connect_us + USIW_CM_REQ_LIMIT_US;

	c->answer = USIW_CM_ANSWER_PENDING;
	if (c->silent)
		return silent_pending(c, pkt);
	/*
	 * PSN 0: the peer has no ISN yet, so this end cannot build a RESET that the peer accepts.
	 */
	if (pkt->psn) {
		c->peer_isn = pkt->psn;
		c->peer_known = 1;
	}
	/* The first PENDING schedules the next repetition. Later PENDINGs do not postpone it. */
	if (!c->pending || !repeat_us)
		repeat_us = now_us + USIW_CM_PENDING_REPEAT_US;
	usiw_cm_set_timer(c, repeat_us, expire_us < limit_us ? expire_us : limit_us);
	if (c->pending)
		return 0;
	/*
	 * Answer the first PENDING at once by a REQ that repeats the PSN of the PENDING. Such a REQ
	 * is proven, and proven REQs get slots first.
	 */
	c->pending = 1;
	return pkt->psn ? usiw_cm_transmit(c, USIW_TRP_REQ, 0) : 0;
}

static __u32 receive_accept(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	if (!c->initiator || pkt->ack_psn != c->local_isn)
		return 0;
	switch (c->state) {
	case USIW_CM_REQ_SENT:
		if (pkt->flags & USIW_TRP_F_PENDING)
			return receive_pending(c, pkt, now_us);
		c->peer_isn = pkt->psn;
		c->peer_known = 1;
		if (!agree(c, pkt))
			return c->silent ? 0 : usiw_cm_finish_with_reset(c, -EPROTO, 0, now_us);
		return usiw_cm_install(c, now_us);
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		if ((pkt->flags & USIW_TRP_F_PENDING) || !both_match(c, pkt))
			return 0;
		return usiw_cm_transmit(c, USIW_TRP_CONFIRM, 0);
	case USIW_CM_LINGER:
		if (!c->peer_known) {
			c->peer_isn = pkt->psn;
			c->peer_known = 1;
		}
		if (!c->linger || !both_match(c, pkt))
			return 0;
		if (c->linger == USIW_TRP_CONFIRM && (pkt->flags & USIW_TRP_F_PENDING))
			return 0;
		return usiw_cm_transmit(c, c->linger, 0);
	default:
		return 0;
	}
}

static __u32 receive_confirm(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	if (c->initiator || !both_match(c, pkt))
		return 0;
	if (c->state == USIW_CM_ACCEPT_SENT)
		return usiw_cm_establish(c);
	if (c->state == USIW_CM_LINGER && c->linger == USIW_TRP_RESET)
		return usiw_cm_transmit(c, USIW_TRP_RESET, 0);
	return 0;
}

static int reject_status(__u8 reason)
{
	switch (reason) {
	case USIW_REJECT_VERSION:
	case USIW_REJECT_FEATURES:
	case USIW_REJECT_MALFORMED:
	case USIW_REJECT_MTU:
		return -EPROTO;
	default:
		return -ECONNREFUSED;
	}
}

/*
 * Handles the answer "nobody listens" in REQ_SENT. Many programs (perftest) close their listener
 * and listen again between two connections, so the next listener may be about to join. Therefore
 * REQ is repeated for NO_LISTENER_GRACE_US before this answer ends the attempt.
 */
static __u32 nobody_listens(struct usiw_cm_conn *c, __u64 now_us)
{
	if (now_us >= c->connect_us + USIW_CM_NO_LISTENER_GRACE_US)
		return end_at_once(c, -ECONNREFUSED, now_us);
	c->tries = 0;
	usiw_cm_set_timer(c, now_us + USIW_CM_NO_LISTENER_REPEAT_US,
			  now_us + usiw_cm_total_wait(USIW_CM_REQ_TRIES));
	return 0;
}

static __u32 receive_reject(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	if (c->state != USIW_CM_REQ_SENT || pkt->ack_psn != c->local_isn)
		return 0;
	c->reject_reason = pkt->reason;
	c->answer = USIW_CM_ANSWER_REJECT;
	if (pkt->version != USIW_WIRE_VERSION)
		usiw_cm_other_version(c, pkt->version);
	if (c->silent)
		return 0;
	if (pkt->reason == USIW_REJECT_NO_LISTENER)
		return nobody_listens(c, now_us);
	if (pkt->reason == USIW_REJECT_USER)
		usiw_cm_set_peer_private_data(c, pkt);
	/* After a REJECT the peer needs no answer from this end, so this end does not linger. */
	return end_at_once(c, reject_status(pkt->reason), now_us);
}

/*
 * Handles a RESET, which ends the connection if it carries both ISNs. In REQ_SENT the ISN of this
 * end is enough if the peer's is not known. This end answers the RESET by a RESET, so that the peer
 * stops repeating. The number of answers is limited, because two ends that answer each other would
 * go on for as long as they linger.
 */
static __u32 receive_reset(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	__u32 actions;

	if ((pkt->flags & USIW_TRP_F_STRAY) || c->silent)
		return 0;
	if (c->state == USIW_CM_REQ_SENT && !c->peer_known && pkt->ack_psn == c->local_isn) {
		c->peer_isn = pkt->psn;
		c->peer_known = 1;
	}
	if (!both_match(c, pkt))
		return 0;
	switch (c->state) {
	case USIW_CM_REQ_SENT:
	case USIW_CM_REQ_RCVD:
	case USIW_CM_INSTALLING:
	case USIW_CM_ACCEPT_SENT:
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		actions = usiw_cm_abort_engine(c, USIW_ABORT_PEER_RESET);
		actions |= usiw_cm_finish(c, -ECONNRESET, 1, USIW_TRP_RESET, now_us);
		if (c->initiator)
			c->peer_pd_len = 0;
		c->tries = 1;
		return actions | usiw_cm_transmit(c, USIW_TRP_RESET, 0);
	case USIW_CM_LINGER:
		if (c->repeat_us) {
			/* The RESET counts as the answer to this end's RESET: stop repeating. */
			c->tries = USIW_CM_RESET_TRIES;
			usiw_cm_set_timer(c, 0, c->expire_us);
			return 0;
		}
		if (c->linger != USIW_TRP_RESET || c->tries >= USIW_CM_RESET_TRIES)
			return 0;
		c->tries++;
		return usiw_cm_transmit(c, USIW_TRP_RESET, 0);
	default:
		return 0;
	}
}

__u32 usiw_cm_receive(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	if (c->state == USIW_CM_IDLE || c->state == USIW_CM_DEAD)
		return 0;
	switch (pkt->opcode) {
	case USIW_TRP_REQ:
		return receive_req(c, pkt, now_us);
	case USIW_TRP_ACCEPT:
		return receive_accept(c, pkt, now_us);
	case USIW_TRP_CONFIRM:
		return receive_confirm(c, pkt);
	case USIW_TRP_REJECT:
		return receive_reject(c, pkt, now_us);
	case USIW_TRP_RESET:
		return receive_reset(c, pkt, now_us);
	default:
		return 0;
	}
}

__u32 usiw_cm_data_seen(struct usiw_cm_conn *c)
{
	return c->state == USIW_CM_ACCEPT_SENT ? usiw_cm_establish(c) : 0;
}

/*
 * ICMP counts only as an answer to a REQ. If it counted later, one message of a router or a
 * firewall could end a connection that works.
 */
__u32 usiw_cm_icmp(struct usiw_cm_conn *c, enum usiw_cm_answer answer, __u64 now_us)
{
	if (c->state != USIW_CM_REQ_SENT || answer == USIW_CM_ANSWER_NOTHING)
		return 0;
	c->answer = answer;
	if (answer != USIW_CM_ANSWER_NO_PORT || c->silent)
		return 0;
	return nobody_listens(c, now_us);
}
