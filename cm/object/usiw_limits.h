/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Checks of the numbers and flags that a program asks for.
 *
 * The module, usiw-run and the provider have to accept and to refuse the same requests, so the
 * checks are here once. The limits themselves are in uapi/usiw_abi.h and uapi/usiw_wire.h. Each
 * check returns 0, or the -errno with which the verbs call fails.
 */
#ifndef USIW_LIMITS_H
#define USIW_LIMITS_H

#ifdef __KERNEL__
#include <linux/errno.h>
#else
#include <errno.h>
#endif

#include "../../uapi/usiw_abi.h"
#include "../../uapi/usiw_wire.h"

/*
 * Range of QPNs. On other transports 0 and 1 are management QPs, and 0xffffff is the multicast QPN.
 */
#define USIW_QPN_FIRST		2u
#define USIW_QPN_LAST		0xfffffeu

/*
 * Number of completion vectors. The threads that run the engine raise the completion events. No
 * interrupt does, so several vectors would not spread the events over processors.
 */
#define USIW_COMP_VECTORS	1

/*
 * Parts of an STag: an index, which is never 0, and a key of eight bits, which is random at first.
 * Regions and windows have different ranges of indices, so the index shows whether the STag names a
 * region or a window.
 */
#define USIW_MR_INDEX_FIRST	1u
#define USIW_MR_INDEX_LAST	((__u32)USIW_MAX_MR - 1)
#define USIW_MW_INDEX_FIRST	((__u32)USIW_MAX_MR)
#define USIW_MW_INDEX_LAST	((__u32)USIW_MAX_MR + USIW_MAX_MW - 1)
#define USIW_STAG_KEY_BITS	8
#define USIW_STAG_KEY_MASK	((1u << USIW_STAG_KEY_BITS) - 1)

/* Returns the STag with @index and a key made from @random. */
static inline __u32 usiw_stag(__u32 index, __u32 random)
{
	return index << USIW_STAG_KEY_BITS | (random & USIW_STAG_KEY_MASK);
}

/* Returns an STag with the same index and another key. @stag names nothing from then on. */
static inline __u32 usiw_stag_renewed(__u32 stag, __u32 random)
{
	__u32 key = (stag + 1 + random % USIW_STAG_KEY_MASK) & USIW_STAG_KEY_MASK;

	return (stag & ~USIW_STAG_KEY_MASK) | key;
}

/*
 * Access rights of a memory region; values of enum ib_access_flags and enum ibv_access_flags.
 *
 * ON_DEMAND: the program may map and unmap parts of the region at any time. For any other region
 * the program promises that all of it stays mapped, because no pages are pinned. HUGETLB is a
 * promise about the size of the pages of an ON_DEMAND region. Nothing here depends on that size.
 */
#define USIW_ACCESS_LOCAL_WRITE		0x1u
#define USIW_ACCESS_REMOTE_WRITE	0x2u
#define USIW_ACCESS_REMOTE_READ		0x4u
#define USIW_ACCESS_REMOTE_ATOMIC	0x8u
#define USIW_ACCESS_MW_BIND		0x10u
#define USIW_ACCESS_ZERO_BASED		0x20u
#define USIW_ACCESS_ON_DEMAND		0x40u
#define USIW_ACCESS_HUGETLB		0x80u
#define USIW_ACCESS_OPTIONAL		0x3ff00000u	/* may be ignored (RELAXED_ORDERING) */
#define USIW_ACCESS_KNOWN		(USIW_ACCESS_LOCAL_WRITE | USIW_ACCESS_REMOTE_WRITE | \
					 USIW_ACCESS_REMOTE_READ | USIW_ACCESS_REMOTE_ATOMIC | \
					 USIW_ACCESS_MW_BIND | USIW_ACCESS_ZERO_BASED | \
					 USIW_ACCESS_ON_DEMAND | USIW_ACCESS_HUGETLB | \
					 USIW_ACCESS_OPTIONAL)
/*
 * Access flags of a QP. Programs pass the flags of their regions here, so the kernel side accepts
 * every flag that it knows. The provider derives the peer's rights from the flags (rights_of() in
 * provider/engine/types.h).
 */
#define USIW_ACCESS_OF_QP		USIW_ACCESS_KNOWN
/* Rights by which the peer writes. They require LOCAL_WRITE. */
#define USIW_ACCESS_OF_WRITERS		(USIW_ACCESS_REMOTE_WRITE | USIW_ACCESS_REMOTE_ATOMIC)

/*
 * Access flags that a memory window may have; values of the same enums. LOCAL_WRITE is accepted and
 * has no effect.
 */
#define USIW_ACCESS_OF_WINDOWS		(USIW_ACCESS_LOCAL_WRITE | USIW_ACCESS_REMOTE_WRITE | \
					 USIW_ACCESS_REMOTE_READ | USIW_ACCESS_REMOTE_ATOMIC | \
					 USIW_ACCESS_ZERO_BASED)

/*
 * Capabilities of the device: memory windows of type 1 and 2B, SEND with Invalidate, local
 * invalidate. Values of enum ib_uverbs_device_cap_flags: MEM_WINDOW, MEM_MGT_EXTENSIONS,
 * MEM_WINDOW_TYPE_2B.
 */
#define USIW_DEVICE_CAPS_OF_WINDOWS	(1u << 17 | 1u << 21 | 1u << 24)

/*
 * Kinds of ON_DEMAND regions, and operations that work on them; values of enum
 * ib_odp_general_cap_bits and ib_odp_transport_cap_bits, and of the same enums of libibverbs.
 */
#define USIW_ODP_GENERAL_CAPS		0x3u	/* explicit regions, and the implicit one */
#define USIW_ODP_RC_CAPS		0x3fu	/* all operations, receives of an SRQ too */

static inline int usiw_check_access(__u32 access)
{
	if (access & ~USIW_ACCESS_KNOWN)
		return -EOPNOTSUPP;
	if ((access & USIW_ACCESS_OF_WRITERS) && !(access & USIW_ACCESS_LOCAL_WRITE))
		return -EINVAL;
	return 0;
}

static inline int usiw_check_region(__u64 start, __u64 length, __u32 access)
{
	int ret = usiw_check_access(access);

	if (ret)
		return ret;
	/* The implicit region covers all addresses. */
	if ((access & USIW_ACCESS_ON_DEMAND) && !start && length == ~(__u64)0)
		return 0;
	return length > USIW_MAX_MR_SIZE ? -EINVAL : 0;
}

/* True if the memory of the region must be writable. */
static inline int usiw_access_writes(__u32 access)
{
	return (access & (USIW_ACCESS_LOCAL_WRITE | USIW_ACCESS_OF_WRITERS)) != 0;
}

/* Parts of a region that rereg_mr changes; values of IB_MR_REREG_* and enum ibv_rereg_mr_flags. */
#define USIW_REREG_TRANSLATION		0x1u
#define USIW_REREG_PD			0x2u
#define USIW_REREG_ACCESS		0x4u
#define USIW_REREG_KNOWN		(USIW_REREG_TRANSLATION | USIW_REREG_PD | USIW_REREG_ACCESS)

static inline int usiw_check_rereg(__u32 flags)
{
	if (flags & ~USIW_REREG_KNOWN)
		return -EOPNOTSUPP;
	return flags ? 0 : -EINVAL;
}

/*
 * True if rereg_mr gives the region another key. It does if the memory or the addressing of the
 * region changes, because a peer that has the old key expects the old memory. Other rights or
 * another PD leave the key as it is.
 */
static inline int usiw_rereg_renews(__u32 flags, __u32 access_before, __u32 access_now)
{
	return (flags & USIW_REREG_TRANSLATION) ||
	       ((access_before ^ access_now) & USIW_ACCESS_ZERO_BASED);
}

/* Service levels have 4 bits. */
#define USIW_MAX_SL			15

/* Checks the type of a memory window, a value of enum ib_mw_type and enum ibv_mw_type. */
static inline int usiw_check_mw_type(__u32 type)
{
	return type == 1 || type == 2 ? 0 : -EINVAL;
}

static inline int usiw_check_qp_caps(__u32 send_wr, __u32 recv_wr, __u32 send_sge, __u32 recv_sge,
				     __u32 inline_data)
{
	if (send_wr > USIW_MAX_QP_WR || recv_wr > USIW_MAX_QP_WR || send_sge > USIW_MAX_SGE ||
	    recv_sge > USIW_MAX_SGE || inline_data > USIW_MAX_INLINE)
		return -EINVAL;
	return 0;
}

/*
 * Checks the sizes of a QP with an SRQ. Such a QP has no receive queue, so the sizes requested for
 * a receive queue are ignored.
 */
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

/* Parts of an SRQ that modify_srq changes; values of enum ib_srq_attr_mask. */
#define USIW_SRQ_ATTR_MAX_WR			0x1u
#define USIW_SRQ_ATTR_LIMIT			0x2u

/*
 * Checks the arguments of modify_srq. @now_wr: present size of the SRQ. The check ignores how many
 * receives are posted, because only the provider knows that.
 */
static inline int usiw_check_modify_srq(__u32 mask, __u32 max_wr, __u32 limit, __u32 now_wr)
{
	if (mask & ~(USIW_SRQ_ATTR_MAX_WR | USIW_SRQ_ATTR_LIMIT))
		return -EINVAL;
	if (mask & USIW_SRQ_ATTR_MAX_WR) {
		if (!max_wr || max_wr > USIW_MAX_SRQ_WR)
			return -EINVAL;
		now_wr = max_wr;
	}
	return (mask & USIW_SRQ_ATTR_LIMIT) && limit > now_wr ? -EINVAL : 0;
}

static inline int usiw_check_cqe(__u32 cqe)
{
	return cqe && cqe <= USIW_MAX_CQE ? 0 : -EINVAL;
}

/*
 * Checks READ depths. @ird: READs and atomics that a QP serves at a time. @ord: READs and atomics
 * that it has outstanding at a time.
 */
static inline int usiw_check_depths(__u32 ird, __u32 ord)
{
	return ird <= USIW_MAX_IRD && ord <= USIW_MAX_ORD ? 0 : -EINVAL;
}

/*
 * Returns the IPv4 TOS or IPv6 traffic class of a connection's datagrams. @tos: value that the user
 * has set (RDMA_OPTION_ID_TOS). Its two lowest bits belong to ECN and are cleared, as TCP does.
 * Only the provider sets ECT(0) there, for a peer that can report CE.
 */
static inline __u8 usiw_traffic_class(__u8 tos)
{
	return tos & 0xfc;
}

#endif
