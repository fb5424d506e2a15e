// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Decodes and builds handshake datagrams. docs/protocol.md has their format. Bytes are read and
 * written one by one, so neither alignment nor the byte order of the processor matters.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <stddef.h>
#include <string.h>
#endif

#include "usiw_cm.h"
#include "usiw_cm_bytes.h"

#define TRP_LEN		((__u32)sizeof(struct usiw_trp_hdr))
#define PARAMS_LEN	((__u32)sizeof(struct usiw_cm_params))
#define REJECT_LEN	((__u32)sizeof(struct usiw_cm_reject_hdr))

#define TRP(field)	offsetof(struct usiw_trp_hdr, field)
#define PARAMS(field)	(TRP_LEN + offsetof(struct usiw_cm_params, field))
#define REJECT(field)	(TRP_LEN + offsetof(struct usiw_cm_reject_hdr, field))

/* ---- Decode ------------------------------------------------------------ */

/*
 * Sets the private data of @pkt, which begins at offset @at. Returns -EINVAL if the private data is
 * too long, or does not end with the datagram.
 */
static int take_private_data(struct usiw_cm_packet *pkt, const __u8 *p, __u32 len, __u32 at,
			     __u16 pd_len)
{
	if (pd_len > USIW_MAX_PRIVATE_DATA || len != at + pd_len)
		return -EINVAL;
	pkt->pd_len = pd_len;
	pkt->pd = pd_len ? p + at : NULL;
	return 0;
}

static int decode_params(struct usiw_cm_packet *pkt, const __u8 *p, __u32 len)
{
	if (len < TRP_LEN + 1)
		return -EINVAL;
	pkt->version = p[PARAMS(version)];
	if (pkt->version != USIW_WIRE_VERSION)
		return -EPROTONOSUPPORT;
	if (len < TRP_LEN + PARAMS_LEN)
		return -EINVAL;
	pkt->features = usiw_get32(p + PARAMS(features));
	pkt->ird = usiw_get16(p + PARAMS(ird));
	pkt->ord = usiw_get16(p + PARAMS(ord));
	pkt->mtu = usiw_get16(p + PARAMS(mtu));
	pkt->window = usiw_get16(p + PARAMS(window));
	if (!pkt->window)
		return -EINVAL;
	return take_private_data(pkt, p, len, TRP_LEN + PARAMS_LEN, usiw_get16(p + PARAMS(pd_len)));
}

static int decode_reject(struct usiw_cm_packet *pkt, const __u8 *p, __u32 len)
{
	if (len < TRP_LEN + REJECT_LEN)
		return -EINVAL;
	pkt->version = p[REJECT(version)];
	pkt->reason = p[REJECT(reason)];
	if (pkt->version != USIW_WIRE_VERSION)
		return 0;
	return take_private_data(pkt, p, len, TRP_LEN + REJECT_LEN, usiw_get16(p + REJECT(pd_len)));
}

int usiw_cm_decode(struct usiw_cm_packet *pkt, const void *data, __u32 len)
{
	const __u8 *p = data;
	__u16 opflags, allowed = 0;

	memset(pkt, 0, sizeof(*pkt));
	if (len < TRP_LEN)
		return -EINVAL;
	pkt->psn = usiw_get32(p + TRP(psn));
	pkt->ack_psn = usiw_get32(p + TRP(ack_psn));
	opflags = usiw_get16(p + TRP(opflags));
	pkt->opcode = (__u8)(opflags >> USIW_TRP_OPCODE_SHIFT);
	pkt->flags = opflags & USIW_TRP_FLAGS_MASK;

	if (pkt->opcode == USIW_TRP_ACCEPT)
		allowed = USIW_TRP_F_PENDING;
	else if (pkt->opcode == USIW_TRP_RESET)
		allowed = USIW_TRP_F_STRAY;
	if (pkt->flags & ~allowed)
		return -EINVAL;

	switch (pkt->opcode) {
	case USIW_TRP_ACCEPT:
		if (pkt->flags & USIW_TRP_F_PENDING)
			return len == TRP_LEN ? 0 : -EINVAL;
		return decode_params(pkt, p, len);
	case USIW_TRP_REQ:
		return decode_params(pkt, p, len);
	case USIW_TRP_REJECT:
		return decode_reject(pkt, p, len);
	case USIW_TRP_CONFIRM:
	case USIW_TRP_RESET:
		return len == TRP_LEN ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

/* ---- Build ------------------------------------------------------------- */

static __u32 put_header(__u8 *p, __u32 psn, __u32 ack_psn, __u8 opcode, __u16 flags)
{
	memset(p, 0, TRP_LEN);
	usiw_put32(p + TRP(psn), psn);
	usiw_put32(p + TRP(ack_psn), ack_psn);
	usiw_put16(p + TRP(opflags), (__u16)(opcode << USIW_TRP_OPCODE_SHIFT | flags));
	return TRP_LEN;
}

static __u32 put_params(const struct usiw_cm_conn *c, __u8 *p)
{
	p[PARAMS(version)] = USIW_WIRE_VERSION;
	p[PARAMS(reserved)] = 0;
	usiw_put16(p + PARAMS(pd_len), c->pd_len);
	usiw_put32(p + PARAMS(features), c->features);
	usiw_put16(p + PARAMS(ird), c->ird);
	usiw_put16(p + PARAMS(ord), c->ord);
	usiw_put16(p + PARAMS(mtu), c->mtu);
	usiw_put16(p + PARAMS(window), c->window);
	memcpy(p + TRP_LEN + PARAMS_LEN, c->pd, c->pd_len);
	return TRP_LEN + PARAMS_LEN + c->pd_len;
}

static __u32 put_reject(__u8 *p, __u8 reason, const __u8 *pd, __u16 pd_len)
{
	p[REJECT(version)] = USIW_WIRE_VERSION;
	p[REJECT(reason)] = reason;
	usiw_put16(p + REJECT(pd_len), pd_len);
	if (pd_len)
		memcpy(p + TRP_LEN + REJECT_LEN, pd, pd_len);
	return TRP_LEN + REJECT_LEN + pd_len;
}

__u32 usiw_cm_build(const struct usiw_cm_conn *c, void *buf)
{
	__u8 *p = buf;
	/*
	 * A REQ that follows a PENDING has the PSN of the PENDING as its ACK PSN, so the REQ is
	 * proven (see usiw_cm_admission.h).
	 */
	__u32 len = put_header(p, c->local_isn, c->peer_known ? c->peer_isn : 0, c->tx_opcode,
			       c->tx_flags);

	switch (c->tx_opcode) {
	case USIW_TRP_REQ:
		return put_params(c, p);
	case USIW_TRP_ACCEPT:
		return c->tx_flags & USIW_TRP_F_PENDING ? len : put_params(c, p);
	case USIW_TRP_REJECT:
		return put_reject(p, c->reject_reason, c->pd, c->pd_len);
	default:
		return len;
	}
}

__u32 usiw_cm_build_pending(const struct usiw_cm_packet *req, __u32 isn, void *buf)
{
	return put_header(buf, isn, req->psn, USIW_TRP_ACCEPT, USIW_TRP_F_PENDING);
}

__u32 usiw_cm_build_refusal(const struct usiw_cm_packet *req, __u8 reason, void *buf)
{
	put_header(buf, 0, req->psn, USIW_TRP_REJECT, 0);
	return put_reject(buf, reason, NULL, 0);
}

__u32 usiw_cm_build_stray_reset(const void *data, __u32 len, void *buf)
{
	const __u8 *p = data;
	__u16 flags;

	if (len < TRP_LEN)
		return 0;
	switch (usiw_get16(p + TRP(opflags)) >> USIW_TRP_OPCODE_SHIFT) {
	case USIW_TRP_DATA:
	case USIW_TRP_SHUTDOWN:
	case USIW_TRP_SACK:
		flags = USIW_TRP_F_STRAY;
		break;
	case USIW_TRP_ACCEPT:
	case USIW_TRP_CONFIRM:
		flags = 0;
		break;
	default:
		return 0;
	}
	return put_header(buf, usiw_get32(p + TRP(ack_psn)), usiw_get32(p + TRP(psn)),
			  USIW_TRP_RESET, flags);
}
