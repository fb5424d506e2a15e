// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The two methods that usiw adds to uverbs: wake a CQ's owner, and report on a QP's
 * connection. Ownership and lifetime of the objects are the core's to see to.
 */
#include <rdma/uverbs_ioctl.h>
#include <rdma/uverbs_types.h>

#define UVERBS_MODULE_NAME usiw
#include <rdma/uverbs_named_ioctl.h>

#include "usiw.h"
#include "usiw_conn.h"

static int UVERBS_HANDLER(USIW_METHOD_CQ_EVENT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_cq *ibcq = uverbs_attr_get_obj(attrs, USIW_ATTR_CQ_EVENT_HANDLE);
	struct ib_event event = {
		.device = ibcq->device,
		.element.cq = ibcq,
		.event = IB_EVENT_CQ_ERR,
	};
	u32 kind;
	int ret;

	ret = uverbs_copy_from(&kind, attrs, USIW_ATTR_CQ_EVENT_KIND);
	if (ret)
		return ret;
	switch (kind) {
	case USIW_CQ_COMPLETION:
		if (ibcq->comp_handler)
			ibcq->comp_handler(ibcq, ibcq->cq_context);
		return 0;
	case USIW_CQ_OVERRUN:
		if (ibcq->event_handler)
			ibcq->event_handler(&event, ibcq->cq_context);
		return 0;
	default:
		return -EINVAL;
	}
}

static bool usiw_report_is_valid(const struct usiw_qp_report *report)
{
	if (report->kind < USIW_REPORT_READY || report->kind > USIW_REPORT_ASYNC)
		return false;
	if (report->error > 0 || report->error < -MAX_ERRNO)
		return false;
	/* 0 is IB_EVENT_CQ_ERR, which is no event of a QP: here it says "none". */
	return report->async_event <= IB_EVENT_SQ_DRAINED;
}

static int UVERBS_HANDLER(USIW_METHOD_QP_REPORT)(struct uverbs_attr_bundle *attrs)
{
	struct ib_qp *ibqp = uverbs_attr_get_obj(attrs, USIW_ATTR_QP_REPORT_HANDLE);
	struct usiw_qp *qp = to_usiw_qp(ibqp);
	struct usiw_qp_report report;
	struct usiw_conn *conn;
	int ret;

	ret = uverbs_copy_from(&report, attrs, USIW_ATTR_QP_REPORT_DATA);
	if (ret)
		return ret;
	if (!usiw_report_is_valid(&report))
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

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_CQ_EVENT,
	UVERBS_ATTR_IDR(USIW_ATTR_CQ_EVENT_HANDLE, UVERBS_OBJECT_CQ, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(USIW_ATTR_CQ_EVENT_KIND, UVERBS_ATTR_TYPE(u32), UA_MANDATORY));

DECLARE_UVERBS_NAMED_METHOD(USIW_METHOD_QP_REPORT,
	UVERBS_ATTR_IDR(USIW_ATTR_QP_REPORT_HANDLE, UVERBS_OBJECT_QP, UVERBS_ACCESS_READ,
			UA_MANDATORY),
	UVERBS_ATTR_PTR_IN(USIW_ATTR_QP_REPORT_DATA, UVERBS_ATTR_TYPE(struct usiw_qp_report),
			   UA_MANDATORY));

ADD_UVERBS_METHODS(usiw_cq_object, UVERBS_OBJECT_CQ, &UVERBS_METHOD(USIW_METHOD_CQ_EVENT));
ADD_UVERBS_METHODS(usiw_qp_object, UVERBS_OBJECT_QP, &UVERBS_METHOD(USIW_METHOD_QP_REPORT));

const struct uapi_definition usiw_uapi_defs[] = {
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_CQ, &usiw_cq_object),
	UAPI_DEF_CHAIN_OBJ_TREE(UVERBS_OBJECT_QP, &usiw_qp_object),
	{},
};
