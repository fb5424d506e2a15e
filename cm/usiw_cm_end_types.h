/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Data of one end of a connection: the end, its route, and the calls that a host supplies.
 *
 * usiw_cm_end.c calls usiw_cm_path.c, and both need these structures. So the structures are in a
 * header below both. usiw_cm_end.h explains how a host uses an end.
 */
#ifndef USIW_CM_END_TYPES_H
#define USIW_CM_END_TYPES_H

#include "../uapi/usiw_abi.h"
#include "usiw_cm_notify.h"
#include "usiw_cm_types.h"
#include "object/usiw_qp_states.h"

struct usiw_cm_end;

/* Time between two look-ups of the route while the MAC of the next hop is not known, us. */
#define USIW_CM_RESOLVE_US	20000u

/* Ports that an end may use, as a mask. */
#define USIW_CM_SOCKET		0x1u	/* a data socket */
#define USIW_CM_PACKETS		0x2u	/* raw packets */
#define USIW_CM_MOVES		0x4u	/* it can change its port while connected */

/* Steps in which the engine, which runs in the process of the QP, gets the connection. */
enum usiw_cm_engine {
	USIW_CM_ENGINE_NONE,		/* the engine does not know the connection */
	USIW_CM_ENGINE_RESOLVING,	/* the same, until the MAC of the next hop is known */
	USIW_CM_ENGINE_GIVEN,		/* a CONNECT record has been queued */
	USIW_CM_ENGINE_READY,		/* the engine has reported READY, and sends */
};

/*
 * The meaning of the present route for raw packets. Only a look-up after CONNECT leads to
 * FORBIDDEN. A connection that begins on such a route uses its data socket, and is FOLLOWED.
 */
enum usiw_cm_path {
	USIW_CM_PATH_FOLLOWED,		/* neither of the following */
	USIW_CM_PATH_ELSEWHERE,		/* raw packets do not reach the peer by the route */
	USIW_CM_PATH_FORBIDDEN,		/* raw packets would bypass IPsec or an encapsulation */
};

/**
 * struct usiw_cm_route - the present route of an end, as the host found it
 * @reason:	enum usiw_not_packet: why raw packets cannot use the route; NONE if they can
 * @local:	the route leads to this host
 * @mac_known:	@remote_mac is valid. If it is not although raw packets can use the route, the
 *		kernel resolves it, because the handshake or the host has used the next hop
 * @peer_ports:	ports (USIW_CM_*) of the other end, if that end is on this host and has a QP; 0 if
 *		it is not, or if the host does not know (usiw-run)
 * @hop_limit:	IPv4 TTL or IPv6 hop limit
 * @mtu:	IP MTU, bytes
 * @local_mac:	MAC of the interface
 * @remote_mac:	MAC of the next hop
 * @next_hop:	the host's number of the next hop. cm/ only passes it on to follow()
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

/* Requests to usiw_cm_host.data(), whose return value counts only for IS_OPEN. */
enum usiw_cm_data {
	USIW_CM_DATA_CLOSE,		/* stop the data socket: the connection is over */
	USIW_CM_DATA_BY_PACKETS,	/* the engine uses raw packets now */
	USIW_CM_DATA_BY_SOCKET,		/* the engine uses only the data socket now */
	USIW_CM_DATA_IS_OPEN,		/* does the process have a data socket that can send? */
};

/* Events that a host logs for people. */
enum usiw_cm_log {
	USIW_CM_LOG_NO_CONNECTION,	/* connect has failed; @text is the reason */
	USIW_CM_LOG_ELSEWHERE,		/* the route leaves by the interface @text */
	USIW_CM_LOG_FORBIDDEN,		/* the connection ends: raw packets are forbidden */
};

/**
 * struct usiw_cm_host - calls that a host supplies. The host holds the lock of @end meanwhile
 * @send:	sends a handshake datagram to the peer. Returns 0 or -errno
 * @notify:	notifies the user of USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE.
 *		Returns 0. If there is no memory to notify the user of a REPLY, returns an error,
 *		and REPLY comes again with -ENOMEM
 * @release_user: drops the user, if there is one. No notice follows
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
 * @arm:	schedules the call of usiw_cm_end_tick() at usiw_cm_end_deadline(), which may have
 *		changed
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

/* Stores a value in one piece, because a host reads such fields without the lock of the end. */
#ifdef __KERNEL__
#define USIW_CM_PUBLISH(field, value)	WRITE_ONCE(field, value)
#else
#define USIW_CM_PUBLISH(field, value)	__atomic_store_n(&(field), value, __ATOMIC_RELAXED)
#endif

/**
 * struct usiw_cm_end - one end of a connection: its state machine, path and notices
 * @host:	calls of the host
 * @id:		names the connection in records and reports, never 0
 * @tuple:	4-tuple of the connection
 * @tos:	IPv4 TOS or IPv6 traffic class of the datagrams that it sends
 * @engine:	enum usiw_cm_engine
 * @path:	enum usiw_cm_path
 * @ports:	ports (USIW_CM_*) that its process can use; set by usiw_cm_end_attach(), and reduced
 *		to raw packets for a peer on this host that has nothing else. A host may read it
 *		without the lock
 * @port:	1 + enum usiw_port_kind as the process reported it; 0: no report yet. A host may
 *		read it without the lock
 * @hinted:	a hint about a silent connection that does not come about has been logged
 * @port_why:	enum usiw_port_why. A host may read it without the lock
 * @move_us:	time by which the process must report another port, because raw packets are
 *		forbidden; 0: no limit
 * @resolve_us:	RESOLVING: time of the next look-up
 * @ledger:	notices that the user has been given and is owed
 * @info:	the connection as its records show it. A host may read mtu and flags without the
 *		lock
 * @cm:		the state machine. A host may read state, and the ISNs once they are set, without
 *		the lock
 *
 * The host calls usiw_cm_end_init() first. "The lock" is the one by which the host serialises its
 * calls on the end (usiw_cm_end.h).
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
	__u8 hinted;
	__u64 move_us;
	__u64 resolve_us;
	struct usiw_cm_ledger ledger;
	struct usiw_conn_info info;
	struct usiw_cm_conn cm;
};

#endif /* USIW_CM_END_TYPES_H */
