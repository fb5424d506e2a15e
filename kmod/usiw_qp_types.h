/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A queue pair, and what its process has agreed to. Its functions are in usiw_qp.h.
 */
#ifndef USIW_QP_TYPES_H
#define USIW_QP_TYPES_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../cm/usiw_qp_attrs.h"
#include "../uapi/usiw_abi.h"
#include "usiw_stats.h"
#include "usiw_unread.h"
#include "usiw_verbs_types.h"

struct mm_struct;
struct pid;
struct usiw_conn;
struct usiw_process;
struct usiw_qp_proxy;

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

#endif /* USIW_QP_TYPES_H */
