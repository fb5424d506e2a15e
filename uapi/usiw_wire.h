/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Wire format of usiw: the thin reliability protocol (TRP) over UDP, its handshake, and the headers of
 * DDP (RFC 5041) and RDMAP (RFC 5040). There is no MPA: one DATA datagram carries one DDP segment.
 *
 * This file compiles in the kernel, in C and in C++. All fields are big-endian on the wire.
 * docs/protocol.md describes every byte.
 */
#ifndef USIW_WIRE_H
#define USIW_WIRE_H

#include <linux/types.h>

#include "usiw_assert.h"

#ifndef __packed
#define __packed __attribute__((packed))
#endif

#define USIW_WIRE_VERSION	1

/* ---- TRP header ------------------------------------------------------- */

/**
 * struct usiw_trp_hdr - first bytes of every UDP payload
 * @psn:	DATA, SHUTDOWN: PSN of this datagram. SACK: one more than the highest PSN received; without
 *		a gap this equals @ack_psn. In the handshake and in RESET it is the ISN of the sender of this
 *		datagram, or 0 in a REJECT of an end without one. A RESET with STRAY has other numbers in
 *		both fields: see USIW_TRP_F_STRAY
 * @ack_psn:	next PSN expected from the peer: all before it have been accepted. In the handshake and in
 *		RESET it is the ISN of the peer, or 0 in a REQ whose sender has not received that ISN by a PENDING
 * @opflags:	opcode in bits 15..12, flags in bits 11..0
 * @credit:	DATA, SHUTDOWN, SACK: receive window, which is the number of datagrams that the
 *		sender of this header accepts, counted from @ack_psn. Otherwise 0
 * @echo:	DATA, SHUTDOWN: time stamp of the sender in microseconds, modulo 2^16. SACK: time stamp of a
 *		datagram received, the latest one as a rule. Otherwise 0
 *
 * The header has 14 bytes, so that DDP starts 8-byte aligned after Ethernet (14), IPv4 (20) and UDP (8).
 */
struct usiw_trp_hdr {
	__be32	psn;
	__be32	ack_psn;
	__be16	opflags;
	__be16	credit;
	__be16	echo;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_trp_hdr) == 14, "TRP header is 14 bytes");

enum usiw_trp_opcode {
	USIW_TRP_DATA		= 0,	/* one DDP segment; consumes a PSN */
	USIW_TRP_REQ		= 1,	/* handshake: kernel to kernel */
	USIW_TRP_ACCEPT		= 2,	/* handshake */
	USIW_TRP_REJECT		= 3,	/* handshake */
	USIW_TRP_SHUTDOWN	= 4,	/* end of stream, in sequence; consumes a PSN */
	USIW_TRP_SACK		= 5,	/* acknowledgement */
	USIW_TRP_CONFIRM	= 6,	/* handshake */
	USIW_TRP_RESET		= 7,	/* the connection is gone */
};

#define USIW_TRP_OPCODE_SHIFT	12
#define USIW_TRP_FLAGS_MASK	0x0fff

/* Opcodes that the kernel handles. The engine does not answer them. */
#define USIW_TRP_KERNEL_OPCODES	((1u << USIW_TRP_REQ) | (1u << USIW_TRP_ACCEPT) | \
				 (1u << USIW_TRP_REJECT) | (1u << USIW_TRP_CONFIRM))

/* DATA, SHUTDOWN, SACK: acknowledge at once. A SACK with this flag is a keepalive probe. */
#define USIW_TRP_F_ACK_REQ	0x001
/* SACK: the datagram at ack_psn needs a receive work request that is not posted yet. */
#define USIW_TRP_F_NOT_READY	0x002
/*
 * DATA, SHUTDOWN: a retransmission. It gives no RTT sample (Karn's algorithm). SACK with ACK_REQ: a
 * repeated probe.
 */
#define USIW_TRP_F_RETRANS	0x004
/* ACCEPT: no payload. The REQ has arrived, and the application has not decided yet. */
#define USIW_TRP_F_PENDING	0x008
/*
 * RESET: sent without connection state in answer to a stray DATA, SHUTDOWN or SACK. psn and ack_psn
 * are the ack_psn and psn of that datagram. The engine verifies them by its windows. A RESET
 * without this flag carries both ISNs, and the kernel verifies them: these are 64 bits that an
 * off-path attacker does not know.
 */
#define USIW_TRP_F_STRAY	0x010
/* DATA, SHUTDOWN, SACK: the sender sees ECN CE on the datagrams that it receives, and reports it by CE_COUNT. */
#define USIW_TRP_F_TELLS_CE	0x020
/*
 * With TELLS_CE: number of headers that have reported CE, modulo 8. The first header after one or more
 * DATA or SHUTDOWN with CE adds one.
 */
#define USIW_TRP_F_CE_COUNT	0x1c0
#define USIW_TRP_CE_SHIFT	6
/*
 * DATA, SHUTDOWN, SACK: until it sends a header without this flag, the sender receives by its UDP
 * socket, and accepts GSO/GRO aggregates there. An end sets the flag only if both ends have agreed
 * on USIW_FEATURE_MERGES.
 */
#define USIW_TRP_F_MERGED	0x200
/*
 * DATA that begins a message of queue 0. If no receive is posted for the message, the receiver counts the
 * datagram as arrived all the same, and answers SKIPPED. Responses to READs and atomics can then pass the
 * message.
 */
#define USIW_TRP_F_SKIP		0x400
/*
 * DATA, SHUTDOWN, SACK: the sender of this header has skipped a message, which has not arrived again
 * yet. Until the message arrives, its receiver discards requests. Requests that arrive in order
 * count as arrived, and the peer sends them again after the message.
 */
#define USIW_TRP_F_SKIPPED	0x800

/*
 * The payload of a SACK is a bitmap of the PSNs from ack_psn on, of (psn - ack_psn + 7) / 8 bytes. Bit i
 * is (1 << i % 8) of byte i / 8. It is set if PSN ack_psn + i has arrived. So bit 0 is 0, the last bit
 * is 1, and the bits after it are 0. A bitmap has 128 bytes at most, so it fits into one datagram. A
 * list of ranges with a limited length would leave out some under heavy loss, and the sender would
 * retransmit what has arrived.
 */
#define USIW_TRP_MAX_WINDOW	1024	/* datagrams: largest distance of a PSN from ack_psn */
#define USIW_TRP_FIRST_WINDOW	8	/* datagrams: until the receiver knows the size of its port's queue */
#define USIW_SACK_MAX_PAYLOAD	(USIW_TRP_MAX_WINDOW / 8)

/*
 * A PSN is acknowledged only after its DDP segment has been accepted, which means placed or parked. A
 * segment at fault (unknown STag, out of bounds ...) is not accepted. Once all segments before it have
 * been accepted, the receiver refuses it by a Terminate, whose ack_psn is the PSN at fault. The requester
 * finds the failed work request by that PSN. A READ request may fail after it was accepted. Then the
 * requester finds the work request by the headers in the Terminate.
 */

/* ---- Handshake -------------------------------------------------------- */

#define USIW_MAX_PRIVATE_DATA	512	/* bytes, iWARP's limit (RFC 5044 section 7.1) */
#define USIW_MAX_MTU		9216	/* largest IP packet that usiw builds, bytes */
#define USIW_MIN_MTU		576	/* smallest MTU that a connection accepts, bytes */
#define USIW_MAX_IRD		128	/* READs and atomics that an end serves at a time */
#define USIW_MAX_ORD		128	/* READs and atomics that an end has outstanding at a time */

/* Feature bits. REQ: features that the initiator offers. ACCEPT: features that both ends use. */
#define USIW_FEATURES_KNOWN	0x00000000u	/* features that every end has: none */
/*
 * This end receives only by a UDP socket, for the life of the connection. So the peer may send GSO
 * aggregates: if the kernel delivers an aggregate as a single frame, the socket still gets single
 * datagrams. A raw port would get the whole frame.
 */
#define USIW_FEATURE_MERGED	0x00000001u
/*
 * This end accepts aggregates at times: the peer may send aggregates while this end sets USIW_TRP_F_MERGED
 * in its headers. The connection uses this in bulk mode.
 */
#define USIW_FEATURE_MERGES	0x00000002u

/*
 * REQ only: a QP asks for the connection, not an id of rdma_cm. The private data are a struct usiw_face_ask
 * (docs/face.md). An end that does not know the bit refuses it, and so does a listener of rdma_cm.
 */
#define USIW_FEATURE_FACE	0x00010000u

/**
 * struct usiw_face_ask - private data of a REQ with USIW_FEATURE_FACE
 * @src_qpn:	number of the QP that asks. Its low 16 bits are the UDP port that the REQ comes from
 * @dst_qpn:	number of the QP that is asked. Its low 16 bits are the UDP port that the REQ goes to
 * @rq_psn:	PSN that the program of the asking QP expects, 24 bits
 * @sq_psn:	PSN by which the asking QP begins to send, 24 bits; USIW_FACE_NO_PSN: the program has not given it yet
 */
struct usiw_face_ask {
	__be32	src_qpn;
	__be32	dst_qpn;
	__be32	rq_psn;
	__be32	sq_psn;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_face_ask) == 16, "REQ of a QP");

#define USIW_FACE_NO_PSN	0xffffffffu

/**
 * struct usiw_cm_params - payload of REQ and ACCEPT, followed by private data
 * @version:	USIW_WIRE_VERSION. A REQ of another version is answered by REJECT
 * @reserved:	0 when sent, ignored when received
 * @pd_len:	bytes of private data after this header, 0..512
 * @features:	feature bits. A REQ with an unknown bit among the upper 16 is refused. An unknown bit among
 *		the lower 16 is masked in the ACCEPT
 * @ird:	READs and atomics that the sender of this header serves at a time
 * @ord:	READs and atomics that the sender of this header wants to have outstanding at a time. In an
 *		ACCEPT both are final for the initiator too: its ORD <= @ird, its IRD >= @ord
 * @mtu:	largest IP packet that the sender of this header can receive, bytes. The connection uses
 *		the smaller one of both ends
 * @window:	initial receive window (credit), datagrams
 */
struct usiw_cm_params {
	__u8	version;
	__u8	reserved;
	__be16	pd_len;
	__be32	features;
	__be16	ird;
	__be16	ord;
	__be16	mtu;
	__be16	window;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_cm_params) == 16, "handshake parameters");

enum usiw_reject_reason {
	USIW_REJECT_USER	= 0,	/* by rdma_reject(), with private data of the user */
	USIW_REJECT_NO_LISTENER	= 1,
	USIW_REJECT_VERSION	= 2,
	USIW_REJECT_FEATURES	= 3,
	USIW_REJECT_MALFORMED	= 4,
	USIW_REJECT_NO_RESOURCE	= 5,	/* the request ended before the user answered it */
	USIW_REJECT_MTU		= 6,
};

/* Payload of REJECT, followed by private data. */
struct usiw_cm_reject_hdr {
	__u8	version;
	__u8	reason;			/* enum usiw_reject_reason */
	__be16	pd_len;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_cm_reject_hdr) == 4, "reject header");

/* Largest handshake datagram (UDP payload), bytes. */
#define USIW_CM_MAX_DATAGRAM	(14 + 16 + USIW_MAX_PRIVATE_DATA)

/* ---- DDP (RFC 5041 section 4) and RDMAP (RFC 5040 section 4) ----------- */

/* DDP control byte: T L rsvd(4) DV(2) */
#define USIW_DDP_F_TAGGED	0x80
#define USIW_DDP_F_LAST		0x40
#define USIW_DDP_RSVD_MASK	0x3c
#define USIW_DDP_VERSION_MASK	0x03
#define USIW_DDP_VERSION	1

/* RDMAP control byte: RV(2) rsvd(2) opcode(4) */
#define USIW_RDMAP_VERSION	1
#define USIW_RDMAP_VERSION_SHIFT 6
#define USIW_RDMAP_OPCODE_MASK	0x0f

enum usiw_rdmap_opcode {
	USIW_RDMAP_WRITE	= 0,	/* tagged */
	USIW_RDMAP_READ_REQ	= 1,	/* untagged, queue 1 */
	USIW_RDMAP_READ_RESP	= 2,	/* tagged */
	USIW_RDMAP_SEND		= 3,	/* untagged, queue 0 */
	USIW_RDMAP_SEND_INV	= 4,
	USIW_RDMAP_SEND_SE	= 5,
	USIW_RDMAP_SEND_SE_INV	= 6,
	USIW_RDMAP_TERMINATE	= 7,	/* untagged, queue 2 */
	/* RFC 7306 */
	USIW_RDMAP_IMM		= 8,	/* untagged, queue 0, after the WRITE that it belongs to */
	USIW_RDMAP_IMM_SE	= 9,
	USIW_RDMAP_ATOMIC_REQ	= 10,	/* untagged, queue 1 */
	USIW_RDMAP_ATOMIC_RESP	= 11,	/* untagged, queue 3 */
	/*
	 * RFC 7306 leaves 12 and 13 free. usiw uses them for a SEND whose header has immediate data
	 * in place of the STag to invalidate.
	 */
	USIW_RDMAP_SEND_IMM	= 12,
	USIW_RDMAP_SEND_SE_IMM	= 13,
};

enum usiw_ddp_queue {
	USIW_DDP_QN_SEND	= 0,
	USIW_DDP_QN_READ_REQ	= 1,
	USIW_DDP_QN_TERMINATE	= 2,
	USIW_DDP_QN_ATOMIC_RESP	= 3,
};

/* Tagged DDP segment header (RFC 5041 section 4.2 with the RDMAP control byte). */
struct usiw_ddp_tagged {
	__u8	ddp_ctrl;
	__u8	rdmap_ctrl;
	__be32	stag;
	__be64	to;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_ddp_tagged) == 14, "tagged header");

/* Untagged DDP segment header (RFC 5041 section 4.3). */
struct usiw_ddp_untagged {
	__u8	ddp_ctrl;
	__u8	rdmap_ctrl;
	__be32	inv_stag;		/* SEND with Invalidate: STag; SEND with immediate: data; else reserved */
	__be32	qn;
	__be32	msn;
	__be32	mo;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_ddp_untagged) == 18, "untagged header");

/* Payload of an RDMA Read Request (RFC 5040 section 4.4). */
struct usiw_read_req {
	__be32	sink_stag;
	__be64	sink_to;
	__be32	size;
	__be32	src_stag;
	__be64	src_to;
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_read_req) == 28, "read request");

/* Payload of Immediate Data (RFC 7306 section 6). The RFC leaves its eight bytes to the user. */
struct usiw_immediate {
	__be32	data;			/* imm_data of the work request */
	__be32	length;			/* bytes of the WRITE */
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_immediate) == 8, "immediate data");

enum usiw_atomic_opcode {
	USIW_ATOMIC_FETCH_ADD	= 0,
	USIW_ATOMIC_CMP_SWAP	= 2,
};

/* Payload of an Atomic Request (RFC 7306 section 5.2.1). */
struct usiw_atomic_req {
	__be32	opcode;			/* reserved(28) opcode(4) */
	__be32	id;
	__be32	stag;
	__be64	to;
	__be64	add_swap;
	__be64	add_swap_mask;		/* FetchAdd: 0 (one sum of 64 bits); CmpSwap: ~0 */
	__be64	compare;
	__be64	compare_mask;		/* FetchAdd: 0; CmpSwap: ~0 */
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_atomic_req) == 52, "atomic request");

/* Payload of an Atomic Response (RFC 7306 section 5.2.2). */
struct usiw_atomic_resp {
	__be32	id;			/* the same as in the request */
	__be64	value;			/* value in memory before the operation */
} __packed;

USIW_STATIC_ASSERT(sizeof(struct usiw_atomic_resp) == 12, "atomic response");

/*
 * Payload of Terminate (RFC 5040 section 4.8). After the control word come the DDP segment length
 * (2 bytes), the DDP header and the RDMAP header of the segment at fault, each if its bit among
 * M, D and R is set.
 */
struct usiw_terminate {
	__be32	ctrl;	/* layer(4) etype(4) ecode(8) M D R (3) reserved(13) */
} __packed;

#define USIW_TERM_LAYER_SHIFT	28
#define USIW_TERM_ETYPE_SHIFT	24
#define USIW_TERM_ECODE_SHIFT	16
#define USIW_TERM_F_M		0x8000u	/* DDP segment length is valid */
#define USIW_TERM_F_D		0x4000u	/* DDP header included */
#define USIW_TERM_F_R		0x2000u	/* RDMAP header included */

#endif /* USIW_WIRE_H */
