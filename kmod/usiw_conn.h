/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * usiw.ko: connections, listeners, and the UDP sockets that the handshake runs over.
 */
#ifndef USIW_CONN_H
#define USIW_CONN_H

#include <linux/cred.h>
#include <linux/etherdevice.h>
#include <linux/in6.h>
#include <linux/kref.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/rwsem.h>
#include <linux/workqueue.h>
#include <net/net_namespace.h>
#include <rdma/iw_cm.h>

#include "../cm/usiw_cm_end.h"
#include "../cm/usiw_cm_gate.h"
#include "../cm/usiw_cm_records.h"
#include "../cm/usiw_limits.h"
#include "usiw.h"
#include "usiw_addr.h"
#include "usiw_charge.h"
#include "usiw_net.h"
#include "usiw_user.h"

/* Received handshake datagrams that wait for the worker, per socket. */
#define USIW_MAX_RX_QUEUE	512

/* Datagrams that the worker takes before it lets others run. */
#define USIW_RX_BURST		64

/* Between two looks whether who waits for an answer has been killed, or loses the device, us. */
#define USIW_OWNER_US		200000

/* ICMP about the path of a connection is looked at once in this time, ms. */
#define USIW_ICMP_MS		20

/* iw_cm counts private data, IRD and ORD in a byte. */
#define USIW_IW_MAX_PRIVATE_DATA	255

/**
 * struct usiw_sender - what rules and policies may ask about who sends, beside the 4-tuple
 * @uid:	the user whose process has connected or accepted, as of its data socket. The
 *		handshake's own socket is the kernel's
 * @tos:	IPv4 TOS or IPv6 traffic class. That of who is asked is the listener's: rdma_cm does
 *		not hand over what is set between the request and accept
 *
 * There is no mark: rdma_cm has none, and no other socket is this connection's.
 */
struct usiw_sender {
	kuid_t uid;
	u8 tos;
};

/* In the context of connect or listen. */
static inline struct usiw_sender usiw_iw_sender(const struct iw_cm_id *cm_id)
{
	return (struct usiw_sender) {
		.uid = current_fsuid(),
		.tos = (u8)(cm_id->tos_set ? usiw_traffic_class(cm_id->tos) : 0),
	};
}

struct usiw_sock;

/**
 * struct usiw_sock_ops - who receives by the sockets of usiw_sock.c
 * @rcv:	encap_rcv; sk_user_data is the struct usiw_sock
 * @err_rcv:	ICMP about what was sent by @sk or a data socket of its port: skb->data is at the
 *		IP header in it
 * @work:	usiw_sock.rx_work
 * @purge:	the last user has gone, and the sockets: ends @work and frees what waits for it
 */
struct usiw_sock_ops {
	int (*rcv)(struct sock *sk, struct sk_buff *skb);
	void (*err_rcv)(struct sock *sk, struct usiw_sock *us, struct sk_buff *skb);
	void (*work)(struct work_struct *work);
	void (*purge)(struct usiw_sock *us);
};

/**
 * struct usiw_sock - a UDP port that the module owns, and who uses it
 * @node:	in the table of them
 * @rcu:	encap_rcv may look at it for a grace period after its end
 * @ops:	who receives
 * @net:	it is found by this
 * @port:	and this
 * @memcg:	pays for @rxq: of the process that was the first to use the port, with a reference
 * @users:	listeners and connections, by family: [1] IPv4, [0] IPv6. Guarded by the
 *		table's mutex when it rises from 0
 * @sem:	guards the next three: senders read, opening and closing write
 * @sock:	by family, NULL while nobody uses it; bound to all addresses
 * @mergers:	by family: connections whose data socket takes aggregates
 * @tappers:	by family: connections that receive by raw packets
 * @gate_lock:	guards the next four, and usiw_listener.places of listeners that have joined the
 *		port. Taken in process context only
 * @gate:	REQs without a connection
 * @wildcards:	listeners on all addresses: one of each device and family at most
 * @by_addr:	all other listeners, by address
 * @by_dev:	the same listeners, by device and family
 * @lock:	guards the next four; never taken together with @gate_lock
 * @rxq:	handshake datagrams for @rx_work
 * @rx_len:	how many these are
 * @closed:	no work may be queued any more
 * @rx_work:	works off what the gate gives, then @rxq
 * @gate_work:	has @rx_work look at the gate when its time has come
 * @data_sockets: how many connections have a data socket
 * @confirm_waiters: connections that wait for CONFIRM, for which DATA counts as well
 * @stray_next_us: time before which stray datagrams are not looked at
 */
struct usiw_sock {
	struct hlist_node node;
	struct rcu_head rcu;
	const struct usiw_sock_ops *ops;
	struct net *net;
	__be16 port;
	struct mem_cgroup *memcg;
	refcount_t users[2];

	struct rw_semaphore sem;
	struct socket *sock[2];
	int mergers[2];
	int tappers[2];

	spinlock_t gate_lock;
	struct usiw_cm_gate gate;
	struct list_head wildcards;
	struct rb_root by_addr;
	struct rb_root by_dev;

	spinlock_t lock;
	struct list_head rxq;
	unsigned int rx_len;
	bool closed;
	struct work_struct rx_work;
	struct delayed_work gate_work;
	atomic_t data_sockets;
	atomic_t confirm_waiters;
	u64 stray_next_us;
};

/**
 * struct usiw_rx - a received handshake datagram (or a stray one to be answered), copied
 * @node:	in usiw_sock.rxq
 * @req:	with its 4-tuple; for the gate if it is a REQ
 * @ifindex:	of the interface it came in by
 * @len:	of @data, bytes
 * @data:	UDP payload
 */
struct usiw_rx {
	struct list_head node;
	struct usiw_cm_req req;
	int ifindex;
	u32 len;
	u8 data[];
};

static inline const struct usiw_tuple *usiw_rx_ends(const struct usiw_rx *rx)
{
	return (const struct usiw_tuple *)&rx->req.tuple;
}

/**
 * struct usiw_listener - what iw_create_listen made
 * @kref:	the cm_id's, until iw_destroy_listen; a request's that has found it; half-open
 *		connections'
 * @dev:	with a reference
 * @cm_id:	with a reference
 * @us:		of its port, NULL if it hears nothing
 * @node:	in @us->wildcards if @any is set
 * @addr_node:	in @us->by_addr if @any is not set
 * @dev_node:	in @us->by_dev, likewise
 * @sender:	for whom its requests are looked at, and answered
 * @user:	whose it is, with a reference
 * @memcg:	pays for its requests, with a reference; NULL: nobody does
 * @families:	of which it is a user of @us: bit 1 IPv4, bit 0 IPv6
 * @addr:	where it listens
 * @scope:	the interface that it is of, if it is link-local
 * @any:	@addr is a wildcard
 * @places:	its backlog at the gate, from which it has left once @places.gate is NULL. Guarded
 *		by the gate_lock of the port, also after the listener has left. Only a connection of
 *		the port or its worker returns a place, and both keep the lock in memory
 */
struct usiw_listener {
	struct kref kref;
	struct usiw_device *dev;
	struct iw_cm_id *cm_id;
	struct usiw_sock *us;
	struct list_head node;
	struct rb_node addr_node;
	struct rb_node dev_node;
	struct usiw_sender sender;
	struct usiw_user *user;
	struct mem_cgroup *memcg;
	unsigned int families;
	struct in6_addr addr;
	u32 scope;
	bool any;
	struct usiw_cm_listener places;
};

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

static inline u64 usiw_now_us(void)
{
	return ktime_to_us(ktime_get());
}

/* usiw_conn.c */
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

/* usiw_conn_run.c */
struct usiw_conn *usiw_conn_alloc(struct usiw_device *dev, const struct usiw_cm_host *host,
				  const struct usiw_tuple *tuple, gfp_t flags);
void usiw_conn_arm(struct usiw_conn *conn);
void usiw_conn_leave_backlog(struct usiw_conn *conn);
void usiw_conn_disconnect(struct usiw_conn *conn);
void usiw_conn_abort(struct usiw_conn *conn, enum usiw_kill_reason reason);
void usiw_conn_report(struct usiw_conn *conn, const struct usiw_qp_report *report);
void usiw_conn_input(struct usiw_conn *conn, struct usiw_cm_verdict *verdict, const void *data,
		     u32 len, void *answer);

/* usiw_conn_act.c: with conn->lock held */
extern const struct usiw_cm_host usiw_conn_host;
int usiw_conn_tell_request(struct usiw_conn *conn);
int usiw_conn_attach_qp(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			const struct usiw_sender *sender);

/* usiw_ports.c */
struct usiw_route;
u8 usiw_ports_of_qp(const struct usiw_qp *qp);
u8 usiw_conn_peer_ports(const struct usiw_conn *conn);
int usiw_conn_check_way(const struct usiw_conn *conn, const struct usiw_qp *qp,
			const struct usiw_sender *sender);

/* usiw_iwcm.c */
int usiw_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int usiw_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param);
int usiw_iw_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pd_len);

/* usiw_listen.c */
int usiw_iw_create_listen(struct iw_cm_id *cm_id, int backlog);
int usiw_iw_destroy_listen(struct iw_cm_id *cm_id);
void usiw_listener_request(struct usiw_sock *us, struct usiw_rx *rx,
			   const struct usiw_cm_packet *req, void *answer);

/* usiw_gate.c */
void usiw_listener_put(struct usiw_listener *listener);
int usiw_gate_join(struct usiw_listener *listener, unsigned int backlog);
void usiw_gate_leave(struct usiw_listener *listener);
bool usiw_gate_has_left(struct usiw_sock *us, const struct usiw_listener *listener);
void usiw_gate_return_place(struct usiw_sock *us, struct usiw_listener *listener);
u32 usiw_gate_request(struct usiw_cm_gate_verdict *v, struct usiw_listener **listener,
		      struct usiw_sock *us, struct usiw_rx **rx, const struct usiw_cm_packet *req,
		      void *answer);
void usiw_gate_withdraw(struct usiw_sock *us, const struct usiw_tuple *tuple,
			const struct usiw_cm_packet *reset);
void usiw_gate_discard(struct usiw_sock *us, struct usiw_rx *rx);
struct usiw_rx *usiw_gate_next(struct usiw_sock *us);
u64 usiw_gate_deadline(struct usiw_sock *us);
void usiw_gate_purge(struct usiw_sock *us);

/* usiw_sock.c */
void usiw_sock_init(const struct usiw_sock_ops *ops);
void usiw_sock_wake(struct usiw_sock *us);
struct usiw_sock *usiw_sock_get(struct net *net, bool ipv4, __be16 port);
struct usiw_sock *usiw_sock_get_active(struct net *net, bool ipv4, __be16 port);
int usiw_sock_bind(struct socket *sock, bool ipv4, const struct in6_addr *addr, __be16 port,
		   int scope);
void usiw_sock_merge(struct usiw_sock *us, bool ipv4, int mergers, int tappers);
bool usiw_sock_tryget(struct usiw_sock *us, bool ipv4);
void usiw_sock_put(struct usiw_sock *us, bool ipv4);
int usiw_sock_send(struct usiw_sock *us, const struct usiw_tuple *tuple, u8 tos,
		   const void *data, u32 len);

/* usiw_data.c */
int usiw_data_open(struct usiw_conn *conn, struct file **file);
void usiw_data_install(int fd, struct file *file);
void usiw_data_drop(int fd, struct file *file);
void usiw_data_close(struct usiw_conn *conn);
bool usiw_data_is_open(const struct usiw_conn *conn);
void usiw_data_by_packets(struct usiw_conn *conn, bool yes);
struct sock *usiw_data_receiver(struct usiw_conn *conn, const struct sk_buff *skb);
void usiw_data_too_big(struct usiw_conn *conn, u32 mtu);

/* usiw_rx.c */
extern const struct usiw_sock_ops usiw_rx_ops;

/* usiw_route.c */

/**
 * struct usiw_route - where the datagrams of a 4-tuple go
 * @dst:	with a reference; without what IPsec makes of it
 * @reason:	why raw packets are not eligible
 * @local:	to this host itself, over lo
 * @mtu:	usable IP MTU, bytes: of the interface, the route, and what was learned of the path
 * @hop_limit:	IPv4 TTL or IPv6 hop limit
 *
 * Not known here is NAT on this host: conntrack is asked by no look-up. Raw packets bypass it.
 */
struct usiw_route {
	struct dst_entry *dst;
	enum usiw_not_packet reason;
	bool local;
	u16 mtu;
	u8 hop_limit;
};

int usiw_route_get(struct usiw_device *dev, const struct usiw_tuple *tuple,
		   const struct usiw_sender *sender, struct usiw_route *route);
void usiw_route_put(struct usiw_route *route);
int usiw_route_check(struct usiw_device *dev, const struct usiw_tuple *tuple,
		     const struct usiw_sender *sender, bool sockets, u16 *mtu);
int usiw_route_mac(const struct usiw_route *route, const struct usiw_tuple *tuple, u8 *mac,
		   int *bucket);
int usiw_nexthop_bucket(const void *key, u32 key_len);

/* usiw_addr.c */

#endif /* USIW_CONN_H */
