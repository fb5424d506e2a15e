// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * When connections look their routes up again. cm/usiw_cm_path.c has what they do
 * then.
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
#include <linux/jiffies.h>
#include <linux/sched.h>
#include <net/net_namespace.h>

#include "usiw_follow.h"

#include "usiw.h"
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
