/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Connections: the object, the table of 4-tuples, and the flags by which other files request work.
 */
#ifndef USIW_CONN_H
#define USIW_CONN_H

#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/rcupdate.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "../cm/usiw_cm_end.h"
#include "../cm/usiw_cm_records.h"
#include "usiw_route.h"

struct iw_cm_id;
struct net;
struct sock;
struct usiw_device;
struct usiw_evfile;
struct usiw_listener;
struct usiw_qp;
struct usiw_sock;
struct usiw_tuple;
struct usiw_user;

/* Bits of usiw_conn.flags: usiw_conn_kick() sets them, and usiw_conn.work handles them. */
enum {
	USIW_CONN_DATA_SEEN,		/* DATA arrived, which counts as CONFIRM */
	USIW_CONN_ICMP,			/* usiw_conn.icmp_answer has been set */
	USIW_CONN_CHECK_ADDR,		/* the local address may have been removed */
	USIW_CONN_FOLLOW,		/* the route may have changed */
	USIW_CONN_ORPHANED,		/* the listener is gone */
	USIW_CONN_PROCESS_GONE,		/* the QP's process has exited or called exec */
	USIW_CONN_FLUSH,		/* the device is going, so the connection must not linger */
};

/* Values of usiw_conn.table. A datagram finds only connections that are HASHED. */
enum usiw_conn_table {
	USIW_CONN_NEW,
	USIW_CONN_HASHED,
	USIW_CONN_UNHASHED,
	USIW_CONN_BARRED,		/* device going: the connection may not enter the table */
};

/**
 * struct usiw_conn - a connection
 * @lock:	serialises all calls on @end, so the upcalls to iw_cm are in the order of the
 *		events. May sleep. Taken before any spinlock of the module. iw_cm holds none of its
 *		locks while it calls a function that takes this one. It calls iw_get_qp and
 *		iw_add_ref under a lock, but these do not take this one
 * @kref:	references of the table, of queued @work, of the event stream while a record is
 *		unread, of the QP, and of functions that use the connection for a short time
 * @rcu:	delays freeing by a grace period, because look-ups run under RCU
 * @free_work:	frees the connection in a context that may sleep
 * @work:	runs the timers of @end and handles @flags
 * @flags:	USIW_CONN_* bits that @work has to handle
 * @end:	the part of the connection that cm/ knows. @end.id names the connection in event
 *		records, and in the provider_data of a request of iw_cm. iw_cm may drop a request
 *		without notice, and a pointer could then dangle; a number cannot
 * @qpn:	number of @qp, still valid after the connection has released @qp
 * @net:	network namespace of the device. Look-ups read it, even after the device is gone
 * @dev:	device, with a reference
 * @sock:	local UDP port, with a reference that counts for the family of the addresses
 * @data_sk:	data socket of the process, with a reference until the connection ends. Written
 *		under @lock, read in softirq under RCU
 * @merging:	the connection is counted in @sock->mergers. @lock guards this field and the next
 *		one
 * @by_packets:	the connection is counted in @sock->tappers
 * @hash_node:	entry in the table of connections
 * @dev_node:	entry in the list of @dev
 * @table:	enum usiw_conn_table; guarded by @lock
 * @cm_id:	iw_cm's id, from connect or accept to the last upcall, with a reference; else NULL
 * @qp:		QP, from connect or accept to its release, with a reference; else NULL
 * @events:	event stream that gets the records, with a reference
 * @listener:	listener in whose backlog the connection has a slot, with a reference; else NULL
 * @orphan_of:	user who has this request among its orphans, because its listener is gone; else NULL
 * @sender:	attributes for route look-ups
 * @waits_confirm: the connection is counted in @sock->confirm_waiters; read in softirq
 * @nexthop_bucket: hash bucket of the next hop's address; -1 if there is none
 * @pass:	number of the device's last pass over its connections that has kicked this one, or
 *		in which this one was registered. The device's conn_lock guards this field
 * @icmp_answer: enum usiw_cm_answer: meaning of the last ICMP message about the REQ
 * @icmp_next:	time, in jiffies, before which ICMP about the path MTU causes no route look-up
 * @ev_node:	entry in the list of @events. The lock of @events guards this field and the next one
 *		once the engine knows the connection
 * @records:	unread records
 */
struct usiw_conn {
	struct mutex lock;
	struct kref kref;
	struct rcu_head rcu;
	struct work_struct free_work;
	struct delayed_work work;
	unsigned long flags;
	struct usiw_cm_end end;

	u32 qpn;
	struct net *net;
	struct usiw_device *dev;
	struct usiw_sock *sock;
	struct sock __rcu *data_sk;
	bool merging;
	bool by_packets;
	struct hlist_node hash_node;
	struct list_head dev_node;
	u8 table;

	struct iw_cm_id *cm_id;
	struct usiw_qp *qp;
	struct usiw_evfile *events;
	struct usiw_listener *listener;
	struct usiw_user *orphan_of;
	struct usiw_sender sender;
	bool waits_confirm;
	u8 icmp_answer;
	int nexthop_bucket;
	unsigned int pass;
	unsigned long icmp_next;

	struct list_head ev_node;
	struct usiw_cm_records records;
};

static inline const struct usiw_tuple *usiw_conn_tuple(const struct usiw_conn *conn)
{
	return (const struct usiw_tuple *)&conn->end.tuple;
}

int usiw_conn_register(struct usiw_conn *conn, gfp_t flags);
void usiw_conn_unregister(struct usiw_conn *conn);
int usiw_conn_insert(struct usiw_conn *conn);
void usiw_conn_remove(struct usiw_conn *conn);
void usiw_conn_get(struct usiw_conn *conn);
void usiw_conn_put(struct usiw_conn *conn);
struct usiw_conn *usiw_conn_by_id(u32 id);
struct usiw_conn *usiw_conn_lookup(struct net *net, const struct usiw_tuple *tuple);
struct usiw_conn *usiw_conn_lookup_rcu(struct net *net, const struct usiw_tuple *tuple);
u8 usiw_conn_peer_ports(const struct usiw_conn *conn);
void usiw_conn_queue(struct usiw_conn *conn, unsigned long delay);
void usiw_conn_kick(struct usiw_conn *conn, int flag);
void usiw_conn_welcome_device(struct usiw_device *dev);
void usiw_conn_flush_device(struct usiw_device *dev);
void usiw_conn_kick_device(struct usiw_device *dev, int flag,
			   bool (*match)(struct usiw_conn *conn, const void *arg),
			   const void *arg);

#endif /* USIW_CONN_H */
