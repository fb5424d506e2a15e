/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The RoCE face: QPs that connect by GID and QP number, without rdma_cm (docs/face.md).
 *
 * A program moves such a QP through the states of InfiniBand, and names its peer when it moves the
 * QP to RTR. Both QPs then derive the same 4-tuple, and one of them asks the other for the
 * connection. This code decides which of the two asks, which REQ fits a QP, and when the connection
 * is due. A host supplies a UDP port for each QP, and makes the connections, which are silent
 * (usiw_cm_set_silent()).
 *
 * Anybody can send a REQ from a false address, so only proven REQs count: those that bring back the
 * ISN of a PENDING. A REQ may arrive before the program has moved its QP to RTR. Then the QP keeps
 * the newest one, and asks its sender at RTR whether it still asks (usiw_face_challenge()). A proof
 * is valid for one attempt to connect, so a REQ of before RESET means nothing afterwards.
 *
 * Like the rest of cm/, this code has no I/O, allocation, clock or lock. The host serialises the
 * calls on one QP.
 */
#ifndef USIW_FACE_H
#define USIW_FACE_H

#include "usiw_cm_end.h"

#ifdef __cplusplus
extern "C" {
#endif

/* QP numbers and PSNs have 24 bits. As on adapters, higher bits that a program gives are ignored. */
#define USIW_FACE_QPN_MASK	0xffffffu
#define USIW_FACE_PSN_MASK	0xffffffu

/* ---- Numbers ------------------------------------------------------------ */

/*
 * The upper 8 bits of a QP number are random, from FIRST to LAST. CM stands for the peer of a QP that
 * rdma_cm connects, whose true number is not known.
 */
#define USIW_FACE_TAG_FIRST	1u
#define USIW_FACE_TAG_LAST	254u
#define USIW_FACE_TAG_CM	255u

/* Returns the number of a QP. @port: its UDP port. @random: any number. */
static inline __u32 usiw_face_qpn(__u16 port, __u32 random)
{
	return (USIW_FACE_TAG_FIRST + random % USIW_FACE_TAG_LAST) << 16 | port;
}

/* Returns the UDP port of a QP number. */
static inline __u16 usiw_face_port(__u32 qpn)
{
	return (__u16)qpn;
}

/*
 * Returns the IP MTU of a connection. @path_mtu: as the program has set it, enum ib_mtu. @active: the
 * active MTU of the port, enum ib_mtu. @route_mtu: IP MTU of the route. No enum ib_mtu names an
 * Ethernet MTU, so the active MTU means as much as the route permits. A lower one bounds the data of
 * a datagram.
 */
static inline __u16 usiw_face_mtu(__u8 path_mtu, __u8 active, __u32 route_mtu, int ipv4)
{
	__u32 headers = (ipv4 ? 20 : 40) + 8 + sizeof(struct usiw_trp_hdr) +
			sizeof(struct usiw_ddp_untagged);
	__u32 bounded = (128u << path_mtu) + headers;

	if (path_mtu >= active || bounded > route_mtu)
		bounded = route_mtu;
	return (__u16)(bounded < USIW_MIN_MTU ? USIW_MIN_MTU : bounded);
}

/* True if a QP number stands for the peer of a QP that rdma_cm connects. */
static inline int usiw_face_is_of_cm(__u32 qpn)
{
	return (qpn & USIW_FACE_QPN_MASK) >> 16 == USIW_FACE_TAG_CM;
}

/* ---- A QP --------------------------------------------------------------- */

/* The peer of a QP, as the program has named it. */
struct usiw_face_peer {
	struct usiw_cm_tuple tuple;	/* the ports are those of both QP numbers */
	__u32 qpn;			/* 0: there is no peer */
	__u32 rq_psn;
	__u32 sq_psn;			/* USIW_FACE_NO_PSN until RTS */
};

/* A proven REQ that a QP keeps. */
struct usiw_face_req {
	struct usiw_cm_tuple tuple;
	struct usiw_cm_packet pkt;	/* without private data; psn is the ISN of the peer */
	__u32 isn;			/* ISN of this end */
	__u32 src_qpn;
	__u32 rq_psn;
	__u32 sq_psn;
	__u32 attempt;			/* the attempt that it has proved, as in struct usiw_face */
	__u8 kept;			/* false: none is kept */
};

struct usiw_face {
	__u32 qpn;
	__u32 attempt;		/* changes when a proof of before is no longer valid */
	struct usiw_face_peer peer;
	struct usiw_face_req req;
};

/* The part of a QP in the handshake: one end sends REQ. */
enum usiw_face_part {
	USIW_FACE_ASKS,
	USIW_FACE_ANSWERS,
	USIW_FACE_ITSELF,	/* the QP is its own peer: there is no handshake */
};

/* @random: any number, so that a proof for an earlier QP of this number is not valid for this one. */
void usiw_face_init(struct usiw_face *face, __u32 qpn, __u32 random);

/*
 * Sets the peer, because the program moves the QP to RTR. @local, @remote: addresses as in
 * usiw_cm_tuple. The QP numbers and the PSN are as the program gives them.
 */
void usiw_face_set_peer(struct usiw_face *face, const __u8 local[16], const __u8 remote[16],
			__u32 scope, __u32 peer_qpn, __u32 rq_psn);
/* Sets the PSN that the program gives when it moves the QP to RTS. */
void usiw_face_set_sq_psn(struct usiw_face *face, __u32 sq_psn);
/* Forgets the peer, because the QP leaves RTR, RTS or SQD. A REQ that is kept stays. */
void usiw_face_forget_peer(struct usiw_face *face);

/* Returns the role of a QP that has a peer. */
enum usiw_face_part usiw_face_role(const struct usiw_face *face);

/* Writes the private data of this QP's REQ to @ask. */
void usiw_face_build_ask(const struct usiw_face *face, struct usiw_face_ask *ask);

/*
 * Builds the PENDING that asks the sender of the kept REQ whether it still asks: the REQ may be of an
 * attempt that its sender has given up since. Returns the length, or 0 if no REQ of the peer is
 * kept. The host
 * sends it to face->req.tuple.remote, after usiw_face_set_peer() in the part ANSWERS.
 */
__u32 usiw_face_challenge(struct usiw_face *face, const __u64 key[2], __u64 now_us, void *buf);

/*
 * Returns the REQ that the QP accepts now, and keeps it no longer. Returns NULL if there is none. It
 * is valid until the next call of usiw_face_input(), which asks for this call. If the QP
 * has a connection then, its peer has not confirmed it and has begun anew: the host first calls
 * usiw_cm_end_yield() for it.
 */
const struct usiw_face_req *usiw_face_take(struct usiw_face *face);

/* ---- The network -------------------------------------------------------- */

enum usiw_face_verdict_kind {
	USIW_FACE_V_DONE,	/* nothing more is to be done */
	USIW_FACE_V_ANSWER,	/* send the first @len bytes of the buffer to the sender */
	USIW_FACE_V_TAKE,	/* call usiw_face_take() */
	USIW_FACE_V_DROP,	/* count it as ignored */
};

struct usiw_face_verdict {
	__u32 kind;		/* enum usiw_face_verdict_kind */
	__u32 len;
};

/*
 * Handles a datagram that has arrived at the port of a QP. @end: the connection of its 4-tuple, or
 * NULL. @key: as for usiw_cm_cookie(). @buf: at least USIW_CM_MAX_DATAGRAM bytes, for an answer,
 * which is not longer than the datagram, except a REJECT of another wire version.
 */
void usiw_face_input(struct usiw_face_verdict *v, struct usiw_face *face, struct usiw_cm_end *end,
		     const struct usiw_cm_tuple *tuple, const __u64 key[2], const void *data,
		     __u32 len, __u64 now_us, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_FACE_H */
