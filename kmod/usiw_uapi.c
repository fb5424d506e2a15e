// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The objects and methods that the module adds to uverbs: the event stream of a context, methods
 * that raise events of a CQ or an SRQ, and reports on a QP and its connection. uverbs handles
 * ownership and lifetime of the objects.
 */
#include <linux/fs.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#define UVERBS_MODULE_NAME usiw
#include <rdma/uverbs_named_ioctl.h>

#include "usiw_uapi.h"

#include "../cm/object/usiw_report.h"
#include "usiw_conn.h"
#include "usiw_conn_run.h"
#include "usiw_event.h"
#include "usiw_qp_ref.h"
#include "usiw_verbs.h"

static int UVERBS_HANDLER(USIW_METHOD_EVENT_FILE_ALLOC)(struct uverbs_attr_bundle *attrs)
{
	struct ib_uobject *uobj = uverbs_attr_get_uobject(attrs, USIW_ATTR_EVENT_FILE_HANDLE);

	return usiw_evfile_open(container_of(uobj, struct usiw_evfile, uobj));
}

/*
 * Ends the stream, because its last descriptor is closed or the context ends. In the second case a
 * process can still read DEVICE_GONE.
 */
static void usiw_event_file_destroy(struct ib_uobject *uobj, enum rdma_remove_reason why)
{
	usiw_evfile_shutdown(container_of(uobj, struct usiw_evfile, uobj));
}

/*
 * ---- Events. uverbs locks the object while a method runs, so nobody destroys the object. ----
 */

/* Raises a completion event of @cq, unless USIW_UNREAD_MOST of them are unread. */
static void usiw_cq_completion_event(struct usiw_cq *cq)
{
	struct ib_cq *ibcq = &cq->ibcq;

	if (!ibcq->comp_handler)
		return;
	spin_lock(&cq->completions.lock);
	if (usiw_unread_add(&cq->completions, 0, USIW_UNREAD_MOST))
		ibcq->comp_handler(ibcq, ibcq->cq_context);
	spin_unlock(&cq->completions.lock);
}

/* Raises IB_EVENT_CQ_ERR, because the ring of the CQ was full. Does nothing if one is unread. */
static void usiw_cq_overrun(struct usiw_cq *cq)
{
	struct ib_event event = {
		.device = cq->ibcq.device,
		.element.cq = &cq->ibcq,
		.event = IB_EVENT_CQ_ERR,
	};

	usiw_unread_raise(&cq->async, &event, 1, cq->ibcq.event_handler, cq->ibcq.cq_context);
}

static int UVERBS_HANDLER(USIW_METHOD_CQ_EVENT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_cq *ibcq = uverbs_attr_get_obj(attrs, USIW_ATTR_CQ_EVENT_HANDLE);
	u32 kind;
	int ret;

	ret = uverbs_copy_from(&kind, attrs, USIW_ATTR_CQ_EVENT_KIND);
	if (ret)
		return ret;
	switch (kind) {
	case USIW_CQ_COMPLETION:
		usiw_cq_completion_event(to_usiw_cq(ibcq));
		return 0;
	case USIW_CQ_OVERRUN:
		usiw_cq_overrun(to_usiw_cq(ibcq));
		return 0;
	default:
		return -EINVAL;
	}
}

static int UVERBS_HANDLER(USIW_METHOD_SRQ_EVENT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_srq *ibsrq = uverbs_attr_get_obj(attrs, USIW_ATTR_SRQ_EVENT_HANDLE);
	struct usiw_srq *srq = to_usiw_srq(ibsrq);
	struct ib_event event = {
		.device = ibsrq->device,
		.element.srq = ibsrq,
		.event = IB_EVENT_SRQ_LIMIT_REACHED,
	};
	u32 kind;
	int ret;

	ret = uverbs_copy_from(&kind, attrs, USIW_ATTR_SRQ_EVENT_KIND);
	if (ret)
		return ret;
	if (kind != USIW_SRQ_LIMIT)
		return -EINVAL;
	WRITE_ONCE(srq->limit, 0);
	usiw_unread_raise(&srq->async, &event, USIW_UNREAD_MOST, ibsrq->event_handler,
			  ibsrq->srq_context);
	return 0;
}

static void usiw_qp_async_event(struct usiw_qp *qp, enum ib_event_type type)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
		.event = type,
	};

	usiw_unread_raise(&qp->async, &event, 1, qp->ibqp.event_handler, qp->ibqp.qp_context);
}

static int UVERBS_HANDLER(USIW_METHOD_QP_REPORT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, USIW_ATTR_QP_REPORT_HANDLE);
	struct usiw_qp *qp = to_usiw_qp(ibqp);
	struct usiw_qp_report report;
	struct usiw_conn *conn;
	int ret;

	ret = uverbs_copy_from_or_zero(&report, attrs, USIW_ATTR_QP_REPORT_DATA);
	if (ret)
		return ret;
	BUILD_BUG_ON(USIW_ASYNC_SQ_DRAINED != IB_EVENT_SQ_DRAINED ||
		     USIW_ASYNC_LAST_WQE_REACHED != IB_EVENT_QP_LAST_WQE_REACHED ||
		     USIW_MAX_ERRNO != MAX_ERRNO);
	if (!usiw_report_is_valid(&report, qp->uctx->caps))
		return -EINVAL;

	if (report.kind != USIW_REPORT_ASYNC) {
		conn = usiw_qp_get_conn(qp);
		if (conn) {
			usiw_conn_report(conn, &report);
			usiw_conn_put(conn);
		}
	}
	if (report.async_event)
		usiw_qp_async_event(qp, report.async_event);
	return 0;
}

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_EVENT_FILE_ALLOC,
	UVERBS_ATTR_FD(USIW_ATTR_EVENT_FILE_HANDLE, USIW_OBJECT_EVENT_FILE, UVERBS_ACCESS_NEW,
		       UA_MANDATORY));

DECLARE_UVERBS_NAMED_OBJECT(USIW_OBJECT_EVENT_FILE,
	UVERBS_TYPE_ALLOC_FD(sizeof(struct usiw_evfile), usiw_event_file_destroy,
			     &usiw_event_fops, "[usiw]", O_RDONLY),
	&UVERBS_METHOD(USIW_METHOD_EVENT_FILE_ALLOC));

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_CQ_EVENT,
	UVERBS_ATTR_IDR(USIW_ATTR_CQ_EVENT_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(USIW_ATTR_CQ_EVENT_KIND, UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_SRQ_EVENT,
	UVERBS_ATTR_IDR(USIW_ATTR_SRQ_EVENT_HANDLE, UVERBS_OBJECT_SRQ, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(USIW_ATTR_SRQ_EVENT_KIND, UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_QP_REPORT,
	UVERBS_ATTR_IDR(USIW_ATTR_QP_REPORT_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(USIW_ATTR_QP_REPORT_DATA,
			   UVERBS_ATTR_STRUCT(struct usiw_qp_report, async_event), UA_MANDATORY));

ADD_UVERBS_METHODS(usiw_cq_object, UVERBS_OBJECT_CQ, &UVERBS_METHOD(USIW_METHOD_CQ_EVENT));
ADD_UVERBS_METHODS(usiw_srq_object, UVERBS_OBJECT_SRQ, &UVERBS_METHOD(USIW_METHOD_SRQ_EVENT));
ADD_UVERBS_METHODS(usiw_qp_object, UVERBS_OBJECT_QP, &UVERBS_METHOD(USIW_METHOD_QP_REPORT));

const struct uapi_definition usiw_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE_NAMED(USIW_OBJECT_EVENT_FILE),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_CQ, &usiw_cq_object),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_SRQ, &usiw_srq_object),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &usiw_qp_object),
	{},
};
