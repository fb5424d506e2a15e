// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Decides which QPs of the RoCE face connect; see usiw_face.h. */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/stddef.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <stddef.h>
#include <string.h>
#endif

#include "usiw_cm_bytes.h"
#include "usiw_cm_cookie.h"
#include "usiw_face.h"

#define AT(field)	offsetof(struct usiw_face_ask, field)

/* Stores a port in network byte order. */
static __be16 be_port(__u32 qpn)
{
	__u8 bytes[2];
	__be16 port;

	usiw_put16(bytes, usiw_face_port(qpn));
	memcpy(&port, bytes, sizeof(port));
	return port;
}

void usiw_face_init(struct usiw_face *face, __u32 qpn, __u32 random)
{
	memset(face, 0, sizeof(*face));
	face->qpn = qpn;
	face->attempt = random;
}

void usiw_face_set_peer(struct usiw_face *face, const __u8 local[16], const __u8 remote[16],
			__u32 scope, __u32 peer_qpn, __u32 rq_psn)
{
	struct usiw_face_peer *peer = &face->peer;

	face->attempt++;
	memset(peer, 0, sizeof(*peer));
	memcpy(peer->tuple.local, local, 16);
	memcpy(peer->tuple.remote, remote, 16);
	peer->tuple.local_port = be_port(face->qpn);
	peer->tuple.remote_port = be_port(peer_qpn);
	peer->tuple.scope = scope;
	peer->qpn = peer_qpn & USIW_FACE_QPN_MASK;
	peer->rq_psn = rq_psn & USIW_FACE_PSN_MASK;
	peer->sq_psn = USIW_FACE_NO_PSN;
}

void usiw_face_set_sq_psn(struct usiw_face *face, __u32 sq_psn)
{
	face->peer.sq_psn = sq_psn & USIW_FACE_PSN_MASK;
}

void usiw_face_forget_peer(struct usiw_face *face)
{
	face->peer.qpn = 0;
	face->attempt++;
}

enum usiw_face_part usiw_face_role(const struct usiw_face *face)
{
	const struct usiw_face_peer *peer = &face->peer;
	int order = memcmp(peer->tuple.local, peer->tuple.remote, 16);

	if (!order && face->qpn == peer->qpn)
		return USIW_FACE_ITSELF;
	if (!order)
		order = face->qpn < peer->qpn ? -1 : 1;
	return order < 0 ? USIW_FACE_ASKS : USIW_FACE_ANSWERS;
}

/* ---- The private data of a REQ ---------------------------------------------------- */

void usiw_face_build_ask(const struct usiw_face *face, struct usiw_face_ask *ask)
{
	__u8 *p = (__u8 *)ask;

	usiw_put32(p + AT(src_qpn), face->qpn);
	usiw_put32(p + AT(dst_qpn), face->peer.qpn);
	usiw_put32(p + AT(rq_psn), face->peer.rq_psn);
	usiw_put32(p + AT(sq_psn), face->peer.sq_psn);
}

static int psn_fits(__u32 a, __u32 b)
{
	return a == b || a == USIW_FACE_NO_PSN || b == USIW_FACE_NO_PSN;
}

/* True if the kept REQ is that of the peer. */
static int fits(const struct usiw_face *face)
{
	const struct usiw_face_peer *peer = &face->peer;
	const struct usiw_face_req *req = &face->req;

	return usiw_face_role(face) == USIW_FACE_ANSWERS && req->src_qpn == peer->qpn &&
	       !memcmp(&req->tuple, &peer->tuple, sizeof(peer->tuple)) &&
	       psn_fits(req->rq_psn, peer->sq_psn) && psn_fits(req->sq_psn, peer->rq_psn);
}

const struct usiw_face_req *usiw_face_take(struct usiw_face *face)
{
	if (!face->peer.qpn || !face->req.kept || face->req.attempt != face->attempt)
		return NULL;
	face->req.kept = 0;
	if (!fits(face))
		return NULL;
	face->attempt++;
	return &face->req;
}

/* As usiw_cm_cookie_isn(), with other ISNs in each attempt. */
static __u32 isn_of(const struct usiw_face *face, const __u64 key[2],
		    const struct usiw_cm_tuple *tuple, const struct usiw_cm_packet *pkt,
		    __u64 now_us, __u8 *proven)
{
	const __u64 mine[2] = { key[0] ^ face->attempt, key[1] ^ face->qpn };

	return usiw_cm_cookie_isn(mine, tuple, pkt->psn, pkt->ack_psn, now_us, proven);
}

__u32 usiw_face_challenge(struct usiw_face *face, const __u64 key[2], __u64 now_us, void *buf)
{
	const struct usiw_face_req *req = &face->req;
	__u8 proven;

	if (!face->peer.qpn || !req->kept || !fits(face))
		return 0;
	return usiw_cm_build_pending(&req->pkt,
				     isn_of(face, key, &req->tuple, &req->pkt, now_us, &proven),
				     buf);
}

/* True if @pkt asks for a QP, from the port that the asking QP number names. */
static int is_ask(const struct usiw_cm_packet *pkt, const struct usiw_cm_tuple *tuple)
{
	return (pkt->features & USIW_FEATURE_FACE) && pkt->pd_len == sizeof(struct usiw_face_ask) &&
	       be_port(usiw_get32(pkt->pd + AT(src_qpn))) == tuple->remote_port;
}

static void keep(struct usiw_face *face, const struct usiw_cm_tuple *tuple,
		 const struct usiw_cm_packet *pkt, __u32 isn)
{
	struct usiw_face_req *req = &face->req;

	req->tuple = *tuple;
	req->pkt = *pkt;
	req->pkt.features &= ~USIW_FEATURE_FACE;
	req->pkt.pd = NULL;
	req->pkt.pd_len = 0;
	req->isn = isn;
	req->src_qpn = usiw_get32(pkt->pd + AT(src_qpn));
	req->rq_psn = usiw_get32(pkt->pd + AT(rq_psn));
	req->sq_psn = usiw_get32(pkt->pd + AT(sq_psn));
	req->attempt = face->attempt;
	req->kept = 1;
}

/* ---- Datagrams ---------------------------------------------------------- */

static void answer(struct usiw_face_verdict *v, __u32 len)
{
	v->kind = USIW_FACE_V_ANSWER;
	v->len = len;
}

/*
 * Handles a REQ that belongs to no connection of the QP. @end: the connection of the QP with the
 * sender, or NULL. Unless it gives way, the REQ has to wait until the program resets the QP.
 */
static void request(struct usiw_face_verdict *v, struct usiw_face *face,
		    const struct usiw_cm_end *end, const struct usiw_cm_tuple *tuple,
		    const __u64 key[2], const struct usiw_cm_packet *pkt, __u64 now_us, void *buf)
{
	__u8 proven;
	__u32 isn;

	if (!is_ask(pkt, tuple) || usiw_get32(pkt->pd + AT(dst_qpn)) != face->qpn) {
		answer(v, usiw_cm_build_refusal(pkt, USIW_REJECT_NO_LISTENER, buf));
		return;
	}
	isn = isn_of(face, key, tuple, pkt, now_us, &proven);
	if (proven) {
		keep(face, tuple, pkt, isn);
		if ((!end || usiw_cm_may_yield(&end->cm)) && face->peer.qpn && fits(face)) {
			v->kind = USIW_FACE_V_TAKE;
			return;
		}
	}
	answer(v, usiw_cm_build_pending(pkt, isn, buf));
}

void usiw_face_input(struct usiw_face_verdict *v, struct usiw_face *face, struct usiw_cm_end *end,
		     const struct usiw_cm_tuple *tuple, const __u64 key[2], const void *data,
		     __u32 len, __u64 now_us, void *buf)
{
	struct usiw_cm_verdict of_conn;
	struct usiw_cm_packet pkt;
	int malformed = usiw_cm_decode(&pkt, data, len);
	int is_req = (!malformed || malformed == -EPROTONOSUPPORT) && pkt.opcode == USIW_TRP_REQ;

	v->kind = USIW_FACE_V_DONE;
	v->len = 0;
	if (is_req && malformed)
		answer(v, usiw_cm_build_refusal(&pkt, USIW_REJECT_VERSION, buf));
	else if (is_req && (!end || end->cm.initiator || end->cm.peer_isn != pkt.psn))
		request(v, face, end, tuple, key, &pkt, now_us, buf);
	else if (end)
		usiw_cm_end_input(end, &of_conn, data, len, buf, now_us);
	else
		v->kind = USIW_FACE_V_DROP;
}
