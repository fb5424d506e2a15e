/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The part of rdma-core's private provider ABI that usiw uses, version 34
 * (rdma-core 33 to 55). No distribution package ships the private headers, so
 * the layouts are declared here in our own words; every offset was measured on
 * the shipped library and is asserted below. C only.
 *
 * A kernel command is a struct ib_uverbs_cmd_hdr, the public request of
 * <rdma/ib_user_verbs.h>, then the driver's own bytes; a response is the public
 * response, then the driver's own.
 */
#ifndef USIW_VERBS_RDMA_CORE_ABI_H
#define USIW_VERBS_RDMA_CORE_ABI_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#ifndef USIW_RDMA_CORE_PABI
#define USIW_RDMA_CORE_PABI 34
#endif
#if USIW_RDMA_CORE_PABI != 34
#error "only the private ABI 34 of rdma-core is known; add a table of its layouts"
#endif

/* ---- Devices and their matching ------------------------------------------ */

enum usiw_match_kind {
	USIW_MATCH_SENTINEL = 0,
	USIW_MATCH_MODALIAS = 2,	/* modalias of the sysfs device, a shell pattern */
	USIW_MATCH_DRIVER_ID = 3,	/* the kernel's driver id, by netlink */
};

struct verbs_match_ent {
	void *driver_data;
	union {
		const char *modalias;
		uint64_t driver_id;
	} u;
	uint16_t vendor;
	uint16_t device;
	uint8_t kind;			/* enum usiw_match_kind */
};

struct usiw_list_node {
	struct usiw_list_node *next, *prev;
};

struct verbs_sysfs_dev {
	struct usiw_list_node entry;
	void *provider_data;
	const struct verbs_match_ent *match;
	unsigned int flags;
	char sysfs_name[64];
	dev_t sysfs_cdev;
	char ibdev_name[64];
	char ibdev_path[256];
	char modalias[512];
	uint64_t node_guid;
	uint32_t driver_id;
	enum ibv_node_type node_type;
	int ibdev_idx;
	uint32_t num_ports;
	uint32_t abi_ver;
	struct timespec time_created;
};

struct verbs_device_ops;

struct verbs_device {
	struct ibv_device device;
	const struct verbs_device_ops *ops;
	int refcount;			/* atomic_int of the library; not ours to touch */
	struct usiw_list_node entry;
	struct verbs_sysfs_dev *sysfs;
	uint64_t core_support;
};

struct verbs_device_ops {
	const char *name;
	uint32_t match_min_abi_version;	/* of the kernel device's uverbs_abi_ver */
	uint32_t match_max_abi_version;
	const struct verbs_match_ent *match_table;
	const struct verbs_device_ops **static_providers;
	_Bool (*match_device)(struct verbs_sysfs_dev *sysfs);
	struct verbs_context *(*alloc_context)(struct ibv_device *dev, int cmd_fd, void *priv);
	struct verbs_context *(*import_context)(struct ibv_device *dev, int cmd_fd);
	struct verbs_device *(*alloc_device)(struct verbs_sysfs_dev *sysfs);
	void (*uninit_device)(struct verbs_device *dev);
};

/* ---- Objects ---------------------------------------------------------------- */

enum usiw_mr_type { USIW_MR_TYPE_MR = 0, USIW_MR_TYPE_NULL = 1 };

struct verbs_mr {
	struct ibv_mr ibv_mr;
	int mr_type;
	int access;
};

/* In comp_mask of struct verbs_qp: the functions of its struct ibv_qp_ex are set. */
#define USIW_VERBS_QP_EX	(1u << 1)

struct verbs_xrcd;

struct verbs_qp {
	union {
		struct ibv_qp qp;
		struct ibv_qp_ex qp_ex;
	};
	uint32_t comp_mask;
	struct verbs_xrcd *xrcd;
};

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	void *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

/* ---- Operations of a context ------------------------------------------------- */

typedef void (*usiw_unused_op)(void);

/* Filled by position; a NULL entry leaves the library's default (EOPNOTSUPP). */
struct verbs_context_ops {
	int (*advise_mr)(struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge *, uint32_t);
	usiw_unused_op alloc_dm;
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *, enum ibv_mw_type);
	struct ibv_mr *(*alloc_null_mr)(struct ibv_pd *);
	struct ibv_pd *(*alloc_parent_domain)(struct ibv_context *, struct ibv_parent_domain_init_attr *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_td *(*alloc_td)(struct ibv_context *, struct ibv_td_init_attr *);
	usiw_unused_op async_event;
	usiw_unused_op attach_counters_point_flow;
	usiw_unused_op attach_mcast;
	int (*bind_mw)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *);
	usiw_unused_op close_xrcd;
	usiw_unused_op cq_event;
	usiw_unused_op create_ah;
	usiw_unused_op create_counters;
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, struct ibv_comp_channel *, int);
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *, struct ibv_cq_init_attr_ex *);
	usiw_unused_op create_flow;
	usiw_unused_op create_flow_action_esp;
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *, struct ibv_qp_init_attr_ex *);
	usiw_unused_op create_rwq_ind_table;
	struct ibv_srq *(*create_srq)(struct ibv_pd *, struct ibv_srq_init_attr *);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *, struct ibv_srq_init_attr_ex *);
	usiw_unused_op create_wq;
	int (*dealloc_mw)(struct ibv_mw *);
	int (*dealloc_pd)(struct ibv_pd *);
	int (*dealloc_td)(struct ibv_td *);
	int (*dereg_mr)(struct verbs_mr *);
	usiw_unused_op destroy_ah;
	usiw_unused_op destroy_counters;
	int (*destroy_cq)(struct ibv_cq *);
	usiw_unused_op destroy_flow;
	usiw_unused_op destroy_flow_action;
	int (*destroy_qp)(struct ibv_qp *);
	usiw_unused_op destroy_rwq_ind_table;
	int (*destroy_srq)(struct ibv_srq *);
	usiw_unused_op destroy_wq;
	usiw_unused_op detach_mcast;
	void (*free_context)(struct ibv_context *);
	usiw_unused_op free_dm;
	usiw_unused_op get_srq_num;
	usiw_unused_op import_dm;
	usiw_unused_op import_mr;
	usiw_unused_op import_pd;
	usiw_unused_op modify_cq;
	usiw_unused_op modify_flow_action_esp;
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	usiw_unused_op modify_qp_rate_limit;
	int (*modify_srq)(struct ibv_srq *, struct ibv_srq_attr *, int);
	usiw_unused_op modify_wq;
	usiw_unused_op open_qp;
	usiw_unused_op open_xrcd;
	int (*poll_cq)(struct ibv_cq *, int, struct ibv_wc *);
	int (*post_recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	int (*post_send)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	usiw_unused_op post_srq_ops;
	int (*post_srq_recv)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **);
	int (*query_device_ex)(struct ibv_context *, const struct ibv_query_device_ex_input *,
	       struct ibv_device_attr_ex *, size_t);
	usiw_unused_op query_ece;
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_qp)(struct ibv_qp *, struct ibv_qp_attr *, int, struct ibv_qp_init_attr *);
	usiw_unused_op query_qp_data_in_order;
	int (*query_rt_values)(struct ibv_context *, struct ibv_values_ex *);
	int (*query_srq)(struct ibv_srq *, struct ibv_srq_attr *);
	usiw_unused_op read_counters;
	usiw_unused_op reg_dm_mr;
	usiw_unused_op reg_dmabuf_mr;
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, int);
	int (*req_notify_cq)(struct ibv_cq *, int);
	int (*rereg_mr)(struct verbs_mr *, int, struct ibv_pd *, void *, size_t, int);
	int (*resize_cq)(struct ibv_cq *, int);
	usiw_unused_op set_ece;
	usiw_unused_op unimport_dm;
	usiw_unused_op unimport_mr;
	usiw_unused_op unimport_pd;
};

/* ---- Functions of libibverbs (version node IBVERBS_PRIVATE_34) ---------------- */

void verbs_register_driver_34(const struct verbs_device_ops *ops);
void *_verbs_init_and_alloc_context(struct ibv_device *dev, int cmd_fd, size_t alloc_size,
				    struct verbs_context *offset_of_member, uint32_t driver_id);
void verbs_set_ops(struct verbs_context *ctx, const struct verbs_context_ops *ops);
void verbs_uninit_context(struct verbs_context *ctx);

struct ibv_get_context {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_get_context core;
};
struct ibv_query_port {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_query_port core;
};
struct ibv_alloc_pd {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_alloc_pd core;
};
struct ibv_reg_mr {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_reg_mr core;
};
struct ibv_rereg_mr {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_rereg_mr core;
};
struct ibv_alloc_mw {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_alloc_mw core;
};
struct ibv_create_cq {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_create_cq core;
};
struct ibv_resize_cq {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_resize_cq core;
};
struct ibv_create_srq {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_create_srq core;
};
struct ibv_modify_srq {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_modify_srq core;
};
struct ibv_query_srq {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_query_srq core;
};
struct ibv_create_qp {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_create_qp core;
};
struct ibv_modify_qp {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_modify_qp core;
};
struct ibv_query_qp {
	struct ib_uverbs_cmd_hdr hdr;
	struct ib_uverbs_query_qp core;
};

int ibv_cmd_get_context(struct verbs_context *ctx, struct ibv_get_context *cmd, size_t cmd_size,
			struct ib_uverbs_get_context_resp *resp, size_t resp_size);
int ibv_cmd_query_device_any(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in,
			     struct ibv_device_attr_ex *attr, size_t attr_size,
			     struct ib_uverbs_ex_query_device_resp *resp, size_t *resp_size);
int ibv_cmd_query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr,
		       struct ibv_query_port *cmd, size_t cmd_size);
int ibv_cmd_alloc_pd(struct ibv_context *ctx, struct ibv_pd *pd, struct ibv_alloc_pd *cmd,
		     size_t cmd_size, struct ib_uverbs_alloc_pd_resp *resp, size_t resp_size);
int ibv_cmd_dealloc_pd(struct ibv_pd *pd);
int ibv_cmd_reg_mr(struct ibv_pd *pd, void *addr, size_t length, uint64_t hca_va, int access,
		   struct verbs_mr *mr, struct ibv_reg_mr *cmd, size_t cmd_size,
		   struct ib_uverbs_reg_mr_resp *resp, size_t resp_size);
int ibv_cmd_dereg_mr(struct verbs_mr *mr);
int ibv_cmd_rereg_mr(struct verbs_mr *mr, uint32_t flags, void *addr, size_t length, uint64_t hca_va,
		     int access, struct ibv_pd *pd, struct ibv_rereg_mr *cmd, size_t cmd_size,
		     struct ib_uverbs_rereg_mr_resp *resp, size_t resp_size);
int ibv_cmd_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type, struct ibv_mw *mw,
		     struct ibv_alloc_mw *cmd, size_t cmd_size, struct ib_uverbs_alloc_mw_resp *resp,
		     size_t resp_size);
int ibv_cmd_dealloc_mw(struct ibv_mw *mw);
int ibv_cmd_create_cq(struct ibv_context *ctx, int cqe, struct ibv_comp_channel *channel,
		      int comp_vector, struct ibv_cq *cq, struct ibv_create_cq *cmd,
		      size_t cmd_size, struct ib_uverbs_create_cq_resp *resp, size_t resp_size);
int ibv_cmd_resize_cq(struct ibv_cq *cq, int cqe, struct ibv_resize_cq *cmd, size_t cmd_size,
		      struct ib_uverbs_resize_cq_resp *resp, size_t resp_size);
int ibv_cmd_destroy_cq(struct ibv_cq *cq);
int ibv_cmd_create_srq(struct ibv_pd *pd, struct ibv_srq *srq, struct ibv_srq_init_attr *attr,
		       struct ibv_create_srq *cmd, size_t cmd_size,
		       struct ib_uverbs_create_srq_resp *resp, size_t resp_size);
int ibv_cmd_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask,
		       struct ibv_modify_srq *cmd, size_t cmd_size);
int ibv_cmd_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, struct ibv_query_srq *cmd,
		      size_t cmd_size);
int ibv_cmd_destroy_srq(struct ibv_srq *srq);
int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr,
		      struct ibv_create_qp *cmd, size_t cmd_size,
		      struct ib_uverbs_create_qp_resp *resp, size_t resp_size);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		      struct ibv_modify_qp *cmd, size_t cmd_size);
int ibv_cmd_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		     struct ibv_qp_init_attr *init, struct ibv_query_qp *cmd, size_t cmd_size);
int ibv_cmd_destroy_qp(struct ibv_qp *qp);

/* ---- Layout, as measured ------------------------------------------------------ */

#define USIW_ABI_AT(type, member, at) \
	_Static_assert(offsetof(struct type, member) == (at), #type "." #member)
#define USIW_ABI_SIZE(type, bytes) _Static_assert(sizeof(struct type) == (bytes), #type)

USIW_ABI_AT(verbs_match_ent, driver_data, 0);
USIW_ABI_AT(verbs_match_ent, u, 8);
USIW_ABI_AT(verbs_match_ent, vendor, 16);
USIW_ABI_AT(verbs_match_ent, device, 18);
USIW_ABI_AT(verbs_match_ent, kind, 20);
USIW_ABI_SIZE(verbs_match_ent, 24);
USIW_ABI_AT(verbs_device_ops, name, 0);
USIW_ABI_AT(verbs_device_ops, match_min_abi_version, 8);
USIW_ABI_AT(verbs_device_ops, match_max_abi_version, 12);
USIW_ABI_AT(verbs_device_ops, match_table, 16);
USIW_ABI_AT(verbs_device_ops, static_providers, 24);
USIW_ABI_AT(verbs_device_ops, match_device, 32);
USIW_ABI_AT(verbs_device_ops, alloc_context, 40);
USIW_ABI_AT(verbs_device_ops, import_context, 48);
USIW_ABI_AT(verbs_device_ops, alloc_device, 56);
USIW_ABI_AT(verbs_device_ops, uninit_device, 64);
USIW_ABI_SIZE(verbs_device_ops, 72);
USIW_ABI_AT(verbs_device, device, 0);
USIW_ABI_AT(verbs_device, ops, 664);
USIW_ABI_AT(verbs_device, refcount, 672);
USIW_ABI_AT(verbs_device, entry, 680);
USIW_ABI_AT(verbs_device, sysfs, 696);
USIW_ABI_AT(verbs_device, core_support, 704);
USIW_ABI_SIZE(verbs_device, 712);
USIW_ABI_AT(verbs_sysfs_dev, entry, 0);
USIW_ABI_AT(verbs_sysfs_dev, provider_data, 16);
USIW_ABI_AT(verbs_sysfs_dev, match, 24);
USIW_ABI_AT(verbs_sysfs_dev, flags, 32);
USIW_ABI_AT(verbs_sysfs_dev, sysfs_name, 36);
USIW_ABI_AT(verbs_sysfs_dev, sysfs_cdev, 104);
USIW_ABI_AT(verbs_sysfs_dev, ibdev_name, 112);
USIW_ABI_AT(verbs_sysfs_dev, ibdev_path, 176);
USIW_ABI_AT(verbs_sysfs_dev, modalias, 432);
USIW_ABI_AT(verbs_sysfs_dev, node_guid, 944);
USIW_ABI_AT(verbs_sysfs_dev, driver_id, 952);
USIW_ABI_AT(verbs_sysfs_dev, node_type, 956);
USIW_ABI_AT(verbs_sysfs_dev, ibdev_idx, 960);
USIW_ABI_AT(verbs_sysfs_dev, num_ports, 964);
USIW_ABI_AT(verbs_sysfs_dev, abi_ver, 968);
USIW_ABI_AT(verbs_sysfs_dev, time_created, 976);
USIW_ABI_SIZE(verbs_sysfs_dev, 992);
USIW_ABI_AT(verbs_mr, ibv_mr, 0);
USIW_ABI_AT(verbs_mr, mr_type, 48);
USIW_ABI_AT(verbs_mr, access, 52);
USIW_ABI_SIZE(verbs_mr, 56);
USIW_ABI_SIZE(ibv_cq_ex, 288);	/* as verbs_cq; ibv_cq has its beginning */
USIW_ABI_SIZE(ibv_qp_ex, 352);
USIW_ABI_AT(verbs_qp, qp, 0);
USIW_ABI_AT(verbs_qp, qp_ex, 0);
USIW_ABI_AT(verbs_qp, comp_mask, 352);
USIW_ABI_AT(verbs_qp, xrcd, 360);
USIW_ABI_SIZE(verbs_qp, 368);
USIW_ABI_AT(verbs_srq, srq, 0);
USIW_ABI_AT(verbs_srq, srq_type, 128);
USIW_ABI_AT(verbs_srq, xrcd, 136);
USIW_ABI_AT(verbs_srq, cq, 144);
USIW_ABI_AT(verbs_srq, srq_num, 152);
USIW_ABI_SIZE(verbs_srq, 160);
USIW_ABI_AT(verbs_context_ops, advise_mr, 0);
USIW_ABI_AT(verbs_context_ops, alloc_dm, 8);
USIW_ABI_AT(verbs_context_ops, alloc_mw, 16);
USIW_ABI_AT(verbs_context_ops, alloc_null_mr, 24);
USIW_ABI_AT(verbs_context_ops, alloc_parent_domain, 32);
USIW_ABI_AT(verbs_context_ops, alloc_pd, 40);
USIW_ABI_AT(verbs_context_ops, alloc_td, 48);
USIW_ABI_AT(verbs_context_ops, async_event, 56);
USIW_ABI_AT(verbs_context_ops, attach_counters_point_flow, 64);
USIW_ABI_AT(verbs_context_ops, attach_mcast, 72);
USIW_ABI_AT(verbs_context_ops, bind_mw, 80);
USIW_ABI_AT(verbs_context_ops, close_xrcd, 88);
USIW_ABI_AT(verbs_context_ops, cq_event, 96);
USIW_ABI_AT(verbs_context_ops, create_ah, 104);
USIW_ABI_AT(verbs_context_ops, create_counters, 112);
USIW_ABI_AT(verbs_context_ops, create_cq, 120);
USIW_ABI_AT(verbs_context_ops, create_cq_ex, 128);
USIW_ABI_AT(verbs_context_ops, create_flow, 136);
USIW_ABI_AT(verbs_context_ops, create_flow_action_esp, 144);
USIW_ABI_AT(verbs_context_ops, create_qp, 152);
USIW_ABI_AT(verbs_context_ops, create_qp_ex, 160);
USIW_ABI_AT(verbs_context_ops, create_rwq_ind_table, 168);
USIW_ABI_AT(verbs_context_ops, create_srq, 176);
USIW_ABI_AT(verbs_context_ops, create_srq_ex, 184);
USIW_ABI_AT(verbs_context_ops, create_wq, 192);
USIW_ABI_AT(verbs_context_ops, dealloc_mw, 200);
USIW_ABI_AT(verbs_context_ops, dealloc_pd, 208);
USIW_ABI_AT(verbs_context_ops, dealloc_td, 216);
USIW_ABI_AT(verbs_context_ops, dereg_mr, 224);
USIW_ABI_AT(verbs_context_ops, destroy_ah, 232);
USIW_ABI_AT(verbs_context_ops, destroy_counters, 240);
USIW_ABI_AT(verbs_context_ops, destroy_cq, 248);
USIW_ABI_AT(verbs_context_ops, destroy_flow, 256);
USIW_ABI_AT(verbs_context_ops, destroy_flow_action, 264);
USIW_ABI_AT(verbs_context_ops, destroy_qp, 272);
USIW_ABI_AT(verbs_context_ops, destroy_rwq_ind_table, 280);
USIW_ABI_AT(verbs_context_ops, destroy_srq, 288);
USIW_ABI_AT(verbs_context_ops, destroy_wq, 296);
USIW_ABI_AT(verbs_context_ops, detach_mcast, 304);
USIW_ABI_AT(verbs_context_ops, free_context, 312);
USIW_ABI_AT(verbs_context_ops, free_dm, 320);
USIW_ABI_AT(verbs_context_ops, get_srq_num, 328);
USIW_ABI_AT(verbs_context_ops, import_dm, 336);
USIW_ABI_AT(verbs_context_ops, import_mr, 344);
USIW_ABI_AT(verbs_context_ops, import_pd, 352);
USIW_ABI_AT(verbs_context_ops, modify_cq, 360);
USIW_ABI_AT(verbs_context_ops, modify_flow_action_esp, 368);
USIW_ABI_AT(verbs_context_ops, modify_qp, 376);
USIW_ABI_AT(verbs_context_ops, modify_qp_rate_limit, 384);
USIW_ABI_AT(verbs_context_ops, modify_srq, 392);
USIW_ABI_AT(verbs_context_ops, modify_wq, 400);
USIW_ABI_AT(verbs_context_ops, open_qp, 408);
USIW_ABI_AT(verbs_context_ops, open_xrcd, 416);
USIW_ABI_AT(verbs_context_ops, poll_cq, 424);
USIW_ABI_AT(verbs_context_ops, post_recv, 432);
USIW_ABI_AT(verbs_context_ops, post_send, 440);
USIW_ABI_AT(verbs_context_ops, post_srq_ops, 448);
USIW_ABI_AT(verbs_context_ops, post_srq_recv, 456);
USIW_ABI_AT(verbs_context_ops, query_device_ex, 464);
USIW_ABI_AT(verbs_context_ops, query_ece, 472);
USIW_ABI_AT(verbs_context_ops, query_port, 480);
USIW_ABI_AT(verbs_context_ops, query_qp, 488);
USIW_ABI_AT(verbs_context_ops, query_qp_data_in_order, 496);
USIW_ABI_AT(verbs_context_ops, query_rt_values, 504);
USIW_ABI_AT(verbs_context_ops, query_srq, 512);
USIW_ABI_AT(verbs_context_ops, read_counters, 520);
USIW_ABI_AT(verbs_context_ops, reg_dm_mr, 528);
USIW_ABI_AT(verbs_context_ops, reg_dmabuf_mr, 536);
USIW_ABI_AT(verbs_context_ops, reg_mr, 544);
USIW_ABI_AT(verbs_context_ops, req_notify_cq, 552);
USIW_ABI_AT(verbs_context_ops, rereg_mr, 560);
USIW_ABI_AT(verbs_context_ops, resize_cq, 568);
USIW_ABI_AT(verbs_context_ops, set_ece, 576);
USIW_ABI_AT(verbs_context_ops, unimport_dm, 584);
USIW_ABI_AT(verbs_context_ops, unimport_mr, 592);
USIW_ABI_AT(verbs_context_ops, unimport_pd, 600);
USIW_ABI_SIZE(verbs_context_ops, 608);

#endif /* USIW_VERBS_RDMA_CORE_ABI_H */
