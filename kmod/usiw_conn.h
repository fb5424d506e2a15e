/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A connection: the object, the table of 4-tuples, and the bits that ask for its work.
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

/* conn->flags: set from softirq, worked off by conn->work. */
enum {
	USIW_CONN_DATA_SEEN,
	USIW_CONN_ICMP,			/* conn->icmp_heard */
	USIW_CONN_CHECK_ADDR,
	USIW_CONN_FOLLOW,
	USIW_CONN_ORPHANED,		/* its listener has gone */
	USIW_CONN_PROCESS_GONE,		/* the memory of its QP's process has gone */
	USIW_CONN_FLUSH,		/* the device is going: no lingering */
};

/* Whether a datagram finds the connection. */
enum usiw_conn_table {
	USIW_CONN_NEW,
	USIW_CONN_HASHED,
	USIW_CONN_UNHASHED,
	USIW_CONN_BARRED,		/* its device goes: it may not enter the table any more */
};

/**
 * struct usiw_conn - a connection
 * @lock:	serialises all calls on @end. Upcalls to iw_cm happen under it, so they come in order.
 *		May sleep. Outside of all spinlocks here; iw_cm's own locks are never
 *		held when usiw takes it (iw_get_qp and iw_add_ref, the only calls from under one,
 *		do not)
 * @kref:	references: the table, @work while queued, the event file while a record is
 *		unread, the QP, and who looks at it
 * @rcu:	it is looked up under RCU
 * @free_work:	frees it, where that may sleep
 * @work:	the clock of @end, and what @flags says
 * @flags:	USIW_CONN_*: set from softirq, worked off by @work
 * @end:	what cm/ knows of it. Its id names it in event records, and is iw_cm's provider_data
 *		for a request: a number cannot dangle when iw_cm drops a request silently
 * @qpn:	of @qp, also when that has gone
 * @net:	the device's; for look-ups, which may outlive the device
 * @dev:	as one of its users
 * @sock:	of its local port, as a user of its family
 * @data_sk:	the process's data socket, held until the connection ends; guarded by @lock,
 *		read in softirq
 * @merging:	counted among @sock's mergers; guarded by @lock, as the next
 * @by_packets:	counted among @sock's tappers
 * @hash_node:	in the table of connections
 * @dev_node:	in @dev's list
 * @table:	enum usiw_conn_table; guarded by @lock
 * @cm_id:	from connect or accept to the last upcall, with a reference; else NULL
 * @qp:		from connect or accept to its release, with a reference; else NULL
 * @events:	where its records go, with a reference
 * @listener:	in whose backlog it has a slot, with a reference; else NULL
 * @orphan_of:	a request without a listener: the user among whose orphans it is, else NULL
 * @sender:	for whom routes are looked up
 * @waits_confirm: counted in the socket's confirm_waiters; read in softirq
 * @nexthop_bucket: of the next hop's address; -1: none
 * @pass:	the device's round in which it was last; guarded by the device's conn_lock
 * @icmp_heard:	what ICMP says about its REQ: enum usiw_cm_heard
 * @icmp_next:	jiffies before which ICMP about its path is not looked at
 * @ev_node:	guarded by @events->lock once the engine has been given the connection, as the next
 * @records:	that are unread
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
	u8 icmp_heard;
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
void usiw_conn_queue(struct usiw_conn *conn, unsigned long delay);
void usiw_conn_kick(struct usiw_conn *conn, int flag);
void usiw_conn_welcome_device(struct usiw_device *dev);
void usiw_conn_flush_device(struct usiw_device *dev);
void usiw_conn_kick_device(struct usiw_device *dev, int flag,
			   bool (*match)(struct usiw_conn *conn, const void *arg),
			   const void *arg);

#endif /* USIW_CONN_H */
