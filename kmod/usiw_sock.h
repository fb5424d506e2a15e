/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * UDP ports that the module owns: one struct usiw_sock for each port of a network namespace.
 */
#ifndef USIW_SOCK_H
#define USIW_SOCK_H

#include <linux/in6.h>
#include <linux/list.h>
#include <linux/rbtree.h>
#include <linux/refcount.h>
#include <linux/rwsem.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/workqueue.h>

#include "../cm/usiw_cm_admission.h"

struct mem_cgroup;
struct net;
struct sk_buff;
struct sock;
struct socket;
struct usiw_sock;
struct usiw_tuple;

/**
 * struct usiw_sock_ops - functions that handle what the sockets of a port receive
 * @rcv:	encap_rcv; sk_user_data is the struct usiw_sock
 * @err_rcv:	handles ICMP about a datagram that was sent from the port: by @sk, by a data socket
 *		or as a raw packet. skb->data is at the IP header of that datagram
 * @work:	function of usiw_sock.rx_work
 * @purge:	ends @work and frees the datagrams that wait for it. Called after the last user has
 *		dropped the port and its sockets are closed
 */
struct usiw_sock_ops {
	int (*rcv)(struct sock *sk, struct sk_buff *skb);
	void (*err_rcv)(struct sock *sk, struct usiw_sock *us, struct sk_buff *skb);
	void (*work)(struct work_struct *work);
	void (*purge)(struct usiw_sock *us);
};

/**
 * struct usiw_sock - UDP port that the module owns, and its users
 * @node:	entry in the table of ports
 * @rcu:	delays freeing by a grace period, because encap_rcv may still read the structure
 * @net:	network namespace; with @port the key of the table
 * @port:	UDP port
 * @memcg:	memory cgroup to which @rxq is charged, with a reference: the cgroup of the process
 *		that made the port
 * @users:	references of listeners and connections, by family: [1] IPv4, [0] IPv6. A count
 *		rises from 0 only with the table's mutex held
 * @sem:	guards the next three fields. Senders take it for reading; opening, closing and
 *		counting take it for writing
 * @sock:	socket by family, bound to all addresses; NULL while the family has no user
 * @mergers:	number of connections whose data socket takes GRO aggregates, by family
 * @tappers:	number of connections that receive by raw packets, by family
 * @admission_lock: guards the next four fields, and usiw_listener.places of listeners that have
 *		joined the port. Taken in process context only
 * @admission:	REQs without a connection
 * @wildcards:	listeners on all addresses: at most one for each device and family
 * @by_addr:	all other listeners, by address
 * @by_dev:	the same listeners by device, for each family: [1] IPv4, [0] IPv6
 * @lock:	guards the next three fields; never taken together with @admission_lock
 * @rxq:	copies of datagrams that wait for @rx_work: handshakes, and a few that belong to no
 *		established connection
 * @rx_len:	number of datagrams in @rxq
 * @closed:	no work may be queued any more, because the port has no user
 * @rx_work:	handles the REQs that @admission returns, then @rxq
 * @admission_work:	queues @rx_work at the next deadline of @admission
 * @data_sockets: number of connections with a data socket
 * @confirm_waiters: number of connections that wait for CONFIRM, or for DATA, which counts as
 *		CONFIRM
 * @stray_next_us: time before which datagrams other than handshakes are not queued, us
 */
struct usiw_sock {
	struct hlist_node node;
	struct rcu_head rcu;
	struct net *net;
	__be16 port;
	struct mem_cgroup *memcg;
	refcount_t users[2];

	struct rw_semaphore sem;
	struct socket *sock[2];
	int mergers[2];
	int tappers[2];

	spinlock_t admission_lock;
	struct usiw_cm_admission admission;
	struct list_head wildcards;
	struct rb_root by_addr;
	struct rb_root by_dev[2];

	spinlock_t lock;
	struct list_head rxq;
	unsigned int rx_len;
	bool closed;
	struct work_struct rx_work;
	struct delayed_work admission_work;
	atomic_t data_sockets;
	atomic_t confirm_waiters;
	u64 stray_next_us;
};

void usiw_sock_init(const struct usiw_sock_ops *ops);
void usiw_sock_wake(struct usiw_sock *us);
struct usiw_sock *usiw_sock_get(struct net *net, bool ipv4, __be16 port);
struct usiw_sock *usiw_sock_get_active(struct net *net, bool ipv4, __be16 port);
int usiw_sock_bind(struct socket *sock, const struct in6_addr *addr, __be16 port, int scope);
void usiw_sock_merge(struct usiw_sock *us, bool ipv4, int mergers, int tappers);
void usiw_sock_put(struct usiw_sock *us, bool ipv4);
int usiw_sock_send(struct usiw_sock *us, const struct usiw_tuple *tuple, u8 tos, const void *data,
		   u32 len);

#endif /* USIW_SOCK_H */
