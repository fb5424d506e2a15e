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
#include "usiw_conn.h"

static struct usiw_conn *usiw_conn_other_end(const struct usiw_conn *conn)
{
	struct usiw_tuple tuple = {
		.local = conn->tuple.remote,
		.remote = conn->tuple.local,
		.local_port = conn->tuple.remote_port,
		.remote_port = conn->tuple.local_port,
		.scope = conn->tuple.scope,
	};

	return usiw_conn_lookup(conn->net, &tuple);
}

/*
 * What the other end, if it is on this host, is without. It says it when it gets its QP, ahead of
 * its first datagram; who has none yet is without nothing.
 */
static void usiw_conn_peer_lacks(const struct usiw_conn *conn, bool *sockets, bool *packets)
{
	struct usiw_conn *other = usiw_conn_other_end(conn);
	bool takes_socket, takes_packets;

	*sockets = false;
	*packets = false;
	if (!other)
		return;
	takes_socket = READ_ONCE(other->takes_socket);
	takes_packets = READ_ONCE(other->takes_packets);
	*sockets = takes_packets && !takes_socket;
	*packets = takes_socket && !takes_packets;
	usiw_conn_put(other);
}

static bool usiw_conn_ends_differ(const struct usiw_conn *conn, const struct usiw_qp *qp)
{
	bool no_sockets, no_packets;

	usiw_conn_peer_lacks(conn, &no_sockets, &no_packets);
	return (no_sockets && usiw_qp_is_without_packets(qp)) ||
	       (no_packets && !usiw_qp_takes_socket(qp));
}

/*
 * Is there a way back to who has asked for the connection, if @qp accepts? Return 0, or what connect
 * returns; -EPROTONOSUPPORT also if the other end is on this host, and one of them takes raw packets
 * only, the other sockets only. May sleep.
 */
int usiw_conn_check_way(const struct usiw_conn *conn, const struct usiw_qp *qp,
			const struct usiw_sender *sender)
{
	struct usiw_route route;
	int ret;

	ret = usiw_route_get(conn->dev, &conn->tuple, sender, &route);
	if (ret)
		return ret;
	if (!usiw_qp_takes_socket(qp))
		ret = usiw_route_eligible(&route);
	if (!ret && route.local && usiw_conn_ends_differ(conn, qp))
		ret = -EPROTONOSUPPORT;
	usiw_route_put(&route);
	return ret;
}

/* The connection gets its QP, and has not sent or accepted anything yet. */
void usiw_conn_take_ports(struct usiw_conn *conn, const struct usiw_qp *qp)
{
	lockdep_assert_held(&conn->lock);
	WRITE_ONCE(conn->takes_socket, usiw_qp_takes_socket(qp));
	WRITE_ONCE(conn->takes_packets, !usiw_qp_is_without_packets(qp));
	conn->moves = usiw_qp_moves(qp);
	if (!conn->takes_packets)
		usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGED);
	if (usiw_qp_merges(qp))
		usiw_cm_offer(&conn->cm, USIW_FEATURE_MERGES);
}

/*
 * What @route says of raw packets holds for a connection whose ends both take them; and where the
 * other end takes nothing else, neither does this one.
 */
void usiw_conn_judge(struct usiw_conn *conn, struct usiw_route *route)
{
	bool no_sockets = false, no_packets = false;

	lockdep_assert_held(&conn->lock);
	if (route->local)
		usiw_conn_peer_lacks(conn, &no_sockets, &no_packets);
	if (no_sockets && !conn->announced) {
		WRITE_ONCE(conn->takes_socket, false);
		conn->moves = false;
	}
	if (route->reason != USIW_NOT_PACKET_NONE)
		return;
	if (!conn->takes_packets)
		route->reason = USIW_NOT_PACKET_OWN;
	else if (no_packets)
		route->reason = USIW_NOT_PACKET_PEER;
}
