/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Registration with libibverbs and the kernel commands: all that needs rdma-core's
 * private ABI.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/glue.h"
#include "rdma_core_abi.h"

USIW_ABI_SIZE(verbs_mr, USIW_VERBS_MR_SIZE);
USIW_ABI_SIZE(verbs_qp, USIW_VERBS_QP_BYTES);
USIW_ABI_SIZE(verbs_srq, USIW_VERBS_SRQ_BYTES);

/* The ibv_cmd_ functions answer an errno value, some old paths -1 with errno set. */
static int status(int ret)
{
	return ret < 0 ? errno : ret;
}

/* ---- Context -------------------------------------------------------------------- */

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	int ret = status(ibv_cmd_query_device_any(ctx, in, attr, attr_size, &resp, &resp_size));

	if (ret)
		return ret;
	snprintf(attr->orig_attr.fw_ver, sizeof(attr->orig_attr.fw_ver), "%u.%u.%u",
		 (unsigned int)(resp.base.fw_ver >> 32) & 0xffff,
		 (unsigned int)(resp.base.fw_ver >> 16) & 0xffff,
		 (unsigned int)resp.base.fw_ver & 0xffff);
	return 0;
}

static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr)
{
	struct ibv_query_port cmd;

	return status(ibv_cmd_query_port(ctx, port, attr, &cmd, sizeof(cmd)));
}

static void free_context(struct ibv_context *ibctx)
{
	struct usiw_context *ctx = (struct usiw_context *)
		((char *)ibctx - offsetof(struct usiw_context, vctx.context));

	usiw_context_close(ctx);
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
}

static int dereg_mr(struct verbs_mr *mr)
{
	return usiw_verb_dereg_mr(&mr->ibv_mr);
}

static int rereg_mr(struct verbs_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length,
		    int access)
{
	return usiw_verb_rereg_mr(&mr->ibv_mr, flags, pd, addr, length, access);
}

static const struct verbs_context_ops context_ops = {
	.advise_mr = usiw_verb_advise_mr,
	.alloc_mw = usiw_verb_alloc_mw,
	.alloc_null_mr = usiw_verb_alloc_null_mr,
	.alloc_parent_domain = usiw_verb_alloc_parent_domain,
	.alloc_pd = usiw_verb_alloc_pd,
	.alloc_td = usiw_verb_alloc_td,
	.bind_mw = usiw_verb_bind_mw,
	.create_cq = usiw_verb_create_cq,
	.create_cq_ex = usiw_verb_create_cq_ex,
	.create_qp = usiw_verb_create_qp,
	.dealloc_mw = usiw_verb_dealloc_mw,
	.create_qp_ex = usiw_verb_create_qp_ex,
	.create_srq = usiw_verb_create_srq,
	.create_srq_ex = usiw_verb_create_srq_ex,
	.dealloc_pd = usiw_verb_dealloc_pd,
	.dealloc_td = usiw_verb_dealloc_td,
	.dereg_mr = dereg_mr,
	.destroy_cq = usiw_verb_destroy_cq,
	.destroy_qp = usiw_verb_destroy_qp,
	.destroy_srq = usiw_verb_destroy_srq,
	.free_context = free_context,
	.modify_qp = usiw_verb_modify_qp,
	.modify_srq = usiw_verb_modify_srq,
	.poll_cq = usiw_verb_poll_cq,
	.post_recv = usiw_verb_post_recv,
	.post_send = usiw_verb_post_send,
	.post_srq_recv = usiw_verb_post_srq_recv,
	.query_device_ex = query_device_ex,
	.query_port = query_port,
	.query_qp = usiw_verb_query_qp,
	.query_rt_values = usiw_verb_query_rt_values,
	.query_srq = usiw_verb_query_srq,
	.reg_mr = usiw_verb_reg_mr,
	.req_notify_cq = usiw_verb_req_notify_cq,
	.resize_cq = usiw_verb_resize_cq,
	.rereg_mr = rereg_mr,
};

/* In place of the one above, so that those who want no fault pay nothing for it. */
static const struct verbs_context_ops fault_ops = {
	.post_send = usiw_verb_post_send_fault,
};

/* The version that it speaks: another one only for tests. */
#ifndef USIW_PROVIDER_ABI
#define USIW_PROVIDER_ABI	USIW_ABI_VERSION
#endif

/* What the provider understands of USIW_CAP_*. */
#define USIW_PROVIDER_CAPS \
	(USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_TELL | USIW_CAP_PORT_MOVE | USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES)

enum { USIW_ABI_ANSWERS = 3 };		/* from this version on a module tells which ones it speaks */

/* One line for people, once. */
static void say_versions_differ(unsigned int min, unsigned int max)
{
	static char said;

	if (!__atomic_test_and_set(&said, __ATOMIC_RELAXED))
		fprintf(stderr, "usiw: module speaks ABI %u..%u, this provider %u: build and load both "
			"from one source tree\n", min, max, USIW_PROVIDER_ABI);
}

/* An errno value; EPROTONOSUPPORT, and a line, if module and provider cannot work together. */
static int get_context(struct verbs_context *ctx, const struct ibv_device *dev,
		       struct usiw_alloc_ucontext_resp *drv)
{
	struct {
		struct ibv_get_context core;
		struct usiw_alloc_ucontext_req drv;
	} cmd = { .drv.abi_version = USIW_PROVIDER_ABI, .drv.caps = usiw_own_caps(USIW_PROVIDER_CAPS) };
	struct {
		struct ib_uverbs_get_context_resp core;
		struct usiw_alloc_ucontext_resp drv;
	} resp = { .drv.caps = 0 };
	unsigned int newest = ((const struct verbs_device *)dev)->sysfs->abi_ver;
	int ret;

	/* Older modules are not asked: their refusal makes the kernel warn. */
	if (newest < USIW_ABI_ANSWERS) {
		say_versions_differ(newest, newest);
		return EPROTONOSUPPORT;
	}
	ret = status(ibv_cmd_get_context(ctx, &cmd.core, sizeof(cmd), &resp.core, sizeof(resp)));
	if (ret == EPROTO) {
		say_versions_differ(resp.drv.abi_min, resp.drv.abi_max);
		return EPROTONOSUPPORT;
	}
	*drv = resp.drv;
	return ret;
}

static struct verbs_context *alloc_context(struct ibv_device *dev, int cmd_fd, void *priv)
{
	struct usiw_alloc_ucontext_resp resp;
	struct usiw_context *ctx;
	int ret;

	(void)priv;
	ctx = _verbs_init_and_alloc_context(dev, cmd_fd, sizeof(*ctx),
					    (struct verbs_context *)offsetof(struct usiw_context, vctx),
					    USIW_DRIVER_ID);
	if (!ctx)
		return NULL;
	ret = get_context(&ctx->vctx, dev, &resp);
	if (ret)
		goto err;
	verbs_set_ops(&ctx->vctx, &context_ops);
	if (usiw_wants_post_fault())
		verbs_set_ops(&ctx->vctx, &fault_ops);
	ret = usiw_context_open(ctx, cmd_fd, &resp);
	if (ret)
		goto err;
	return &ctx->vctx;
err:
	verbs_uninit_context(&ctx->vctx);
	free(ctx);
	errno = ret;
	return NULL;
}

/* ---- Kernel commands --------------------------------------------------------------- */

int usiw_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd)
{
	struct ibv_alloc_pd cmd;
	struct ib_uverbs_alloc_pd_resp resp;

	return status(ibv_cmd_alloc_pd(ctx, pd, &cmd, sizeof(cmd), &resp, sizeof(resp)));
}

int usiw_cmd_dealloc_pd(struct ibv_pd *pd)
{
	return status(ibv_cmd_dealloc_pd(pd));
}

int usiw_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access,
		    void *mr)
{
	struct ibv_reg_mr cmd;
	struct ib_uverbs_reg_mr_resp resp;

	return status(ibv_cmd_reg_mr(pd, addr, length, iova, access, mr, &cmd, sizeof(cmd), &resp,
				     sizeof(resp)));
}

int usiw_cmd_dereg_mr(void *mr)
{
	return status(ibv_cmd_dereg_mr(mr));
}

int usiw_cmd_rereg_mr(void *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
		      int access)
{
	struct ibv_rereg_mr cmd;
	struct ib_uverbs_rereg_mr_resp resp;

	return status(ibv_cmd_rereg_mr(mr, flags, addr, length, iova, access, pd, &cmd, sizeof(cmd),
				       &resp, sizeof(resp)));
}

void usiw_mr_is_null(void *mr)
{
	((struct verbs_mr *)mr)->mr_type = USIW_MR_TYPE_NULL;
}

int usiw_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw)
{
	struct ibv_alloc_mw cmd;
	struct ib_uverbs_alloc_mw_resp resp;

	return status(ibv_cmd_alloc_mw(pd, type, mw, &cmd, sizeof(cmd), &resp, sizeof(resp)));
}

int usiw_cmd_dealloc_mw(struct ibv_mw *mw)
{
	return status(ibv_cmd_dealloc_mw(mw));
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

	return status(ibv_cmd_create_cq(ctx, cqe, channel, comp_vector, cq, &cmd.core, sizeof(cmd),
					&resp.core, sizeof(resp)));
}

int usiw_cmd_resize_cq(struct ibv_cq *cq, int cqe)
{
	struct ibv_resize_cq cmd;
	struct ib_uverbs_resize_cq_resp resp;

	return status(ibv_cmd_resize_cq(cq, cqe, &cmd, sizeof(cmd), &resp, sizeof(resp)));
}

int usiw_cmd_destroy_cq(struct ibv_cq *cq)
{
	return status(ibv_cmd_destroy_cq(cq));
}

void usiw_glue_is_qp_ex(struct ibv_qp *qp)
{
	((struct verbs_qp *)qp)->comp_mask |= USIW_VERBS_QP_EX;
}

int usiw_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr)
{
	struct {
		struct ibv_create_srq core;
		struct usiw_create_srq_req drv;
	} cmd = { .drv.comp_mask = 0 };
	struct ib_uverbs_create_srq_resp resp;

	return status(ibv_cmd_create_srq(pd, srq, attr, &cmd.core, sizeof(cmd), &resp, sizeof(resp)));
}

int usiw_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
	struct ibv_modify_srq cmd;

	return status(ibv_cmd_modify_srq(srq, attr, mask, &cmd, sizeof(cmd)));
}

int usiw_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	struct ibv_query_srq cmd;

	return status(ibv_cmd_query_srq(srq, attr, &cmd, sizeof(cmd)));
}

int usiw_cmd_destroy_srq(struct ibv_srq *srq)
{
	return status(ibv_cmd_destroy_srq(srq));
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
	int ret = status(ibv_cmd_create_qp(pd, qp, attr, &cmd.core, sizeof(cmd), &resp.core,
					   sizeof(resp)));

	*drv = resp.drv;
	return ret;
}

int usiw_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	struct ibv_modify_qp cmd;

	return status(ibv_cmd_modify_qp(qp, attr, mask, &cmd, sizeof(cmd)));
}

int usiw_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_qp_init_attr *init)
{
	struct ibv_query_qp cmd;

	return status(ibv_cmd_query_qp(qp, attr, mask, init, &cmd, sizeof(cmd)));
}

int usiw_cmd_destroy_qp(struct ibv_qp *qp)
{
	return status(ibv_cmd_destroy_qp(qp));
}

/* ---- Registration ------------------------------------------------------------------- */

static struct verbs_device *alloc_device(struct verbs_sysfs_dev *sysfs)
{
	(void)sysfs;
	return calloc(1, sizeof(struct verbs_device));
}

static void uninit_device(struct verbs_device *dev)
{
	free(dev);
}

/* By driver id where discovery runs over netlink; by name where it runs over sysfs. */
static const struct verbs_match_ent matches[] = {
	{ .u.driver_id = USIW_DRIVER_ID, .kind = USIW_MATCH_DRIVER_ID },
	{ .u.modalias = "rdma_device:*Nusiw*", .kind = USIW_MATCH_MODALIAS },
	{ .kind = USIW_MATCH_SENTINEL },
};

static const struct verbs_device_ops device_ops = {
	.name = "usiw",
	/* Any: opening the device decides, and says why it does not work. */
	.match_min_abi_version = 0,
	.match_max_abi_version = UINT32_MAX,
	.match_table = matches,
	.alloc_device = alloc_device,
	.uninit_device = uninit_device,
	.alloc_context = alloc_context,
};

static __attribute__((constructor)) void register_driver(void)
{
	verbs_register_driver_34(&device_ops);
}
