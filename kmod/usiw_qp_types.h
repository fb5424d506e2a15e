/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queue pairs, and what their processes have agreed to. Their functions are in usiw_qp.h.
 */
#ifndef USIW_QP_TYPES_H
#define USIW_QP_TYPES_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../cm/object/usiw_qp_attrs.h"
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
 * @ibqp:	ib_core's part
 * @uctx:	context in which the QP was created
 * @proxy:	object that iw_cm holds in place of the QP
 * @mm:		memory of the process that created the QP. iw_cm takes QPNs as users give them, so a
 *		comparison with @mm is the only check that a QP is connected by its owner
 * @owner:	thread group of that process
 * @process:	state that all QPs of @mm share
 * @process_node: entry in the list of @process
 * @cap:	capacities, as requested
 * @sig_type:	signalling type, as requested
 * @kref:	references of @conn and of short users. iw_cm has none
 * @free:	completes when the last reference is dropped
 * @counters:	page of the QP: a struct usiw_qp_stats
 * @async:	unread asynchronous events
 * @lock:	guards all fields below
 * @conn:	connection, until it releases the QP
 * @state:	enum usiw_qp_state, as modify_qp and the connection set it
 * @attrs:	attributes as modify_qp set them; the depths are the connection's, once there is one
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

/* Returns true if the process of the QP takes data sockets. */
static inline bool usiw_qp_takes_socket(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_DATA_SOCKET;
}

/* Returns true if the process of the QP takes data sockets only. */
static inline bool usiw_qp_is_without_packets(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_SOCKETS_ONLY;
}

/* Returns true if connections of the QP heed USIW_TRP_F_MERGED. */
static inline bool usiw_qp_merges(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_MERGES;
}

/* Returns true if the process of the QP reports the port that each connection uses. */
static inline bool usiw_qp_tells_port(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_PORT_TELL;
}

/* Returns true if connections of the QP may change their ports. */
static inline bool usiw_qp_moves(const struct usiw_qp *qp)
{
	return qp->uctx->caps & USIW_CAP_PORT_MOVE;
}

#endif /* USIW_QP_TYPES_H */
