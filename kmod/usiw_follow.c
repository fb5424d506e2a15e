// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Decides when connections look their routes up again. cm/usiw_cm_path.c decides what they do then.
 *
 * The kernel notifies the module of changed neighbours (netevent), of changed MACs of its own
 * netdevs (netdev), and of path MTUs (ICMP to the socket). For routes, rules, next-hop objects and
 * IPsec policies the kernel has generation numbers, which its sockets compare before they send
 * (dst_check()). Here a device compares them every USIW_FOLLOW_MS while it has connections. The
 * cost does not depend on the number of connections. The FIB notifier would be no better: it begins
 * with a dump of all tables, is called for each route under the table's lock, and does not report
 * policies and replaced next-hop objects.
 *
 * A pass makes each connection look its route up once. When a device finds a change, it starts a
 * pass at once, with USIW_FOLLOW_BURST connections in each USIW_FOLLOW_MS. Without a change a pass
 * starts USIW_FOLLOW_USE_MS after the end of the last one, with fewer connections at a time. The
 * engines bypass the neighbour table, so the look-ups of such a pass make the kernel verify next
 * hops. They also find changes that have no generation number: redirects, and path MTUs that time
 * out.
 */
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <net/net_namespace.h>

#include "usiw_follow.h"

#include "usiw_conn.h"
#include "usiw_device.h"

static int usiw_genid_ipv6(const struct net *net)
{
#if IS_ENABLED(CONFIG_IPV6)
	return rt_genid_ipv6(net);
#else
	return 0;
#endif
}

/* Returns true if a generation number has changed, or if usiw_follow_all() was called. */
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

/* Returns the next connection of the current pass, or NULL if the pass is over. */
static struct usiw_conn *usiw_follow_next(struct usiw_device *dev)
{
	struct usiw_conn *conn;

	lockdep_assert_held(&dev->conn_lock);
	conn = list_first_entry_or_null(&dev->conns, struct usiw_conn, dev_node);
	return conn && conn->pass != dev->pass ? conn : NULL;
}

/*
 * Begins a new pass if @due, or if the last pass is over and the next one without a change may
 * start.
 */
static void usiw_follow_begin(struct usiw_device *dev, bool due)
{
	spin_lock_bh(&dev->conn_lock);
	if (due || (!usiw_follow_next(dev) && time_after_eq(jiffies, dev->use_next))) {
		dev->pass++;
		dev->pass_left = due ? USIW_FOLLOW_BURST : USIW_FOLLOW_USE_BURST;
	}
	spin_unlock_bh(&dev->conn_lock);
}

/* Kicks the next connections of the pass, at most @most. Returns their number. */
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
 * Begins a pass if one is due, kicks the next connections of the pass, and queues itself again
 * while there are connections.
 *
 * Each connection that the pass has kicked moves to the end of the list, where new ones are added
 * as well. So those that are still due stay at the front, in their order, even if connections come
 * and go while the lock is dropped. New connections count as kicked. The pass is over when the
 * first connection of the list has been kicked in it. Only this work changes the number of the
 * pass, and it never runs twice at a time.
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

/* Starts a pass over all connections now. Any context. */
void usiw_follow_all(struct usiw_device *dev)
{
	set_bit(USIW_FOLLOW_ALL, &dev->follow_flags);
	mod_delayed_work(usiw_wq, &dev->follow_work, 0);
}
