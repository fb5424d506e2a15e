// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Connection objects: ids, references, the table of 4-tuples, and the flags by which softirq and
 * other files request work. usiw_conn_run.c does that work.
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
static DEFINE_SPINLOCK(usiw_conns_lock);	/* writers of the table; bottom halves off */

/* conn_id -> connection, from allocation until it is freed. */
static DEFINE_XARRAY_FLAGS(usiw_conn_ids, XA_FLAGS_ALLOC1 | XA_FLAGS_ACCOUNT);
static u32 usiw_next_conn_id;

static u32 usiw_conn_hash(const struct net *net, const struct usiw_tuple *tuple)
{
	return jhash2((const u32 *)tuple, sizeof(*tuple) / sizeof(u32), net_hash_mix(net));
}

/* ---- Lifetime ---------------------------------------------------------- */

/* May run in softirq. Freeing may sleep, so a work does it. */
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
 * Gives the connection its id, and makes it a user of its device. Returns -ENOMEM, or -ENODEV if
 * the device is going. @flags: for the memory of the id, as for GFP_KERNEL.
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
	/* The id has been shown to nobody, and no look-up has found it. */
	if (ret)
		xa_erase(&usiw_conn_ids, conn->end.id);
	return ret;
}

/* Ends the connection's use of its device, which may go once this returns. */
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

struct usiw_conn *usiw_conn_lookup_rcu(struct net *net, const struct usiw_tuple *tuple)
{
	struct usiw_conn *conn;

	hash_for_each_possible_rcu(usiw_conns, conn, hash_node, usiw_conn_hash(net, tuple),
				   lockdep_is_held(&usiw_conns_lock))
		if (net_eq(conn->net, net) && !memcmp(usiw_conn_tuple(conn), tuple, sizeof(*tuple)))
			return conn;
	return NULL;
}

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
 * Enters the connection in the table, which gets a reference. Returns -EADDRINUSE if the 4-tuple is
 * in the table, -ENODEV if the device is going, and -EADDRNOTAVAIL if the local address has been
 * removed meanwhile. A connection that is not in the table is not notified of a removed address, so
 * this call checks it.
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

/* Removes the connection from the table. The caller has a reference of its own. */
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

/* Runs conn->work in @delay jiffies, whatever its time was before. */
void usiw_conn_queue(struct usiw_conn *conn, unsigned long delay)
{
	/* The queued work has one reference, however often it is queued. */
	if (!kref_get_unless_zero(&conn->kref))
		return;
	if (mod_delayed_work(usiw_wq, &conn->work, delay))
		usiw_conn_put(conn);
}

/* Sets the flag and runs conn->work at once. Any context; the caller may hold RCU only. */
void usiw_conn_kick(struct usiw_conn *conn, int flag)
{
	set_bit(flag, &conn->flags);
	usiw_conn_queue(conn, 0);
}

/* ---- All connections of a device --------------------------------------- */

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

/* Connections may be made on the device: ib_core is giving it to its clients, perhaps again. */
void usiw_conn_welcome_device(struct usiw_device *dev)
{
	spin_lock_bh(&dev->conn_lock);
	dev->dying = false;
	usiw_device_is_last(dev);
	spin_unlock_bh(&dev->conn_lock);
}

/*
 * The device is going, so all connections end, and users who wait for an answer get one. Afterwards
 * only the table and queued work hold connections, once QPs, contexts and cm_ids are gone as well.
 * Both end by themselves.
 */
void usiw_conn_flush_device(struct usiw_device *dev)
{
	spin_lock_bh(&dev->conn_lock);
	dev->dying = true;
	spin_unlock_bh(&dev->conn_lock);
	usiw_conn_kick_device(dev, USIW_CONN_FLUSH, NULL, NULL);
}
