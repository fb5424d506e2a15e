/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * An RDMA device on a netdev: its state, its counters, and its place in a network namespace.
 */
#ifndef USIW_DEVICE_H
#define USIW_DEVICE_H

#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/netdevice.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

#include "../uapi/usiw_abi.h"

/* Buckets of next-hop addresses, to tell which neighbour updates concern a device. */
#define USIW_NEXTHOP_BITS	6
#define USIW_NEXTHOP_BUCKETS	(1 << USIW_NEXTHOP_BITS)

/* usiw_device.follow_work runs this often, ms. */
#define USIW_FOLLOW_MS		200

/* Counters that the kernel half adds to; their names follow those of enum usiw_counter. */
enum usiw_kcounter {
	USIW_KCNT_CM_TX,
	USIW_KCNT_CM_RX,
	USIW_KCNT_CM_CONNECT,		/* connections asked for by this end */
	USIW_KCNT_CM_REQUEST,		/* requests of peers given to a listener */
	USIW_KCNT_CM_ESTABLISHED,
	USIW_KCNT_CM_BACKLOG_FULL,	/* requests that had to wait, or were dropped */
	USIW_KCNT_CM_REFUSED,		/* requests answered by REJECT without a connection */
	USIW_KCNT_CM_NO_CHECKSUM,	/* handshakes over IPv4 without a UDP checksum: dropped */
	USIW_KCNT_ROUTE_ELSEWHERE,	/* routes that have moved to another interface */
	USIW_KCNT_ROUTE_FORBIDDEN,	/* connections ended since IPsec became due on their way */
	USIW_KCNT_PORT_MOVES,		/* connections that told another port than before */
	USIW_KCNT_RX_BESIDE,		/* datagrams that data sockets left to the raw port */
	USIW_KCNT_MAX,
};

/**
 * struct usiw_device - an RDMA device on a netdev
 * @ibdev:	the core's part of it
 * @node:	among all devices
 * @netdev:	held until dealloc_driver
 * @netdev_tracker: of that reference
 * @net:	the netdev's netns when the device was made. It does not die before the
 *		device, nor before its sockets, because of @lo
 * @lo:		its loopback netdev, held until dealloc_driver; see usiw_device_enter_net()
 * @lo_tracker:	of that reference
 * @gid_lock:	guards @gid
 * @gid:	GID 0: the MAC, or a random one where there is none
 * @lent_mac:	what lo has been given while the device is there; zeros: nothing
 * @qps:	QPN -> struct usiw_qp_proxy; read under RCU
 * @stags:	STag index -> struct usiw_stag
 * @cqns:	numbers of CQs in use
 * @next_qpn:	where the search for a free QPN goes on
 * @next_mr:	the same of a region's STag index
 * @next_mw:	the same of a window's
 * @nr_pds:	how many there are
 * @nr_srqs:	likewise
 * @nr_qps:	likewise
 * @ctx_lock:	guards @contexts
 * @contexts:	processes that have opened it: struct usiw_ucontext
 * @stats_lock:	guards @counters and @dead_counters
 * @counters:	pages of the contexts and QPs that there are: struct usiw_counters
 * @dead_counters: sums of the pages of those that are gone
 * @kcounters:	what the module itself counts: enum usiw_kcounter
 * @order:	among all devices, as clients of ib_core have got to know them
 * @conn_lock:	guards @conns; taken in process context with bottom halves off
 * @conns:	its connections
 * @nr_users:	connections and listeners that still point here
 * @users_gone:	woken when @nr_users is 0
 * @registrar:	the task that registers it now, if any
 * @dying:	no new connection: it is going, or not there yet for all its users
 * @port_work:	raises the port events
 * @port_up:	what it said last
 * @nexthops:	connections whose next hop hashes to the bucket
 * @neigh_pending: buckets with an update that @neigh_work has not looked at
 * @neigh_work:	has connections look at the MACs of these
 * @follow_work: has connections look at their routes; runs while there are any
 * @follow_flags: USIW_FOLLOW_ALL: all of them shall, for a reason of its own
 * @genid_ipv4:	generation of the netns' routes when @follow_work looked last
 * @genid_ipv6:	the same of IPv6
 * @pass:	number of the present round over @conns; guarded by @conn_lock, as the next two.
 *		Written by @follow_work only, as the next one
 * @pass_left:	connections that it takes at a time
 * @use_next:	jiffies before which there is no new round without a reason
 */
struct usiw_device {
	struct ib_device ibdev;
	struct list_head node;
	struct net_device *netdev;
	netdevice_tracker netdev_tracker;
	possible_net_t net;
	struct net_device *lo;
	netdevice_tracker lo_tracker;

	spinlock_t gid_lock;
	u8 gid[ETH_ALEN];
	u8 lent_mac[ETH_ALEN];

	struct xarray qps;
	struct xarray stags;
	struct ida cqns;
	u32 next_qpn;
	u32 next_mr;
	u32 next_mw;
	atomic_t nr_pds;
	atomic_t nr_srqs;
	atomic_t nr_qps;

	spinlock_t ctx_lock;
	struct list_head contexts;

	struct mutex stats_lock;
	struct list_head counters;
	u64 dead_counters[USIW_CNT_MAX];
	atomic64_t kcounters[USIW_KCNT_MAX];

	atomic64_t order;
	spinlock_t conn_lock;
	struct list_head conns;
	atomic_t nr_users;
	wait_queue_head_t users_gone;
	struct task_struct *registrar;
	bool dying;

	struct delayed_work port_work;
	bool port_up;

	atomic_t nexthops[USIW_NEXTHOP_BUCKETS];
	unsigned long neigh_pending[BITS_TO_LONGS(USIW_NEXTHOP_BUCKETS)];
	struct delayed_work neigh_work;

	struct delayed_work follow_work;
	unsigned long follow_flags;
	int genid_ipv4;
	int genid_ipv6;
	unsigned int pass;
	int pass_left;
	unsigned long use_next;
};

/* Bits of usiw_device.follow_flags. */
enum {
	USIW_FOLLOW_ALL,
};

static inline struct usiw_device *to_usiw_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct usiw_device, ibdev);
}

static inline void usiw_count(struct usiw_device *dev, enum usiw_kcounter counter)
{
	atomic64_inc(&dev->kcounters[counter]);
}

int usiw_device_init(void);
void usiw_device_exit(void);
bool usiw_link_is_up(const struct net_device *netdev);
void usiw_link_info(struct usiw_device *dev, struct usiw_link_info *link);
bool usiw_device_is_going(struct usiw_device *dev);
bool usiw_device_is_coming(struct usiw_device *dev);
void usiw_device_hold(struct usiw_device *dev);
void usiw_device_release(struct usiw_device *dev);
void usiw_device_wait_users(struct usiw_device *dev);
void usiw_device_for_each(const struct net *net,
			  void (*fn)(struct usiw_device *dev, const void *arg), const void *arg);
void usiw_device_read_mac(struct usiw_device *dev);
void usiw_device_is_last(struct usiw_device *dev);
bool usiw_device_is_before(const struct usiw_device *dev, const struct usiw_device *other);
void usiw_device_enter_net(struct usiw_device *dev);
void usiw_device_leave_net(struct usiw_device *dev);
bool usiw_device_is_ours(const struct ib_device *ibdev);

#endif /* USIW_DEVICE_H */
