// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The state machine of a connection: set-up, the calls of the user and of the engine, and the
 * clock. usiw_cm_receive.c handles datagrams, and usiw_cm_transition.c has the transitions that
 * both files share. usiw_cm.h explains the calls. docs/protocol.md has the table of states.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <string.h>
#endif

#include "../uapi/usiw_abi.h"
#include "usiw_cm.h"
#include "usiw_cm_transition.h"

#define CM_MAX_ERRNO	4095

/* Returns @error if it is a -errno, else -EIO. So no error of the engine looks like success. */
static int as_errno(int error)
{
	return error < 0 && error >= -CM_MAX_ERRNO ? error : -EIO;
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

int usiw_cm_init_active(struct usiw_cm_conn *c, __u32 isn, __u16 ird, __u16 ord, __u16 mtu,
			__u16 window, const void *pd, __u16 pd_len)
{
	memset(c, 0, sizeof(*c));
	c->state = USIW_CM_IDLE;
	c->initiator = 1;
	c->local_isn = isn;
	c->ird = usiw_cm_at_most(ird, USIW_MAX_IRD);
	c->ord = usiw_cm_at_most(ord, USIW_MAX_ORD);
	c->mtu = usiw_cm_at_most(mtu, USIW_MAX_MTU);
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
	c->mtu = usiw_cm_at_most(usiw_cm_at_most(mtu, USIW_MAX_MTU), req->mtu);
	if (c->mtu < USIW_MIN_MTU)
		return USIW_REJECT_MTU;
	if (!window)
		return USIW_REJECT_NO_RESOURCE;
	c->state = USIW_CM_REQ_RCVD;
	c->local_isn = isn;
	c->peer_isn = req->psn;
	c->peer_known = 1;
	c->peer_ird = usiw_cm_at_most(req->ird, USIW_MAX_IRD);
	c->peer_ord = usiw_cm_at_most(req->ord, USIW_MAX_ORD);
	c->window = window;
	c->peer_window = req->window;
	c->peer_features = req->features;
	c->features = req->features & USIW_FEATURES_KNOWN;
	usiw_cm_set_peer_private_data(c, req);
	usiw_cm_set_timer(c, 0, now_us + USIW_CM_REQ_RCVD_US);
	return 0;
}

void usiw_cm_offer(struct usiw_cm_conn *c, __u32 features)
{
	if (c->state == USIW_CM_IDLE)
		c->features |= features;
	else if (c->state == USIW_CM_REQ_RCVD)
		c->features |= features & c->peer_features;
}

void usiw_cm_set_silent(struct usiw_cm_conn *c)
{
	c->silent = 1;
	usiw_cm_set_timer(c, 0, 0);
}

/* ---- The user's calls -------------------------------------------------- */

__u32 usiw_cm_connect(struct usiw_cm_conn *c, __u64 now_us)
{
	if (c->state != USIW_CM_IDLE)
		return 0;
	c->connect_us = now_us;
	return usiw_cm_transmit_repeatedly(c, USIW_CM_REQ_SENT, USIW_TRP_REQ, USIW_CM_REQ_TRIES,
					   now_us);
}

__u32 usiw_cm_connect_itself(struct usiw_cm_conn *c, __u64 now_us)
{
	if (c->state != USIW_CM_IDLE)
		return 0;
	c->connect_us = now_us;
	c->peer_isn = c->local_isn;
	c->peer_known = 1;
	c->peer_window = c->window;
	c->peer_ird = c->ird;
	c->ord = usiw_cm_at_most(c->ord, c->ird);
	c->peer_ord = c->ord;
	return usiw_cm_install(c, now_us);
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
	c->ird = usiw_cm_at_most(ird, USIW_MAX_IRD);
	c->ord = usiw_cm_at_most(usiw_cm_at_most(ord, USIW_MAX_ORD), c->peer_ird);
	return usiw_cm_install(c, now_us);
}

__u32 usiw_cm_reject(struct usiw_cm_conn *c, const void *pd, __u16 pd_len, __u64 now_us)
{
	if (c->state != USIW_CM_REQ_RCVD)
		return 0;
	set_private_data(c, pd, usiw_cm_at_most(pd_len, USIW_MAX_PRIVATE_DATA));
	return usiw_cm_finish_with_reject(c, USIW_REJECT_USER, now_us);
}

__u32 usiw_cm_disconnect(struct usiw_cm_conn *c, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_ESTABLISHED:
		c->state = USIW_CM_CLOSING;
		usiw_cm_set_timer(c, 0, now_us + USIW_CM_CLOSING_US);
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
		return usiw_cm_die(c);
	case USIW_CM_REQ_RCVD:
		return usiw_cm_finish_with_reject(c, USIW_REJECT_NO_RESOURCE, now_us);
	case USIW_CM_LINGER:
	case USIW_CM_DEAD:
		return 0;
	default:
		return usiw_cm_abort_with_reset(c, abort_reason, -ECONNABORTED, now_us);
	}
}

__u32 usiw_cm_forget(struct usiw_cm_conn *c)
{
	return c->state == USIW_CM_DEAD ? 0 : usiw_cm_die(c);
}

int usiw_cm_may_yield(const struct usiw_cm_conn *c)
{
	return c->silent && !c->initiator &&
	       (c->state == USIW_CM_INSTALLING || c->state == USIW_CM_ACCEPT_SENT);
}

__u32 usiw_cm_yield(struct usiw_cm_conn *c)
{
	return usiw_cm_may_yield(c) ? USIW_CM_A_RELEASE | usiw_cm_die(c) : 0;
}

/* ---- The engine's calls ------------------------------------------------ */

__u32 usiw_cm_ready(struct usiw_cm_conn *c, __u64 now_us)
{
	if (c->state != USIW_CM_INSTALLING)
		return 0;
	if (c->initiator)
		return usiw_cm_establish(c) | usiw_cm_transmit(c, USIW_TRP_CONFIRM, 0);
	return usiw_cm_transmit_repeatedly(c, USIW_CM_ACCEPT_SENT, USIW_TRP_ACCEPT,
					   USIW_CM_ACCEPT_TRIES, now_us);
}

__u32 usiw_cm_refused(struct usiw_cm_conn *c, int error, __u64 now_us)
{
	if (c->state != USIW_CM_INSTALLING)
		return 0;
	return usiw_cm_finish_with_reset(c, as_errno(error), 1, now_us);
}

/*
 * Handles the orderly end of the stream. A responder may still wait for CONFIRM then. The engine of
 * the initiator took part in the end, so the initiator was connected, and its CONFIRM was lost or
 * overtaken.
 */
__u32 usiw_cm_closed(struct usiw_cm_conn *c, __u64 now_us)
{
	if (!usiw_cm_is_installed(c) || c->state == USIW_CM_INSTALLING)
		return 0;
	return usiw_cm_finish(c, 0, c->state != USIW_CM_CLOSING,
			      c->initiator ? USIW_TRP_CONFIRM : 0, now_us);
}

__u32 usiw_cm_failed(struct usiw_cm_conn *c, int error, __u64 now_us)
{
	if (!usiw_cm_is_installed(c))
		return 0;
	return usiw_cm_finish_with_reset(c, as_errno(error), 1, now_us);
}

__u32 usiw_cm_report(struct usiw_cm_conn *c, __u32 kind, int error, __u64 now_us)
{
	switch (kind) {
	case USIW_REPORT_READY:
		return usiw_cm_ready(c, now_us);
	case USIW_REPORT_REFUSED:
		return usiw_cm_refused(c, error, now_us);
	case USIW_REPORT_PEER_CLOSED:
	case USIW_REPORT_CLOSED:
		return usiw_cm_closed(c, now_us);
	case USIW_REPORT_FAILED:
		return usiw_cm_failed(c, error, now_us);
	default:
		return 0;
	}
}

/* ---- The clock --------------------------------------------------------- */

static __u32 expire(struct usiw_cm_conn *c, __u64 now_us)
{
	switch (c->state) {
	case USIW_CM_REQ_SENT:
		return usiw_cm_finish_with_reset(c, -ETIMEDOUT, 0, now_us);
	case USIW_CM_REQ_RCVD:
		return usiw_cm_finish_with_reject(c, USIW_REJECT_NO_RESOURCE, now_us);
	case USIW_CM_INSTALLING:
		return usiw_cm_abort_with_reset(c, USIW_ABORT_LOCAL, -EIO, now_us);
	case USIW_CM_ACCEPT_SENT:
		return usiw_cm_abort_with_reset(c, USIW_ABORT_NO_CONFIRM, -ETIMEDOUT, now_us);
	case USIW_CM_CLOSING:
		return usiw_cm_abort_with_reset(c, USIW_ABORT_LOCAL, -ETIMEDOUT, now_us);
	case USIW_CM_LINGER:
		return usiw_cm_die(c);
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
		if (c->silent)
			return usiw_cm_ask_again(c, now_us);
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
		usiw_cm_set_timer(c, now_us + USIW_CM_PENDING_REPEAT_US, c->expire_us);
	} else {
		c->tries++;
		usiw_cm_set_timer(c, c->tries < last ? now_us + usiw_cm_interval(c) : 0,
				  c->expire_us);
	}
	return usiw_cm_transmit(c, opcode, 0);
}

__u32 usiw_cm_timer(struct usiw_cm_conn *c, __u64 now_us)
{
	if (!c->deadline_us || now_us < c->deadline_us)
		return 0;
	if (c->expire_us && now_us >= c->expire_us)
		return expire(c, now_us);
	return repeat(c, now_us);
}
