/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Queue pairs as connections and iw_cm use them: references, the connection, and the proxy that
 * iw_cm holds.
 */
#ifndef USIW_QP_REF_H
#define USIW_QP_REF_H

#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/rcupdate.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../cm/object/usiw_qp_attrs.h"
#include "../cm/object/usiw_qp_states.h"
#include "../uapi/usiw_abi.h"
#include "usiw_unread.h"
#include "usiw_verbs_types.h"

struct mm_struct;
struct pid;
struct usiw_conn;
struct usiw_device;
struct usiw_process;
struct usiw_qp;

/**
 * struct usiw_qp_proxy - object that iw_cm holds in place of a QP
 * @ibqp:	what iw_cm gets from iw_get_qp. Only .device, .real_qp and .qp_type are set. iw_cm
 *		counts references to it, and passes it to ib_modify_qp(), which calls
 *		usiw_modify_qp() without udata
 * @kref:	references of iw_cm, and one of the module until a grace period after @qp is gone
 * @rcu:	drops the module's reference after a grace period
 * @lock:	guards @qp; taken with interrupts off, because iw_cm calls iw_get_qp with interrupts
 *		off
 * @qp:		the QP; NULL once it is being destroyed
 *
 * A user can make iw_cm keep its reference for any time: if the user accepts and rejects the same
 * connection, iw_cm keeps the reference until the cm_id is destroyed. A dying process destroys the
 * cm_id when it closes rdma_cm's file, and may close that file only after its QPs are destroyed. If
 * iw_cm had a reference to the QP itself, the destruction of the QP would wait for ever, and the
 * process could not be killed. With the proxy the QP can be destroyed while iw_cm still has its
 * reference.
 */
struct usiw_qp_proxy {
	struct ib_qp ibqp;
	struct kref kref;
	struct rcu_head rcu;
	spinlock_t lock;
	struct usiw_qp *qp;
};

static inline struct usiw_qp_proxy *to_usiw_qp_proxy(struct ib_qp *ibqp)
{
	return container_of(ibqp, struct usiw_qp_proxy, ibqp);
}

/**
 * struct usiw_qp - queue pair
 * @ibqp:	ib_core's part
 * @uctx:	context in which the QP was created
 * @proxy:	object that iw_cm holds in place of the QP
 * @mm:		memory of the process that created the QP. iw_cm accepts any QPN from a user, so the
 *		comparison with @mm is the only check that the user owns the QP
 * @owner:	thread group of that process
 * @process:	state that all QPs of @mm share
 * @process_node: entry in the list of @process
 * @cap:	capacities, as requested
 * @sig_type:	signalling type, as requested
 * @kref:	references of @conn, of functions that use the QP for a short time, and one until
 *		the QP is destroyed. iw_cm has none
 * @free:	completes when the last reference is dropped
 * @counters:	page of counters of the QP, a struct usiw_qp_stats
 * @async:	unread asynchronous events
 * @lock:	guards all fields below
 * @conn:	connection, until it releases the QP
 * @state:	enum usiw_qp_state, as modify_qp and the connection set it
 * @attrs:	attributes as modify_qp set them. When the connection is given to the engine, the
 *		READ depths become those that the two ends have agreed on
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

/* Returns true if the QP's provider and the module have agreed on @cap, a USIW_CAP_*. */
static inline bool usiw_qp_can(const struct usiw_qp *qp, u64 cap)
{
	return qp->uctx->caps & cap;
}

int usiw_qp_proxy_alloc(struct usiw_qp *qp);
void usiw_qp_proxy_detach(struct usiw_qp_proxy *proxy);
struct usiw_qp_proxy *usiw_qp_proxy_by_qpn(struct usiw_device *dev, u32 qpn);
struct usiw_qp *usiw_qp_proxy_get_qp(struct usiw_qp_proxy *proxy);
struct ib_qp *usiw_iw_get_qp(struct ib_device *ibdev, int qpn);
void usiw_iw_add_ref(struct ib_qp *ibqp);
void usiw_iw_rem_ref(struct ib_qp *ibqp);
struct usiw_qp *usiw_qp_get_own(struct usiw_device *dev, u32 qpn);
void usiw_qp_put(struct usiw_qp *qp);
u8 usiw_qp_ports(const struct usiw_qp *qp);
int usiw_qp_attach(struct usiw_qp *qp, struct usiw_conn *conn);
void usiw_qp_detach(struct usiw_qp *qp, struct usiw_conn *conn);
struct usiw_conn *usiw_qp_get_conn(struct usiw_qp *qp);
void usiw_qp_set_state(struct usiw_qp *qp, enum usiw_qp_state state);
void usiw_qp_set_depths(struct usiw_qp *qp, u16 ird, u16 ord);
void usiw_qp_accepted(struct usiw_qp *qp);

#endif /* USIW_QP_REF_H */
