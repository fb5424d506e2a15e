// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Classifies datagrams; see usiw_cm_input.h. */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/stddef.h>
#else
#include <errno.h>
#include <stddef.h>
#endif

#include "usiw_cm.h"
#include "usiw_cm_bytes.h"
#include "usiw_cm_hint.h"
#include "usiw_cm_input.h"

#define AT(field)	offsetof(struct usiw_trp_hdr, field)

enum usiw_cm_look usiw_cm_look(const void *hdr, __u32 len)
{
	const __u8 *p = hdr;
	__u16 opflags;

	if (len < sizeof(struct usiw_trp_hdr))
		return USIW_CM_LOOK_DROP;
	opflags = usiw_get16(p + AT(opflags));
	switch (opflags >> USIW_TRP_OPCODE_SHIFT) {
	case USIW_TRP_DATA:
	case USIW_TRP_SHUTDOWN:
	case USIW_TRP_SACK:
		return USIW_CM_LOOK_DATA;
	case USIW_TRP_RESET:
		if (opflags & USIW_TRP_F_STRAY)
			return USIW_CM_LOOK_ENGINE;
		break;
	case USIW_TRP_REQ:
	case USIW_TRP_ACCEPT:
	case USIW_TRP_REJECT:
	case USIW_TRP_CONFIRM:
		break;
	default:
		return USIW_CM_LOOK_DROP;
	}
	return len <= USIW_CM_MAX_DATAGRAM ? USIW_CM_LOOK_HANDSHAKE : USIW_CM_LOOK_DROP;
}

int usiw_cm_stray_due(__u64 *next_us, __u64 now_us)
{
	if (now_us < *next_us)
		return 0;
	*next_us = now_us + USIW_CM_STRAY_US;
	return 1;
}

int usiw_cm_confirms(const struct usiw_cm_conn *c, const void *hdr)
{
	const __u8 *p = hdr;

	return usiw_get32(p + AT(psn)) - c->peer_isn < USIW_TRP_MAX_WINDOW &&
	       usiw_get32(p + AT(ack_psn)) - c->local_isn <= USIW_TRP_MAX_WINDOW;
}

int usiw_cm_quotes(const struct usiw_cm_conn *c, const void *quoted, __u32 len)
{
	return len >= AT(psn) + sizeof(__u32) &&
	       usiw_get32((const __u8 *)quoted + AT(psn)) == c->local_isn;
}

static void answer(struct usiw_cm_verdict *v, __u32 len)
{
	v->kind = len ? USIW_CM_V_ANSWER : USIW_CM_V_DROP;
	v->len = len;
}

/*
 * True if @pkt may be the answer of a usiw to the REQ of @c. DATA, SHUTDOWN and SACK are not, and
 * count as malformed here. A REQ with this end's own ISN comes from an echo server.
 */
static int answers(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, int malformed)
{
	if (malformed)
		return 0;
	return pkt->opcode != USIW_TRP_REQ || pkt->psn != c->local_isn;
}

/*
 * Handles a datagram that cannot be the answer of a usiw to the REQ of @c, and notes it for the
 * hint. Two kinds of DATA, SHUTDOWN and SACK come nevertheless:
 * - The responder may send before its ACCEPT has arrived. It has received nothing but the REQ, so
 *   its ACK PSN is the ISN of this end. The datagram is ignored, and is repeated later.
 * - The peer may have an earlier connection of the 4-tuple, which this host has forgotten, for
 *   example at a restart. The peer probes whether that connection still exists. The answer is the
 *   RESET that a port without a connection sends. It ends the earlier connection, so the next REQ
 *   is admitted.
 */
static void no_answer(struct usiw_cm_verdict *v, struct usiw_cm_conn *c, const void *data,
		      __u32 len, int malformed, void *buf)
{
	int is_data = usiw_cm_look(data, len) == USIW_CM_LOOK_DATA;

	if (is_data && v->pkt.ack_psn == c->local_isn)
		return;
	if (malformed == -EPROTONOSUPPORT)
		usiw_cm_other_version(c, v->pkt.version);
	else
		usiw_cm_alien(c, data, len);
	if (is_data)
		answer(v, usiw_cm_build_stray_reset(data, len, buf));
}

/*
 * Handles a datagram of the connection @c. Ignores a malformed one, except in REQ_SENT: see
 * no_answer().
 */
static void input_known(struct usiw_cm_verdict *v, struct usiw_cm_conn *c, const void *data,
			__u32 len, int malformed, __u64 now_us, void *buf)
{
	v->kind = USIW_CM_V_CONN;
	if (c->state == USIW_CM_REQ_SENT && !answers(c, &v->pkt, malformed)) {
		no_answer(v, c, data, len, malformed, buf);
		return;
	}
	if (usiw_cm_look(data, len) == USIW_CM_LOOK_DATA) {
		if (usiw_cm_confirms(c, data))
			v->actions = usiw_cm_data_seen(c);
		return;
	}
	if (malformed)
		return;
	if (usiw_cm_needs_pending(c, &v->pkt)) {
		answer(v, usiw_cm_build_pending(&v->pkt, usiw_cm_asked_isn(c), buf));
		return;
	}
	v->actions = usiw_cm_receive(c, &v->pkt, now_us);
	/* The connection was in LINGER or gave way, so the REQ asks for a new connection. */
	if (c->state == USIW_CM_DEAD && v->pkt.opcode == USIW_TRP_REQ)
		v->kind = USIW_CM_V_ADMIT;
}

void usiw_cm_input(struct usiw_cm_verdict *v, struct usiw_cm_conn *c, const void *data, __u32 len,
		   __u64 now_us, void *buf)
{
	int malformed = usiw_cm_decode(&v->pkt, data, len);

	v->actions = 0;
	v->len = 0;
	if (malformed == -EPROTONOSUPPORT && v->pkt.opcode == USIW_TRP_REQ)
		answer(v, usiw_cm_build_refusal(&v->pkt, USIW_REJECT_VERSION, buf));
	else if (c)
		input_known(v, c, data, len, malformed, now_us, buf);
	else if (!malformed && v->pkt.opcode == USIW_TRP_REQ)
		v->kind = USIW_CM_V_ADMIT;
	else if (!malformed && v->pkt.opcode == USIW_TRP_RESET && !v->pkt.flags)
		v->kind = USIW_CM_V_WITHDRAW;
	else
		answer(v, usiw_cm_build_stray_reset(data, len, buf));
}
