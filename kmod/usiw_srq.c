// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Shared receive queues. The provider has the ring, the kernel keeps the object. ib_core keeps an
 * SRQ while a QP uses it.
 */
#include <rdma/uverbs_ioctl.h>

#include "usiw_srq.h"

#include "../cm/object/usiw_limits.h"
#include "usiw_device.h"
#include "usiw_verbs.h"

int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata)
{
	struct usiw_device *dev = to_usiw_dev(ibsrq->device);
	struct usiw_srq *srq = to_usiw_srq(ibsrq);
	int ret;

	if (!udata || attr->srq_type != IB_SRQT_BASIC)
		return -EOPNOTSUPP;
	ret = usiw_check_srq(attr->attr.max_wr, attr->attr.max_sge);
	if (ret)
		return ret;
	ret = usiw_read_create_request(udata);
	if (ret)
		return ret;

	if (atomic_inc_return(&dev->nr_srqs) > USIW_MAX_SRQ) {
		atomic_dec(&dev->nr_srqs);
		return -ENOMEM;
	}
	srq->max_wr = attr->attr.max_wr;
	srq->max_sge = attr->attr.max_sge;
	srq->limit = 0;		/* verbs ignore it until modify_srq */
	usiw_unread_init_async(&srq->async, ibsrq->uobject);
	return 0;
}

/*
 * The provider has resized its ring before it calls. It alone knows how many entries the ring has,
 * and which limit arms the queue now. If two calls run at a time, the last number counts.
 */
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata)
{
	struct usiw_srq *srq = to_usiw_srq(ibsrq);
	int ret;

	BUILD_BUG_ON(USIW_SRQ_ATTR_MAX_WR != IB_SRQ_MAX_WR || USIW_SRQ_ATTR_LIMIT != IB_SRQ_LIMIT);
	ret = usiw_check_modify_srq(mask, attr->max_wr, attr->srq_limit, READ_ONCE(srq->max_wr));
	if (ret)
		return ret;
	if (mask & IB_SRQ_MAX_WR) {
		WRITE_ONCE(srq->max_wr, attr->max_wr);
		WRITE_ONCE(srq->limit, min(READ_ONCE(srq->limit), attr->max_wr));
	}
	if (mask & IB_SRQ_LIMIT)
		WRITE_ONCE(srq->limit, attr->srq_limit);
	return 0;
}

int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr)
{
	struct usiw_srq *srq = to_usiw_srq(ibsrq);

	attr->max_wr = READ_ONCE(srq->max_wr);
	attr->max_sge = srq->max_sge;
	attr->srq_limit = READ_ONCE(srq->limit);
	return 0;
}

int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata)
{
	atomic_dec(&to_usiw_dev(ibsrq->device)->nr_srqs);
	return 0;
}

/* See usiw_poll_cq(). */
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr)
{
	*bad_wr = wr;
	return -EOPNOTSUPP;
}

/* The caller holds the user's handle of the SRQ, so the SRQ is not being destroyed. */
void usiw_srq_limit_reached(struct usiw_srq *srq)
{
	struct ib_event event = {
		.device = srq->ibsrq.device,
		.element.srq = &srq->ibsrq,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};

	WRITE_ONCE(srq->limit, 0);
	usiw_unread_raise(&srq->async, &event, USIW_UNREAD_MOST, srq->ibsrq.event_handler,
			  srq->ibsrq.srq_context);
}
