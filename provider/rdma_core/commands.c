/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The kernel commands of the verbs, by libibverbs. */
#include "library.h"
#include "runtime/glue.h"

#define CALL(name, ...) usiw_status(usiw_library.ibv_cmd_##name(__VA_ARGS__))

int usiw_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_alloc_pd cmd;
	struct ib_uverbs_alloc_pd_resp resp;

	return CALL(alloc_pd, ctx, pd, &cmd, sizeof(cmd), &resp, sizeof(resp));
}

int usiw_cmd_dealloc_pd(struct ibv_pd *pd)
{
	return CALL(dealloc_pd, pd);
}

int usiw_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr, struct ibv_ah *ah)
{
	struct ib_uverbs_create_ah_resp resp;

	return CALL(create_ah, pd, ah, attr, &resp, sizeof(resp));
}

int usiw_cmd_destroy_ah(struct ibv_ah *ah)
{
	return CALL(destroy_ah, ah);
}

int usiw_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		    void *mr)
{
	struct ibv_reg_mr cmd;
	struct ib_uverbs_reg_mr_resp resp;

	return CALL(reg_mr, pd, addr, length, iova, access, mr, &cmd, sizeof(cmd), &resp, sizeof(resp));
}

int usiw_cmd_dereg_mr(void *mr)
{
	return CALL(dereg_mr, mr);
}

int usiw_cmd_rereg_mr(void *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		      int access)
{
	struct ibv_rereg_mr cmd;
	struct ib_uverbs_rereg_mr_resp resp;

	return CALL(rereg_mr, mr, flags, addr, length, iova, access, pd, &cmd, sizeof(cmd), &resp, sizeof(resp));
}

void usiw_mr_is_null(void *mr)
{
	((struct verbs_mr *)mr)->mr_type = USIW_MR_TYPE_NULL;
}

int usiw_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw)
{
	struct ibv_alloc_mw cmd;
	struct ib_uverbs_alloc_mw_resp resp;

	return CALL(alloc_mw, pd, type, mw, &cmd, sizeof(cmd), &resp, sizeof(resp));
}

int usiw_cmd_dealloc_mw(struct ibv_mw *mw)
{
	return CALL(dealloc_mw, mw);
}

int usiw_cmd_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
		       int comp_vector, struct ibv_cq *cq)
{
	struct {
		struct ibv_create_cq core;
		struct usiw_create_cq_req drv;
	} cmd = { .drv.comp_mask = 0 };
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct usiw_create_cq_resp drv;
	} resp = { .drv.cqn = 0 };

	return CALL(create_cq, ctx, cqe, channel, comp_vector, cq, &cmd.core, sizeof(cmd), &resp.core, sizeof(resp));
}

int usiw_cmd_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct ibv_resize_cq cmd;
	struct ib_uverbs_resize_cq_resp resp;

	return CALL(resize_cq, cq, cqe, &cmd, sizeof(cmd), &resp, sizeof(resp));
}

int usiw_cmd_destroy_cq(struct ibv_cq *cq)
{
	return CALL(destroy_cq, cq);
}

void usiw_glue_is_qp_ex(struct ibv_qp *qp)
{
	*(uint32_t *)((char *)qp + usiw_library.qp_mask_at) |= USIW_VERBS_QP_EX;
}

int usiw_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr)
{
	struct {
		struct ibv_create_srq core;
		struct usiw_create_srq_req drv;
	} cmd = { .drv.comp_mask = 0 };
	struct ib_uverbs_create_srq_resp resp;

	return CALL(create_srq, pd, srq, attr, &cmd.core, sizeof(cmd), &resp, sizeof(resp));
}

int usiw_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd;

	return CALL(modify_srq, srq, attr, mask, &cmd, sizeof(cmd));
}

int usiw_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return CALL(query_srq, srq, attr, &cmd, sizeof(cmd));
}

int usiw_cmd_destroy_srq(struct ibv_srq *srq)
{
	return CALL(destroy_srq, srq);
}

int usiw_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		       struct usiw_create_qp_resp *drv)
{
	struct {
		struct ibv_create_qp core;
		struct usiw_create_qp_req drv;
	} cmd = { .drv.comp_mask = 0 };
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct usiw_create_qp_resp drv;
	} resp = { .drv.stats_size = 0 };
	int ret = CALL(create_qp, pd, qp, attr, &cmd.core, sizeof(cmd), &resp.core, sizeof(resp));

	*drv = resp.drv;
	return ret;
}

int usiw_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_modify_qp cmd;

	return CALL(modify_qp, qp, attr, mask, &cmd, sizeof(cmd));
}

int usiw_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_qp_init_attr *init)
{
	struct ibv_query_qp cmd;

	return CALL(query_qp, qp, attr, mask, init, &cmd, sizeof(cmd));
}

int usiw_cmd_destroy_qp(struct ibv_qp *qp)
{
	return CALL(destroy_qp, qp);
}
