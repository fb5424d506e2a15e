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

/* Bits of usiw_conn.flags. Any context may set them; usiw_conn.work handles them. */
enum {
	USIW_CONN_DATA_SEEN,		/* DATA arrived, which counts as CONFIRM */
	USIW_CONN_ICMP,			/* usiw_conn.icmp_answer has been set */
	USIW_CONN_CHECK_ADDR,		/* the local address may have been removed */
	USIW_CONN_FOLLOW,		/* the route may have changed */
	USIW_CONN_ORPHANED,		/* the listener is gone */
	USIW_CONN_PROCESS_GONE,		/* the memory of the QP's process is gone */
	USIW_CONN_FLUSH,		/* the device is going, so the connection must not linger */
};

/* usiw_conn.table: whether a datagram finds the connection. */
enum usiw_conn_table {
	USIW_CONN_NEW,
	USIW_CONN_HASHED,
	USIW_CONN_UNHASHED,
	USIW_CONN_BARRED,		/* the device is going: it may not enter the table */
};

/**
 * struct usiw_conn - a connection
 * @lock:	serialises all calls on @end, and so keeps the upcalls to iw_cm in the order of the
 *		events. May sleep. Taken outside of all spinlocks here. iw_cm holds none of its
 *		locks when it calls functions that take this one. It holds one for iw_get_qp and
 *		iw_add_ref, which do not
 * @kref:	references of the table, of queued @work, of the event file while a record is
 *		unread, of the QP, and of short users
 * @rcu:	delays freeing by a grace period, because look-ups run under RCU
 * @free_work:	frees the connection in a context that may sleep
 * @work:	runs the timers of @end and handles @flags
 * @flags:	USIW_CONN_* bits that @work has to handle
 * @end:	the part of the connection that cm/ knows. Its id names the connection in event
 *		records, and is iw_cm's provider_data of a request. A number cannot dangle when
 *		iw_cm drops a request silently
 * @qpn:	number of @qp, also when the QP is gone
 * @net:	network namespace of the device, for look-ups, which may outlive the device
 * @dev:	device, as one of its users
 * @sock:	local port, as a user of its family
 * @data_sk:	data socket of the process, held until the connection ends; guarded by @lock, read
 *		in softirq
 * @merging:	counted in the mergers of @sock; guarded by @lock, as the next field
 * @by_packets:	counted in the tappers of @sock
 * @hash_node:	entry in the table of connections
 * @dev_node:	entry in the list of @dev
 * @table:	enum usiw_conn_table; guarded by @lock
 * @cm_id:	iw_cm's id, from connect or accept to the last upcall, with a reference; else NULL
 * @qp:		QP, from connect or accept to its release, with a reference; else NULL
 * @events:	event stream that gets the records, with a reference
 * @listener:	listener in whose backlog the connection has a slot, with a reference; else NULL
 * @orphan_of:	user who has the connection, a request without a listener, among its orphans; else
 *		NULL
 * @sender:	attributes for route look-ups
 * @waits_confirm: counted in the confirm_waiters of @sock; read in softirq
 * @nexthop_bucket: bucket of the next hop's address; -1 if there is none
 * @pass:	last round of the device that the connection was in; guarded by the device's
 *		conn_lock
 * @icmp_answer:	meaning of ICMP about the REQ: enum usiw_cm_answer
 * @icmp_next:	jiffies before which ICMP about the path is ignored
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
