/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The layouts of rdma-core's private provider ABI that usiw uses and that are the same from rdma-core 34 to 65. What
 * differs is in operations.h and library.h. No distribution package ships the private headers, so the layouts are
 * declared here in our own words; every offset was measured on a shipped library and is asserted below. C only.
 *
 * A kernel command is a struct ib_uverbs_cmd_hdr, the public request of <rdma/ib_user_verbs.h>, then the driver's own
 * bytes; a response is the public response, then the driver's own.
 */
#ifndef USIW_RDMA_CORE_ABI_H
#define USIW_RDMA_CORE_ABI_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

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
	/* rdma-core 34 has abi_ver here, and no num_ports. */
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

/*
 * struct verbs_qp is a union of struct ibv_qp and struct ibv_qp_ex, then "uint32_t comp_mask". Where that is depends on
 * the functions that struct ibv_qp_ex has (struct usiw_library, qp_mask_at). This bit of it: they are set.
 */
#define USIW_VERBS_QP_EX	(1u << 1)

struct verbs_srq {
	struct ibv_srq srq;
	enum ibv_srq_type srq_type;
	void *xrcd;
	struct ibv_cq *cq;
	uint32_t srq_num;
};

/* ---- Commands to the kernel -------------------------------------------------- */

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

/* ---- Layout, as measured ------------------------------------------------------ */

/*
 * CQs and SRQs have a pthread_mutex_t, which glibc makes larger on aarch64. x86-64 was measured on shipped libraries,
 * aarch64 by compiling the headers of rdma-core's tags 34 to 64 for it.
 */
#ifdef __aarch64__
#define USIW_ABI_MUTEX	8	/* bytes more than on x86-64 */
#else
#define USIW_ABI_MUTEX	0
#endif

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
USIW_ABI_SIZE(ibv_cq_ex, 288 + USIW_ABI_MUTEX);	/* as verbs_cq; ibv_cq has its beginning */
USIW_ABI_AT(verbs_srq, srq, 0);
USIW_ABI_AT(verbs_srq, srq_type, 128 + USIW_ABI_MUTEX);
USIW_ABI_AT(verbs_srq, xrcd, 136 + USIW_ABI_MUTEX);
USIW_ABI_AT(verbs_srq, cq, 144 + USIW_ABI_MUTEX);
USIW_ABI_AT(verbs_srq, srq_num, 152 + USIW_ABI_MUTEX);
USIW_ABI_SIZE(verbs_srq, 160 + USIW_ABI_MUTEX);

#endif /* USIW_RDMA_CORE_ABI_H */
