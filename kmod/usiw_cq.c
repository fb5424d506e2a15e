// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Completion queues. The provider has the ring, the kernel keeps the object. */
#include <rdma/uverbs_ioctl.h>

#include "usiw_cq.h"

#include "../cm/object/usiw_limits.h"
#include "usiw_device.h"
#include "usiw_verbs.h"

int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg)
{
	struct ib_udata *udata = usiw_create_cq_udata(arg);
	struct usiw_device *dev = to_usiw_dev(ibcq->device);
	struct usiw_cq *cq = to_usiw_cq(ibcq);
	struct usiw_create_cq_resp resp = {};
	int cqn, ret;

	if (!udata)
		return -EOPNOTSUPP;
	if (attr->flags)
		return -EOPNOTSUPP;
	if (usiw_check_cqe(attr->cqe))
		return -EINVAL;
	ret = usiw_read_create_request(udata);
	if (ret)
		return ret;

	cqn = ida_alloc_range(&dev->cqns, 1, USIW_MAX_CQ, GFP_KERNEL_ACCOUNT);
	if (cqn < 0)
		return -ENOMEM;
	cq->cqn = cqn;
	usiw_unread_init_completions(&cq->completions, ibcq->uobject);
	usiw_unread_init_async(&cq->async, ibcq->uobject);
	ibcq->cqe = attr->cqe;
	resp.cqn = cqn;
	ret = usiw_write_response(udata, &resp, sizeof(resp));
	if (ret)
		ida_free(&dev->cqns, cqn);
	return ret;
}

/*
 * The provider moves the entries of its ring before or after this call, because only the provider
 * knows how many there are. If two calls run at a time, the last number counts.
 */
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata)
{
	if (!udata)
		return -EOPNOTSUPP;
	if (udata->inlen && !ib_is_udata_cleared(udata, 0, udata->inlen))
		return -EOPNOTSUPP;
	if (usiw_check_cqe(cqe))
		return -EINVAL;
	WRITE_ONCE(ibcq->cqe, cqe);
	return 0;
}

int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata)
{
	ida_free(&to_usiw_dev(ibcq->device)->cqns, to_usiw_cq(ibcq)->cqn);
	return 0;
}

/*
 * Without these operations ib_core would count the device among those that rdma_cm ignores. No
 * kernel user has a CQ or a QP to call them on. A process that calls them by write(2) gets
 * -EOPNOTSUPP.
 */
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc)
{
	return -EOPNOTSUPP;
}

int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags)
{
	return -EOPNOTSUPP;
}

/* Wakes a reader of the completion channel. The caller holds the user's handle of the CQ. */
void usiw_cq_completion_event(struct usiw_cq *cq)
{
	struct ib_cq *ibcq = &cq->ibcq;

	if (!ibcq->comp_handler)
		return;
	spin_lock(&cq->completions.lock);
	if (usiw_unread_add(&cq->completions, 0, USIW_UNREAD_MOST))
		ibcq->comp_handler(ibcq, ibcq->cq_context);
	spin_unlock(&cq->completions.lock);
}

/* The ring of the CQ was full. The caller holds the user's handle of the CQ. */
void usiw_cq_overrun(struct usiw_cq *cq)
{
	struct ib_event event = {
		.device = cq->ibcq.device,
		.element.cq = &cq->ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	usiw_unread_raise(&cq->async, &event, 1, cq->ibcq.event_handler, cq->ibcq.cq_context);
}
