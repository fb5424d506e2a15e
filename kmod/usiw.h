/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * usiw.ko: objects of the device and of its users. Connections are in usiw_conn.h.
 */
#ifndef USIW_H
#define USIW_H

#include <linux/idr.h>
#include <linux/if_ether.h>
#include <linux/kref.h>
#include <linux/netdevice.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <rdma/ib_verbs.h>
#include <rdma/uverbs_ioctl.h>

#include "../cm/usiw_limits.h"
#include "../cm/usiw_qp_attrs.h"
#include "../uapi/usiw_abi.h"
#include "usiw_compat.h"

struct usiw_conn;
struct usiw_process;
struct usiw_qp_proxy;

/* Buckets of next-hop addresses, to tell which neighbour updates concern a device. */
#define USIW_NEXTHOP_BITS	6
#define USIW_NEXTHOP_BUCKETS	(1 << USIW_NEXTHOP_BITS)

/* Port events wait this long, ms: see usiw_port_work(). */
#define USIW_PORT_DELAY_MS	50

/* Neighbour updates are gathered for this long, ms. */
#define USIW_NEIGH_DELAY_MS	10

/*
 * Looks for changed routes, ms, and how many connections follow at a time. Each one looks at
 * its route now and then without a reason, too. A batch is how many are kicked with the lock
 * held and bottom halves off. See usiw_follow.c.
 */
#define USIW_FOLLOW_MS		200
#define USIW_FOLLOW_BURST	2048
#define USIW_FOLLOW_BATCH	64
#define USIW_FOLLOW_USE_MS	5000
#define USIW_FOLLOW_USE_BURST	256

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

/**
 * struct usiw_evfile - event stream of a context: the uverbs object behind its descriptor
 * @uobj:	the core's; its references keep the memory, of the file, the context and the
 *		connections. First, as the core allocates and frees it
 * @read_lock:	one reader at a time: a record leaves the stream when it has been copied
 * @lock:	guards all below, and ev_node and records of the connections
 * @wait:	readers and pollers
 * @conns:	connections with a record to read; each holds a reference of its own
 * @link:	how the netdev is
 * @link_pending: that is to be read
 * @gone:	the context has ended, or the descriptor is closed: DEVICE_GONE, then end of file
 * @gone_read:	DEVICE_GONE has been
 *
 * Queuing a record needs no memory: connections bring their list node and their bits.
 */
struct usiw_evfile {
	struct ib_uobject uobj;
	struct mutex read_lock;
	spinlock_t lock;
	wait_queue_head_t wait;
	struct list_head conns;
	struct usiw_link_info link;
	bool link_pending;
	bool gone;
	bool gone_read;
};

/**
 * struct usiw_counters - a page that a process counts in, of a context or a QP
 * @node:	in usiw_device.counters
 * @page:	USIW_COUNTERS_SIZE bytes, counters first; the process writes all of it, the module
 *		usiw_qp_stats.accepted
 * @entry:	by which the process maps it
 * @seen:	the largest values read and believed: a total never goes back
 * @seen_ns:	when that was
 */
struct usiw_counters {
	struct list_head node;
	u64 *page;
	struct rdma_user_mmap_entry *entry;
	u64 seen[USIW_CNT_MAX];
	u64 seen_ns;
};

/**
 * struct usiw_ucontext - a device that a process has opened
 * @ibuc:	the core's part of it
 * @node:	in usiw_device.contexts
 * @caps:	USIW_CAP_* that the provider and the module have agreed on
 * @events:	its event stream, with a reference; NULL until it is opened, then for good the
 *		same. Written under usiw_device.ctx_lock
 * @link_missed: the link has changed since the provider was told, and there was no @events;
 *		guarded by usiw_device.ctx_lock
 * @counters:	its own page, beside those of its QPs
 */
struct usiw_ucontext {
	struct ib_ucontext ibuc;
	struct list_head node;
	u64 caps;
	struct usiw_evfile *events;
	bool link_missed;
	struct usiw_counters counters;
};

struct usiw_pd {
	struct ib_pd ibpd;
};

/*
 * Events that may be unread at a time: of completion of a CQ, and of the limit of an SRQ. More than
 * one, for programs that arm a queue several times and expect as many events. Of each type of a QP's
 * events, and of a CQ's overrun, there is one.
 */
#define USIW_UNREAD_MOST	4

/* Events of an object that may be unread at a time, of all types: six of a QP. */
#define USIW_UNREAD_ROOM	8

/**
 * struct usiw_unread - events of an object that its process has not read; see usiw_unread.c
 * @lock:	guards all below; the event is raised under it
 * @records:	uverbs' list of them; NULL: not known, and no event is left out
 * @reported:	how many have been read since the object was made, as uverbs counts
 * @base:	what @reported was when the module looked last
 * @n:		how many are unread, as of then
 * @types:	of these, the oldest first
 */
struct usiw_unread {
	spinlock_t lock;
	const struct list_head *records;
	const u32 *reported;
	u32 base;
	u8 n;
	u8 types[USIW_UNREAD_ROOM];
};

/**
 * struct usiw_cq - completion queue
 * @ibcq:	the core's part of it
 * @cqn:	its number
 * @completions: events of completion that are unread
 * @async:	other events that are unread
 */
struct usiw_cq {
	struct ib_cq ibcq;
	u32 cqn;
	struct usiw_unread completions;
	struct usiw_unread async;
};

/**
 * struct usiw_srq - shared receive queue
 * @ibsrq:	the core's part of it
 * @max_wr:	as asked for
 * @max_sge:	likewise
 * @limit:	as modify_srq set it; 0: it has been reached, or nobody wants to hear of it
 * @async:	its events that are unread
 */
struct usiw_srq {
	struct ib_srq ibsrq;
	u32 max_wr;
	u32 max_sge;
	u32 limit;
	struct usiw_unread async;
};

/* What an STag names: a region or a window. */
struct usiw_stag {
	u32 index;
};

/**
 * struct usiw_mr - memory region
 * @ibmr:	the core's part of it
 * @stag:	its number
 * @start:	first byte
 * @length:	bytes
 * @access:	IB_ACCESS_*
 */
struct usiw_mr {
	struct ib_mr ibmr;
	struct usiw_stag stag;
	u64 start;
	u64 length;
	int access;
};

/* Memory window. What it is bound to is the provider's. */
struct usiw_mw {
	struct ib_mw ibmw;
	struct usiw_stag stag;
};

/**
 * struct usiw_qp - queue pair
 * @ibqp:	the core's part of it
 * @uctx:	the context that made it
 * @proxy:	what iw_cm holds in its place
 * @mm:		of the process that made it. iw_cm takes QPNs as users give them, so that
 *		this is the only check that a QP is connected by its owner
 * @owner:	thread group of that process
 * @process:	what @mm's QPs share
 * @process_node: in its list
 * @cap:	as asked for
 * @sig_type:	likewise
 * @kref:	references of @conn and of who looks at it. iw_cm has none
 * @free:	completes with the last of them
 * @counters:	its page is a struct usiw_qp_stats
 * @async:	its events that are unread
 * @lock:	guards all below it
 * @conn:	its connection, until RELEASE
 * @state:	as modify_qp and the connection leave it, enum usiw_qp_state
 * @attrs:	as modify_qp set them; the depths of the connection, once there is one
 * @destroying:	no connection may be attached any more
 */
struct usiw_qp {
	struct ib_qp ibqp;
	struct usiw_ucontext *uctx;
	struct usiw_qp_proxy *proxy;
	struct mm_struct *mm;
	struct pid *owner;
	struct usiw_process *process;
	struct list_head process_node;
	struct ib_qp_cap cap;
	enum ib_sig_type sig_type;
	struct kref kref;
	struct completion free;
	struct usiw_counters counters;
	struct usiw_unread async;

	spinlock_t lock;
	struct usiw_conn *conn;
	u32 state;
	struct usiw_qp_attrs attrs;
	bool destroying;
};

static inline struct usiw_device *to_usiw_dev(struct ib_device *ibdev)
{
	return container_of(ibdev, struct usiw_device, ibdev);
}

static inline struct usiw_ucontext *to_usiw_uctx(struct ib_ucontext *ibuc)
{
	return container_of(ibuc, struct usiw_ucontext, ibuc);
}

static inline struct usiw_qp *to_usiw_qp(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct usiw_qp, ibqp);
}

/* Does the QP's process take data sockets? */
static inline bool usiw_qp_takes_socket(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_DATA_SOCKET;
}

/* ... and nothing else? */
static inline bool usiw_qp_is_without_packets(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_SOCKETS_ONLY;
}

/* Do its connections heed USIW_TRP_F_MERGED? */
static inline bool usiw_qp_merges(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_MERGES;
}

/* Does it tell which port each connection goes by? */
static inline bool usiw_qp_tells_port(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_PORT_TELL;
}

/* May its connections change their ports? */
static inline bool usiw_qp_moves(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_PORT_MOVE;
}

static inline struct usiw_cq *to_usiw_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct usiw_cq, ibcq);
}

static inline struct usiw_srq *to_usiw_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct usiw_srq, ibsrq);
}

static inline struct usiw_mr *to_usiw_mr(struct ib_mr *ibmr)
{
	return container_of(ibmr, struct usiw_mr, ibmr);
}

static inline struct usiw_mw *to_usiw_mw(struct ib_mw *ibmw)
{
	return container_of(ibmw, struct usiw_mw, ibmw);
}

static inline void usiw_count(struct usiw_device *dev, enum usiw_kcounter counter)
{
	atomic64_inc(&dev->kcounters[counter]);
}

/* Work of the module that may sleep; unbound, so that devices do not wait for each other. */
extern struct workqueue_struct *usiw_wq;

/* usiw_device.c */
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

/* usiw_link.c */
int usiw_link_init(void);
void usiw_link_exit(void);
int usiw_newlink(const char *ibdev_name, struct net_device *netdev);
int usiw_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
		      struct ib_udata *udata);
int usiw_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr);

/* usiw_netdev.c */
int usiw_netdev_init(void);
void usiw_netdev_exit(void);
void usiw_netdev_count(struct net_device *netdev, enum usiw_kcounter counter);
void usiw_neigh_work(struct work_struct *work);
void usiw_port_work(struct work_struct *work);

/* usiw_follow.c */
void usiw_follow_work(struct work_struct *work);
void usiw_follow_all(struct usiw_device *dev);

/* usiw_process.c */
int usiw_process_join(struct usiw_qp *qp);
void usiw_process_leave(struct usiw_qp *qp);
bool usiw_process_is_dying(struct pid *pid);
void usiw_process_exit(void);

/* usiw_verbs.c */
int usiw_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata);
void usiw_dealloc_ucontext(struct ib_ucontext *ibuc);
void usiw_disassociate_ucontext(struct ib_ucontext *ibuc);
int usiw_read_request(struct ib_udata *udata, void *req, size_t size, size_t least);
int usiw_write_response(struct ib_udata *udata, void *resp, size_t size);
int usiw_counters_alloc(struct usiw_ucontext *uctx, struct usiw_counters *counters);
void usiw_counters_free(struct usiw_counters *counters);
int usiw_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma);
void usiw_mmap_free(struct rdma_user_mmap_entry *entry);
int usiw_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int usiw_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

/* usiw_unread.c */
void usiw_unread_init_completions(struct usiw_unread *unread, const void *uobject);
void usiw_unread_init_async(struct usiw_unread *unread, const void *uobject);
void usiw_unread_raise(struct usiw_unread *unread, u8 type, unsigned int most,
		       void (*raise)(void *arg), void *arg);

/* usiw_cq.c */
int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg);
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata);
int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc);
int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void usiw_cq_completion_event(struct usiw_cq *cq);
void usiw_cq_overrun(struct usiw_cq *cq);

/* usiw_srq.c */
int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata);
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata);
int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);
void usiw_srq_limit_reached(struct usiw_srq *srq);

/* usiw_mr.c */
struct ib_mr *usiw_reg_user_mr(struct ib_pd *ibpd, u64 start, u64 length, u64 iova, int access,
			       USIW_DMAH_ARG struct ib_udata *udata);
struct ib_mr *usiw_rereg_user_mr(struct ib_mr *ibmr, int flags, u64 start, u64 length, u64 iova,
				 int access, struct ib_pd *ibpd, struct ib_udata *udata);
struct ib_mr *usiw_get_dma_mr(struct ib_pd *ibpd, int access);
int usiw_dereg_mr(struct ib_mr *ibmr, struct ib_udata *udata);
int usiw_alloc_mw(struct ib_mw *ibmw, struct ib_udata *udata);
int usiw_dealloc_mw(struct ib_mw *ibmw);

/* usiw_qp.c */
int usiw_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata);
int usiw_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata);
int usiw_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr);
int usiw_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata);
int usiw_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr);
int usiw_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr);
struct usiw_qp *usiw_qp_get_own(struct usiw_device *dev, u32 qpn);
void usiw_qp_put(struct usiw_qp *qp);
int usiw_qp_attach(struct usiw_qp *qp, struct usiw_conn *conn);
void usiw_qp_detach(struct usiw_qp *qp, struct usiw_conn *conn);
struct usiw_conn *usiw_qp_get_conn(struct usiw_qp *qp);
void usiw_qp_set_state(struct usiw_qp *qp, enum usiw_qp_state state);
void usiw_qp_accepted(struct usiw_qp *qp);
void usiw_qp_set_depths(struct usiw_qp *qp, u16 ird, u16 ord);
void usiw_qp_async_event(struct usiw_qp *qp, enum ib_event_type type);

/* usiw_stats.c */
extern const struct rdma_stat_desc usiw_stat_descs[];
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);
void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters);
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters);

/* usiw_restrack.c */
int usiw_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);

/* usiw_uapi.c */
extern const struct uapi_definition usiw_uapi_defs[];

/* usiw_event.c */
extern const struct file_operations usiw_event_fops;
int usiw_evfile_open(struct usiw_evfile *events);
void usiw_evfile_get(struct usiw_evfile *events);
void usiw_evfile_put(struct usiw_evfile *events);
void usiw_ucontext_link_changed(struct usiw_ucontext *uctx, const struct usiw_link_info *link);
void usiw_evfile_shutdown(struct usiw_evfile *events);
void usiw_evfile_push(struct usiw_conn *conn, enum usiw_event_type type);
void usiw_evfile_forget(struct usiw_evfile *events, u32 qpn);

#endif /* USIW_H */
