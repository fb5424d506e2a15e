// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A provider of another ABI version: provider/verbs/rdma_core_glue.c as it ships but for the
 * number, and nothing behind it, which nobody may come to.
 */
#include <stdlib.h>

#include "runtime/glue.h"

#define NEVER(type, name, ...) type name(__VA_ARGS__) { abort(); }

int usiw_wants_post_fault(void) { return 0; }
uint64_t usiw_own_caps(uint64_t all) { return all; }
NEVER(int, usiw_context_open, struct usiw_context *c, int fd, const struct usiw_alloc_ucontext_resp *r)
NEVER(void, usiw_context_close, struct usiw_context *c)
NEVER(struct ibv_pd *, usiw_verb_alloc_pd, struct ibv_context *c)
NEVER(int, usiw_verb_dealloc_pd, struct ibv_pd *pd)
NEVER(struct ibv_mr *, usiw_verb_reg_mr, struct ibv_pd *pd, void *at, size_t n, uint64_t iova, int access)
NEVER(int, usiw_verb_dereg_mr, struct ibv_mr *mr)
NEVER(struct ibv_cq *, usiw_verb_create_cq, struct ibv_context *c, int n, struct ibv_comp_channel *ch, int v)
NEVER(int, usiw_verb_destroy_cq, struct ibv_cq *cq)
NEVER(int, usiw_verb_poll_cq, struct ibv_cq *cq, int n, struct ibv_wc *wc)
NEVER(int, usiw_verb_req_notify_cq, struct ibv_cq *cq, int solicited_only)
NEVER(struct ibv_qp *, usiw_verb_create_qp, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
NEVER(int, usiw_verb_modify_qp, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
NEVER(int, usiw_verb_query_qp, struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init)
NEVER(int, usiw_verb_destroy_qp, struct ibv_qp *qp)
NEVER(int, usiw_verb_post_send, struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
NEVER(int, usiw_verb_post_send_fault, struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
NEVER(int, usiw_verb_post_recv, struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
