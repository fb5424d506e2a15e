/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connection state machine of TRP.
 *
 * A kernel, a process that emulates one and a simulation all have to make connections by the same
 * rules. So the rules are here without a kernel: a function gets a connection, an event and the
 * time, changes the state, and returns the actions that are due. It has no I/O, no allocation, no
 * clock and no lock.
 *
 * The caller serialises the calls on one connection, and carries out the actions in the order of
 * their bits. The module, usiw-run, the simulation and the fuzzers all link this code.
 *
 * Life of a connection (I: initiator, R: responder):
 *
 *   I: IDLE -connect-> REQ_SENT -ACCEPT-> INSTALLING -ready-> ESTABLISHED
 *   R: REQ_RCVD -accept-> INSTALLING -ready-> ACCEPT_SENT -CONFIRM-> ESTABLISHED
 *   R: REQ_RCVD -reject-> LINGER (answers a repeated REQ) -> DEAD
 *   ESTABLISHED -disconnect-> CLOSING -closed-> LINGER -> DEAD
 *   any -abort or RESET-> LINGER (repeats RESET a few times) -> DEAD
 *
 * Every state but IDLE, ESTABLISHED and DEAD has a time-out. After DEAD the object may be freed.
 * Any call is allowed in any state: a call that is not due changes nothing and returns 0.
 *
 * Rules for the caller:
 * - It builds and sends the datagram of A_TX before the next call.
 * - REQ_RCVD may end by itself (time-out, RESET, abort). RELEASE comes then, although iw_cm has not
 *   decided yet. iw_cm's provider_data holds a reference of its own, which the caller drops when
 *   iw_cm calls accept or reject, as it always does in the end. usiw_cm_accept() reports
 *   -ECONNRESET then.
 * - An object in LINGER serves only the peer. The caller may drop it at any time, for a new
 *   connection of the same 4-tuple or when the device is removed.
 * - usiw_cm_receive() may return DEAD for a REQ: if the object is in LINGER and the REQ has another
 *   ISN, or if this end's attempt gives way to the REQ. The caller then treats the REQ as one that
 *   has no connection.
 * - It answers DATA, SHUTDOWN and SACK on a 4-tuple without an object by
 *   usiw_cm_build_stray_reset(), at a bounded rate. So an end learns that its peer has forgotten
 *   the connection.
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
 * Actions, as a mask. The caller carries them out from the lowest bit to the highest. The event
 * actions (A_EV_*) notify the upper connection manager (iw_cm):
 * - An initiator gets exactly one REPLY.
 * - A responder gets ESTABLISHED at most once.
 * - CLOSE comes exactly once after a REPLY with status 0 or after ESTABLISHED, else never.
 * - DISCONNECT comes at most once, and only before CLOSE.
 */
#define USIW_CM_A_INSTALL	0x0001	/* give the connection to the engine, which reports ready */
#define USIW_CM_A_DRAIN		0x0002	/* engine: drain, send SHUTDOWN, then report closed */
#define USIW_CM_A_ABORT		0x0004	/* engine: the connection is gone (conn->abort_reason) */
#define USIW_CM_A_PROBE		0x0008	/* engine: send a keepalive probe */
#define USIW_CM_A_TX		0x0010	/* send usiw_cm_build()'s datagram to the peer */
/*
 * New REQ, with conn->peer_pd, conn->peer_ird and conn->peer_ord. No call returns this action. The
 * caller takes it by itself after usiw_cm_init_passive() has returned 0.
 */
#define USIW_CM_A_EV_REQUEST	0x0020
#define USIW_CM_A_EV_REPLY	0x0040	/* conn->status, conn->peer_pd (of a user's reject too) */
#define USIW_CM_A_EV_ESTABLISHED 0x0080
#define USIW_CM_A_EV_DISCONNECT	0x0100	/* conn->status: 0 or -ECONNRESET, -ETIMEDOUT ... */
#define USIW_CM_A_EV_CLOSE	0x0200
/*
 * Drop the references of iw_cm, the QP and the engine, which are done with the connection. The
 * object may linger for the peer.
 */
#define USIW_CM_A_RELEASE	0x0400
#define USIW_CM_A_DEAD		0x0800	/* remove it from the tables; drop the last reference */

/* The latest answer to an initiator's REQ; see usiw_cm_hint.h. */
enum usiw_cm_heard {
	USIW_CM_HEARD_NOTHING,
	USIW_CM_HEARD_PENDING,
	USIW_CM_HEARD_REJECT,		/* with conn->reject_reason */
	USIW_CM_HEARD_VERSION,		/* by a usiw of wire version conn->peer_version */
	USIW_CM_HEARD_NO_PORT,		/* ICMP: nobody has the port */
	USIW_CM_HEARD_PROHIBITED,	/* ICMP: a firewall */
	USIW_CM_HEARD_NO_HOST,		/* ICMP: no host has the address, or there is no route */
	USIW_CM_HEARD_OWN_FIREWALL,	/* the kernel refused to send the REQ (EPERM) */
	USIW_CM_HEARD_ALIEN,		/* a datagram that no usiw sends then: conn->alien */
};

/*
 * Time-outs and numbers of transmissions. A wait between two transmissions of a datagram is twice
 * the wait before it, and the first one is RETRY_FIRST_US.
 */
#define USIW_CM_RETRY_FIRST_US		100000u
/*
 * An answer "nobody listens" ends an attempt only after this time, because a server may be starting
 * or may be listening anew. Until then the initiator repeats REQ every NO_LISTENER_REPEAT_US.
 */
#define USIW_CM_NO_LISTENER_GRACE_US		1000000u
#define USIW_CM_NO_LISTENER_REPEAT_US	50000u
#define USIW_CM_REQ_TRIES		6	/* 0.1+0.2+0.4+0.8+1.6+3.2 s, then -ETIMEDOUT */
#define USIW_CM_ACCEPT_TRIES		7	/* 12.7 s: more than the initiator's INSTALL_US */
#define USIW_CM_PENDING_US		30000000u	/* initiator: from the latest PENDING on */
#define USIW_CM_PENDING_REPEAT_US	1000000u	/* between two REQs after a PENDING */
#define USIW_CM_REQ_LIMIT_US		100000000u	/* initiator: with any number of PENDINGs */
#define USIW_CM_REQ_RCVD_US		60000000u	/* for the user to accept or reject */
#define USIW_CM_INSTALL_US		10000000u	/* for the engine to report ready */
#define USIW_CM_CLOSING_US		10000000u	/* for the engine to drain */
#define USIW_CM_LINGER_US		2000000u
#define USIW_CM_RESET_TRIES		3

/**
 * struct usiw_cm_conn - one connection; zeroed and set by usiw_cm_init_*()
 * @state:	enum usiw_cm_state
 * @initiator:	true at the end that sent the REQ
 * @installed:	the engine has the connection: INSTALL was returned, the engine has not reported the
 *		end, and ABORT was not returned
 * @released:	RELEASE was returned
 * @local_isn:	first PSN that this end sends
 * @peer_isn:	first PSN that the peer sends, if @peer_known
 * @ird: @ord:	this end's: requested until the peer's are known, then final
 * @peer_ird: @peer_ord: the peer's, as it sent them, up to the limits of this device
 * @mtu:	IP MTU, bytes: own until the peer's is known, then the smaller of both
 * @linger:	LINGER: opcode that answers late datagrams, 0: none
 * @peer_known:	@peer_isn is valid
 * @pending:	initiator: the peer has answered PENDING
 * @heard:	initiator: enum usiw_cm_heard
 * @peer_version: HEARD_VERSION: wire version of the peer
 * @alien: @alien_len: HEARD_ALIEN: first bytes of the datagram
 * @window:	own initial receive window, datagrams
 * @peer_window: initial receive window of the peer, datagrams
 * @features:	feature bits: offered, then agreed
 * @peer_features: responder: feature bits of the REQ
 * @status:	0 or -errno, for EV_REPLY and EV_DISCONNECT
 * @abort_reason: enum usiw_abort_reason, for the ABORT record
 * @reject_reason: enum usiw_reject_reason, to send or as received
 * @tries:	transmissions so far of the datagram that is being repeated
 * @deadline_us: call usiw_cm_timer() at this time; 0: no timer
 * @expire_us:	end of the present state; 0: none
 * @repeat_us:	next repetition of a datagram; 0: none
 * @limit_us:	initiator: latest end of REQ_SENT
 * @nobody_us:	initiator: until then an answer that nobody listens does not end the attempt
 * @tx_opcode: @tx_flags: of the datagram that usiw_cm_build() builds next
 * @pd: @pd_len: own private data to send
 * @peer_pd: @peer_pd_len: private data of the peer
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
 * The 4-tuple of a connection. IPv4 addresses are mapped (::ffff:a.b.c.d). @scope: the interface of
 * link-local addresses, because each link has its own; else 0.
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
 * usiw_cm_asks_back - true if a datagram is to be answered by PENDING before this end gives way
 * @c:		connection
 * @pkt:	datagram of its 4-tuple
 *
 * Both ends may send a REQ to each other at the same time, between the same ports. Then the attempt
 * with the smaller ISN goes on. The attempt of the other end gives way: it ends with -ECONNREFUSED,
 * and the REQ goes to the listener there. But anybody can send a REQ with a small PSN from a false
 * address. So this end first answers PENDING with usiw_cm_asked_isn(), and gives way only to a REQ
 * that brings this number back.
 */
int usiw_cm_asks_back(const struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt);

/*
 * Returns the PSN of that PENDING: the complement of the own ISN. The own ISN would not do. A peer
 * that has no connection answers PENDING by a RESET with both numbers, and a RESET with both ISNs
 * would end this attempt.
 */
__u32 usiw_cm_asked_isn(const struct usiw_cm_conn *c);

/**
 * usiw_cm_decode - decode a handshake datagram
 * @data:	UDP payload, any alignment
 * @len:	bytes
 *
 * Every wire version has the opcode, the PSNs and the first payload byte (the version) at the same
 * offsets, and the reason of a REJECT too. So a REJECT of another version decodes, but without its
 * private data.
 *
 * Return: 0; -EINVAL if the datagram is malformed (too short, lengths that do not fit, flags that
 * its opcode does not have, a window of 0, not a handshake opcode); -EPROTONOSUPPORT for a REQ or
 * an ACCEPT of another version. Then @pkt->opcode, @pkt->psn and @pkt->version are valid, so that
 * usiw_cm_build_refusal() can answer a REQ.
 */
int usiw_cm_decode(struct usiw_cm_packet *pkt, const void *data, __u32 len);

/*
 * Sets up an initiator, in state IDLE. All parameters are this end's. Returns 0; -EINVAL if @pd_len
 * exceeds 512 or @window is 0.
 */
int usiw_cm_init_active(struct usiw_cm_conn *c, __u32 isn, __u16 ird, __u16 ord, __u16 mtu,
			__u16 window, const void *pd, __u16 pd_len);

/*
 * Sets up a responder from a decoded REQ, in state REQ_RCVD. Returns 0, or a positive enum
 * usiw_reject_reason with which to refuse the REQ: unknown features, an MTU below USIW_MIN_MTU, or
 * a window of 0 at this end.
 */
int usiw_cm_init_passive(struct usiw_cm_conn *c, const struct usiw_cm_packet *req, __u32 isn,
			 __u16 mtu, __u16 window, __u64 now_us);

/*
 * Adds features that only some ends have. An initiator, before it connects, offers all of them. A
 * responder, before it accepts, agrees to those that its peer has offered. At any other time the
 * call changes nothing.
 */
void usiw_cm_offer(struct usiw_cm_conn *c, __u32 features);

/*
 * Calls of the user and of the engine. Each returns the actions to carry out. @error is -errno. Any
 * other value counts as -EIO, so that no error looks like success.
 */
__u32 usiw_cm_connect(struct usiw_cm_conn *c, __u64 now_us);
/*
 * Accepts with the depths that the user asks for. Both are lowered to the limits of this device,
 * and ord to the peer's IRD. They are final then in c->ird and c->ord. *err: 0; -EINVAL: more than
 * 512 bytes of private data, and the state is still REQ_RCVD; -ECONNRESET: the state is no longer
 * REQ_RCVD. An error comes without actions, and no event follows from the call.
 */
__u32 usiw_cm_accept(struct usiw_cm_conn *c, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		     __u64 now_us, int *err);
__u32 usiw_cm_reject(struct usiw_cm_conn *c, const void *pd, __u16 pd_len, __u64 now_us);
/* Ends in order: drain, SHUTDOWN. Before ESTABLISHED it is an abort with USIW_ABORT_LOCAL. */
__u32 usiw_cm_disconnect(struct usiw_cm_conn *c, __u64 now_us);
/* Ends at once in any state, by RESET; in REQ_RCVD by REJECT. */
__u32 usiw_cm_abort(struct usiw_cm_conn *c, __u8 abort_reason, __u64 now_us);
/*
 * Ends without a datagram and without a notice. Only for an object in LINGER, and for one that was
 * given to no user and no engine.
 */
__u32 usiw_cm_forget(struct usiw_cm_conn *c);
/* The engine has installed the connection. */
__u32 usiw_cm_ready(struct usiw_cm_conn *c, __u64 now_us);
/* The engine could not install it. */
__u32 usiw_cm_refused(struct usiw_cm_conn *c, int error, __u64 now_us);
/* The engine has received the peer's SHUTDOWN. */
__u32 usiw_cm_peer_closed(struct usiw_cm_conn *c, __u64 now_us);
/* The peer has acknowledged the engine's SHUTDOWN. */
__u32 usiw_cm_closed(struct usiw_cm_conn *c, __u64 now_us);
/*
 * The engine has set the QP to ERROR by itself. By then it has delivered a Terminate or given it
 * up, because the RESET that this call sends would overtake the Terminate.
 */
__u32 usiw_cm_failed(struct usiw_cm_conn *c, int error, __u64 now_us);
/*
 * Makes the call for a report of the provider. @kind: enum usiw_report_kind. Reports of other kinds
 * do not concern the state machine.
 */
__u32 usiw_cm_report(struct usiw_cm_conn *c, __u32 kind, int error, __u64 now_us);

/* Calls of the network and of the clock. */
__u32 usiw_cm_receive(struct usiw_cm_conn *c, const struct usiw_cm_packet *pkt, __u64 now_us);
/*
 * DATA counts as CONFIRM. The caller passes only DATA for which usiw_cm_confirms() is true: its PSN
 * is in [peer_isn, peer_isn + window), and its ACK PSN in [local_isn, local_isn + window]. So
 * neither a blind sender of DATA can confirm the connection, nor a peer that still has an earlier
 * connection of the 4-tuple.
 */
__u32 usiw_cm_data_seen(struct usiw_cm_conn *c, __u64 now_us);
/* ICMP that quotes the REQ; @heard: by usiw_cm_icmp4_heard() or usiw_cm_icmp6_heard(). */
__u32 usiw_cm_icmp(struct usiw_cm_conn *c, enum usiw_cm_heard heard, __u64 now_us);
__u32 usiw_cm_timer(struct usiw_cm_conn *c, __u64 now_us);	/* at or after deadline_us */

/**
 * usiw_cm_build - build the datagram that A_TX asks for
 * @buf:	at least USIW_CM_MAX_DATAGRAM bytes
 * Return: its length in bytes
 */
__u32 usiw_cm_build(const struct usiw_cm_conn *c, void *buf);

/* Builds a REJECT to a REQ for which there is no connection object. Returns the length. */
__u32 usiw_cm_build_refusal(const struct usiw_cm_packet *req, __u8 reason, void *buf);

/*
 * Builds the RESET that answers a datagram of no connection; @data, @len: its UDP payload. The
 * RESET has the PSNs of the datagram, exchanged. It has the flag STRAY if the datagram is DATA,
 * SHUTDOWN or SACK. In answer to ACCEPT and CONFIRM these PSNs are both ISNs, and the flag is not
 * set. Returns the length, or 0 if no answer must be sent (REQ, REJECT, RESET, a malformed
 * datagram).
 */
__u32 usiw_cm_build_stray_reset(const void *data, __u32 len, void *buf);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_H */
