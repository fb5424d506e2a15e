// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The verbs of queue pairs. The provider has the rings, work requests and completions. The kernel
 * has the number, the attributes, the state and the connection of a QP.
 */
#include <linux/pid.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/uverbs_ioctl.h>

#include "usiw_qp.h"

#include "../cm/object/usiw_device_attr.h"
#include "usiw_conn.h"
#include "usiw_conn_run.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_process.h"
#include "usiw_qp_ref.h"
#include "usiw_stats.h"
#include "usiw_unread.h"
#include "usiw_verbs.h"

static int usiw_check_qp_attr(const struct ib_qp_init_attr *attr)
{
	if (attr->create_flags || attr->qp_type != IB_QPT_RC)
		return -EOPNOTSUPP;
	if (!attr->send_cq || !attr->recv_cq)
		return -EINVAL;
	if (attr->sq_sig_type != IB_SIGNAL_ALL_WR && attr->sq_sig_type != IB_SIGNAL_REQ_WR)
		return -EINVAL;
	if (attr->srq)
		return usiw_check_srq_qp_caps(attr->cap.max_send_wr, attr->cap.max_send_sge,
					      attr->cap.max_inline_data);
	return usiw_check_qp_caps(attr->cap.max_send_wr, attr->cap.max_recv_wr,
				  attr->cap.max_send_sge, attr->cap.max_recv_sge,
				  attr->cap.max_inline_data);
}

int usiw_create_qp(struct ib_qp *ibqp, struct ib_qp_init_attr *attr, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibqp->device);
	struct usiw_qp *qp = to_usiw_qp(ibqp);
	struct usiw_create_qp_resp resp = {};
	u32 qpn;
	int ret;

	if (!udata)
		return -EOPNOTSUPP;
	ret = usiw_check_qp_attr(attr);
	if (ret)
		return ret;
	ret = usiw_read_create_request(udata);
	if (ret)
		return ret;
	qp->uctx = rdma_udata_to_drv_context(udata, struct usiw_ucontext, ibuc);
	/*
	 * The kernel passes a connection to the provider by records of the event stream, so the
	 * stream must exist. This acquire pairs with the release in usiw_evfile_open().
	 */
	if (!smp_load_acquire(&qp->uctx->events))
		return -EINVAL;

	if (!atomic_add_unless(&dev->nr_qps, 1, USIW_MAX_QP))
		return -ENOMEM;
	qp->cap = attr->cap;
	if (attr->srq) {
		qp->cap.max_recv_sge = 0;
		qp->cap.max_recv_wr = 0;
	}
	qp->sig_type = attr->sq_sig_type;
	qp->state = USIW_QPS_RESET;
	kref_init(&qp->kref);
	init_completion(&qp->free);
	spin_lock_init(&qp->lock);
	usiw_unread_init_async(&qp->async, ibqp->uobject);

	ret = usiw_counters_alloc(qp->uctx, &qp->counters);
	if (ret)
		goto err_count;
	ret = usiw_qp_proxy_alloc(qp);
	if (ret)
		goto err_counters;
	/*
	 * Only reserves the number, with NULL as its entry. Once look-ups find the QP, no step may
	 * fail.
	 */
	ret = xa_alloc_cyclic(&dev->qps, &qpn, NULL, XA_LIMIT(USIW_QPN_FIRST, USIW_QPN_LAST),
			      &dev->next_qpn, GFP_KERNEL);
	if (ret < 0) {
		ret = -ENOMEM;
		goto err_proxy;
	}
	resp.qpn = qpn;
	resp.stats_size = USIW_COUNTERS_SIZE;
	resp.stats_offset = rdma_user_mmap_get_offset(qp->counters.entry);
	ret = usiw_write_response(udata, &resp, sizeof(resp));
	if (ret)
		goto err_qpn;
	ibqp->qp_num = qpn;
	ret = usiw_process_join(qp);
	if (ret)
		goto err_qpn;
	qp->mm = current->mm;
	mmgrab(qp->mm);
	qp->owner = get_task_pid(current, PIDTYPE_TGID);
	ret = xa_err(xa_store(&dev->qps, qpn, qp->proxy, GFP_KERNEL));
	if (ret)
		goto err_mm;
	usiw_stats_add(dev, &qp->counters);
	return 0;

err_mm:
	put_pid(qp->owner);
	mmdrop(qp->mm);
	usiw_process_leave(qp);
err_qpn:
	xa_erase(&dev->qps, qpn);
err_proxy:
	kfree(qp->proxy);
err_counters:
	usiw_counters_free(&qp->counters);
err_count:
	atomic_dec(&dev->nr_qps);
	return ret;
}

/* Ends the connection of @qp at once, if it has one. */
static void usiw_qp_abort_conn(struct usiw_qp *qp)
{
	struct usiw_conn *conn = usiw_qp_get_conn(qp);

	if (conn) {
		usiw_conn_abort(conn);
		usiw_conn_put(conn);
	}
}

/*
 * Destroys the QP and ends its connection. Waits only for functions of the module that use the QP
 * for a short time.
 */
int usiw_destroy_qp(struct ib_qp *ibqp, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibqp->device);
	struct usiw_qp *qp = to_usiw_qp(ibqp);

	spin_lock(&qp->lock);
	qp->destroying = true;
	spin_unlock(&qp->lock);

	usiw_qp_abort_conn(qp);
	usiw_evfile_forget(qp->uctx->events, ibqp->qp_num);

	xa_erase(&dev->qps, ibqp->qp_num);
	usiw_qp_proxy_detach(qp->proxy);
	usiw_qp_put(qp);
	wait_for_completion(&qp->free);

	usiw_process_leave(qp);
	usiw_stats_del(dev, &qp->counters);
	usiw_counters_free(&qp->counters);
	put_pid(qp->owner);
	mmdrop(qp->mm);
	atomic_dec(&dev->nr_qps);
	return 0;
}

/*
 * Makes all changes that @mask names, or none. If the new state is ERR or RESET, the connection
 * ends before the state changes. Returns 0 or -errno.
 */
static int usiw_qp_modify(struct usiw_qp *qp, const struct ib_qp_attr *attr, u32 mask)
{
	bool ends = (mask & IB_QP_STATE) &&
		    (attr->qp_state == IB_QPS_ERR || attr->qp_state == IB_QPS_RESET);
	int ret;

	usiw_check_qp_attrs(ret, attr, mask);
	if (ret)
		return ret;
	spin_lock(&qp->lock);
	if (((mask & IB_QP_CUR_STATE) && !usiw_qp_is_in(qp->state, attr->cur_qp_state)) ||
	    ((mask & IB_QP_STATE) && !usiw_qp_may_move(qp->state, attr->qp_state))) {
		ret = -EINVAL;
	} else {
		usiw_keep_qp_attrs(&qp->attrs, attr, mask, qp->state);
		if (!ends && (mask & IB_QP_STATE))
			qp->state = usiw_qp_state_after(qp->state, attr->qp_state);
	}
	spin_unlock(&qp->lock);
	if (ret || !ends)
		return ret;

	usiw_qp_abort_conn(qp);
	usiw_qp_set_state(qp, attr->qp_state == IB_QPS_ERR ? USIW_QPS_ERR : USIW_QPS_RESET);
	return 0;
}

/*
 * Ends the connection, because iw_cm sets the QP to @how: in order if that is SQD, at once if it is
 * ERR. Returns 0, or -EINVAL if usiw_qp_may_end() does not allow it.
 */
static int usiw_qp_end(struct usiw_qp *qp, u32 how)
{
	struct usiw_conn *conn;
	bool may;

	spin_lock(&qp->lock);
	may = usiw_qp_may_end(qp->state, how);
	spin_unlock(&qp->lock);
	if (!may)
		return -EINVAL;
	if (how == USIW_QPS_ERR) {
		usiw_qp_abort_conn(qp);
		usiw_qp_set_state(qp, USIW_QPS_ERR);
		return 0;
	}
	conn = usiw_qp_get_conn(qp);
	if (conn) {
		usiw_conn_disconnect(conn);
		usiw_conn_put(conn);
	}
	return 0;
}

/*
 * Changes a QP. Users pass their QP with @udata; iw_cm passes the proxy of a QP without @udata. May
 * sleep.
 */
int usiw_modify_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		   struct ib_udata *udata)
{
	struct usiw_qp *qp;
	int ret;

	if (udata)
		return usiw_qp_modify(to_usiw_qp(ibqp), attr, mask);
	qp = usiw_qp_proxy_get_qp(to_usiw_qp_proxy(ibqp));
	if (!qp)
		return -EINVAL;
	ret = usiw_qp_end(qp, attr->qp_state);
	usiw_qp_put(qp);
	return ret;
}

int usiw_query_qp(struct ib_qp *ibqp, struct ib_qp_attr *attr, int mask,
		  struct ib_qp_init_attr *init_attr)
{
	struct usiw_device *dev = to_usiw_dev(ibqp->device);
	struct usiw_qp *qp = to_usiw_qp(ibqp);

	memset(attr, 0, sizeof(*attr));
	memset(init_attr, 0, sizeof(*init_attr));
	spin_lock(&qp->lock);
	usiw_fill_qp_attrs(attr, &qp->attrs, qp->state);
	spin_unlock(&qp->lock);
	attr->path_mtu = usiw_mtu_named(READ_ONCE(dev->netdev->mtu));
	attr->cap = qp->cap;

	init_attr->send_cq = ibqp->send_cq;
	init_attr->recv_cq = ibqp->recv_cq;
	init_attr->srq = ibqp->srq;
	init_attr->cap = qp->cap;
	init_attr->sq_sig_type = qp->sig_type;
	init_attr->qp_type = ibqp->qp_type;
	init_attr->port_num = 1;
	return 0;
}

/*
 * usiw_post_send() and usiw_post_recv() refuse calls that a process makes by write(2), as
 * usiw_poll_cq() does.
 */
int usiw_post_send(struct ib_qp *ibqp, const struct ib_send_wr *wr,
		   const struct ib_send_wr **bad_wr)
{
	*bad_wr = wr;
	return -EOPNOTSUPP;
}

int usiw_post_recv(struct ib_qp *ibqp, const struct ib_recv_wr *wr,
		   const struct ib_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return -EOPNOTSUPP;
}
