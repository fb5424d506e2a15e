// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A provider of another ABI version: provider/rdma_core as it ships, with another number. The
 * functions that it calls abort, because no call may reach them. So the names need no types, and
 * runtime/glue.h, which has the types, is not included.
 */
#include <stdint.h>
#include <stdlib.h>

int usiw_wants_post_fault(void) { return 0; }
uint64_t usiw_own_caps(uint64_t all) { return all; }

#define NEVER(name) void name(void) { abort(); }

NEVER(usiw_context_open)
NEVER(usiw_context_close)
NEVER(usiw_verb_alloc_pd)
NEVER(usiw_verb_dealloc_pd)
NEVER(usiw_verb_create_ah)
NEVER(usiw_verb_destroy_ah)
NEVER(usiw_verb_alloc_td)
NEVER(usiw_verb_dealloc_td)
NEVER(usiw_verb_alloc_parent_domain)
NEVER(usiw_verb_reg_mr)
NEVER(usiw_verb_dereg_mr)
NEVER(usiw_verb_rereg_mr)
NEVER(usiw_verb_alloc_null_mr)
NEVER(usiw_verb_advise_mr)
NEVER(usiw_verb_alloc_mw)
NEVER(usiw_verb_dealloc_mw)
NEVER(usiw_verb_bind_mw)
NEVER(usiw_verb_create_cq)
NEVER(usiw_verb_create_cq_ex)
NEVER(usiw_verb_resize_cq)
NEVER(usiw_verb_destroy_cq)
NEVER(usiw_verb_poll_cq)
NEVER(usiw_verb_req_notify_cq)
NEVER(usiw_verb_query_rt_values)
NEVER(usiw_verb_create_srq)
NEVER(usiw_verb_create_srq_ex)
NEVER(usiw_verb_modify_srq)
NEVER(usiw_verb_query_srq)
NEVER(usiw_verb_destroy_srq)
NEVER(usiw_verb_post_srq_recv)
NEVER(usiw_verb_create_qp)
NEVER(usiw_verb_create_qp_ex)
NEVER(usiw_verb_modify_qp)
NEVER(usiw_verb_query_qp)
NEVER(usiw_verb_destroy_qp)
NEVER(usiw_verb_post_send)
NEVER(usiw_verb_post_send_fault)
NEVER(usiw_verb_post_recv)
