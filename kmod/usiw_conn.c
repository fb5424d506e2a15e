// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connection objects: ids, references, the table of 4-tuples, and the flags by which softirq and
 * other files request work. usiw_conn_run.c does the work.
 */
#include <linux/hashtable.h>
#include <linux/jhash.h>
#include <linux/rculist.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <net/netns/hash.h>

#include "usiw_conn.h"

#include "usiw_addr.h"
#include "usiw_device.h"

#define USIW_CONN_HASH_BITS	12

static DEFINE_HASHTABLE(usiw_conns, USIW_CONN_HASH_BITS);
static DEFINE_SPINLOCK(usiw_conns_lock);	/* held to change the table, bottom halves off */

/* Connections by id, from usiw_conn_register() to usiw_conn_unregister(). */
static DEFINE_XARRAY_FLAGS(usiw_conn_ids, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
static u32 usiw_next_conn_id;

static u32 usiw_conn_hash(const struct net *net, const struct usiw_tuple *tuple)
{
	return jhash2((const u32 *)tuple, sizeof(*tuple) / sizeof(u32), net_hash_mix(net));
}

/* ---- Lifetime ---------------------------------------------------------- */

/*
 * Queues the work that frees the connection. Freeing may sleep, and this call may run in softirq.
 */
static void usiw_conn_release_kref(struct kref *kref)
{
	struct usiw_conn *conn = container_of(kref, struct usiw_conn, kref);

	queue_work(usiw_wq, &conn->free_work);
}

void usiw_conn_get(struct usiw_conn *conn)
{
	kref_get(&conn->kref);
}

void usiw_conn_put(struct usiw_conn *conn)
{
	kref_put(&conn->kref, usiw_conn_release_kref);
}

/*
 * Gives the connection its id and a reference to its device, and adds it to the list of the device.
 * Returns 0, -ENOMEM, -EBUSY if no id is left, or -ENODEV if the device is going. @flags: GFP flags
 * for the memory of the id.
 */
int usiw_conn_register(struct usiw_conn *conn, gfp_t flags)
{
	struct usiw_device *dev = conn->dev;
	int ret;

	ret = xa_alloc_cyclic(&usiw_conn_ids, &conn->end.id, conn, xa_limit_31b, &usiw_next_conn_id,
			      flags);
	if (ret < 0)
		return ret;
	spin_lock_bh(&dev->conn_lock);
	if (dev->dying) {
		ret = -ENODEV;
	} else {
		conn->pass = dev->pass;
		list_add_tail(&conn->dev_node, &dev->conns);
		usiw_device_hold(dev);
		queue_delayed_work(usiw_wq, &dev->follow_work,
				   msecs_to_jiffies(USIW_FOLLOW_MS));
		ret = 0;
	}
	spin_unlock_bh(&dev->conn_lock);
	/* Nobody knows the id yet, so no look-up can have returned the connection. */
	if (ret)
		xa_erase(&usiw_conn_ids, conn->end.id);
	return ret;
}

/*
 * Removes the connection from the list of its device, and drops its id and its reference to the
 * device. The device may be freed afterwards.
 */
void usiw_conn_unregister(struct usiw_conn *conn)
{
	struct usiw_device *dev = conn->dev;

	xa_erase(&usiw_conn_ids, conn->end.id);
	spin_lock_bh(&dev->conn_lock);
	list_del(&conn->dev_node);
	spin_unlock_bh(&dev->conn_lock);
	usiw_device_release(dev);
}

/* ---- The table --------------------------------------------------------- */

/*
 * Returns the connection of @tuple without a reference, or NULL. The caller holds rcu_read_lock()
 * or usiw_conns_lock.
 */
struct usiw_conn *usiw_conn_lookup_rcu(struct net *net, const struct usiw_tuple *tuple)
{
	struct usiw_conn *conn;

	hash_for_each_possible_rcu(usiw_conns, conn, hash_node, usiw_conn_hash(net, tuple),
				   lockdep_is_held(&usiw_conns_lock))
		if (net_eq(conn->net, net) && !memcmp(usiw_conn_tuple(conn), tuple, sizeof(*tuple)))
			return conn;
	return NULL;
}

/* Returns the connection of @tuple with a reference, or NULL. */
struct usiw_conn *usiw_conn_lookup(struct net *net, const struct usiw_tuple *tuple)
{
	struct usiw_conn *conn;

	rcu_read_lock();
	conn = usiw_conn_lookup_rcu(net, tuple);
	if (conn && !kref_get_unless_zero(&conn->kref))
		conn = NULL;
	rcu_read_unlock();
	return conn;
}

/* Returns the connection with the number @id, with a reference, or NULL. */
struct usiw_conn *usiw_conn_by_id(u32 id)
{
	struct usiw_conn *conn;

	rcu_read_lock();
	conn = xa_load(&usiw_conn_ids, id);
	if (conn && !kref_get_unless_zero(&conn->kref))
		conn = NULL;
	rcu_read_unlock();
	return conn;
}

/*
 * Returns the ports of the peer as bits USIW_CM_*; 0 if the peer is not in this netns or has no QP
 * yet. The peer's ports are set when its QP is attached, before the peer sends a REQ or an ACCEPT.
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
 * Adds the connection to the table, which gets a reference. Returns 0, or -EADDRINUSE if the
 * 4-tuple is in the table, -ENODEV if the device is going, and -EADDRNOTAVAIL if the device no
 * longer serves the local address. A removed address ends only connections in the table, so this
 * call checks the address.
 */
int usiw_conn_insert(struct usiw_conn *conn)
{
	int ret = 0;

	lockdep_assert_held(&conn->lock);
	if (conn->table == USIW_CONN_BARRED)
		return -ENODEV;
	if (usiw_addr_owner(conn->dev, usiw_conn_tuple(conn)) == USIW_ADDR_OTHERS)
		return -EADDRNOTAVAIL;
	spin_lock_bh(&usiw_conns_lock);
	if (usiw_conn_lookup_rcu(conn->net, usiw_conn_tuple(conn))) {
		ret = -EADDRINUSE;
	} else {
		usiw_conn_get(conn);
		hash_add_rcu(usiw_conns, &conn->hash_node,
			     usiw_conn_hash(conn->net, usiw_conn_tuple(conn)));
		conn->table = USIW_CONN_HASHED;
	}
	spin_unlock_bh(&usiw_conns_lock);
	return ret;
}

/*
 * Removes the connection from the table, and drops the table's reference. The caller has its own.
 */
void usiw_conn_remove(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	spin_lock_bh(&usiw_conns_lock);
	hash_del_rcu(&conn->hash_node);
	spin_unlock_bh(&usiw_conns_lock);
	conn->table = USIW_CONN_UNHASHED;
	usiw_conn_put(conn);
}

/* ---- Work -------------------------------------------------------------- */

/* Queues conn->work to run in @delay jiffies, even if it was queued for another time. */
void usiw_conn_queue(struct usiw_conn *conn, unsigned long delay)
{
	/* Queued work has one reference. If the work was queued already, it has that reference. */
	if (!kref_get_unless_zero(&conn->kref))
		return;
	if (mod_delayed_work(usiw_wq, &conn->work, delay))
		usiw_conn_put(conn);
}

/*
 * Sets @flag, a USIW_CONN_* bit, and queues conn->work to run at once. Any context. The caller
 * needs no reference if it is in an RCU read-side critical section.
 */
void usiw_conn_kick(struct usiw_conn *conn, int flag)
{
	set_bit(flag, &conn->flags);
	usiw_conn_queue(conn, 0);
}

/* ---- All connections of a device --------------------------------------- */

/*
 * Calls usiw_conn_kick() for each connection of @dev for which @match returns true; for all if
 * @match is NULL.
 */
void usiw_conn_kick_device(struct usiw_device *dev, int flag,
			   bool (*match)(struct usiw_conn *conn, const void *arg),
			   const void *arg)
{
	struct usiw_conn *conn;

	spin_lock_bh(&dev->conn_lock);
	list_for_each_entry(conn, &dev->conns, dev_node)
		if (!match || match(conn, arg))
			usiw_conn_kick(conn, flag);
	spin_unlock_bh(&dev->conn_lock);
}

/*
 * Allows connections on the device, because ib_core gives it to its clients, for the first time or
 * again.
 */
void usiw_conn_welcome_device(struct usiw_device *dev)
{
	spin_lock_bh(&dev->conn_lock);
	dev->dying = false;
	usiw_device_is_last(dev);
	spin_unlock_bh(&dev->conn_lock);
}

/*
 * Forbids new connections on the device, and has conn->work end all that exist. Users who wait for
 * an answer get one. Once QPs, contexts and cm_ids are gone as well, only the table and queued work
 * have references to connections. These two drop their references by themselves.
 */
void usiw_conn_flush_device(struct usiw_device *dev)
{
	spin_lock_bh(&dev->conn_lock);
	dev->dying = true;
	spin_unlock_bh(&dev->conn_lock);
	usiw_conn_kick_device(dev, USIW_CONN_FLUSH, NULL, NULL);
}
