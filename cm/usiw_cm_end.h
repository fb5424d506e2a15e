/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * One end of a connection: the state machine of usiw_cm.h with its user, its QP and its path.
 *
 * The state machine only returns actions. To carry them out, a host has to know more: which notices
 * the user (an id of rdma_cm) is still owed, whether the engine has the connection, and whether raw
 * packets may still be sent by the present route. Three hosts need this: the module, usiw-run and
 * the simulation. So it is here once, and each host supplies a table of calls: send a datagram,
 * notify the user, set the state of the QP, queue a record for the engine, look up the route, and
 * so on.
 *
 * Rules for a host:
 * - It serialises all calls on one end, by the lock of the connection or by one lock for all. It
 *   holds that lock during its own calls too, so they must not call back into the end.
 * - It passes the time (microseconds of a monotonic clock, never 0) and calls usiw_cm_end_tick() at
 *   usiw_cm_end_deadline().
 * - It keeps an end in memory until forget() was called and neither user, QP nor event stream
 *   refers to the end.
 *
 * Each call below runs the state machine, carries out its actions from the lowest bit to the
 * highest, and arms the clock. docs/control-plane.md draws the states.
 */
#ifndef USIW_CM_END_H
#define USIW_CM_END_H

#include "../uapi/usiw_abi.h"
#include "usiw_cm.h"
#include "usiw_cm_input.h"
#include "usiw_cm_notify.h"
#include "object/usiw_qp_states.h"

#ifdef __cplusplus
extern "C" {
#endif

struct usiw_cm_end;

/* Time between two look-ups of the route while the MAC of the next hop is not known, us. */
#define USIW_CM_RESOLVE_US	20000u

/* Ports that an end may use. */
#define USIW_CM_SOCKET		0x1u	/* a data socket */
#define USIW_CM_PACKETS		0x2u	/* raw packets */
#define USIW_CM_MOVES		0x4u	/* it can change between them while connected */

/* The connection as the engine, in the process of the QP, knows it. */
enum usiw_cm_engine {
	USIW_CM_ENGINE_NONE,		/* nothing */
	USIW_CM_ENGINE_RESOLVING,	/* nothing: the MAC of the next hop is not known yet */
	USIW_CM_ENGINE_GIVEN,		/* a CONNECT record has been queued */
	USIW_CM_ENGINE_READY,		/* it has reported READY, and sends */
};

/* The meaning of the present route for raw packets. */
enum usiw_cm_path {
	USIW_CM_PATH_FOLLOWED,		/* nothing unusual */
	USIW_CM_PATH_ELSEWHERE,		/* the route leaves by another interface; this was logged */
	USIW_CM_PATH_FORBIDDEN,		/* raw packets would bypass IPsec or an encapsulation */
};

/**
 * struct usiw_cm_route - the present route of an end, as the host found it
 * @reason:	enum usiw_not_packet: why raw packets cannot use the route, NONE: they can
 * @local:	the route leads to this host
 * @mac_known:	@remote_mac is valid. If it is not, the host has begun to resolve it
 * @peer_ports:	USIW_CM_* of the other end, if that is on this host and has its QP; else 0
 * @hop_limit:	IPv4 TTL or IPv6 hop limit
 * @mtu:	IP MTU, bytes
 * @local_mac:	of the interface
 * @remote_mac:	of the next hop
 * @next_hop:	a number that the host uses for the next hop, for follow()
 * @netdev:	name of the interface, for log()
 */
struct usiw_cm_route {
	__u8 reason;
	__u8 local;
	__u8 mac_known;
	__u8 peer_ports;
	__u8 hop_limit;
	__u16 mtu;
	__u8 local_mac[6];
	__u8 remote_mac[6];
	__s32 next_hop;
	char netdev[16];
};

/* Requests to usiw_cm_host.data(). Its return value counts for IS_OPEN only. */
enum usiw_cm_data {
	USIW_CM_DATA_CLOSE,		/* the connection is over: the data socket stops */
	USIW_CM_DATA_BY_PACKETS,	/* the engine sends and receives by raw packets */
	USIW_CM_DATA_BY_SOCKET,		/* the engine sends and receives by the data socket alone */
	USIW_CM_DATA_IS_OPEN,		/* true if the process has a data socket that can send */
};

enum usiw_cm_log {
	USIW_CM_LOG_NO_CONNECTION,	/* connect has failed; @text is the reason */
	USIW_CM_LOG_ELSEWHERE,		/* the route leaves by another interface, @text */
	USIW_CM_LOG_FORBIDDEN,		/* the end: raw packets would bypass IPsec or a tunnel */
};

/**
 * struct usiw_cm_host - calls that a host supplies; the lock of the end is held
 * @send:	sends a handshake datagram to the peer. Returns 0 or -errno
 * @notify:	notifies the user of USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE.
 *		Returns 0. If there is no memory to notify the user of a REPLY, returns an error,
 *		and REPLY comes again with -ENOMEM
 * @release_user: drops the user, if there is one, who is not notified any more
 * @set_qp_state: sets the state of the QP, if there still is one
 * @release_qp:	drops the QP, if there is one
 * @record:	queues a record of this type for the engine: usiw_cm_records_push() with end->info
 * @route:	looks up the route. Returns 0; -EPERM: a policy forbids the flow; another -errno:
 *		there is no route
 * @follow:	from now on calls usiw_cm_end_follow() when this route or its next hop changes.
 *		NULL: stops that
 * @data:	handles an enum usiw_cm_data
 * @leave_backlog: returns the slot in the listener's backlog, if the connection has one
 * @forget:	removes the end from the table of connections, if it is there, so that no datagram
 *		reaches it any more
 * @arm:	sees to it that usiw_cm_end_tick() is called at usiw_cm_end_deadline(), which may
 *		have changed
 * @log:	writes a line for people. @text may be NULL
 * @acting:	shows each mask of actions before it is carried out. For tests; else NULL
 */
struct usiw_cm_host {
	int (*send)(struct usiw_cm_end *end, const void *data, __u32 len);
	int (*notify)(struct usiw_cm_end *end, __u32 event, int status);
	void (*release_user)(struct usiw_cm_end *end);
	void (*set_qp_state)(struct usiw_cm_end *end, enum usiw_qp_state state);
	void (*release_qp)(struct usiw_cm_end *end);
	void (*record)(struct usiw_cm_end *end, enum usiw_event_type type);
	int (*route)(struct usiw_cm_end *end, struct usiw_cm_route *route);
	void (*follow)(struct usiw_cm_end *end, const struct usiw_cm_route *route);
	int (*data)(struct usiw_cm_end *end, enum usiw_cm_data what);
	void (*leave_backlog)(struct usiw_cm_end *end);
	void (*forget)(struct usiw_cm_end *end);
	void (*arm)(struct usiw_cm_end *end);
	void (*log)(struct usiw_cm_end *end, enum usiw_cm_log what, const char *text);
	void (*acting)(struct usiw_cm_end *end, __u32 actions);
};

/**
 * struct usiw_cm_end - zeroed, then set by usiw_cm_end_init()
 * @host:	calls of the host
 * @id:		names the connection in records and reports, never 0
 * @tuple:	4-tuple of the connection
 * @tos:	IPv4 TOS or IPv6 traffic class of the datagrams that it sends
 * @engine:	enum usiw_cm_engine
 * @path:	enum usiw_cm_path
 * @ports:	USIW_CM_* that its process can use; set by usiw_cm_end_attach(). A host may read it
 *		without the lock
 * @port:	1 + enum usiw_port_kind as the process reported it; 0: no report yet. A host may
 *		read it without the lock
 * @port_why:	enum usiw_port_why. A host may read it without the lock
 * @move_us:	raw packets are forbidden, and the process must have left them by this time; 0: no
 *		limit
 * @resolve_us:	RESOLVING: time of the next look-up
 * @ledger:	notices that the user has been given and is owed
 * @info:	the connection as its records show it. A host may read mtu and flags without the
 *		lock
 * @cm:		the state machine. A host may read state, and the ISNs once they are set, without
 *		the lock
 */
struct usiw_cm_end {
	const struct usiw_cm_host *host;
	__u32 id;
	struct usiw_cm_tuple tuple;
	__u8 tos;
	__u8 engine;
	__u8 path;
	__u8 ports;
	__u8 port;
	__u8 port_why;
	__u64 move_us;
	__u64 resolve_us;
	struct usiw_cm_ledger ledger;
	struct usiw_conn_info info;
	struct usiw_cm_conn cm;
};

void usiw_cm_end_init(struct usiw_cm_end *end, const struct usiw_cm_host *host, __u32 id,
		      const struct usiw_cm_tuple *tuple);

/* The end has a QP and a user now. It has not sent a REQ and has not accepted yet. */
void usiw_cm_end_attach(struct usiw_cm_end *end, __u8 ports);

/* ---- The user ---- */

/*
 * Connects. usiw_cm_init_active() on end->cm and usiw_cm_end_attach() precede. From here on the
 * user gets exactly one REPLY.
 */
void usiw_cm_end_connect(struct usiw_cm_end *end, __u64 now_us);
/*
 * Accepts. usiw_cm_init_passive() on end->cm, usiw_cm_end_may_accept() and usiw_cm_end_attach()
 * precede. Returns 0, and the user gets exactly one ESTABLISHED; or an error of usiw_cm_accept(),
 * and no notice follows.
 */
int usiw_cm_end_accept(struct usiw_cm_end *end, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		       __u64 now_us);
/* Returns 0; -ECONNRESET: the request has ended or was answered. */
int usiw_cm_end_may_accept(const struct usiw_cm_end *end);
void usiw_cm_end_reject(struct usiw_cm_end *end, const void *pd, __u16 pd_len, __u64 now_us);
void usiw_cm_end_disconnect(struct usiw_cm_end *end, __u64 now_us);
/* When the call returns, the user has had its last notice, and user and QP are released. */
void usiw_cm_end_abort(struct usiw_cm_end *end, enum usiw_abort_reason reason, __u64 now_us);
/* The user leaves or got an error, so it is not notified any more. The connection goes on. */
void usiw_cm_end_leave(struct usiw_cm_end *end);
/* The device is being removed: sends one RESET, and does not linger. */
void usiw_cm_end_flush(struct usiw_cm_end *end, __u64 now_us);
/* Forgets an end without a datagram, if it is in LINGER or no user was notified of it. */
void usiw_cm_end_drop(struct usiw_cm_end *end);

/* ---- The engine ---- */

/* Ignores a report on another connection of the QP, and on one that the engine was not given. */
void usiw_cm_end_report(struct usiw_cm_end *end, const struct usiw_qp_report *report, __u64 now_us);

/* ---- The network ---- */

/*
 * A handshake datagram of the 4-tuple; see usiw_cm_input(). The actions are carried out here. The
 * host follows the rest of the verdict.
 */
void usiw_cm_end_input(struct usiw_cm_end *end, struct usiw_cm_verdict *verdict, const void *data,
		       __u32 len, void *answer, __u64 now_us);
/* DATA for which usiw_cm_confirms() is true. */
void usiw_cm_end_data_seen(struct usiw_cm_end *end, __u64 now_us);
/* ICMP for which usiw_cm_quotes() is true. */
void usiw_cm_end_icmp(struct usiw_cm_end *end, enum usiw_cm_heard heard, __u64 now_us);
/*
 * The route may have changed. Shows the engine the new path, if it differs. Without a route, or
 * while the MAC of the next hop is not known, the connection goes on as before.
 */
void usiw_cm_end_follow(struct usiw_cm_end *end, __u64 now_us);

/* ---- The clock ---- */

void usiw_cm_end_tick(struct usiw_cm_end *end, __u64 now_us);
/* Returns the time of the next tick, us; 0: never. */
__u64 usiw_cm_end_deadline(const struct usiw_cm_end *end);

/* ---- Ports ---- */

/*
 * True if two ends on this host have no kind of port in common. @a, @b: USIW_CM_*; 0: not known,
 * which counts as any port.
 */
int usiw_cm_ports_differ(__u8 a, __u8 b);
/*
 * Returns the error of connect and accept for a process that can use nothing but raw packets; 0 for
 * USIW_NOT_PACKET_NONE.
 */
int usiw_cm_not_packet_errno(__u32 not_packet);

/* ---- Checks ---- */

/* Returns NULL, or the invariant that is broken. All of them hold between any two calls. */
const char *usiw_cm_end_check(const struct usiw_cm_end *end);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_END_H */
