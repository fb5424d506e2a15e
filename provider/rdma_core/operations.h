/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The operations of a provider. libibverbs takes a table of functions by position, and each rdma-core that brings a new
 * operation moves those behind it. So there is one list here, in the library's order, with the first rdma-core that has
 * each: the table of a version is the rows up to it (usiw_operations_lay_out()).
 */
#ifndef USIW_RDMA_CORE_OPERATIONS_H
#define USIW_RDMA_CORE_OPERATIONS_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

struct verbs_mr;

/*
 * HAS(first rdma-core, name, type of the result, (types of the arguments))   usiw has it
 * NOT(first rdma-core, name)                                                 the library's default: EOPNOTSUPP
 * 34 stands for 34 and all before.
 */
#define USIW_OPERATIONS(HAS, NOT) \
	HAS(34, advise_mr, int, (struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge *, uint32_t)) \
	NOT(64, alloc_buf) \
	NOT(34, alloc_dm) \
	NOT(59, alloc_dmah) \
	HAS(34, alloc_mw, struct ibv_mw *, (struct ibv_pd *, enum ibv_mw_type)) \
	HAS(34, alloc_null_mr, struct ibv_mr *, (struct ibv_pd *)) \
	HAS(34, alloc_parent_domain, struct ibv_pd *, (struct ibv_context *, struct ibv_parent_domain_init_attr *)) \
	HAS(34, alloc_pd, struct ibv_pd *, (struct ibv_context *)) \
	HAS(34, alloc_td, struct ibv_td *, (struct ibv_context *, struct ibv_td_init_attr *)) \
	NOT(34, async_event) \
	NOT(34, attach_counters_point_flow) \
	NOT(34, attach_mcast) \
	HAS(34, bind_mw, int, (struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *)) \
	NOT(34, close_xrcd) \
	NOT(34, cq_event) \
	HAS(34, create_ah, struct ibv_ah *, (struct ibv_pd *, struct ibv_ah_attr *)) \
	NOT(65, create_comp_cntr) \
	NOT(34, create_counters) \
	HAS(34, create_cq, struct ibv_cq *, (struct ibv_context *, int, struct ibv_comp_channel *, int)) \
	HAS(34, create_cq_ex, struct ibv_cq_ex *, (struct ibv_context *, struct ibv_cq_init_attr_ex *)) \
	NOT(34, create_flow) \
	NOT(34, create_flow_action_esp) \
	HAS(34, create_qp, struct ibv_qp *, (struct ibv_pd *, struct ibv_qp_init_attr *)) \
	HAS(34, create_qp_ex, struct ibv_qp *, (struct ibv_context *, struct ibv_qp_init_attr_ex *)) \
	NOT(34, create_rwq_ind_table) \
	HAS(34, create_srq, struct ibv_srq *, (struct ibv_pd *, struct ibv_srq_init_attr *)) \
	HAS(34, create_srq_ex, struct ibv_srq *, (struct ibv_context *, struct ibv_srq_init_attr_ex *)) \
	NOT(34, create_wq) \
	NOT(59, dealloc_dmah) \
	HAS(34, dealloc_mw, int, (struct ibv_mw *)) \
	HAS(34, dealloc_pd, int, (struct ibv_pd *)) \
	HAS(34, dealloc_td, int, (struct ibv_td *)) \
	HAS(34, dereg_mr, int, (struct verbs_mr *)) \
	HAS(34, destroy_ah, int, (struct ibv_ah *)) \
	NOT(65, destroy_comp_cntr) \
	NOT(34, destroy_counters) \
	HAS(34, destroy_cq, int, (struct ibv_cq *)) \
	NOT(34, destroy_flow) \
	NOT(34, destroy_flow_action) \
	HAS(34, destroy_qp, int, (struct ibv_qp *)) \
	NOT(34, destroy_rwq_ind_table) \
	HAS(34, destroy_srq, int, (struct ibv_srq *)) \
	NOT(34, destroy_wq) \
	NOT(34, detach_mcast) \
	NOT(62, dm_export_dmabuf_fd) \
	NOT(64, free_buf) \
	HAS(34, free_context, void, (struct ibv_context *)) \
	NOT(34, free_dm) \
	NOT(34, get_srq_num) \
	NOT(35, import_dm) \
	NOT(34, import_mr) \
	NOT(34, import_pd) \
	NOT(65, inc_comp_cntr) \
	NOT(65, inc_err_comp_cntr) \
	NOT(34, modify_cq) \
	NOT(34, modify_flow_action_esp) \
	HAS(34, modify_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int)) \
	NOT(34, modify_qp_rate_limit) \
	HAS(34, modify_srq, int, (struct ibv_srq *, struct ibv_srq_attr *, int)) \
	NOT(34, modify_wq) \
	NOT(34, open_qp) \
	NOT(34, open_xrcd) \
	HAS(34, poll_cq, int, (struct ibv_cq *, int, struct ibv_wc *)) \
	HAS(34, post_recv, int, (struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **)) \
	HAS(34, post_send, int, (struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **)) \
	NOT(34, post_srq_ops) \
	HAS(34, post_srq_recv, int, (struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **)) \
	NOT(65, qp_attach_comp_cntr) \
	NOT(65, query_comp_cntr_caps) \
	HAS(34, query_device_ex, int, \
	    (struct ibv_context *, const struct ibv_query_device_ex_input *, struct ibv_device_attr_ex *, size_t)) \
	NOT(34, query_ece) \
	HAS(34, query_port, int, (struct ibv_context *, uint8_t, struct ibv_port_attr *)) \
	NOT(62, query_port_speed) \
	HAS(34, query_qp, int, (struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *)) \
	NOT(36, query_qp_data_in_order) \
	HAS(34, query_rt_values, int, (struct ibv_context *, struct ibv_values_ex *)) \
	HAS(34, query_srq, int, (struct ibv_srq *, struct ibv_srq_attr *)) \
	NOT(65, read_comp_cntr) \
	NOT(34, read_counters) \
	NOT(65, read_err_comp_cntr) \
	NOT(34, reg_dm_mr) \
	NOT(34, reg_dmabuf_mr) \
	HAS(34, reg_mr, struct ibv_mr *, (struct ibv_pd *, void *, size_t, uint64_t, int)) \
	NOT(59, reg_mr_ex) \
	HAS(34, req_notify_cq, int, (struct ibv_cq *, int)) \
	HAS(34, rereg_mr, int, (struct verbs_mr *, int, struct ibv_pd *, void *, size_t, int)) \
	HAS(34, resize_cq, int, (struct ibv_cq *, int)) \
	NOT(65, set_comp_cntr) \
	NOT(34, set_ece) \
	NOT(65, set_err_comp_cntr) \
	NOT(35, unimport_dm) \
	NOT(34, unimport_mr) \
	NOT(34, unimport_pd)

#define USIW_OPERATION_MEMBER(first, name, result, arguments)	result (*name) arguments;
#define USIW_OPERATION_NONE(first, name)
#define USIW_OPERATION_ONE(...)					+ 1

/* The operations that usiw has, by name. */
struct usiw_operations {
	USIW_OPERATIONS(USIW_OPERATION_MEMBER, USIW_OPERATION_NONE)
};

enum {
	USIW_OPERATIONS_OLDEST = 34,	/* of rdma-core, as the next */
	USIW_OPERATIONS_NEWEST = 65,
	USIW_OPERATIONS_ALL = 0 USIW_OPERATIONS(USIW_OPERATION_ONE, USIW_OPERATION_ONE),
	/* A newer table is longer: what it reads behind the last row is NULL, the library's default. */
	USIW_OPERATIONS_SLOTS = 192,
};

typedef void (*usiw_slot)(void);

/* Fills @slots (USIW_OPERATIONS_SLOTS) as the given rdma-core reads them. */
void usiw_operations_lay_out(const struct usiw_operations *operations, unsigned int rdma_core, usiw_slot *slots);

#endif /* USIW_RDMA_CORE_OPERATIONS_H */
