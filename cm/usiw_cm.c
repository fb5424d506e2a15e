// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connection state machine of TRP. See usiw_cm.h for the contract and
 * docs/protocol.md for the state table.
 *
 * How a connection can end, and what is owed to whom, depends on the state only:
 *
 *   initiator, REQ_SENT and INSTALLING    a REPLY with an error
 *   responder, REQ_RCVD                   nothing: iw_cm knows no CLOSE before accept
 *   responder, INSTALLING and ACCEPT_SENT ESTABLISHED, DISCONNECT, CLOSE: iw_cm cannot
 *                                         be told in another way after accept
 *   ESTABLISHED, CLOSING                  CLOSE, with or without DISCONNECT
 *
 * so every way out goes through finish(), which pays it and moves to LINGER.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <string.h>
#endif

#include "usiw_cm.h"
#include "usiw_cm_hint.h"
#include "../uapi/usiw_abi.h"

#define CM_MAX_ERRNO	4095

static __u16 at_most(__u16 value, __u16 limit)
{
	return value < limit ? value : limit;
}

/* An error as the engine reports it: never 0 and always -errno. */
static int as_errno(int error)
{
	return error < 0 && error >= -CM_MAX_ERRNO ? error : -EIO;
}

/* Total of @tries intervals, each twice the one before. */
static __u64 patience(unsigned int tries)
{
	return (__u64)USIW_CM_RETRY_FIRST_US * ((1u << tries) - 1);
}

static __u64 interval(const struct usiw_cm_conn *c)
{
	return (__u64)USIW_CM_RETRY_FIRST_US << (c->tries - 1);
}

static void set_timer(struct usiw_cm_conn *c, __u64 repeat_us, __u64 expire_us)
{
	c->repeat_us = repeat_us;
	c->expire_us = expire_us;
	c->deadline_us = expire_us;
	if (repeat_us && repeat_us < expire_us)
		c->deadline_us = repeat_us;
}

static __u32 transmit(struct usiw_cm_conn *c, __u8 opcode, __u16 flags)
{
	c->tx_opcode = opcode;
	c->tx_flags = flags;
	return USIW_CM_A_TX;
}

/* Enter a state that repeats @opcode with back-off for @tries transmissions. */
static __u32 transmit_repeatedly(struct usiw_cm_conn *c, __u8 state, __u8 opcode,
				 unsigned int tries, __u64 now_us)
{
	c->state = state;
	c->tries = 1;
	set_timer(c, now_us + interval(c), now_us + patience(tries));
	return transmit(c, opcode, 0);
}

static __u32 install(struct usiw_cm_conn *c, __u64 now_us)
{
	c->state = USIW_CM_INSTALLING;
	c->installed = 1;
	set_timer(c, 0, now_us + USIW_CM_INSTALL_US);
	return USIW_CM_A_INSTALL;
}

static __u32 establish(struct usiw_cm_conn *c)
{
	c->state = USIW_CM_ESTABLISHED;
	c->status = 0;
	set_timer(c, 0, 0);
	return c->initiator ? USIW_CM_A_EV_REPLY : USIW_CM_A_EV_ESTABLISHED;
}

static __u32 abort_engine(struct usiw_cm_conn *c, __u8 reason)
{
	if (!c->installed)
		return 0;
	c->installed = 0;
	c->abort_reason = reason;
	return USIW_CM_A_ABORT;
}

static __u32 die(struct usiw_cm_conn *c)
{
	c->state = USIW_CM_DEAD;
	set_timer(c, 0, 0);
	return USIW_CM_A_DEAD;
}

/*
 * Leave a state before LINGER for LINGER: what iw_cm is owed, and RELEASE. @answer
 * is the opcode that answers late datagrams. @disconnect asks for DISCONNECT
 * before CLOSE where there is a choice.
 */
static __u32 finish(struct usiw_cm_conn *c, int status, int disconnect, __u8 answer, __u64 now_us)
{
	__u32 actions = USIW_CM_A_RELEASE;

	switch (c->state) {
	case USIW_CM_REQ_SENT:
	case USIW_CM_INSTALLING:
	case USIW_CM_ACCEPT_SENT:
		if (c->initiator)
			actions |= USIW_CM_A_EV_REPLY;
		else
			actions |= USIW_CM_A_EV_ESTABLISHED | USIW_CM_A_EV_DISCONNECT |
				   USIW_CM_A_EV_CLOSE;
		break;
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		actions |= USIW_CM_A_EV_CLOSE;
		if (disconnect)
			actions |= USIW_CM_A_EV_DISCONNECT;
		break;
	default:
		break;
	}
	c->status = status;
	c->released = 1;
	c->state = USIW_CM_LINGER;
	c->linger = answer;
	c->tries = 0;
	set_timer(c, 0, now_us + USIW_CM_LINGER_US);
	return actions;
}

/*
 * End the connection and tell the peer by RESET, repeated from LINGER. Where the
 * peer's ISN is not known a RESET could not be verified: it is sent in answer to the
 * ACCEPT that may still come.
 */
static __u32 finish_with_reset(struct usiw_cm_conn *c, int status, int disconnect, __u64 now_us)
{
	__u32 actions = finish(c, status, disconnect, USIW_TRP_RESET, now_us);

	if (c->initiator)
		c->peer_pd_len = 0;
	if (!c->peer_known)
		return actions;
	c->tries = 1;
	set_timer(c, now_us + interval(c), c->expire_us);
	return actions | transmit(c, USIW_TRP_RESET, 0);
}

/* End a request that was never accepted: REJECT, repeated when the REQ is. */
static __u32 finish_with_reject(struct usiw_cm_conn *c, __u8 reason, __u64 now_us)
{
	c->reject_reason = reason;
	return finish(c, -ECONNREFUSED, 0, USIW_TRP_REJECT, now_us) |
	       transmit(c, USIW_TRP_REJECT, 0);
}

/* ---- Set-up ------------------------------------------------------------ */

static int set_private_data(struct usiw_cm_conn *c, const void *pd, __u16 pd_len)
{
	if (pd_len > USIW_MAX_PRIVATE_DATA)
		return -EINVAL;
	if (pd_len)
		memcpy(c->pd, pd, pd_len);
	c->pd_len = pd_len;
	return 0;
}

static void set_peer_private_data(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	c->peer_pd_len = at_most(pkt->pd_len, USIW_MAX_PRIVATE_DATA);
	if (c->peer_pd_len)
		memcpy(c->peer_pd, pkt->pd, c->peer_pd_len);
}

int usiw_cm_init_active(struct usiw_cm_conn *c, __u32 isn, __u16 ird, __u16 ord, __u16 mtu,
			__u16 window, const void *pd, __u16 pd_len)
{
	memset(c, 0, sizeof(*c));
	c->state = USIW_CM_IDLE;
	c->initiator = 1;
	c->local_isn = isn;
	c->ird = at_most(ird, USIW_MAX_IRD);
	c->ord = at_most(ord, USIW_MAX_ORD);
	c->mtu = at_most(mtu, USIW_MAX_MTU);
	c->window = window;
	c->features = USIW_FEATURES_KNOWN;
	if (!window)
		return -EINVAL;
	return set_private_data(c, pd, pd_len);
}

int usiw_cm_init_passive(struct usiw_cm_conn *c, const struct usiw_cm_packet *req, __u32 isn,
			 __u16 mtu, __u16 window, __u64 now_us)
{
	memset(c, 0, sizeof(*c));
	if (req->opcode != USIW_TRP_REQ)
		return USIW_REJECT_MALFORMED;
	if (req->features & ~USIW_FEATURES_KNOWN & 0xffff0000u)
		return USIW_REJECT_FEATURES;
	c->mtu = at_most(at_most(mtu, USIW_MAX_MTU), req->mtu);
	if (c->mtu < USIW_MIN_MTU)
		return USIW_REJECT_MTU;
	if (!window)
		return USIW_REJECT_NO_RESOURCE;
	c->state = USIW_CM_REQ_RCVD;
	c->local_isn = isn;
	c->peer_isn = req->psn;
	c->peer_known = 1;
	c->peer_ird = at_most(req->ird, USIW_MAX_IRD);
	c->peer_ord = at_most(req->ord, USIW_MAX_ORD);
	c->window = window;
	c->peer_window = req->window;
	c->peer_features = req->features;
	c->features = req->features & USIW_FEATURES_KNOWN;
	set_peer_private_data(c, req);
	set_timer(c, 0, now_us + USIW_CM_REQ_RCVD_US);
	return 0;
}

void usiw_cm_offer(struct usiw_cm_conn *c, __u32 features)
{
	if (c->state == USIW_CM_IDLE)
		c->features |= features;
	else if (c->state == USIW_CM_REQ_RCVD)
		c->features |= features & c->peer_features;
}

/* ---- The user's calls -------------------------------------------------- */

__u32 usiw_cm_connect(struct usiw_cm_conn *c, __u64 now_us)
{
	if (c->state != USIW_CM_IDLE)
		return 0;
	c->limit_us = now_us + USIW_CM_REQ_LIMIT_US;
	c->nobody_us = now_us + USIW_CM_NO_LISTENER_GRACE_US;
	return transmit_repeatedly(c, USIW_CM_REQ_SENT, USIW_TRP_REQ, USIW_CM_REQ_TRIES, now_us);
}

__u32 usiw_cm_accept(struct usiw_cm_conn *c, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		     __u64 now_us, int *err)
{
	if (c->state != USIW_CM_REQ_RCVD) {
		*err = -ECONNRESET;
		return 0;
	}
	*err = set_private_data(c, pd, pd_len);
	if (*err)
		return 0;
	c->ird = at_most(ird, USIW_MAX_IRD);
	c->ord = at_most(at_most(ord, USIW_MAX_ORD), c->peer_ird);
	return install(c, now_us);
}

__u32 usiw_cm_reject(struct usiw_cm_conn *c, const void *pd, __u16 pd_len, __u64 now_us)
{
	if (c->state != USIW_CM_REQ_RCVD)
		return 0;
	set_private_data(c, pd, at_most(pd_len, USIW_MAX_PRIVATE_DATA));
	return finish_with_reject(c, USIW_REJECT_USER, now_us);
}

__u32 usiw_cm_disconnect(struct usiw_cm_conn *c, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_ESTABLISHED:
		c->state = USIW_CM_CLOSING;
		set_timer(c, 0, now_us + USIW_CM_CLOSING_US);
		return USIW_CM_A_DRAIN;
	case USIW_CM_CLOSING:
		return 0;
	default:
		return usiw_cm_abort(c, USIW_ABORT_LOCAL, now_us);
	}
}

__u32 usiw_cm_abort(struct usiw_cm_conn *c, __u8 abort_reason, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_IDLE:
		return die(c);
	case USIW_CM_REQ_RCVD:
		return finish_with_reject(c, USIW_REJECT_NO_RESOURCE, now_us);
	case USIW_CM_LINGER:
	case USIW_CM_DEAD:
		return 0;
	default:
		return abort_engine(c, abort_reason) |
		       finish_with_reset(c, -ECONNABORTED, 0, now_us);
	}
}

__u32 usiw_cm_forget(struct usiw_cm_conn *c)
{
	return c->state == USIW_CM_DEAD ? 0 : die(c);
}

/* ---- The engine's calls ------------------------------------------------ */

__u32 usiw_cm_ready(struct usiw_cm_conn *c, __u64 now_us)
{
	if (c->state != USIW_CM_INSTALLING)
		return 0;
	if (c->initiator)
		return establish(c) | transmit(c, USIW_TRP_CONFIRM, 0);
	return transmit_repeatedly(c, USIW_CM_ACCEPT_SENT, USIW_TRP_ACCEPT, USIW_CM_ACCEPT_TRIES,
				   now_us);
}

__u32 usiw_cm_refused(struct usiw_cm_conn *c, int error, __u64 now_us)
{
	if (c->state != USIW_CM_INSTALLING)
		return 0;
	c->installed = 0;
	return finish_with_reset(c, as_errno(error), 1, now_us);
}

/*
 * The stream has ended in order. At a responder that still waits for CONFIRM this
 * says that the initiator had it all: CONFIRM was lost, and the data path was faster.
 */
static __u32 stream_over(struct usiw_cm_conn *c, __u64 now_us)
{
	int disconnect = c->state != USIW_CM_CLOSING;

	switch (c->state) {
	case USIW_CM_ACCEPT_SENT:
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		c->installed = 0;
		return finish(c, 0, disconnect, c->initiator ? USIW_TRP_CONFIRM : 0, now_us);
	default:
		return 0;
	}
}

__u32 usiw_cm_peer_closed(struct usiw_cm_conn *c, __u64 now_us)
{
	return stream_over(c, now_us);
}

__u32 usiw_cm_closed(struct usiw_cm_conn *c, __u64 now_us)
{
	return stream_over(c, now_us);
}

__u32 usiw_cm_failed(struct usiw_cm_conn *c, int error, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_INSTALLING:
	case USIW_CM_ACCEPT_SENT:
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		c->installed = 0;
		return finish_with_reset(c, as_errno(error), 1, now_us);
	default:
		return 0;
	}
}

__u32 usiw_cm_report(struct usiw_cm_conn *c, __u32 kind, int error, __u64 now_us)
{
	switch (kind) {
	case USIW_REPORT_READY:
		return usiw_cm_ready(c, now_us);
	case USIW_REPORT_REFUSED:
		return usiw_cm_refused(c, error, now_us);
	case USIW_REPORT_PEER_CLOSED:
		return usiw_cm_peer_closed(c, now_us);
	case USIW_REPORT_CLOSED:
		return usiw_cm_closed(c, now_us);
	case USIW_REPORT_FAILED:
		return usiw_cm_failed(c, error, now_us);
	default:
		return 0;
	}
}

/* ---- The network ------------------------------------------------------- */

static int both_match(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return c->peer_known && pkt->psn == c->peer_isn && pkt->ack_psn == c->local_isn;
}

/* Take the peer's final parameters; false if it claims what was not offered. */
static int agree(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	if ((pkt->features & ~c->features) || pkt->ord > c->ird || pkt->mtu < USIW_MIN_MTU)
		return 0;
	c->features = pkt->features;
	c->peer_ird = at_most(pkt->ird, USIW_MAX_IRD);
	c->peer_ord = pkt->ord;
	c->ord = at_most(c->ord, c->peer_ird);
	c->ird = pkt->ord;
	c->mtu = at_most(c->mtu, pkt->mtu);
	c->peer_window = pkt->window;
	set_peer_private_data(c, pkt);
	return 1;
}

/* Both ends ask for a connection of one 4-tuple, each with its own REQ; the other end goes first. */
static int yields_to(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return pkt->opcode == USIW_TRP_REQ && c->initiator && c->state == USIW_CM_REQ_SENT &&
	       pkt->psn < c->local_isn;
}

__u32 usiw_cm_asked_isn(const struct usiw_cm_conn *c)
{
	return ~c->local_isn;
}

int usiw_cm_asks_back(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	return yields_to(c, pkt) && pkt->ack_psn != usiw_cm_asked_isn(c);
}

static __u32 receive_req(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	/* The REQ brings back what PENDING has told: it comes from the peer, and is to be admitted. */
	if (yields_to(c, pkt) && !usiw_cm_asks_back(c, pkt))
		return finish(c, -ECONNREFUSED, 0, 0, now_us) | die(c);
	if (c->initiator || pkt->psn != c->peer_isn) {
		/* Another connection on the same 4-tuple: has the peer forgotten this one? */
		if (c->state == USIW_CM_LINGER && !c->initiator)
			return die(c);
		if (c->state == USIW_CM_ESTABLISHED || c->state == USIW_CM_CLOSING)
			return USIW_CM_A_PROBE;
		return 0;
	}
	switch (c->state) {
	case USIW_CM_REQ_RCVD:
	case USIW_CM_INSTALLING:
		return transmit(c, USIW_TRP_ACCEPT, USIW_TRP_F_PENDING);
	case USIW_CM_ACCEPT_SENT:
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		return transmit(c, USIW_TRP_ACCEPT, 0);
	case USIW_CM_LINGER:
		return c->linger ? transmit(c, c->linger, 0) : 0;
	default:
		return 0;
	}
}

static __u32 receive_pending(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt,
			     __u64 now_us)
{
	__u64 repeat_us = c->repeat_us;
	__u64 expire_us = now_us + USIW_CM_PENDING_US;

	if (c->state != USIW_CM_REQ_SENT)
		return 0;
	c->heard = USIW_CM_HEARD_PENDING;
	/* 0: the peer has no ISN for this end yet, and none is to be taken for its RESET's. */
	if (pkt->psn) {
		c->peer_isn = pkt->psn;
		c->peer_known = 1;
	}
	/* A repetition that is due stays due: PENDINGs do not hold it off. */
	if (!c->pending || !repeat_us)
		repeat_us = now_us + USIW_CM_PENDING_REPEAT_US;
	set_timer(c, repeat_us, expire_us < c->limit_us ? expire_us : c->limit_us);
	if (c->pending)
		return 0;
	/* Bring it back at once: who does goes first where there is a crowd. */
	c->pending = 1;
	return pkt->psn ? transmit(c, USIW_TRP_REQ, 0) : 0;
}

static __u32 receive_accept(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt,
			    __u64 now_us)
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
			return finish_with_reset(c, -EPROTO, 0, now_us);
		return install(c, now_us);
	case USIW_CM_ESTABLISHED:
	case USIW_CM_CLOSING:
		if ((pkt->flags & USIW_TRP_F_PENDING) || !both_match(c, pkt))
			return 0;
		return transmit(c, USIW_TRP_CONFIRM, 0);
	case USIW_CM_LINGER:
		if (!c->peer_known) {
			c->peer_isn = pkt->psn;
			c->peer_known = 1;
		}
		if (!c->linger || !both_match(c, pkt))
			return 0;
		if (c->linger == USIW_TRP_CONFIRM && (pkt->flags & USIW_TRP_F_PENDING))
			return 0;
		return transmit(c, c->linger, 0);
	default:
		return 0;
	}
}

static __u32 receive_confirm(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	if (c->initiator || !both_match(c, pkt))
		return 0;
	if (c->state == USIW_CM_ACCEPT_SENT)
		return establish(c);
	if (c->state == USIW_CM_LINGER && c->linger == USIW_TRP_RESET)
		return transmit(c, USIW_TRP_RESET, 0);
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
 * REQ_SENT: nobody listens there, or not yet. Programs that listen anew between two
 * connections are common (perftest), and TCP would have queued: so REQ is repeated for a
 * while before this is an answer.
 */
static __u32 nobody_listens(struct usiw_cm_conn *c, __u64 now_us)
{
	if (now_us >= c->nobody_us)
		return finish(c, -ECONNREFUSED, 0, 0, now_us) | die(c);
	c->tries = 0;
	set_timer(c, now_us + USIW_CM_NO_LISTENER_REPEAT_US, now_us + patience(USIW_CM_REQ_TRIES));
	return 0;
}

static __u32 receive_reject(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt,
			    __u64 now_us)
{
	if (c->state != USIW_CM_REQ_SENT || pkt->ack_psn != c->local_isn)
		return 0;
	c->reject_reason = pkt->reason;
	c->heard = USIW_CM_HEARD_REJECT;
	if (pkt->version != USIW_WIRE_VERSION)
		usiw_cm_other_version(c, pkt->version);
	if (pkt->reason == USIW_REJECT_NO_LISTENER)
		return nobody_listens(c, now_us);
	if (pkt->reason == USIW_REJECT_USER)
		set_peer_private_data(c, pkt);
	/* Nothing of this connection can come after a REJECT: no need to linger. */
	return finish(c, reject_status(pkt->reason), 0, 0, now_us) | die(c);
}

/*
 * Answered with a RESET, so that the peer stops repeating. Answers are bounded: two
 * ends that both believe to be answering would go on for as long as they linger.
 */
static __u32 receive_reset(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us)
{
	__u32 actions;

	if (pkt->flags & USIW_TRP_F_STRAY)
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
		actions = abort_engine(c, USIW_ABORT_PEER_RESET);
		actions |= finish(c, -ECONNRESET, 1, USIW_TRP_RESET, now_us);
		if (c->initiator)
			c->peer_pd_len = 0;
		c->tries = 1;
		return actions | transmit(c, USIW_TRP_RESET, 0);
	case USIW_CM_LINGER:
		if (c->repeat_us) {
			/* The peer knows: stop repeating and do not answer its answer. */
			c->tries = USIW_CM_RESET_TRIES;
			set_timer(c, 0, c->expire_us);
			return 0;
		}
		if (c->linger != USIW_TRP_RESET || c->tries >= USIW_CM_RESET_TRIES)
			return 0;
		c->tries++;
		return transmit(c, USIW_TRP_RESET, 0);
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

__u32 usiw_cm_data_seen(struct usiw_cm_conn *c, __u64 now_us)
{
	(void)now_us;
	return c->state == USIW_CM_ACCEPT_SENT ? establish(c) : 0;
}

/* Only an answer to REQ counts: later on, ICMP would be an easy way to kill. */
__u32 usiw_cm_icmp(struct usiw_cm_conn *c, enum usiw_cm_heard heard, __u64 now_us)
{
	if (c->state != USIW_CM_REQ_SENT || heard == USIW_CM_HEARD_NOTHING)
		return 0;
	c->heard = heard;
	return heard == USIW_CM_HEARD_NO_PORT ? nobody_listens(c, now_us) : 0;
}

/* ---- The clock --------------------------------------------------------- */

static __u32 expire(struct usiw_cm_conn *c, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_REQ_SENT:
		return finish_with_reset(c, -ETIMEDOUT, 0, now_us);
	case USIW_CM_REQ_RCVD:
		return finish_with_reject(c, USIW_REJECT_NO_RESOURCE, now_us);
	case USIW_CM_INSTALLING:
		return abort_engine(c, USIW_ABORT_LOCAL) | finish_with_reset(c, -EIO, 1, now_us);
	case USIW_CM_ACCEPT_SENT:
		return abort_engine(c, USIW_ABORT_NO_CONFIRM) |
		       finish_with_reset(c, -ETIMEDOUT, 1, now_us);
	case USIW_CM_CLOSING:
		return abort_engine(c, USIW_ABORT_LOCAL) |
		       finish_with_reset(c, -ETIMEDOUT, 0, now_us);
	case USIW_CM_LINGER:
		return die(c);
	default:
		return 0;
	}
}

static __u32 repeat(struct usiw_cm_conn *c, __u64 now_us)
{
	unsigned int last;
	__u8 opcode;

	switch (c->state) {
	case USIW_CM_REQ_SENT:
		opcode = USIW_TRP_REQ;
		last = USIW_CM_REQ_TRIES;
		break;
	case USIW_CM_ACCEPT_SENT:
		opcode = USIW_TRP_ACCEPT;
		last = USIW_CM_ACCEPT_TRIES;
		break;
	default:
		opcode = USIW_TRP_RESET;
		last = USIW_CM_RESET_TRIES;
		break;
	}
	if (c->pending && c->state == USIW_CM_REQ_SENT) {
		set_timer(c, now_us + USIW_CM_PENDING_REPEAT_US, c->expire_us);
	} else {
		c->tries++;
		set_timer(c, c->tries < last ? now_us + interval(c) : 0, c->expire_us);
	}
	return transmit(c, opcode, 0);
}

__u32 usiw_cm_timer(struct usiw_cm_conn *c, __u64 now_us)
{
	if (!c->deadline_us || now_us < c->deadline_us)
		return 0;
	if (c->expire_us && now_us >= c->expire_us)
		return expire(c, now_us);
	return repeat(c, now_us);
}
