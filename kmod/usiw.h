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
#include "usiw_device.h"
#include "usiw_mr.h"
#include "usiw_stats.h"
#include "usiw_unread.h"

struct usiw_conn;
struct usiw_process;
struct usiw_qp_proxy;

/* Port events wait this long, ms: see usiw_port_work(). */
#define USIW_PORT_DELAY_MS	50

/* Neighbour updates are gathered for this long, ms. */
#define USIW_NEIGH_DELAY_MS	10

/*
 * Looks for changed routes, ms, and how many connections follow at a time. Each one looks at
 * its route now and then without a reason, too. A batch is how many are kicked with the lock
 * held and bottom halves off. See usiw_follow.c.
 */
#define USIW_FOLLOW_BURST	2048
#define USIW_FOLLOW_BATCH	64
#define USIW_FOLLOW_USE_MS	5000
#define USIW_FOLLOW_USE_BURST	256

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

/* Work of the module that may sleep; unbound, so that devices do not wait for each other. */
extern struct workqueue_struct *usiw_wq;

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
