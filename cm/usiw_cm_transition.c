// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Implements the transitions of usiw_cm_transition.h.
 *
 * The role and the state of this end decide what its user is owed when the connection ends:
 *
 *   initiator, REQ_SENT and INSTALLING    a REPLY with an error
 *   responder, REQ_RCVD                   nothing: iw_cm knows no CLOSE before accept
 *   responder, INSTALLING and ACCEPT_SENT ESTABLISHED, DISCONNECT, CLOSE: iw_cm has no other way
 *                                         to report a failure after accept
 *   ESTABLISHED, CLOSING                  CLOSE, with or without DISCONNECT
 *
 * So a connection in one of these states ends by usiw_cm_finish(), which returns these events and
 * enters LINGER. Only usiw_cm_forget() drops such a connection without it.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <string.h>
#endif

#include "usiw_cm_transition.h"

__u64 usiw_cm_total_wait(unsigned int tries)
{
	return (__u64)USIW_CM_RETRY_FIRST_US * ((1u << tries) - 1);
}

__u64 usiw_cm_interval(const struct usiw_cm_conn *c)
{
	return (__u64)USIW_CM_RETRY_FIRST_US << (c->tries - 1);
}

void usiw_cm_set_timer(struct usiw_cm_conn *c, __u64 repeat_us, __u64 expire_us)
{
	c->repeat_us = repeat_us;
	c->expire_us = expire_us;
	c->deadline_us = expire_us;
	if (repeat_us && (!expire_us || repeat_us < expire_us))
		c->deadline_us = repeat_us;
}

__u32 usiw_cm_transmit(struct usiw_cm_conn *c, __u8 opcode, __u16 flags)
{
	c->tx_opcode = opcode;
	c->tx_flags = flags;
	return USIW_CM_A_TX;
}

__u32 usiw_cm_transmit_repeatedly(struct usiw_cm_conn *c, __u8 state, __u8 opcode,
				  unsigned int tries, __u64 now_us)
{
	c->state = state;
	c->tries = 1;
	usiw_cm_set_timer(c, now_us + usiw_cm_interval(c),
			  c->silent ? 0 : now_us + usiw_cm_total_wait(tries));
	return usiw_cm_transmit(c, opcode, 0);
}

__u32 usiw_cm_ask_again(struct usiw_cm_conn *c, __u64 now_us)
{
	__u64 wait_us;

	if (c->tries < USIW_CM_REQ_TRIES)
		c->tries++;
	c->pending = 0;
	wait_us = usiw_cm_interval(c);
	if (wait_us > USIW_CM_SILENT_REPEAT_US)
		wait_us = USIW_CM_SILENT_REPEAT_US;
	usiw_cm_set_timer(c, now_us + wait_us, 0);
	return usiw_cm_transmit(c, USIW_TRP_REQ, 0);
}

__u32 usiw_cm_install(struct usiw_cm_conn *c, __u64 now_us)
{
	c->state = USIW_CM_INSTALLING;
	usiw_cm_set_timer(c, 0, c->silent ? 0 : now_us + USIW_CM_INSTALL_US);
	return USIW_CM_A_INSTALL;
}

__u32 usiw_cm_establish(struct usiw_cm_conn *c)
{
	c->state = USIW_CM_ESTABLISHED;
	c->status = 0;
	usiw_cm_set_timer(c, 0, 0);
	return c->initiator ? USIW_CM_A_EV_REPLY : USIW_CM_A_EV_ESTABLISHED;
}

__u32 usiw_cm_abort_engine(struct usiw_cm_conn *c, __u8 reason)
{
	if (!usiw_cm_is_installed(c))
		return 0;
	c->abort_reason = reason;
	return USIW_CM_A_ABORT;
}

__u32 usiw_cm_die(struct usiw_cm_conn *c)
{
	c->state = USIW_CM_DEAD;
	usiw_cm_set_timer(c, 0, 0);
	return USIW_CM_A_DEAD;
}

__u32 usiw_cm_finish(struct usiw_cm_conn *c, int status, int disconnect, __u8 answer, __u64 now_us)
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
	if (c->silent)
		return actions | usiw_cm_die(c);
	c->state = USIW_CM_LINGER;
	c->linger = answer;
	c->tries = 0;
	usiw_cm_set_timer(c, 0, now_us + USIW_CM_LINGER_US);
	return actions;
}

__u32 usiw_cm_finish_with_reset(struct usiw_cm_conn *c, int status, int disconnect, __u64 now_us)
{
	__u32 actions = usiw_cm_finish(c, status, disconnect, USIW_TRP_RESET, now_us);

	if (c->initiator)
		c->peer_pd_len = 0;
	if (!c->peer_known || c->silent)
		return actions;
	c->tries = 1;
	usiw_cm_set_timer(c, now_us + usiw_cm_interval(c), c->expire_us);
	return actions | usiw_cm_transmit(c, USIW_TRP_RESET, 0);
}

__u32 usiw_cm_abort_with_reset(struct usiw_cm_conn *c, __u8 reason, int status, __u64 now_us)
{
	/*
	 * Call this first, because only the old state shows whether the engine has the connection.
	 */
	__u32 actions = usiw_cm_abort_engine(c, reason);

	return actions | usiw_cm_finish_with_reset(c, status, 0, now_us);
}

__u32 usiw_cm_finish_with_reject(struct usiw_cm_conn *c, __u8 reason, __u64 now_us)
{
	__u32 actions = usiw_cm_finish(c, -ECONNREFUSED, 0, USIW_TRP_REJECT, now_us);

	c->reject_reason = reason;
	return c->silent ? actions : actions | usiw_cm_transmit(c, USIW_TRP_REJECT, 0);
}

void usiw_cm_set_peer_private_data(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt)
{
	c->peer_pd_len = usiw_cm_at_most(pkt->pd_len, USIW_MAX_PRIVATE_DATA);
	if (c->peer_pd_len)
		memcpy(c->peer_pd, pkt->pd, c->peer_pd_len);
}
