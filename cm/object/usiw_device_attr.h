/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Attributes of the device and of its port, as query_device and query_port report them.
 *
 * The module fills structures of the kernel, and usiw-run fills responses of uverbs. Their members
 * have the same names, so a macro fills either. The callers add the members whose names differ or
 * that only one structure has. Every other member is 0: the device does not have the feature.
 *
 * The limits are those of uapi/usiw_abi.h and uapi/usiw_wire.h, by which requests are checked too.
 * tests/vm/programs/query_device.cc compares the reported values with these limits, with the module
 * and under usiw-run.
 */
#ifndef USIW_DEVICE_ATTR_H
#define USIW_DEVICE_ATTR_H

#include "../../uapi/usiw_abi.h"
#include "../../uapi/usiw_version.h"
#include "../../uapi/usiw_wire.h"
#include "usiw_limits.h"

/* Values of enum ib_device_cap_flags and enum ibv_device_cap_flags. */
#define USIW_DEVICE_CURR_QP_STATE_MOD	(1u << 7)	/* modify_qp checks IBV_QP_CUR_STATE */
#define USIW_DEVICE_PORT_ACTIVE_EVENT	(1u << 10)
#define USIW_DEVICE_SYS_IMAGE_GUID	(1u << 11)
#define USIW_DEVICE_RC_RNR_NAK_GEN	(1u << 12)	/* a SEND waits for a receive */
#define USIW_DEVICE_SRQ_RESIZE		(1u << 13)	/* modify_srq takes IBV_SRQ_MAX_WR */

#define USIW_DEVICE_CAP_FLAGS	(USIW_DEVICE_CURR_QP_STATE_MOD | USIW_DEVICE_PORT_ACTIVE_EVENT | \
				 USIW_DEVICE_SYS_IMAGE_GUID | USIW_DEVICE_RC_RNR_NAK_GEN | \
				 USIW_DEVICE_SRQ_RESIZE | USIW_DEVICE_CAPS_OF_WINDOWS)

/*
 * Value of enum ib_atomic_cap and enum ibv_atomic_cap: the processor executes the atomic
 * operations, so they are atomic with its own accesses too.
 */
#define USIW_ATOMIC_GLOB	2

/*
 * Fills @attr, a zeroed struct ib_device_attr or ib_uverbs_query_device_resp. The caller adds the
 * GUIDs, the number of SGEs, and the members that only one of the structures has.
 */
#define usiw_fill_device_attr(attr, page_size)						\
do {											\
	(attr)->fw_ver = USIW_FW_VER;							\
	(attr)->hw_ver = 1;								\
	(attr)->vendor_id = USIW_VENDOR_ID;						\
	(attr)->page_size_cap = (page_size);						\
	(attr)->device_cap_flags = USIW_DEVICE_CAP_FLAGS;				\
	(attr)->max_mr_size = USIW_MAX_MR_SIZE;						\
	(attr)->max_mr = USIW_MAX_MR - 1;	/* index 0 is not used */			\
	(attr)->max_pd = USIW_MAX_PD;							\
	(attr)->max_cq = USIW_MAX_CQ;							\
	(attr)->max_cqe = USIW_MAX_CQE;							\
	(attr)->max_srq = USIW_MAX_SRQ;							\
	(attr)->max_srq_wr = USIW_MAX_SRQ_WR;						\
	(attr)->max_srq_sge = USIW_MAX_SGE;						\
	(attr)->max_mw = USIW_MAX_MW;							\
	(attr)->atomic_cap = USIW_ATOMIC_GLOB;						\
	(attr)->max_qp = USIW_MAX_QP;							\
	(attr)->max_qp_wr = USIW_MAX_QP_WR;						\
	(attr)->max_sge_rd = USIW_MAX_SGE;						\
	(attr)->max_qp_rd_atom = USIW_MAX_IRD;						\
	(attr)->max_qp_init_rd_atom = USIW_MAX_ORD;					\
	(attr)->max_res_rd_atom = USIW_MAX_QP * USIW_MAX_IRD;				\
	(attr)->max_pkeys = USIW_PKEYS;							\
} while (0)

/*
 * Returns the largest value of enum ib_mtu that does not exceed @mtu, bytes. IB_MTU_256 also stands
 * for a smaller @mtu.
 */
static inline __u8 usiw_mtu_named(__u32 mtu)
{
	__u8 named = 1;			/* 256 */

	while (named < 5 && (256u << named) <= mtu)
		named++;
	return named;
}

/* Values of enum ib_port_state, of the physical state of a port, and of the flag IB_PORT_CM_SUP. */
#define USIW_PORT_IS_DOWN	1
#define USIW_PORT_IS_ACTIVE	4
#define USIW_PHYS_POLLING	2
#define USIW_PHYS_DISABLED	3
#define USIW_PHYS_LINK_UP	5
#define USIW_PORT_CM_SUP	(1u << 16)

/*
 * The port has one GID, made from the MAC, and one P_Key. rdma_cm requires a P_Key of a device that
 * it binds to 127.0.0.1.
 */
#define USIW_GIDS	1
#define USIW_PKEYS	1

/* A speed of verbs in Mbit/s (SDR 1x: 0), with its enum ib_port_speed and ib_port_width. */
struct usiw_speed {
	__u32 mbps;
	__u16 speed;
	__u8 width;
};

/*
 * Returns the fastest speed of the table that does not exceed @mbps, the speed of the netdev. SDR
 * 1x also stands for slower netdevs and for an unknown speed (@mbps 0).
 */
static inline struct usiw_speed usiw_speed_named(__u32 mbps)
{
	static const struct usiw_speed speeds[] = {
		{ 400000, 128, 2 },	/* NDR 4x */
		{ 200000, 64, 2 },	/* HDR 4x */
		{ 100000, 32, 2 },	/* EDR 4x */
		{ 56000, 16, 2 },	/* FDR 4x */
		{ 50000, 64, 1 },	/* HDR 1x */
		{ 40000, 8, 2 },	/* FDR10 4x */
		{ 25000, 32, 1 },	/* EDR 1x */
		{ 20000, 2, 2 },	/* DDR 4x */
		{ 10000, 8, 1 },	/* FDR10 1x */
		{ 5000, 2, 1 },		/* DDR 1x */
		{ 0, 1, 1 },		/* SDR 1x */
	};
	unsigned int i = 0;

	while (mbps < speeds[i].mbps)
		i++;
	return speeds[i];
}

/* State of the netdev below the port. */
struct usiw_netdev_is {
	int up;			/* running with carrier */
	int enabled;
	__u32 mtu;		/* bytes */
	__u32 mbps;		/* 0: not known */
};

/* Fills @attr, a zeroed struct ib_port_attr or ib_uverbs_query_port_resp. */
#define usiw_fill_port_attr(attr, netdev)							\
do {											\
	const struct usiw_netdev_is *is_ = (netdev);					\
	const struct usiw_speed speed_ = usiw_speed_named(is_->mbps);			\
	const __u8 mtu_ = usiw_mtu_named(is_->mtu);					\
											\
	(attr)->state = is_->up ? USIW_PORT_IS_ACTIVE : USIW_PORT_IS_DOWN;		\
	(attr)->phys_state = is_->up ? USIW_PHYS_LINK_UP :				\
			     is_->enabled ? USIW_PHYS_POLLING : USIW_PHYS_DISABLED;	\
	(attr)->max_mtu = (attr)->active_mtu = mtu_;					\
	(attr)->gid_tbl_len = USIW_GIDS;						\
	(attr)->pkey_tbl_len = USIW_PKEYS;						\
	(attr)->port_cap_flags = USIW_PORT_CM_SUP;					\
	(attr)->max_msg_sz = USIW_MAX_MSG_SIZE;						\
	(attr)->active_speed = speed_.speed;						\
	(attr)->active_width = speed_.width;						\
} while (0)

#endif
