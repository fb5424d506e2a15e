/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Between the C files that speak rdma-core's private ABI (rdma_core/) and the
 * C++ that implements the verbs. Public verbs types only.
 */
#ifndef USIW_RUNTIME_GLUE_H
#define USIW_RUNTIME_GLUE_H

#include <infiniband/verbs.h>
#include <stdint.h>

#include "uapi/usiw_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An open device. In front of it lies what the library has for itself: the rest of its struct verbs_context. */
struct usiw_context {
	struct ibv_context ibv;
	void *state;			/* usiw::Context */
};

/* ---- C calls C++: the verbs. Errors as the manual pages say. ---- */

/* 0 or an errno value. */
int usiw_context_open(struct usiw_context *ctx, int cmd_fd,
		      const struct usiw_alloc_ucontext_resp *resp);
void usiw_context_close(struct usiw_context *ctx);
/* Of the capabilities that the provider understands those that this process wants, by USIW_PORT and its rights. */
uint64_t usiw_own_caps(uint64_t all);

struct ibv_pd *usiw_verb_alloc_pd(struct ibv_context *ctx);
int usiw_verb_dealloc_pd(struct ibv_pd *pd);
struct ibv_ah *usiw_verb_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int usiw_verb_destroy_ah(struct ibv_ah *ah);
struct ibv_td *usiw_verb_alloc_td(struct ibv_context *ctx, struct ibv_td_init_attr *attr);
int usiw_verb_dealloc_td(struct ibv_td *td);
struct ibv_pd *usiw_verb_alloc_parent_domain(struct ibv_context *ctx, struct ibv_parent_domain_init_attr *attr);
struct ibv_mr *usiw_verb_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
int usiw_verb_dereg_mr(struct ibv_mr *mr);
int usiw_verb_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		       int access);
struct ibv_mr *usiw_verb_alloc_null_mr(struct ibv_pd *pd);
int usiw_verb_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags,
			struct ibv_sge *sges, uint32_t num_sge);
struct ibv_mw *usiw_verb_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int usiw_verb_dealloc_mw(struct ibv_mw *mw);
int usiw_verb_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
struct ibv_cq *usiw_verb_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
			      int comp_vector);
struct ibv_cq_ex *usiw_verb_create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
int usiw_verb_resize_cq(struct ibv_cq *cq, int cqe);
int usiw_verb_destroy_cq(struct ibv_cq *cq);
int usiw_verb_poll_cq(struct ibv_cq *cq, int count, struct ibv_wc *wc);
int usiw_verb_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int usiw_verb_query_rt_values(struct ibv_context *ctx, struct ibv_values_ex *values);
struct ibv_srq *usiw_verb_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
struct ibv_srq *usiw_verb_create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
int usiw_verb_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int usiw_verb_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int usiw_verb_destroy_srq(struct ibv_srq *srq);
int usiw_verb_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct ibv_qp *usiw_verb_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
struct ibv_qp *usiw_verb_create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
int usiw_verb_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int usiw_verb_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		  struct ibv_qp_init_attr *init);
int usiw_verb_destroy_qp(struct ibv_qp *qp);
int usiw_verb_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
/* The same with the fault that the environment asks for; 1 if it asks for one. */
int usiw_verb_post_send_fault(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int usiw_wants_post_fault(void);
int usiw_verb_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);

/* ---- C++ calls C: commands to the kernel. 0 or an errno value. ---- */

int usiw_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd);
int usiw_cmd_dealloc_pd(struct ibv_pd *pd);
int usiw_cmd_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr, struct ibv_ah *ah);
int usiw_cmd_destroy_ah(struct ibv_ah *ah);
/* @mr: the library's struct verbs_mr (USIW_VERBS_MR_SIZE bytes), its struct ibv_mr first */
#define USIW_VERBS_MR_SIZE (sizeof(struct ibv_mr) + 8)
int usiw_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		    void *mr);
int usiw_cmd_dereg_mr(void *mr);
/* With IBV_REREG_MR_* in @flags; the STag in @mr is the new one. */
int usiw_cmd_rereg_mr(void *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		      int access);
/* The library neither registers it anew nor gives its memory back to children. */
void usiw_mr_is_null(void *mr);
int usiw_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw);
int usiw_cmd_dealloc_mw(struct ibv_mw *mw);
int usiw_cmd_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
		       int comp_vector, struct ibv_cq *cq);
int usiw_cmd_resize_cq(struct ibv_cq *cq, int cqe);	/* sets cq->cqe */
int usiw_cmd_destroy_cq(struct ibv_cq *cq);
/* Room behind a struct ibv_srq that the library may read (struct verbs_srq). */
#define USIW_VERBS_SRQ_BYTES (sizeof(struct ibv_srq) + 32)
int usiw_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr);
int usiw_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int usiw_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int usiw_cmd_destroy_srq(struct ibv_srq *srq);
/* Room for a struct ibv_qp and what the library may read behind it, of any rdma-core (struct verbs_qp). */
#define USIW_VERBS_QP_BYTES (sizeof(struct ibv_qp) + 224)
/* @qp has the functions of a struct ibv_qp_ex: ibv_qp_to_qp_ex() says so from now on. */
void usiw_glue_is_qp_ex(struct ibv_qp *qp);
int usiw_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		       struct usiw_create_qp_resp *drv);
int usiw_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int usiw_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_qp_init_attr *init);
int usiw_cmd_destroy_qp(struct ibv_qp *qp);

#ifdef __cplusplus
}
#endif

#endif /* USIW_RUNTIME_GLUE_H */
