/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The device as libibverbs sees it: how it is found, how it is opened, and by what functions it is used. */
#include <stdio.h>
#include <stdlib.h>

#include "library.h"
#include "runtime/glue.h"

_Static_assert(sizeof(struct verbs_mr) == USIW_VERBS_MR_SIZE, "verbs_mr");
_Static_assert(sizeof(struct verbs_srq) == USIW_VERBS_SRQ_BYTES, "verbs_srq");

/* One line for people, once. */
#define SAY_ONCE(...) do { \
	static char said; \
	if (!__atomic_test_and_set(&said, __ATOMIC_RELAXED)) \
		fprintf(stderr, "usiw: " __VA_ARGS__); \
} while (0)

/* ---- Operations ------------------------------------------------------------------ */

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
			   struct ibv_device_attr_ex *attr, size_t attr_size)
{
	struct ib_uverbs_ex_query_device_resp resp;
	size_t resp_size = sizeof(resp);
	int ret = usiw_status(usiw_library.ibv_cmd_query_device_any(ctx, in, attr, attr_size, &resp, &resp_size));

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

	return usiw_status(usiw_library.ibv_cmd_query_port(ctx, port, attr, &cmd, sizeof(cmd)));
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

static void free_context(struct ibv_context *ibctx);

static const struct usiw_operations operations = {
	.advise_mr = usiw_verb_advise_mr,
	.alloc_mw = usiw_verb_alloc_mw,
	.alloc_null_mr = usiw_verb_alloc_null_mr,
	.alloc_parent_domain = usiw_verb_alloc_parent_domain,
	.alloc_pd = usiw_verb_alloc_pd,
	.alloc_td = usiw_verb_alloc_td,
	.bind_mw = usiw_verb_bind_mw,
	.create_ah = usiw_verb_create_ah,
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
	.destroy_ah = usiw_verb_destroy_ah,
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

/* ---- Opening ----------------------------------------------------------------------- */

/* The version that it speaks: another one only for tests. */
#ifndef USIW_PROVIDER_ABI
#define USIW_PROVIDER_ABI	USIW_ABI_VERSION
#endif

/* What the provider understands of USIW_CAP_*. */
#define USIW_PROVIDER_CAPS \
	(USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE | \
	 USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES | USIW_CAP_SILENT)

enum { USIW_ABI_ANSWERS = 3 };		/* from this version on a module tells which ones it speaks */

/* The one that is older is to be replaced. A program keeps the provider that it has loaded. */
static void say_versions_differ(unsigned int min, unsigned int max)
{
	SAY_ONCE("the loaded kernel module speaks ABI %u to %u, this program's provider ABI %u: install %s\n", min, max,
		 USIW_PROVIDER_ABI, USIW_PROVIDER_ABI < min ?
		 "usiw of the module's version, then restart the program" :
		 "usiw-dkms of the provider's version, then \"rmmod usiw && modprobe usiw\"");
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
	const struct verbs_sysfs_dev *sysfs = ((const struct verbs_device *)dev)->sysfs;
	unsigned int newest = usiw_library.rdma_core < 35 ? sysfs->num_ports : sysfs->abi_ver;
	int ret;

	/* Older modules are not asked: their refusal makes the kernel warn. */
	if (newest < USIW_ABI_ANSWERS) {
		say_versions_differ(newest, newest);
		return EPROTONOSUPPORT;
	}
	if (usiw_library.number < 57)
		ret = usiw_library.get_context_34(ctx, &cmd.core, sizeof(cmd), &resp.core, sizeof(resp));
	else
		ret = usiw_library.get_context_57(ctx, &cmd.core, sizeof(cmd), NULL, &resp.core, sizeof(resp));
	ret = usiw_status(ret);
	if (ret == EPROTO) {
		say_versions_differ(resp.drv.abi_min, resp.drv.abi_max);
		return EPROTONOSUPPORT;
	}
	*drv = resp.drv;
	return ret;
}

/*
 * The library writes its struct verbs_context, which ends in the struct ibv_context and grows at its front. What it
 * writes behind that, if it is not as it seems, must hit nothing.
 */
enum { FRONT = 1024, SPARE = 1024 };

struct allocation {
	char front[FRONT];
	struct usiw_context ctx;
	char spare[SPARE];
};

static struct allocation *allocation_of(struct ibv_context *ibctx)
{
	return (struct allocation *)((char *)ibctx - offsetof(struct allocation, ctx.ibv));
}

/* The library's part, which is also where the operations are that programs call by inline functions. */
static struct verbs_context *library_context(struct ibv_context *ibctx)
{
	return (struct verbs_context *)((char *)ibctx - usiw_library.context_front);
}

static const struct verbs_context *program_context(const struct ibv_context *ibctx)
{
	return (const struct verbs_context *)((const char *)ibctx - offsetof(struct verbs_context, context));
}

static void free_context(struct ibv_context *ibctx)
{
	struct allocation *all = allocation_of(ibctx);

	usiw_context_close(&all->ctx);
	usiw_library.verbs_uninit_context(library_context(ibctx));
	free(all);
}

/* Has the library taken each operation for what it is? A table of another order shows in those that programs call. */
static _Bool taken_as_meant(const struct ibv_context *ibctx)
{
	const struct verbs_context *calls = program_context(ibctx);

	return ibctx->ops.alloc_mw == operations.alloc_mw && ibctx->ops.dealloc_mw == operations.dealloc_mw &&
	       ibctx->ops.poll_cq == operations.poll_cq && ibctx->ops.post_recv == operations.post_recv &&
	       ibctx->ops.post_srq_recv == operations.post_srq_recv &&
	       ibctx->ops.req_notify_cq == operations.req_notify_cq &&
	       calls->create_srq_ex == operations.create_srq_ex && calls->create_qp_ex == operations.create_qp_ex &&
	       calls->query_rt_values == operations.query_rt_values;
}

static int set_operations(struct ibv_context *ibctx)
{
	struct usiw_operations wanted = operations;
	usiw_slot slots[USIW_OPERATIONS_SLOTS];

	/* In place of the usual one, so that those who want no fault pay nothing for it. */
	if (usiw_wants_post_fault())
		wanted.post_send = usiw_verb_post_send_fault;
	usiw_operations_lay_out(&wanted, usiw_library.rdma_core, slots);
	usiw_library.verbs_set_ops(library_context(ibctx), slots);
	return taken_as_meant(ibctx) ? 0 : EPROTONOSUPPORT;
}

static struct verbs_context *alloc_context(struct ibv_device *dev, int cmd_fd, void *priv)
{
	struct usiw_alloc_ucontext_resp resp;
	struct allocation *all;
	struct ibv_context *ibctx;
	int ret = EPROTONOSUPPORT;

	(void)priv;
	all = usiw_library._verbs_init_and_alloc_context(
		dev, cmd_fd, sizeof(*all),
		(struct verbs_context *)(offsetof(struct allocation, ctx.ibv) - usiw_library.context_front),
		USIW_DRIVER_ID);
	if (!all)
		return NULL;
	ibctx = &all->ctx.ibv;
	if (program_context(ibctx)->sz != usiw_library.context_front + sizeof(*ibctx))
		goto unknown;
	ret = get_context(library_context(ibctx), dev, &resp);
	if (ret)
		goto err;
	ret = set_operations(ibctx);
	if (ret)
		goto unknown;
	ret = usiw_context_open(&all->ctx, cmd_fd, &resp);
	if (ret)
		goto err;
	return library_context(ibctx);
unknown:
	SAY_ONCE("this libibverbs is not as rdma-core %u and those after it are; usiw fits %d to %d\n",
		 usiw_library.rdma_core, USIW_OPERATIONS_OLDEST, USIW_OPERATIONS_NEWEST);
err:
	usiw_library.verbs_uninit_context(library_context(ibctx));
	free(all);
	errno = ret;
	return NULL;
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
	if (!usiw_library_find())
		usiw_library.register_driver(&device_ops);
}
