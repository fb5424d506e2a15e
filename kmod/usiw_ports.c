// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Which ports the two ends of a connection may use, as far as that is not a matter of the route.
 *
 * A context may be without raw packets (USIW_CAP_SOCKETS_ONLY) or without data sockets. To other
 * hosts that is each end's own affair: on the wire there are datagrams either way. Who receives by
 * sockets only says so in the handshake, and where both do, their kernels may hand over several
 * datagrams as one frame (USIW_FEATURE_MERGED). Who may do so for a while, while messages are long,
 * says that in the handshake, too (USIW_FEATURE_MERGES), and when it does in each header.
 *
 * Within one host it is not: over lo IP takes no datagram that carries an address of its own host
 * and did not come out of its own sockets, so a raw packet reaches raw ports only, and the ends
 * have to use the same kind. Both are in the table of connections, where each looks the other up.
 */
#include "usiw_ports.h"

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
 * Is there a way back to who has asked for the connection, if @qp accepts? Return 0, or what
 * connect returns; -EPROTONOSUPPORT also if the other end is on this host, and one of them takes
 * raw packets only, the other sockets only. May sleep.
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
