/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * One end of a connection: the state machine of usiw_cm.h with its user, its QP and its path.
 *
 * The state machine only returns actions. To carry them out one has to know more: what the user (an
 * id of rdma_cm) is still owed, whether the engine was given the connection, whether raw packets
 * may still be sent by the present route. Three hosts need this: the module, usiw-run and the
 * simulation. It is therefore here, once, and a host supplies a table of calls: send a datagram,
 * notify the user, set the state of the QP, queue a record for the engine, look up the route, and
 * so on.
 *
 * Rules for a host:
 * - It serialises all calls on one end, by the lock of the connection or by one lock for all. It
 *   holds that lock during its own calls too, so they must not call back into the end.
 * - It hands in the time (microseconds of a monotonic clock, never 0) and calls usiw_cm_end_tick()
 *   at usiw_cm_end_deadline().
 * - It keeps an end in memory until forget() was called and the user, the QP and the event stream
 *   have let go.
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

/* Between two looks for the MAC of the next hop while it is not known, us. */
#define USIW_CM_RESOLVE_US	20000u

/* Ports that an end may send by. */
#define USIW_CM_SOCKET		0x1u	/* a data socket */
#define USIW_CM_PACKETS		0x2u	/* raw packets */
#define USIW_CM_MOVES		0x4u	/* it may change from one to the other while it is connected */

/* How much the engine, in the process of the QP, knows of the connection. */
enum usiw_cm_engine {
	USIW_CM_ENGINE_NONE,		/* nothing */
	USIW_CM_ENGINE_RESOLVING,	/* nothing: the MAC of the next hop is not known yet */
	USIW_CM_ENGINE_GIVEN,		/* a CONNECT record has been queued */
	USIW_CM_ENGINE_READY,		/* it has reported READY, and sends */
};

/* The meaning of the present route for raw packets. */
enum usiw_cm_path {
	USIW_CM_PATH_FOLLOWED,		/* nothing unusual */
	USIW_CM_PATH_ELSEWHERE,		/* the route leaves by another interface, which has been logged */
	USIW_CM_PATH_FORBIDDEN,		/* raw packets would bypass IPsec or an encapsulation */
};

/**
 * struct usiw_cm_route - the present route of an end, as the host found it
 * @reason:	enum usiw_not_packet: why raw packets do not get there, as far as the route says so
 * @local:	the route leads to this host
 * @mac_known:	@remote_mac is valid. If it is not, the host has begun to resolve it
 * @peer_ports:	USIW_CM_* of the other end if that is on this host and has its QP, else 0
 * @hop_limit:	IPv4 TTL or IPv6 hop limit
 * @mtu:	IP MTU, bytes
 * @local_mac:	of the interface
 * @remote_mac:	of the next hop
 * @next_hop:	the host's name of the next hop, for follow()
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

/* Requests to usiw_cm_host.data(), whose return value counts for IS_OPEN only. */
enum usiw_cm_data {
	USIW_CM_DATA_CLOSE,		/* the connection is over: its data socket neither sends nor receives */
	USIW_CM_DATA_BY_PACKETS,	/* the engine sends and receives by raw packets */
	USIW_CM_DATA_BY_SOCKET,		/* ... by the data socket alone */
	USIW_CM_DATA_IS_OPEN,		/* does the process have a data socket that it can send by? */
};

enum usiw_cm_log {
	USIW_CM_LOG_NO_CONNECTION,	/* connect has failed; @text is the reason */
	USIW_CM_LOG_ELSEWHERE,		/* the route leaves by another interface, which the text names */
	USIW_CM_LOG_FORBIDDEN,		/* the connection ends: raw packets would bypass IPsec or a tunnel */
};

/**
 * struct usiw_cm_host - calls that a host supplies; the lock of the end is held
 * @send:	sends a handshake datagram to the peer. Returns 0 or -errno
 * @notify:	notifies the user of USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE. Returns 0, or an error
 *		if the user cannot be notified of a REPLY for want of memory; then REPLY comes again with -ENOMEM
 * @release_user: drops the user, if there is one: it is not notified any more
 * @set_qp_state: sets the state of the QP, if there still is one
 * @release_qp:	drops the QP, if there is one
 * @record:	queues a record of this type for the engine: usiw_cm_records_push() with end->info
 * @route:	looks up the route. Returns 0; -EPERM if a policy forbids the flow; another -errno if there is no route
 * @follow:	has usiw_cm_end_follow() called when this route or its next hop changes; NULL: no longer
 * @data:	enum usiw_cm_data
 * @leave_backlog: returns the slot in the listener's backlog, if the connection has one
 * @forget:	removes the end from the table of connections, if it is there: no datagram reaches it any more
 * @arm:	has usiw_cm_end_tick() called at usiw_cm_end_deadline(), which may have changed
 * @log:	writes a line for people. @text may be NULL
 * @acting:	NULL, or: is shown each mask of actions before it is carried out (for tests)
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
 * @host:	what it is built on
 * @id:		names the connection in records and reports, never 0
 * @tuple:	its ends
 * @tos:	IPv4 TOS or IPv6 traffic class of what it sends
 * @engine:	enum usiw_cm_engine
 * @path:	enum usiw_cm_path
 * @ports:	USIW_CM_* that its process can use; set by usiw_cm_end_attach(). A host may read it without the lock
 * @port:	1 + enum usiw_port_kind as the process reported it, 0: it has not. Likewise
 * @port_why:	enum usiw_port_why, likewise
 * @move_us:	when the process must have left raw packets, which are forbidden; 0: it need not
 * @resolve_us:	RESOLVING: next look for the MAC
 * @ledger:	notices that the user has had and is owed
 * @info:	the connection as its records show it. A host may read mtu and flags without the lock
 * @cm:		the state machine. A host may read state, and the ISNs once they are set, without the lock
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

/* The end has a QP and a user now, and has not sent CONNECT's REQ or accepted yet. */
void usiw_cm_end_attach(struct usiw_cm_end *end, __u8 ports);

/* ---- The user ---- */

/*
 * After usiw_cm_init_active() on end->cm and attach: the user gets exactly one REPLY from here on.
 */
void usiw_cm_end_connect(struct usiw_cm_end *end, __u64 now_us);
/*
 * After usiw_cm_init_passive() on end->cm, usiw_cm_end_may_accept() and attach. Returns 0, and the
 * user gets exactly one ESTABLISHED; or what usiw_cm_accept() returns, and the request has ended
 * without a notice.
 */
int usiw_cm_end_accept(struct usiw_cm_end *end, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		       __u64 now_us);
/* 0 or -ECONNRESET: the request has gone, or has been answered. */
int usiw_cm_end_may_accept(const struct usiw_cm_end *end);
void usiw_cm_end_reject(struct usiw_cm_end *end, const void *pd, __u16 pd_len, __u64 now_us);
void usiw_cm_end_disconnect(struct usiw_cm_end *end, __u64 now_us);
/* When it returns, the user has had its last notice, and user and QP are released. */
void usiw_cm_end_abort(struct usiw_cm_end *end, enum usiw_abort_reason reason, __u64 now_us);
/* The user goes away, or has had an error: it is not notified any more. The connection goes on. */
void usiw_cm_end_leave(struct usiw_cm_end *end);
/* The device goes: RESET once, without lingering. */
void usiw_cm_end_flush(struct usiw_cm_end *end, __u64 now_us);
/* Forgets an end without a datagram: it only lingers for its peer, or no user was notified of it. */
void usiw_cm_end_drop(struct usiw_cm_end *end);

/* ---- The engine ---- */

/* A report on another connection, or on one that the engine was not given, is ignored. */
void usiw_cm_end_report(struct usiw_cm_end *end, const struct usiw_qp_report *report, __u64 now_us);

/* ---- The network ---- */

/*
 * A handshake datagram of the 4-tuple: see usiw_cm_input(), whose other results are the host's to
 * carry out.
 */
void usiw_cm_end_input(struct usiw_cm_end *end, struct usiw_cm_verdict *verdict, const void *data,
		       __u32 len, void *answer, __u64 now_us);
/* DATA for which usiw_cm_confirms() is true. */
void usiw_cm_end_data_seen(struct usiw_cm_end *end, __u64 now_us);
/* ICMP for which usiw_cm_quotes() is true. */
void usiw_cm_end_icmp(struct usiw_cm_end *end, enum usiw_cm_heard heard, __u64 now_us);
/*
 * The route may have changed: the engine is shown what is different. Without a route, or while the
 * next hop is not known, the connection goes on as it was.
 */
void usiw_cm_end_follow(struct usiw_cm_end *end, __u64 now_us);

/* ---- The clock ---- */

void usiw_cm_end_tick(struct usiw_cm_end *end, __u64 now_us);
/* When tick has something to do, us; 0: never. */
__u64 usiw_cm_end_deadline(const struct usiw_cm_end *end);

/* ---- Ports ---- */

/*
 * True if the two ends, both on this host, have no kind of port in common. @a, @b: USIW_CM_*; 0:
 * not known.
 */
int usiw_cm_ports_differ(__u8 a, __u8 b);
/*
 * Returns 0 for USIW_NOT_PACKET_NONE, else the error of connect and accept for a process that can
 * use raw packets alone.
 */
int usiw_cm_not_packet_errno(__u32 not_packet);

/* ---- Checks ---- */

/* NULL, or what is wrong with the end: its invariants hold between any two calls. */
const char *usiw_cm_end_check(const struct usiw_cm_end *end);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_END_H */
