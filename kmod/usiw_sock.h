/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The UDP ports that the module owns: one struct usiw_sock for each port of a network namespace.
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

#include "../cm/usiw_cm_gate.h"

struct mem_cgroup;
struct net;
struct sk_buff;
struct sock;
struct socket;
struct usiw_sock;
struct usiw_tuple;

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

#endif /* USIW_SOCK_H */
