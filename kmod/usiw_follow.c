// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connections follow their routes: next hop, own MAC, MTU of the path, and whether raw packets
 * may be used at all.
 *
 * The kernel tells of neighbours (netevent), of its own MACs (netdev) and of path MTUs (ICMP to
 * the socket). Of routes, rules, next-hop objects and IPsec policies it has generation numbers,
 * which its own sockets compare before they send (dst_check()); here a device compares them every
 * USIW_FOLLOW_MS while it has connections, at a cost that does not depend on their number. The
 * FIB notifier would be no help: it begins with a dump of all tables, calls for each route under
 * the table's lock, and says nothing of policies and replaced next-hop objects.
 *
 * When a number has changed each connection looks its route up again, USIW_FOLLOW_BURST in each
 * USIW_FOLLOW_MS. Without any change each one does in USIW_FOLLOW_USE_MS as well, fewer at a
 * time: engines send past the neighbour table, so this is the use that makes the kernel verify
 * next hops, and what has no number (redirects, path MTUs that time out) is seen by it.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/sched.h>
#include <net/net_namespace.h>

#include "usiw_conn.h"

/* ---- A connection ------------------------------------------------------ */

/* The MTU that @conn may use on @route, once it has its own. */
u16 usiw_conn_mtu(const struct usiw_conn *conn, const struct usiw_route *route)
{
	lockdep_assert_held(&conn->lock);
	return clamp_t(u16, route->mtu, USIW_MIN_MTU, conn->cm.mtu);
}

void usiw_conn_set_nexthop(struct usiw_conn *conn, int bucket)
{
	struct usiw_device *dev = conn->dev;

	lockdep_assert_held(&conn->lock);
	if (conn->nexthop_bucket >= 0)
		atomic_dec(&dev->nexthops[conn->nexthop_bucket]);
	if (bucket >= 0)
		atomic_inc(&dev->nexthops[bucket]);
	WRITE_ONCE(conn->nexthop_bucket, bucket);
}

/*
 * PATH without F_PACKET, to a process whose connection can go on by another port. @mtu: 0 if it is
 * not known.
 */
static void usiw_conn_lose_packets(struct usiw_conn *conn, enum usiw_not_packet reason, u16 mtu)
{
	const struct usiw_path path = { .mtu = mtu, .not_packet = reason };

	lockdep_assert_held(&conn->lock);
	usiw_evfile_path(conn, &path);
}

/* What follows returns the actions that are due: see usiw_conn_perform(). */

static u32 usiw_conn_end_forbidden(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	usiw_count(conn->dev, USIW_KCNT_ROUTE_FORBIDDEN);
	pr_warn_ratelimited("%s: %pI6c to %pI6c ends: raw packets would go past IPsec or a tunnel now\n",
			    dev_name(&conn->dev->ibdev.dev), &conn->tuple.local,
			    &conn->tuple.remote);
	return usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, usiw_now_us());
}

/* By its word. An engine sends nothing before it is ready, and need not have said its port. */
static bool usiw_conn_sends_packets(const struct usiw_conn *conn)
{
	return conn->port ? conn->port == 1 + USIW_PORT_PACKET : conn->ready;
}

/* The engine is ready, or has told its port. */
void usiw_conn_port_known(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	usiw_data_by_packets(conn, usiw_conn_sends_packets(conn));
}

/*
 * Have the process move a connection whose raw packets are forbidden, as it has been told: it gets
 * USIW_MOVE_MS, if it has a socket to go on by.
 */
static u32 usiw_conn_expect_move(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	if (!conn->forbidden || !usiw_conn_sends_packets(conn))
		conn->move_us = 0;
	else if (!usiw_data_is_open(conn))
		return usiw_conn_end_forbidden(conn);
	else if (!conn->move_us)
		conn->move_us = usiw_now_us() + USIW_MOVE_MS * USEC_PER_MSEC;
	return 0;
}

static void usiw_conn_permit(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	conn->forbidden = false;
	conn->move_us = 0;
}

/* IPsec or an encapsulation is due from now on, or a policy forbids the flow. */
static u32 usiw_conn_forbid(struct usiw_conn *conn, enum usiw_not_packet reason, u16 mtu)
{
	if (!conn->moves)
		return usiw_conn_end_forbidden(conn);
	conn->forbidden = true;
	usiw_conn_lose_packets(conn, reason, mtu);
	return usiw_conn_expect_move(conn);
}

/* A process that cannot move it goes on as before, and reaches the peer or does not. */
static void usiw_conn_elsewhere(struct usiw_conn *conn, const struct usiw_route *route)
{
	if (conn->moves) {
		usiw_conn_permit(conn);
		usiw_conn_lose_packets(conn, route->reason ? route->reason : USIW_NOT_PACKET_NETDEV,
				       usiw_conn_mtu(conn, route));
	}
	if (conn->elsewhere)
		return;
	conn->elsewhere = true;
	usiw_count(conn->dev, USIW_KCNT_ROUTE_ELSEWHERE);
	/* Who can move it has nothing to be told. */
	if (!conn->moves)
		pr_info_ratelimited("%s: %pI6c to %pI6c: the route leaves by %s now, data goes on as before\n",
				    dev_name(&conn->dev->ibdev.dev), &conn->tuple.local,
				    &conn->tuple.remote, route->dst->dev->name);
}

/*
 * The route is one for raw packets. While its next hop is not known they go on to the old one, but
 * none are begun with.
 */
static void usiw_conn_follow_route(struct usiw_conn *conn, const struct usiw_route *route)
{
	struct usiw_path path = {
		.local_mac = route->dst->dev->dev_addr,
		.mtu = usiw_conn_mtu(conn, route),
		.packet = conn->moves || conn->info.flags & USIW_CONN_F_PACKET,
	};
	u8 mac[ETH_ALEN] __aligned(2);
	int bucket, ret;

	conn->elsewhere = false;
	usiw_conn_permit(conn);
	ret = usiw_route_mac(route, &conn->tuple, mac, &bucket);
	/* Also of one that is not known yet, so that its update is heard. */
	usiw_conn_set_nexthop(conn, bucket);
	if (!ret)
		path.remote_mac = mac;
	else if (!(conn->info.flags & USIW_CONN_F_PACKET)) {
		path.packet = false;
		path.not_packet = conn->info.not_packet;
	}
	usiw_evfile_path(conn, &path);
}

/* Raw packets would get there by the route, and one of the ends takes none. */
static void usiw_conn_follow_socket(struct usiw_conn *conn, const struct usiw_route *route)
{
	conn->elsewhere = false;
	usiw_conn_permit(conn);
	usiw_conn_lose_packets(conn, route->reason, usiw_conn_mtu(conn, route));
}

/*
 * Does data go by a data socket, so that the kernel follows by itself? Who cannot move a
 * connection shows where raw packets are possible by keeping the socket.
 */
static bool usiw_conn_is_the_kernel_s(const struct usiw_conn *conn)
{
	return conn->takes_socket && !conn->moves &&
	       (!(conn->info.flags & USIW_CONN_F_PACKET) || usiw_data_is_open(conn));
}

static u32 usiw_conn_follow_to(struct usiw_conn *conn, const struct usiw_route *route)
{
	bool local = conn->info.flags & USIW_CONN_F_LOCAL;

	switch (route->reason) {
	case USIW_NOT_PACKET_IPSEC:
	case USIW_NOT_PACKET_ENCAP:
		return usiw_conn_forbid(conn, route->reason, usiw_conn_mtu(conn, route));
	case USIW_NOT_PACKET_OWN:
	case USIW_NOT_PACKET_PEER:
		if (conn->moves) {
			usiw_conn_follow_socket(conn, route);
			break;
		}
		usiw_conn_elsewhere(conn, route);
		break;
	case USIW_NOT_PACKET_NONE:
		if (route->local == local) {
			usiw_conn_follow_route(conn, route);
			break;
		}
		fallthrough;
	case USIW_NOT_PACKET_NETDEV:
		usiw_conn_elsewhere(conn, route);
		break;
	}
	return 0;
}

/*
 * Tell the engine what has changed. Without a route, or while the next hop is not known, it goes
 * on as it was.
 */
u32 usiw_conn_follow(struct usiw_conn *conn)
{
	struct usiw_route route;
	u32 actions;
	int ret;

	lockdep_assert_held(&conn->lock);
	if (!conn->announced || conn->cm.released || usiw_conn_is_the_kernel_s(conn))
		return 0;
	ret = usiw_route_get(conn->dev, &conn->tuple, &conn->sender, &route);
	if (ret == -EPERM)
		return usiw_conn_forbid(conn, USIW_NOT_PACKET_IPSEC, 0);
	if (ret)
		return 0;
	usiw_conn_judge(conn, &route);
	actions = usiw_conn_follow_to(conn, &route);
	usiw_route_put(&route);
	return actions;
}

/*
 * The process says which port the connection sends by: nothing rests on it but what its data socket
 * gives it, and whether a connection whose raw packets are forbidden may go on.
 */
u32 usiw_conn_told_port(struct usiw_conn *conn, enum usiw_port_kind port, enum usiw_port_why why)
{
	lockdep_assert_held(&conn->lock);
	if (conn->port && conn->port != 1 + port)
		usiw_count(conn->dev, USIW_KCNT_PORT_MOVES);
	WRITE_ONCE(conn->port, 1 + port);
	WRITE_ONCE(conn->port_why, why);
	usiw_conn_port_known(conn);
	return conn->cm.released ? 0 : usiw_conn_expect_move(conn);
}

u32 usiw_conn_move_overdue(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	conn->move_us = 0;
	return usiw_conn_end_forbidden(conn);
}

/* ---- All connections of a device --------------------------------------- */

static int usiw_genid_ipv6(const struct net *net)
{
#if IS_ENABLED(CONFIG_IPV6)
	return rt_genid_ipv6(net);
#else
	return 0;
#endif
}

/* Has anything changed of which there is a number? */
static bool usiw_follow_due(struct usiw_device *dev)
{
	const struct net *net = read_pnet(&dev->net);
	int ipv4 = rt_genid_ipv4(net);
	int ipv6 = usiw_genid_ipv6(net);
	bool due = test_and_clear_bit(USIW_FOLLOW_ALL, &dev->follow_flags);

	if (ipv4 != dev->genid_ipv4 || ipv6 != dev->genid_ipv6)
		due = true;
	dev->genid_ipv4 = ipv4;
	dev->genid_ipv6 = ipv6;
	return due;
}

static struct usiw_conn *usiw_follow_next(struct usiw_device *dev)
{
	struct usiw_conn *conn;

	lockdep_assert_held(&dev->conn_lock);
	conn = list_first_entry_or_null(&dev->conns, struct usiw_conn, dev_node);
	return conn && conn->pass != dev->pass ? conn : NULL;
}

/* Begin a new pass if it is time for one. @due: there is a reason to. */
static void usiw_follow_begin(struct usiw_device *dev, bool due)
{
	spin_lock_bh(&dev->conn_lock);
	if (due) {
		dev->pass++;
		dev->pass_left = USIW_FOLLOW_BURST;
	} else if (!usiw_follow_next(dev) && time_after_eq(jiffies, dev->use_next)) {
		dev->pass++;
		dev->pass_left = USIW_FOLLOW_USE_BURST;
	}
	spin_unlock_bh(&dev->conn_lock);
}

/* Kick the next connections of the pass, @most of them. Returns how many there were. */
static int usiw_follow_batch(struct usiw_device *dev, int most)
{
	struct usiw_conn *conn;
	int n;

	spin_lock_bh(&dev->conn_lock);
	for (n = 0; n < most && (conn = usiw_follow_next(dev)); n++) {
		conn->pass = dev->pass;
		list_move_tail(&conn->dev_node, &dev->conns);
		usiw_conn_kick(conn, USIW_CONN_FOLLOW);
		dev->use_next = jiffies + msecs_to_jiffies(USIW_FOLLOW_USE_MS);
	}
	spin_unlock_bh(&dev->conn_lock);
	return n;
}

/*
 * A pass is over when the first connection has been in it: each one that has goes to the end,
 * and new ones begin there. So the lock can be dropped anywhere in a pass: connections that come
 * and go meanwhile leave those that are still due at the front, in their order. Only this work
 * changes the number of the pass, and it never runs twice at a time.
 */
void usiw_follow_work(struct work_struct *work)
{
	struct usiw_device *dev = container_of(to_delayed_work(work), struct usiw_device,
					       follow_work);
	int left, n;

	usiw_follow_begin(dev, usiw_follow_due(dev));
	for (left = dev->pass_left; left > 0; left -= n) {
		n = usiw_follow_batch(dev, min_t(int, left, USIW_FOLLOW_BATCH));
		if (!n)
			break;
		cond_resched();
	}
	spin_lock_bh(&dev->conn_lock);
	if (!list_empty(&dev->conns))
		queue_delayed_work(usiw_wq, &dev->follow_work, msecs_to_jiffies(USIW_FOLLOW_MS));
	spin_unlock_bh(&dev->conn_lock);
}

/* Something has changed that concerns all: now. Any context. */
void usiw_follow_all(struct usiw_device *dev)
{
	set_bit(USIW_FOLLOW_ALL, &dev->follow_flags);
	mod_delayed_work(usiw_wq, &dev->follow_work, 0);
}
