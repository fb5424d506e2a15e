/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * An RDMA device on a netdev: its state, its counters, and its netns. Also the workqueue and the
 * clock that all files of the module share.
 */
#ifndef USIW_DEVICE_H
#define USIW_DEVICE_H

#include <linux/completion.h>
#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/ktime.h>
#include <linux/netdevice.h>
#include <linux/refcount.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

#include "../cm/usiw_cm_admission.h"
#include "../uapi/usiw_abi.h"

/*
 * Number of hash buckets in which a device counts its connections by next hop, so that it can skip
 * updates of other neighbours. A u64 has a bit for each bucket.
 */
#define USIW_NEXTHOP_BUCKETS	64

/* Interval of usiw_device.follow_work, ms. */
#define USIW_FOLLOW_MS		200

/* Counters of the module. `rdma statistic show` prints them after those of enum usiw_counter. */
enum usiw_kcounter {
	USIW_KCNT_CM_TX,
	USIW_KCNT_CM_RX,
	USIW_KCNT_CM_CONNECT,		/* connections that this end requested */
	USIW_KCNT_CM_REQUEST,		/* REQs that a listener was notified of */
	USIW_KCNT_CM_ESTABLISHED,
	/* REQs answered by PENDING, or dropped for lack of memory or of space in iw_cm's backlog */
	USIW_KCNT_CM_BACKLOG_FULL,
	USIW_KCNT_CM_REFUSED,		/* REQs refused for their features, or for the MTU */
	USIW_KCNT_CM_NO_CHECKSUM,	/* dropped: handshakes over IPv4 without a UDP checksum */
	USIW_KCNT_ROUTE_ELSEWHERE,	/* routes by which raw packets no longer reach the peer */
	USIW_KCNT_ROUTE_FORBIDDEN,	/* connections ended because raw packets became forbidden */
	USIW_KCNT_PORT_MOVES,		/* reports of a process that a connection changed port */
	USIW_KCNT_RX_BESIDE,		/* datagrams that data sockets left to the raw port */
	USIW_KCNT_MAX,
};

/**
 * struct usiw_device - an RDMA device on a netdev
 * @ibdev:	ib_core's part
 * @node:	entry in the list of all devices
 * @netdev:	the netdev, held until dealloc_driver
 * @netdev_tracker: tracks the reference to @netdev
 * @net:	network namespace of @netdev when the device was made. The namespace outlives the
 *		device and its sockets, because the device holds @lo
 * @lo:		loopback netdev of @net, held until dealloc_driver; see usiw_device_enter_net()
 * @lo_tracker:	tracks the reference to @lo
 * @gid_lock:	guards @gid
 * @gid:	GID 0: the MAC of @netdev, or a random one if it has none
 * @lent_mac:	MAC that the module has given to lo for as long as this device exists; zeros if none
 * @qps:	QPN -> struct usiw_qp_proxy; read under RCU
 * @stags:	indices of STags in use
 * @cqns:	numbers of CQs in use
 * @next_qpn:	QPN at which the search for a free one starts
 * @next_mr:	STag index at which the search for one of a region starts
 * @next_mw:	STag index at which the search for one of a window starts
 * @nr_pds:	number of PDs
 * @nr_srqs:	number of SRQs
 * @nr_qps:	number of QPs
 * @ctx_lock:	guards @contexts
 * @contexts:	contexts of the device: struct usiw_ucontext
 * @stats_lock:	guards @counters and @dead_counters
 * @counters:	pages of the contexts and QPs that exist: struct usiw_counters
 * @dead_counters: sums of the pages of contexts and QPs that are gone
 * @kcounters:	the module's own counters: enum usiw_kcounter
 * @order:	position among all devices, in the order in which clients of ib_core got the devices
 * @conn_lock:	guards @conns and @dying; taken with bottom halves off
 * @conns:	connections of the device
 * @users:	references of connections and listeners, and one that lasts until dealloc_driver
 * @users_gone:	completes when the last reference is dropped
 * @registrar:	task that registers the device now, or NULL
 * @dying:	no connection may be made, because the device is going or clients do not have it yet
 * @port_work:	raises port events
 * @port_up:	state of the port at the last port event; at first, when the device was made
 * @nexthops:	number of connections by hash bucket of the next hop's address
 * @neigh_pending: mask of the buckets with an update that @neigh_work has not handled
 * @neigh_work:	makes the connections of these buckets check the MAC of their next hop
 * @follow_work: makes connections check their routes; runs while there are connections
 * @follow_flags: bit USIW_FOLLOW_ALL: all connections have to check their routes
 * @genid_ipv4:	generation number of the IPv4 routes that @follow_work read last
 * @genid_ipv6:	generation number of the IPv6 routes that @follow_work read last
 * @pass:	number of the current pass over @conns. @conn_lock guards this field and the next
 *		two. Only @follow_work writes this field and @pass_left
 * @pass_left:	number of connections of the pass that one run of @follow_work kicks
 * @use_next:	time, in jiffies, from which a new pass may start without a change of routes
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
	refcount_t users;
	struct completion users_gone;
	struct task_struct *registrar;
	bool dying;

	struct delayed_work port_work;
	bool port_up;

	atomic_t nexthops[USIW_NEXTHOP_BUCKETS];
	atomic64_t neigh_pending;
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

/*
 * Workqueue for all work of the module that may sleep. It is unbound, so long work for one device
 * does not delay work for another device on the same CPU.
 */
extern struct workqueue_struct *usiw_wq;

/* The clock of cm/ and of all timers of connections: CLOCK_MONOTONIC, us. */
static inline u64 usiw_now_us(void)
{
	return ktime_to_us(ktime_get());
}

static inline struct usiw_device *to_usiw_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct usiw_device, ibdev);
}

/* Adds 1 to a counter of @dev. Any context. */
static inline void usiw_count(struct usiw_device *dev, enum usiw_kcounter counter)
{
	atomic64_inc(&dev->kcounters[counter]);
}

struct usiw_cm_admission_net *usiw_net_admission(struct net *net);
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

#endif /* USIW_DEVICE_H */
