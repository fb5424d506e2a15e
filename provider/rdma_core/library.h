/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The libibverbs that has loaded this provider. Its private functions are looked up by name, so one file of the
 * provider serves every rdma-core from 34 to 65: it is installed under one name for each number of the private ABI. C
 * only.
 */
#ifndef USIW_RDMA_CORE_LIBRARY_H
#define USIW_RDMA_CORE_LIBRARY_H

#include <errno.h>

#include "abi.h"
#include "operations.h"

struct ibv_fd_arr;

/* F(name, type of the result, (types of the arguments)): what is the same in all of them. */
#define USIW_LIBRARY_FUNCTIONS(F) \
	F(_verbs_init_and_alloc_context, void *, (struct ibv_device *device, int cmd_fd, size_t alloc_size, \
		struct verbs_context *offset_of_member, uint32_t driver_id)) \
	F(verbs_set_ops, void, (struct verbs_context *context, const usiw_slot *operations)) \
	F(verbs_uninit_context, void, (struct verbs_context *context)) \
	F(ibv_cmd_query_device_any, int, (struct ibv_context *context, const struct ibv_query_device_ex_input *input, \
		struct ibv_device_attr_ex *attr, size_t attr_size, struct ib_uverbs_ex_query_device_resp *resp, \
		size_t *resp_size)) \
	F(ibv_cmd_query_port, int, (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, \
		struct ibv_query_port *cmd, size_t cmd_size)) \
	F(ibv_cmd_alloc_pd, int, (struct ibv_context *context, struct ibv_pd *pd, struct ibv_alloc_pd *cmd, \
		size_t cmd_size, struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size)) \
	F(ibv_cmd_dealloc_pd, int, (struct ibv_pd *pd)) \
	F(ibv_cmd_create_ah, int, (struct ibv_pd *pd, struct ibv_ah *ah, struct ibv_ah_attr *attr, \
		struct ib_uverbs_create_ah_resp *resp, size_t resp_size)) \
	F(ibv_cmd_destroy_ah, int, (struct ibv_ah *ah)) \
	F(ibv_cmd_reg_mr, int, (struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access, \
		struct verbs_mr *mr, struct ibv_reg_mr *cmd, size_t cmd_size, struct ib_uverbs_reg_mr_resp *resp, \
		size_t resp_size)) \
	F(ibv_cmd_dereg_mr, int, (struct verbs_mr *mr)) \
	F(ibv_cmd_rereg_mr, int, (struct verbs_mr *mr, uint32_t flags, void *addr, size_t length, uint64_t iova, \
		int access, struct ibv_pd *pd, struct ibv_rereg_mr *cmd, size_t cmd_size, \
		struct ib_uverbs_rereg_mr_resp *resp, size_t resp_size)) \
	F(ibv_cmd_alloc_mw, int, (struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw, \
		struct ibv_alloc_mw *cmd, size_t cmd_size, struct ib_uverbs_alloc_mw_resp *resp, size_t resp_size)) \
	F(ibv_cmd_dealloc_mw, int, (struct ibv_mw *mw)) \
	F(ibv_cmd_create_cq, int, (struct ibv_context *context, int cqe, struct ibv_comp_channel *channel, \
		int comp_vector, struct ibv_cq *cq, struct ibv_create_cq *cmd, size_t cmd_size, \
		struct ib_uverbs_create_cq_resp *resp, size_t resp_size)) \
	F(ibv_cmd_resize_cq, int, (struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd, size_t cmd_size, \
		struct ib_uverbs_resize_cq_resp *resp, size_t resp_size)) \
	F(ibv_cmd_destroy_cq, int, (struct ibv_cq *cq)) \
	F(ibv_cmd_create_srq, int, (struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr, \
		struct ibv_create_srq *cmd, size_t cmd_size, struct ib_uverbs_create_srq_resp *resp, \
		size_t resp_size)) \
	F(ibv_cmd_modify_srq, int, (struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask, \
		struct ibv_modify_srq *cmd, size_t cmd_size)) \
	F(ibv_cmd_query_srq, int, (struct ibv_srq *srq, struct ibv_srq_attr *attr, struct ibv_query_srq *cmd, \
		size_t cmd_size)) \
	F(ibv_cmd_destroy_srq, int, (struct ibv_srq *srq)) \
	F(ibv_cmd_create_qp, int, (struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr, \
		struct ibv_create_qp *cmd, size_t cmd_size, struct ib_uverbs_create_qp_resp *resp, \
		size_t resp_size)) \
	F(ibv_cmd_modify_qp, int, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_modify_qp *cmd, \
		size_t cmd_size)) \
	F(ibv_cmd_query_qp, int, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, \
		struct ibv_qp_init_attr *init, struct ibv_query_qp *cmd, size_t cmd_size)) \
	F(ibv_cmd_destroy_qp, int, (struct ibv_qp *qp))

/* The arguments of ibv_cmd_get_context() up to number 34, and from 57 on. */
typedef int usiw_get_context_34(struct verbs_context *context, struct ibv_get_context *cmd, size_t cmd_size,
				struct ib_uverbs_get_context_resp *resp, size_t resp_size);
typedef int usiw_get_context_57(struct verbs_context *context, struct ibv_get_context *cmd, size_t cmd_size,
				struct ibv_fd_arr *fds, struct ib_uverbs_get_context_resp *resp, size_t resp_size);

#define USIW_LIBRARY_MEMBER(name, result, arguments)	result (*name) arguments;

struct usiw_library {
	unsigned int number;		/* of the private ABI */
	unsigned int rdma_core;		/* the first with these layouts */
	size_t context_front;		/* bytes of struct verbs_context in front of its struct ibv_context */
	size_t qp_mask_at;		/* where "comp_mask" is in struct verbs_qp */
	void (*register_driver)(const struct verbs_device_ops *ops);
	union {
		usiw_get_context_34 *get_context_34;
		usiw_get_context_57 *get_context_57;
	};
	USIW_LIBRARY_FUNCTIONS(USIW_LIBRARY_MEMBER)
};

/* Filled by usiw_library_find(); nothing else of this room is called where it was not. */
extern struct usiw_library usiw_library;

/* What ibv_cmd_...() has answered, which is an errno value, in some old paths -1 with errno set. */
static inline int usiw_status(int ret)
{
	return ret < 0 ? errno : ret;
}

/* Finds the library; 0, or -1 and one line for people if it is none that this provider fits. */
int usiw_library_find(void);

#endif /* USIW_RDMA_CORE_LIBRARY_H */
