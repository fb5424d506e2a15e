/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Data of the state machine: its states, actions and times, a connection, a 4-tuple and a decoded
 * handshake datagram.
 *
 * The state machine consists of several files that call each other in one direction: usiw_cm.c
 * calls usiw_cm_transition.c, for example. All of them need these structures, so the structures are
 * in a header below all of them. usiw_cm.h explains the life of a connection.
 */
#ifndef USIW_CM_TYPES_H
#define USIW_CM_TYPES_H

#include "../uapi/usiw_wire.h"

/* Points in time are unsigned 64-bit values of any monotonic clock, in us. 0 means "no time". */

/* States of a connection. usiw_cm_is_installed() and usiw_cm_is_over() rely on the order. */
enum usiw_cm_state {
	USIW_CM_IDLE,
	USIW_CM_REQ_SENT,
	USIW_CM_REQ_RCVD,
	USIW_CM_INSTALLING,
	USIW_CM_ACCEPT_SENT,
	USIW_CM_ESTABLISHED,
	USIW_CM_CLOSING,
	USIW_CM_LINGER,
	USIW_CM_DEAD,
};

/*
 * Actions, as a mask. The caller carries them out from the lowest bit to the highest. The event
 * actions (A_EV_*) notify the upper connection manager (iw_cm):
 * - An initiator gets exactly one REPLY after usiw_cm_connect(), and none before.
 * - A responder gets ESTABLISHED at most once.
 * - CLOSE comes exactly once after a REPLY with status 0 or after ESTABLISHED, else never.
 * - DISCONNECT comes at most once, and only before CLOSE.
 */
#define USIW_CM_A_INSTALL	0x0001	/* give it to the engine, which reports READY or REFUSED */
#define USIW_CM_A_DRAIN		0x0002	/* engine: drain, send SHUTDOWN, then report CLOSED */
#define USIW_CM_A_ABORT		0x0004	/* engine: the connection is gone (conn->abort_reason) */
#define USIW_CM_A_PROBE		0x0008	/* engine: send a keepalive probe */
#define USIW_CM_A_TX		0x0010	/* send the peer the datagram of usiw_cm_build() */
/*
 * Notify the user of a new REQ, with conn->peer_pd, conn->peer_ird and conn->peer_ord. No call
 * returns this action. The caller carries it out by itself after usiw_cm_init_passive() has
 * returned 0.
 */
#define USIW_CM_A_EV_REQUEST	0x0020
#define USIW_CM_A_EV_REPLY	0x0040	/* conn->status, and conn->peer_pd of ACCEPT or REJECT */
#define USIW_CM_A_EV_ESTABLISHED 0x0080
#define USIW_CM_A_EV_DISCONNECT	0x0100	/* conn->status: 0 or -ECONNRESET, -ETIMEDOUT ... */
#define USIW_CM_A_EV_CLOSE	0x0200
/*
 * Give the user the notices that it is still owed, then release the user and the QP. The object may
 * stay in LINGER for the peer.
 */
#define USIW_CM_A_RELEASE	0x0400
#define USIW_CM_A_DEAD		0x0800	/* remove it from the table of connections */

/* The latest answer to an initiator's REQ, from which usiw_cm_hint() makes a line for people. */
enum usiw_cm_answer {
	USIW_CM_ANSWER_NOTHING,
	USIW_CM_ANSWER_PENDING,
	USIW_CM_ANSWER_REJECT,		/* with conn->reject_reason */
	USIW_CM_ANSWER_VERSION,		/* by a usiw of wire version conn->peer_version */
	USIW_CM_ANSWER_NO_PORT,		/* ICMP: port unreachable */
	USIW_CM_ANSWER_PROHIBITED,	/* ICMP: a firewall */
	USIW_CM_ANSWER_NO_HOST,		/* ICMP: no host has the address, or there is no route */
	USIW_CM_ANSWER_OWN_FIREWALL,	/* the kernel refused to send the REQ (EPERM) */
	USIW_CM_ANSWER_ALIEN,		/* no usiw sends such an answer (conn->alien) */
};

/*
 * Times, us, and numbers of transmissions. Unless noted otherwise below, a datagram is first
 * repeated after RETRY_FIRST_US, and each further wait is twice the wait before it.
 */
#define USIW_CM_RETRY_FIRST_US		100000u
/*
 * An answer "nobody listens" ends an attempt only if it arrives at least this time after connect,
 * because a server may be starting, or may be opening its next listener. Until then the initiator
 * repeats REQ NO_LISTENER_REPEAT_US after each such answer.
 */
#define USIW_CM_NO_LISTENER_GRACE_US		1000000u
#define USIW_CM_NO_LISTENER_REPEAT_US	50000u
#define USIW_CM_REQ_TRIES		6	/* 0.1+0.2+0.4+0.8+1.6+3.2 s, then -ETIMEDOUT */
#define USIW_CM_ACCEPT_TRIES		7	/* 12.7 s: more than the initiator's INSTALL_US */
#define USIW_CM_PENDING_US		30000000u	/* initiator: limit after a PENDING */
#define USIW_CM_PENDING_REPEAT_US	1000000u	/* between two REQs after a PENDING */
#define USIW_CM_REQ_LIMIT_US		100000000u	/* initiator: limit for all of REQ_SENT */
#define USIW_CM_REQ_RCVD_US		60000000u	/* limit for the user to accept or reject */
#define USIW_CM_INSTALL_US		10000000u	/* limit for the engine to report READY */
#define USIW_CM_CLOSING_US		10000000u	/* limit for the engine to drain */
#define USIW_CM_LINGER_US		2000000u	/* time in LINGER */
#define USIW_CM_RESET_TRIES		3	/* RESETs by timer, or in answer to RESETs */
#define USIW_CM_SILENT_REPEAT_US	1000000u	/* silent initiator: longest wait between REQs */
#define USIW_CM_SILENT_ANSWERS		4	/* REQs that it sends at once between two of these */
#define USIW_CM_SILENT_HINT_US	3000000u	/* it logs a hint after this time without a connection */

/**
 * struct usiw_cm_conn - one connection; usiw_cm_init_active() or _passive() sets all of it
 * @state:	enum usiw_cm_state
 * @initiator:	true at the end that sent the REQ
 * @local_isn:	first PSN that this end sends
 * @peer_isn:	first PSN that the peer sends, if @peer_known. In REQ_SENT: PSN of a PENDING
 * @ird: @ord:	READ depths of this end. Initiator: as requested, final after ACCEPT. Responder: 0
 *		until accept, then final
 * @peer_ird: @peer_ord: READ depths that the peer sent, lowered to the limits of this device
 * @mtu:	IP MTU, bytes: that of this end until the peer's is known, then the smaller of both
 * @linger:	LINGER: opcode of the answer to late datagrams; 0: no answer
 * @peer_known:	@peer_isn is valid
 * @pending:	initiator: the peer has answered PENDING. Silent initiator: the number of PENDINGs
 *		that it has answered at once since its latest repetition
 * @silent:	no end of this connection notifies the other end, and no state has a limit: see
 *		usiw_cm_set_silent()
 * @answer:	initiator: latest answer to its REQ, enum usiw_cm_answer
 * @peer_version: ANSWER_VERSION: wire version of the peer
 * @alien: @alien_len: ANSWER_ALIEN: first bytes of the datagram that is no answer of usiw
 * @window:	initial receive window of this end, datagrams
 * @peer_window: initial receive window of the peer, datagrams
 * @features:	feature bits that this end offers; after the handshake, those that both ends use
 * @peer_features: responder: feature bits of the REQ
 * @status:	0 or -errno, of the notices EV_REPLY and EV_DISCONNECT
 * @abort_reason: enum usiw_abort_reason, for the ABORT record
 * @reject_reason: enum usiw_reject_reason that this end sends or has received
 * @tries:	transmissions that count for the back-off and the limit of the repeated datagram
 * @deadline_us: call usiw_cm_timer() at this time; 0: no timer
 * @expire_us:	time at which the present state expires; 0: never
 * @repeat_us:	time of the next repetition of a datagram; 0: none
 * @connect_us:	initiator: time of usiw_cm_connect()
 * @tx_opcode: @tx_flags: opcode and flags of the datagram that usiw_cm_build() builds next
 * @pd: @pd_len: private data that this end sends
 * @peer_pd: @peer_pd_len: private data of the peer
 */
struct usiw_cm_conn {
	__u8	state;
	__u8	initiator;
	__u8	abort_reason;
	__u8	reject_reason;
	__u8	tx_opcode;
	__u8	tries;
	__u8	linger;
	__u8	peer_known;
	__u8	pending;
	__u8	silent;
	__u8	answer;
	__u8	peer_version;
	__u8	alien_len;
	__u8	alien[8];
	__u16	tx_flags;
	__u16	ird;
	__u16	ord;
	__u16	peer_ird;
	__u16	peer_ord;
	__u16	mtu;
	__u16	window;
	__u16	peer_window;
	__u16	pd_len;
	__u16	peer_pd_len;
	__u32	features;
	__u32	peer_features;
	__u32	local_isn;
	__u32	peer_isn;
	__s32	status;
	__u64	deadline_us;
	__u64	expire_us;
	__u64	repeat_us;
	__u64	connect_us;
	__u8	pd[USIW_MAX_PRIVATE_DATA];
	__u8	peer_pd[USIW_MAX_PRIVATE_DATA];
};

/*
 * True from the action INSTALL until the connection ends. The engine has the connection in this
 * time, or is about to get it.
 */
static inline int usiw_cm_is_installed(const struct usiw_cm_conn *c)
{
	return c->state >= USIW_CM_INSTALLING && c->state <= USIW_CM_CLOSING;
}

/*
 * True if the connection has ended: its state is LINGER or DEAD. In LINGER it still answers its
 * peer.
 */
static inline int usiw_cm_is_over(const struct usiw_cm_conn *c)
{
	return c->state >= USIW_CM_LINGER;
}

/*
 * The 4-tuple of a connection. IPv4 addresses are mapped (::ffff:a.b.c.d). @scope: the interface of
 * link-local addresses, because hosts on different links may have the same ones; else 0.
 */
struct usiw_cm_tuple {
	__u8	local[16];
	__u8	remote[16];
	__be16	local_port;
	__be16	remote_port;
	__u32	scope;
};

/*
 * A handshake datagram, decoded. If usiw_cm_decode() returned 0, its lengths and flags are right,
 * and so is the version of a REQ or an ACCEPT.
 */
struct usiw_cm_packet {
	__u8	opcode;			/* REQ, ACCEPT, REJECT, CONFIRM or RESET */
	__u8	version;		/* REQ, REJECT, ACCEPT without PENDING */
	__u8	reason;			/* REJECT */
	__u16	flags;
	__u32	psn;
	__u32	ack_psn;
	__u16	ird, ord, mtu, window;	/* REQ, ACCEPT without PENDING */
	__u32	features;
	__u16	pd_len;
	const __u8 *pd;			/* points into the datagram; NULL: none */
};

#endif /* USIW_CM_TYPES_H */
