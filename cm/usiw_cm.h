/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connection state machine of TRP: one object per connection, no I/O, no
 * allocation, no clock and no lock of its own. The caller serialises calls on
 * one connection, hands in the time and what happened, and carries out the
 * actions that come back, in the order of their bits. kmod, the simulation, the
 * fuzzers and the kernel-less mode link the very same file.
 *
 * Life of a connection (I: initiator, R: responder):
 *
 *   I: IDLE -connect-> REQ_SENT -ACCEPT-> INSTALLING -ready-> ESTABLISHED
 *   R: REQ_RCVD -accept-> INSTALLING -ready-> ACCEPT_SENT -CONFIRM-> ESTABLISHED
 *   R: REQ_RCVD -reject-> LINGER (answers a repeated REQ) -> DEAD
 *   ESTABLISHED -disconnect-> CLOSING -closed-> LINGER -> DEAD
 *   any -abort or RESET-> LINGER (repeats RESET a few times) -> DEAD
 *
 * Every state but IDLE and ESTABLISHED has a time-out; after DEAD the object may
 * be freed. Any call is allowed in any state; what is not due does nothing and
 * returns 0.
 *
 * For the caller:
 * - A datagram that A_TX asks for is built and sent before the next call.
 * - When REQ_RCVD ends by itself (time-out, RESET, abort) RELEASE comes although
 *   iw_cm has not decided yet: the reference behind its provider_data is apart and
 *   goes when iw_cm calls accept or reject, as it always does in the end.
 *   usiw_cm_accept() then answers -ECONNRESET.
 * - An object in LINGER serves only the peer: it may be dropped at any time, for a
 *   new connection of the same 4-tuple or when the device goes. receive() gives DEAD
 *   for a new REQ (another ISN) there, and for one to which an attempt of this end gives
 *   way: look the REQ up again after that.
 * - DATA, SHUTDOWN and SACK on a 4-tuple without an object are answered by
 *   usiw_cm_build_stray_reset(), at a bounded rate: so an end learns that its peer has
 *   forgotten the connection.
 */
#ifndef USIW_CM_H
#define USIW_CM_H

#include "../uapi/usiw_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Time: unsigned 64-bit microseconds of any monotonic clock; 0 is "none". */

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
 * Actions, as a mask; carry out from the lowest bit to the highest.
 * Event actions are what the upper connection manager (iw_cm) is told. Of REPLY
 * the initiator gets exactly one. The responder gets ESTABLISHED at most once.
 * CLOSE comes exactly once and only after a REPLY with status 0 or after
 * ESTABLISHED; DISCONNECT only before CLOSE.
 */
#define USIW_CM_A_INSTALL	0x0001	/* give the connection to the engine; it answers ready */
#define USIW_CM_A_DRAIN		0x0002	/* notify the engine: drain, SHUTDOWN, then report closed */
#define USIW_CM_A_ABORT		0x0004	/* notify the engine: the connection is gone (conn->abort_reason) */
#define USIW_CM_A_PROBE		0x0008	/* tell the engine: send a keepalive probe */
#define USIW_CM_A_TX		0x0010	/* send usiw_cm_build()'s datagram to the peer */
/*
 * New REQ, with conn->peer_pd and the peer's ird and ord. The caller itself takes this action after
 * usiw_cm_init_passive() has returned 0.
 */
#define USIW_CM_A_EV_REQUEST	0x0020
#define USIW_CM_A_EV_REPLY	0x0040	/* conn->status, conn->peer_pd (also with a user's reject) */
#define USIW_CM_A_EV_ESTABLISHED 0x0080
#define USIW_CM_A_EV_DISCONNECT	0x0100	/* conn->status: 0 or -ECONNRESET, -ETIMEDOUT ... */
#define USIW_CM_A_EV_CLOSE	0x0200
/*
 * Drop the references of iw_cm, the QP and the engine, which are done with the connection. The object
 * may linger for the peer.
 */
#define USIW_CM_A_RELEASE	0x0400
#define USIW_CM_A_DEAD		0x0800	/* off the tables; drop the last reference */

/* The last answer to an initiator's REQ; see usiw_cm_hint.h. */
enum usiw_cm_heard {
	USIW_CM_HEARD_NOTHING,
	USIW_CM_HEARD_PENDING,
	USIW_CM_HEARD_REJECT,		/* for @reject_reason */
	USIW_CM_HEARD_VERSION,		/* of another version, @peer_version */
	USIW_CM_HEARD_NO_PORT,		/* ICMP: nobody has the port */
	USIW_CM_HEARD_PROHIBITED,	/* ICMP: a firewall */
	USIW_CM_HEARD_NO_HOST,		/* ICMP: nobody has the address, or no route goes there */
	USIW_CM_HEARD_OWN_FIREWALL,	/* the datagram could not be sent */
	USIW_CM_HEARD_ALIEN,		/* a datagram that no usiw sends in answer: @alien */
};

/* Time-outs; see usiw_cm.c for how they combine. Units in the names. */
#define USIW_CM_RETRY_FIRST_US		100000u
/*
 * An answer "nobody listens" ends an attempt only after this time, because a server may be starting
 * or may be listening anew. Until then the initiator repeats REQ at the pace of NO_LISTENER_REPEAT_US.
 */
#define USIW_CM_NO_LISTENER_GRACE_US		1000000u
#define USIW_CM_NO_LISTENER_REPEAT_US	50000u
#define USIW_CM_REQ_TRIES		6	/* 0.1+0.2+0.4+0.8+1.6+3.2 s, then -ETIMEDOUT */
#define USIW_CM_ACCEPT_TRIES		7	/* 12.7 s: more than the initiator's INSTALL_US */
#define USIW_CM_PENDING_US		30000000u	/* initiator's patience after PENDING, renewed */
#define USIW_CM_PENDING_REPEAT_US	1000000u	/* pace of REQ after PENDING */
#define USIW_CM_REQ_LIMIT_US		100000000u	/* ... however many PENDINGs come */
#define USIW_CM_REQ_RCVD_US		60000000u	/* for the application to accept or reject */
#define USIW_CM_INSTALL_US		10000000u	/* for the engine to answer */
#define USIW_CM_CLOSING_US		10000000u	/* for the engine to drain */
#define USIW_CM_LINGER_US		2000000u
#define USIW_CM_RESET_TRIES		3

/**
 * struct usiw_cm_conn - one connection; zeroed and set by usiw_cm_init_*()
 * @state:	enum usiw_cm_state
 * @initiator:	true at the end that sent the REQ
 * @installed:	the engine has been given the connection and not been told ABORT
 * @local_isn:	first PSN that this end sends
 * @peer_isn:	first PSN that the peer sends (known from REQ or ACCEPT on)
 * @ird: @ord:	this end's: wanted until the peer's are known, then final
 * @peer_ird: @peer_ord: as the peer sent them
 * @mtu:	IP MTU: own until the peer's is known, then the smaller
 * @linger:	in LINGER: opcode that answers what still comes, 0 for none
 * @peer_known:	@peer_isn is valid
 * @pending:	initiator: the peer has answered PENDING
 * @heard:	initiator: enum usiw_cm_heard
 * @peer_version: @alien_len: @alien: of what was heard; of an alien the first bytes
 * @window:	own initial receive window, datagrams
 * @peer_window: the peer's
 * @features:	offered, then agreed
 * @peer_features: responder: what the REQ offers
 * @status:	of EV_REPLY and EV_DISCONNECT: 0 or -errno
 * @abort_reason: enum usiw_abort_reason, for the ABORT event
 * @reject_reason: enum usiw_reject_reason, to send or as received
 * @tries:	transmissions of the datagram that is being repeated
 * @deadline_us: call usiw_cm_timer() at this time; 0: no timer
 * @expire_us:	end of the present state; 0: none
 * @repeat_us:	next repetition of a datagram; 0: none
 * @limit_us:	initiator: end of all patience in REQ_SENT
 * @nobody_us:	initiator: until then an answer that nobody listens is not believed
 * @tx_opcode: @tx_flags: what usiw_cm_build() builds next
 * @pd: @pd_len: own private data to send
 * @peer_pd: @peer_pd_len: the peer's
 */
struct usiw_cm_conn {
	__u8	state;
	__u8	initiator;
	__u8	installed;
	__u8	released;
	__u8	abort_reason;
	__u8	reject_reason;
	__u8	tx_opcode;
	__u8	tries;
	__u8	linger;
	__u8	peer_known;
	__u8	pending;
	__u8	heard;
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
	__u64	limit_us;
	__u64	nobody_us;
	__u8	pd[USIW_MAX_PRIVATE_DATA];
	__u8	peer_pd[USIW_MAX_PRIVATE_DATA];
};

/*
 * The ends of a connection; IPv4 addresses are mapped (::ffff:a.b.c.d). @scope: the interface of
 * link-local ones, else 0: each link has its own.
 */
struct usiw_cm_tuple {
	__u8	local[16];
	__u8	remote[16];
	__be16	local_port;
	__be16	remote_port;
	__u32	scope;
};

static inline int usiw_cm_tuple_is_ipv4(const struct usiw_cm_tuple *t)
{
	int i, bits = t->local[10] ^ 0xff;

	bits |= t->local[11] ^ 0xff;
	for (i = 0; i < 10; i++)
		bits |= t->local[i];
	return !bits;
}

/* A handshake datagram, decoded and checked (lengths, version, reserved values). */
struct usiw_cm_packet {
	__u8	opcode;			/* REQ, ACCEPT, REJECT, CONFIRM or RESET */
	__u8	version;		/* REQ, ACCEPT, REJECT */
	__u8	reason;			/* REJECT */
	__u16	flags;
	__u32	psn;
	__u32	ack_psn;
	__u16	ird, ord, mtu, window;	/* REQ, ACCEPT */
	__u32	features;
	__u16	pd_len;
	const __u8 *pd;			/* points into the datagram */
};

/**
 * usiw_cm_asks_back - is a REQ to be answered by PENDING, whatever the connection does?
 * @c:		connection
 * @pkt:	datagram of its 4-tuple
 *
 * Both ends may send a REQ to each other at once, between the same ports. Then the connection of
 * the smaller ISN goes on, and the other end's attempt gives way: it ends with -ECONNREFUSED, and
 * the REQ is for who listens there. Anybody can send a REQ with a small PSN from a false address.
 * So this end first answers PENDING with usiw_cm_asked_isn(), and gives way to a REQ that brings
 * this number back.
 */
int usiw_cm_asks_back(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt);

/*
 * What PENDING tells there: the complement of the own ISN. The ISN itself would end the attempt: a peer
 * that knows of no connection answers PENDING by a RESET with both numbers, and both would match.
 */
__u32 usiw_cm_asked_isn(const struct usiw_cm_conn *c);

/**
 * usiw_cm_decode - decode a handshake datagram
 * @data:	UDP payload, any alignment
 * @len:	bytes
 *
 * The opcode, the PSNs and the first payload byte (version) stand in the same
 * place in every version, and so does the reason in a REJECT: a REJECT of another
 * version decodes, without its private data.
 *
 * Return: 0; -EINVAL if it is malformed (too short, lengths that do not fit, flags
 * that its opcode does not have, a window of 0, not a handshake opcode);
 * -EPROTONOSUPPORT for a REQ or ACCEPT of another version (@pkt->opcode and
 * @pkt->psn are valid then, so that a REQ can be answered with
 * usiw_cm_build_refusal()).
 */
int usiw_cm_decode(struct usiw_cm_packet *pkt, const void *data, __u32 len);

/*
 * Sets up an initiator. ird, ord, mtu, window and pd are this end's. Returns 0; -EINVAL if pd_len
 * exceeds 512 or window is 0.
 */
int usiw_cm_init_active(struct usiw_cm_conn *c, __u32 isn, __u16 ird, __u16 ord, __u16 mtu,
			__u16 window, const void *pd, __u16 pd_len);

/*
 * Set up a responder from a decoded REQ. Return 0 (state REQ_RCVD) or the positive
 * enum usiw_reject_reason with which to refuse it (features, MTU below USIW_MIN_MTU, own
 * window 0).
 */
int usiw_cm_init_passive(struct usiw_cm_conn *c, const struct usiw_cm_packet *req, __u32 isn,
			 __u16 mtu, __u16 window, __u64 now_us);

/*
 * Features that are not every end's: an initiator offers them before it connects, a responder agrees to those of
 * them that the peer has offered before it accepts. At any other time the call does nothing.
 */
void usiw_cm_offer(struct usiw_cm_conn *c, __u32 features);

/*
 * The user's and the engine's calls. Each returns the actions to carry out. An error
 * that the engine reports is -errno; anything else counts as -EIO, so that it never
 * reads as success.
 */
__u32 usiw_cm_connect(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Accept with the user's IRD/ORD. ord is lowered to what the peer serves, both to
 * this side's limits; c->ird and c->ord are final then. *err: 0; -EINVAL: more than
 * 512 bytes of private data, still REQ_RCVD; -ECONNRESET: no longer REQ_RCVD. With an
 * error nothing is to be done and no event will come.
 */
__u32 usiw_cm_accept(struct usiw_cm_conn *c, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		     __u64 now_us, int *err);
__u32 usiw_cm_reject(struct usiw_cm_conn *c, const void *pd, __u16 pd_len, __u64 now_us);
/* Orderly; before ESTABLISHED the same as abort with USIW_ABORT_LOCAL. */
__u32 usiw_cm_disconnect(struct usiw_cm_conn *c, __u64 now_us);
__u32 usiw_cm_abort(struct usiw_cm_conn *c, __u8 abort_reason, __u64 now_us); /* RESET; any state */
/* Without a word to anybody: for LINGER, and for an object that no user and no engine was given. */
__u32 usiw_cm_forget(struct usiw_cm_conn *c);
__u32 usiw_cm_ready(struct usiw_cm_conn *c, __u64 now_us);	/* engine: installed */
__u32 usiw_cm_refused(struct usiw_cm_conn *c, int error, __u64 now_us); /* engine: could not */
__u32 usiw_cm_peer_closed(struct usiw_cm_conn *c, __u64 now_us);	/* engine: SHUTDOWN received */
__u32 usiw_cm_closed(struct usiw_cm_conn *c, __u64 now_us);	/* engine: own SHUTDOWN acknowledged */
/*
 * The engine has set the QP to ERROR by itself. It has delivered a Terminate or given it up by then,
 * because the RESET that this call sends would overtake the Terminate.
 */
__u32 usiw_cm_failed(struct usiw_cm_conn *c, int error, __u64 now_us);
/* Which of these a report of the provider is; @kind: enum usiw_report_kind. Others ask for nothing. */
__u32 usiw_cm_report(struct usiw_cm_conn *c, __u32 kind, int error, __u64 now_us);

/* The network's and the clock's. */
__u32 usiw_cm_receive(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us);
/*
 * DATA counts as CONFIRM, but only with a PSN in [peer_isn, peer_isn + window) and an ACK PSN in
 * [local_isn, local_isn + window]. So neither a blind sender of DATA can confirm the connection, nor
 * a peer that still has an earlier connection of the 4-tuple.
 */
__u32 usiw_cm_data_seen(struct usiw_cm_conn *c, __u64 now_us);
/* ICMP that quotes the REQ. @heard: what it means, of usiw_cm_icmp4_heard() or usiw_cm_icmp6_heard() */
__u32 usiw_cm_icmp(struct usiw_cm_conn *c, enum usiw_cm_heard heard, __u64 now_us);
__u32 usiw_cm_timer(struct usiw_cm_conn *c, __u64 now_us);	/* at or after deadline_us */

/**
 * usiw_cm_build - build the datagram that A_TX asks for
 * @buf:	at least USIW_CM_MAX_DATAGRAM bytes
 * Return: its length in bytes
 */
__u32 usiw_cm_build(const struct usiw_cm_conn *c, void *buf);

/* REJECT to a REQ for which there is no connection object. Returns the length. */
__u32 usiw_cm_build_refusal(const struct usiw_cm_packet *req, __u8 reason, void *buf);

/*
 * RESET in answer to a datagram that matches no connection (@data, @len: its UDP
 * payload): F_STRAY with its PSNs exchanged for DATA, SHUTDOWN and SACK; for ACCEPT
 * and CONFIRM a RESET with both initial PSNs. Returns 0 when nothing must be sent
 * (RESET, REJECT, too short), else the length.
 */
__u32 usiw_cm_build_stray_reset(const void *data, __u32 len, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_H */
