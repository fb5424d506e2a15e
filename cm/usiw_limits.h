/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Checks of what a program asks for, once for the module, usiw-run and the provider. The
 * limits themselves are in uapi/usiw_abi.h and uapi/usiw_wire.h. Each check returns 0 or the
 * -errno that the verbs call fails with.
 */
#ifndef USIW_LIMITS_H
#define USIW_LIMITS_H

#ifdef __KERNEL__
#include <linux/errno.h>
#else
#include <errno.h>
#endif

#include "../uapi/usiw_abi.h"
#include "../uapi/usiw_wire.h"

/* QPNs: 0 and 1 are the management QPs of other transports, 0xffffff is their multicast QPN. */
#define USIW_QPN_FIRST		2u
#define USIW_QPN_LAST		0xfffffeu

/*
 * Completion events of a process come of one source, its progress thread on the device, which no
 * interrupt and so no processor stands behind. So there is one completion vector: more would
 * promise a spread that nobody makes.
 */
#define USIW_COMP_VECTORS	1

/* An STag is an index, never 0, and a key: eight random bits. */
#define USIW_MR_INDEX_FIRST	1u
#define USIW_MR_INDEX_LAST	((__u32)USIW_MAX_MR - 1)
#define USIW_STAG_KEY_BITS	8

static inline __u32 usiw_stag(__u32 index, __u32 random)
{
	return index << USIW_STAG_KEY_BITS | (random & ((1u << USIW_STAG_KEY_BITS) - 1));
}

/*
 * Access rights of a memory region; values of enum ib_access_flags and enum ibv_access_flags.
 */
#define USIW_ACCESS_LOCAL_WRITE		0x1u
#define USIW_ACCESS_REMOTE_WRITE	0x2u
#define USIW_ACCESS_REMOTE_READ		0x4u
#define USIW_ACCESS_REMOTE_ATOMIC	0x8u
#define USIW_ACCESS_OPTIONAL		0x3ff00000u	/* may be ignored */
#define USIW_ACCESS_KNOWN		(USIW_ACCESS_LOCAL_WRITE | USIW_ACCESS_REMOTE_WRITE | \
					 USIW_ACCESS_REMOTE_READ | USIW_ACCESS_REMOTE_ATOMIC | \
					 USIW_ACCESS_OPTIONAL)
#define USIW_ACCESS_OF_WRITERS		(USIW_ACCESS_REMOTE_WRITE | USIW_ACCESS_REMOTE_ATOMIC)

static inline int usiw_check_access(__u32 access)
{
	if (access & ~USIW_ACCESS_KNOWN)
		return -EOPNOTSUPP;
	if ((access & USIW_ACCESS_OF_WRITERS) && !(access & USIW_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

/* Must the region's memory be writable? */
static inline int usiw_access_writes(__u32 access)
{
	return (access & (USIW_ACCESS_LOCAL_WRITE | USIW_ACCESS_OF_WRITERS)) != 0;
}

static inline int usiw_check_qp_caps(__u32 send_wr, __u32 recv_wr, __u32 send_sge, __u32 recv_sge,
				     __u32 inline_data)
{
	if (send_wr > USIW_MAX_QP_WR || recv_wr > USIW_MAX_QP_WR || send_sge > USIW_MAX_SGE ||
	    recv_sge > USIW_MAX_SGE || inline_data > USIW_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/* Of a QP with a shared receive queue, whose own receive queue is none: what is asked of it is ignored. */
static inline int usiw_check_srq_qp_caps(__u32 send_wr, __u32 send_sge, __u32 inline_data)
{
	return usiw_check_qp_caps(send_wr, 0, send_sge, 0, inline_data);
}

static inline int usiw_check_srq(__u32 max_wr, __u32 max_sge)
{
	if (!max_wr || max_wr > USIW_MAX_SRQ_WR || max_sge > USIW_MAX_SGE)
		return -EINVAL;
	return 0;
}

static inline int usiw_check_cqe(__u32 cqe)
{
	return cqe && cqe <= USIW_MAX_CQE ? 0 : -EINVAL;
}

/* READs that a QP serves and READs that it has outstanding. */
static inline int usiw_check_depths(__u32 ird, __u32 ord)
{
	return ird <= USIW_MAX_IRD && ord <= USIW_MAX_ORD ? 0 : -EINVAL;
}

/*
 * The IPv4 TOS or IPv6 traffic class of what a connection sends, of the one that the user has set
 * (RDMA_OPTION_ID_TOS). Its two lowest bits are ECN's: nothing here answers a router that sets
 * them, so no datagram may say that it is ECN-capable. TCP takes them from its users likewise.
 */
static inline __u8 usiw_traffic_class(__u8 tos)
{
	return tos & 0xfc;
}

#endif
