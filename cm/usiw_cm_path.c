// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The path of a connection: how it begins, and how it follows the routes of its host.
 *
 * The engine may send Ethernet frames of its own, as raw packets. They bypass IP in the kernel, so
 * the work that IP does for a socket has to be done here: find the interface and the MAC of the
 * next hop, notice changes of the route, and stop the frames when they would bypass IPsec or an
 * encapsulation. If raw packets cannot go on, a process that can change ports (USIW_CM_MOVES) uses
 * its data socket instead, because the kernel handles sockets by itself. Any other connection goes
 * on with raw packets, or ends if they are forbidden.
 *
 * The process changes ports by itself and reports that. Only one decision here depends on the
 * report: a connection whose raw packets are forbidden ends if its process does not report another
 * port within USIW_MOVE_MS.
 */
#ifdef __KERNEL__
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <string.h>
#endif

#include "usiw_cm.h"
#include "usiw_cm_path.h"

/* ---- Meaning of the route ---------------------------------------------- */

int usiw_cm_ports_differ(__u8 a, __u8 b)
{
	const __u8 kinds = USIW_CM_SOCKET | USIW_CM_PACKETS;

	return (a & kinds) && (b & kinds) && !(a & b & kinds);
}

int usiw_cm_not_packet_errno(__u32 not_packet)
{
	switch (not_packet) {
	case USIW_NOT_PACKET_NONE:
		return 0;
	case USIW_NOT_PACKET_NETDEV:
		return -ENETUNREACH;
	default:
		return -EPROTONOSUPPORT;
	}
}

/*
 * Completes @route->reason, which the host has set by the network alone. Raw packets also require
 * that both ends can receive them. Two ends on one host must use the same kind of port, because IP
 * accepts no raw packet from an address of its own. So if the peer there has raw packets only, this
 * end gives up its data socket before the engine gets the connection.
 */
static void judge(struct usiw_cm_end *end, struct usiw_cm_route *route)
{
	__u8 peer = route->local ? route->peer_ports & (USIW_CM_SOCKET | USIW_CM_PACKETS) : 0;

	if (peer == USIW_CM_PACKETS && end->engine < USIW_CM_ENGINE_GIVEN)
		USIW_CM_PUBLISH(end->ports, end->ports & USIW_CM_PACKETS);
	if (route->reason != USIW_NOT_PACKET_NONE)
		return;
	/* With MERGED the peer sends GSO aggregates, which a raw port cannot cut into datagrams. */
	if (!(end->ports & USIW_CM_PACKETS) || end->cm.features & USIW_FEATURE_MERGED)
		route->reason = USIW_NOT_PACKET_OWN;
	else if (peer == USIW_CM_SOCKET)
		route->reason = USIW_NOT_PACKET_PEER;
}

/*
 * Returns the MTU of the connection by this route, bytes: USIW_MIN_MTU up to the MTU of the
 * handshake.
 */
static __u16 path_mtu(const struct usiw_cm_end *end, const struct usiw_cm_route *route)
{
	if (route->mtu > end->cm.mtu)
		return end->cm.mtu;
	return route->mtu < USIW_MIN_MTU ? USIW_MIN_MTU : route->mtu;
}

/* ---- The beginning ----------------------------------------------------- */

static int is_ipv4(const struct usiw_cm_tuple *t)
{
	int i, bits = t->local[10] ^ 0xff;

	bits |= t->local[11] ^ 0xff;
	for (i = 0; i < 10; i++)
		bits |= t->local[i];
	return !bits;
}

void usiw_cm_fill_info(struct usiw_conn_info *info, const struct usiw_cm_conn *c,
		       const struct usiw_cm_tuple *tuple)
{
	memset(info, 0, sizeof(*info));
	memcpy(info->local_addr, tuple->local, sizeof(info->local_addr));
	memcpy(info->remote_addr, tuple->remote, sizeof(info->remote_addr));
	info->local_port = tuple->local_port;
	info->remote_port = tuple->remote_port;
	info->scope = tuple->scope;
	if (c->initiator)
		info->flags |= USIW_CONN_F_INITIATOR;
	if (!is_ipv4(tuple))
		info->flags |= USIW_CONN_F_IPV6;
	if (c->silent)
		info->flags |= USIW_CONN_F_SILENT;
	info->snd_psn = c->local_isn;
	info->rcv_psn = c->peer_isn;
	info->snd_window = c->peer_window;
	info->ird = c->ird;
	info->ord = c->ord;
	info->mtu = c->mtu;
	info->handshake_mtu = c->mtu;
	info->features = c->features;
}

/*
 * Gives the connection to the engine, which may begin with raw packets if @route permits them and
 * the MAC of the next hop is known.
 */
static void announce(struct usiw_cm_end *end, const struct usiw_cm_route *route)
{
	int packets = route->reason == USIW_NOT_PACKET_NONE && route->mac_known;
	struct usiw_conn_info *info = &end->info;

	usiw_cm_fill_info(info, &end->cm, &end->tuple);
	if (packets) {
		memcpy(info->local_mac, route->local_mac, sizeof(info->local_mac));
		memcpy(info->remote_mac, route->remote_mac, sizeof(info->remote_mac));
	}
	if (end->ports & USIW_CM_SOCKET) {
		info->flags |= USIW_CONN_F_SOCKET;
		if (packets)
			info->flags |= USIW_CONN_F_PACKET;
		else
			info->not_packet = route->reason ? route->reason : USIW_NOT_PACKET_NETDEV;
	}
	if (route->local)
		info->flags |= USIW_CONN_F_LOCAL;
	info->mtu = path_mtu(end, route);
	info->hop_limit = route->hop_limit;
	info->tos = end->tos;
	end->path = route->reason == USIW_NOT_PACKET_NETDEV ? USIW_CM_PATH_ELSEWHERE :
							      USIW_CM_PATH_FOLLOWED;
	end->engine = USIW_CM_ENGINE_GIVEN;
	end->host->follow(end, route);
	end->host->record(end, USIW_EVENT_CONNECT);
}

/*
 * Carries out INSTALL. Raw packets need the MAC of the next hop, which the kernel knows from the
 * handshake as a rule. If the MAC is not known, a connection that can change its port begins with
 * the data socket. For another connection the look-up is repeated every USIW_CM_RESOLVE_US, until
 * INSTALLING expires.
 */
__u32 usiw_cm_path_install(struct usiw_cm_end *end, __u64 now_us)
{
	struct usiw_cm_route route;

	end->engine = USIW_CM_ENGINE_NONE;
	memset(&route, 0, sizeof(route));
	if (end->host->route(end, &route))
		return usiw_cm_refused(&end->cm, -EHOSTUNREACH, now_us);
	judge(end, &route);
	if (route.reason != USIW_NOT_PACKET_NONE && !(end->ports & USIW_CM_SOCKET))
		return usiw_cm_refused(&end->cm, usiw_cm_not_packet_errno(route.reason), now_us);
	if (route.reason == USIW_NOT_PACKET_NONE && !route.mac_known &&
	    (end->ports & (USIW_CM_SOCKET | USIW_CM_MOVES)) != (USIW_CM_SOCKET | USIW_CM_MOVES)) {
		end->engine = USIW_CM_ENGINE_RESOLVING;
		end->resolve_us = now_us + USIW_CM_RESOLVE_US;
		return 0;
	}
	announce(end, &route);
	return 0;
}

/* ---- Changes ----------------------------------------------------------- */

/*
 * Queues a PATH record, if the path differs from the one that the engine knows. @route: the new
 * route. With NULL (no route), MTU and MACs stay as they were. @packets: the engine may send raw
 * packets. @not_packet: the reason if it may not, else NONE.
 */
static void show_path(struct usiw_cm_end *end, const struct usiw_cm_route *route, int packets,
		      __u32 not_packet)
{
	const struct usiw_conn_info before = end->info;
	struct usiw_conn_info *info = &end->info;

	if (route && route->reason == USIW_NOT_PACKET_NONE) {
		memcpy(info->local_mac, route->local_mac, sizeof(info->local_mac));
		if (route->mac_known)
			memcpy(info->remote_mac, route->remote_mac, sizeof(info->remote_mac));
	}
	if (route)
		USIW_CM_PUBLISH(info->mtu, path_mtu(end, route));
	USIW_CM_PUBLISH(info->flags, (info->flags & ~(__u32)USIW_CONN_F_PACKET) |
					     (packets ? USIW_CONN_F_PACKET : 0));
	info->not_packet = not_packet;
	if (memcmp(&before, info, sizeof(before)))
		end->host->record(end, USIW_EVENT_PATH);
}

/* Ends a connection, because raw packets are forbidden and the process has not left them. */
static __u32 end_forbidden(struct usiw_cm_end *end, __u64 now_us)
{
	end->move_us = 0;
	end->host->log(end, USIW_CM_LOG_FORBIDDEN, NULL);
	return usiw_cm_abort(&end->cm, USIW_ABORT_LOCAL, now_us);
}

/*
 * True if the engine sends raw packets. Before READY it sends nothing. A ready engine that has not
 * reported a port counts as one that sends raw packets.
 */
static int sends_packets(const struct usiw_cm_end *end)
{
	return end->port ? end->port == 1 + USIW_PORT_PACKET : end->engine == USIW_CM_ENGINE_READY;
}

/*
 * Sets or clears the deadline end->move_us. If raw packets are forbidden and the process uses them,
 * it has USIW_MOVE_MS to change to its data socket. Without an open socket the connection ends at
 * once.
 */
static __u32 expect_move(struct usiw_cm_end *end, __u64 now_us)
{
	if (end->path != USIW_CM_PATH_FORBIDDEN || !sends_packets(end))
		end->move_us = 0;
	else if (!end->host->data(end, USIW_CM_DATA_IS_OPEN))
		return end_forbidden(end, now_us);
	else if (!end->move_us)
		end->move_us = now_us + USIW_MOVE_MS * 1000u;
	return 0;
}

/* Handles a route on which raw packets are forbidden, because of @reason. */
static __u32 forbid(struct usiw_cm_end *end, const struct usiw_cm_route *route, __u32 reason,
		    __u64 now_us)
{
	if (!(end->ports & USIW_CM_MOVES))
		return end_forbidden(end, now_us);
	end->path = USIW_CM_PATH_FORBIDDEN;
	show_path(end, route, 0, reason);
	return expect_move(end, now_us);
}

/* Notes that the path does not forbid raw packets, and clears the deadline for leaving them. */
static void permit(struct usiw_cm_end *end, enum usiw_cm_path path)
{
	end->path = path;
	end->move_us = 0;
}

/*
 * Handles a route by which raw packets do not reach the peer. A process that can change its port
 * gets a PATH record. Another process continues as before, although its datagrams may not arrive.
 */
static void elsewhere(struct usiw_cm_end *end, const struct usiw_cm_route *route)
{
	int news = end->path != USIW_CM_PATH_ELSEWHERE;

	permit(end, USIW_CM_PATH_ELSEWHERE);
	if (end->ports & USIW_CM_MOVES)
		show_path(end, route, 0, route->reason);
	if (news)
		end->host->log(end, USIW_CM_LOG_ELSEWHERE, route->netdev);
}

/*
 * Handles a route by which raw packets reach the peer. While the MAC of the next hop is not known,
 * a connection that uses raw packets continues with the old MAC. A connection that uses its data
 * socket does not change to raw packets yet.
 */
static void follow_packets(struct usiw_cm_end *end, const struct usiw_cm_route *route)
{
	int had = end->info.flags & USIW_CONN_F_PACKET;
	int packets = route->mac_known ? had || end->ports & USIW_CM_MOVES : had;

	permit(end, USIW_CM_PATH_FOLLOWED);
	end->host->follow(end, route);
	show_path(end, route, packets, packets ? USIW_NOT_PACKET_NONE : end->info.not_packet);
}

/*
 * True if the connection stays on its data socket, whose route the kernel follows by itself. The
 * process then has the data socket and cannot change its port. The process uses the socket if the
 * CONNECT record did not permit raw packets, or if the socket is still open.
 */
static int is_followed_by_kernel(struct usiw_cm_end *end)
{
	return (end->ports & (USIW_CM_SOCKET | USIW_CM_MOVES)) == USIW_CM_SOCKET &&
	       (!(end->info.flags & USIW_CONN_F_PACKET) ||
		end->host->data(end, USIW_CM_DATA_IS_OPEN));
}

/* Applies a new route to a connection that the engine has. */
static __u32 follow_to(struct usiw_cm_end *end, struct usiw_cm_route *route, __u64 now_us)
{
	int was_local = !!(end->info.flags & USIW_CONN_F_LOCAL);

	judge(end, route);
	switch (route->reason) {
	case USIW_NOT_PACKET_IPSEC:
	case USIW_NOT_PACKET_ENCAP:
		return forbid(end, route, route->reason, now_us);
	case USIW_NOT_PACKET_OWN:
	case USIW_NOT_PACKET_PEER:
		if (!(end->ports & USIW_CM_MOVES)) {
			elsewhere(end, route);
			return 0;
		}
		permit(end, USIW_CM_PATH_FOLLOWED);
		show_path(end, route, 0, route->reason);
		return 0;
	case USIW_NOT_PACKET_NONE:
		if (!!route->local == was_local) {
			follow_packets(end, route);
			return 0;
		}
		/*
		 * The route has left lo or leads to lo now, and the raw port is on the other
		 * interface.
		 */
		route->reason = USIW_NOT_PACKET_NETDEV;
		elsewhere(end, route);
		return 0;
	default:
		elsewhere(end, route);
		return 0;
	}
}

__u32 usiw_cm_path_follow(struct usiw_cm_end *end, __u64 now_us)
{
	struct usiw_cm_route route;
	int error;

	if (end->engine < USIW_CM_ENGINE_GIVEN || usiw_cm_is_over(&end->cm) ||
	    is_followed_by_kernel(end))
		return 0;
	memset(&route, 0, sizeof(route));
	error = end->host->route(end, &route);
	if (error == -EPERM)
		return forbid(end, NULL, USIW_NOT_PACKET_IPSEC, now_us);
	return error ? 0 : follow_to(end, &route, now_us);
}

/* ---- The port that the process has reported ---------------------------- */

/* Notifies the host of the port that the engine uses. */
static void show_port(struct usiw_cm_end *end)
{
	end->host->data(end, sends_packets(end) ? USIW_CM_DATA_BY_PACKETS : USIW_CM_DATA_BY_SOCKET);
}

void usiw_cm_path_ready(struct usiw_cm_end *end)
{
	end->engine = USIW_CM_ENGINE_READY;
	show_port(end);
}

__u32 usiw_cm_path_port(struct usiw_cm_end *end, __u32 port, __u32 why, __u64 now_us)
{
	USIW_CM_PUBLISH(end->port, (__u8)(1 + port));
	USIW_CM_PUBLISH(end->port_why, (__u8)why);
	show_port(end);
	return usiw_cm_is_over(&end->cm) ? 0 : expect_move(end, now_us);
}

/* ---- The clock --------------------------------------------------------- */

__u32 usiw_cm_path_tick(struct usiw_cm_end *end, __u64 now_us)
{
	if (end->move_us && now_us >= end->move_us)
		return end_forbidden(end, now_us);
	if (end->engine == USIW_CM_ENGINE_RESOLVING && now_us >= end->resolve_us)
		return usiw_cm_path_install(end, now_us);
	return 0;
}
