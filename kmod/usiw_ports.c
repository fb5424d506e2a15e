// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Rules about the ports that the two ends of a connection may use, beside those of the route.
 *
 * A context may be without raw packets (USIW_CAP_SOCKETS_ONLY) or without data sockets. Other hosts
 * need not know which, because the wire has the same datagrams either way. An end that receives by
 * sockets reports only that, in the handshake. If both ends do, their kernels may pass several
 * datagrams on as one aggregate (USIW_FEATURE_MERGED). An end that receives aggregates at times,
 * while messages are long, reports that in the handshake (USIW_FEATURE_MERGES), and in each header
 * whether it does so now.
 *
 * Within one host the kinds have to be equal. Over lo IP drops a datagram with an address of its
 * own host unless it came out of its own sockets, so a raw packet reaches raw ports only. Both ends
 * are in the table of connections, so each looks the other up there.
 */
#include "usiw_ports.h"

#include "../cm/usiw_cm_path.h"
#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_qp_ref.h"
#include "usiw_route.h"

/* Returns USIW_CM_*: the ports that the process of @qp can use. */
u8 usiw_ports_of_qp(const struct usiw_qp *qp)
{
	return (usiw_qp_can(qp, USIW_CAP_DATA_SOCKET) ? USIW_CM_SOCKET : 0) |
	       (usiw_qp_can(qp, USIW_CAP_SOCKETS_ONLY) ? 0 : USIW_CM_PACKETS) |
	       (usiw_qp_can(qp, USIW_CAP_PORT_MOVE) ? USIW_CM_MOVES : 0);
}

/*
 * Returns USIW_CM_*: the ports of the other end, 0 if that is not on this host. The other end sets
 * them when it gets its QP, before its first datagram.
 */
u8 usiw_conn_peer_ports(const struct usiw_conn *conn)
{
	const struct usiw_tuple *ends = usiw_conn_tuple(conn);
	const struct usiw_tuple tuple = {
		.local = ends->remote,
		.remote = ends->local,
		.local_port = ends->remote_port,
		.remote_port = ends->local_port,
		.scope = ends->scope,
	};
	struct usiw_conn *other = usiw_conn_lookup(conn->net, &tuple);
	u8 ports = 0;

	if (other) {
		ports = READ_ONCE(other->end.ports);
		usiw_conn_put(other);
	}
	return ports;
}

/*
 * Checks whether there is a way back to the peer if @qp accepts. Returns 0, or the error that
 * connect would return. Returns -EPROTONOSUPPORT also if the other end is on this host and the two
 * have no kind of port in common. May sleep.
 */
int usiw_conn_check_way(const struct usiw_conn *conn, const struct usiw_qp *qp,
			const struct usiw_sender *sender)
{
	struct usiw_route route;
	int ret;

	ret = usiw_route_get(conn->dev, usiw_conn_tuple(conn), sender, &route);
	if (ret)
		return ret;
	if (!usiw_qp_can(qp, USIW_CAP_DATA_SOCKET))
		ret = usiw_cm_not_packet_errno(route.reason);
	if (!ret && route.local &&
	    usiw_cm_ports_differ(usiw_conn_peer_ports(conn), usiw_ports_of_qp(qp)))
		ret = -EPROTONOSUPPORT;
	usiw_route_put(&route);
	return ret;
}
