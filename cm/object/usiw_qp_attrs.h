/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Attributes of a QP other than its state, as modify_qp sets them and query_qp reports them.
 *
 * The module and usiw-run check, store and report them by the macros here. Attributes that control
 * the transport of InfiniBand (timers, PSNs, the peer's QPN) have no effect. query_qp reports them
 * as they were set. The two ends of a connection agree on READ depths, and query_qp then reports
 * the agreed depths. It reports the path MTU of the netdev, whatever modify_qp has set.
 */
#ifndef USIW_QP_ATTRS_H
#define USIW_QP_ATTRS_H

#include "usiw_limits.h"
#include "usiw_qp_states.h"

/* Values of enum ib_qp_attr_mask and enum ibv_qp_attr_mask. */
#define USIW_QP_STATE			(1u << 0)
#define USIW_QP_CUR_STATE		(1u << 1)
#define USIW_QP_ACCESS_FLAGS		(1u << 3)
#define USIW_QP_PKEY_INDEX		(1u << 4)
#define USIW_QP_PORT			(1u << 5)
#define USIW_QP_QKEY			(1u << 6)
#define USIW_QP_PATH_MTU		(1u << 8)
#define USIW_QP_TIMEOUT			(1u << 9)
#define USIW_QP_RETRY_CNT		(1u << 10)
#define USIW_QP_RNR_RETRY		(1u << 11)
#define USIW_QP_RQ_PSN			(1u << 12)
#define USIW_QP_MAX_QP_RD_ATOMIC	(1u << 13)
#define USIW_QP_ALT_PATH		(1u << 14)
#define USIW_QP_MIN_RNR_TIMER		(1u << 15)
#define USIW_QP_SQ_PSN			(1u << 16)
#define USIW_QP_MAX_DEST_RD_ATOMIC	(1u << 17)
#define USIW_QP_PATH_MIG_STATE		(1u << 18)
#define USIW_QP_CAP			(1u << 19)
#define USIW_QP_DEST_QPN		(1u << 20)
#define USIW_QP_KNOWN			0x1fffffu

/*
 * Attributes that modify_qp refuses. A QP of this device cannot resize its queues. It has no second
 * path, and no Q_Key, which only datagram QPs need.
 */
#define USIW_QP_REFUSED	(USIW_QP_CAP | USIW_QP_ALT_PATH | USIW_QP_PATH_MIG_STATE | USIW_QP_QKEY)

/* Attributes of a QP, as modify_qp or the connection has set them. */
struct usiw_qp_attrs {
	__u32 access_flags;
	__u32 dest_qp_num;
	__u32 rq_psn;
	__u32 sq_psn;
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 min_rnr_timer;
	__u8 ird;		/* READ depths: as set, then as both ends have agreed */
	__u8 ord;
};

/* True if @mask has @bit, and @value exceeds @most. */
static inline int usiw_qp_attr_exceeds(__u32 mask, __u32 bit, __u32 value, __u32 most)
{
	return (mask & bit) && value > most;
}

/*
 * Sets @ret to 0 or to the -errno of modify_qp. @attr: struct ib_qp_attr or ib_uverbs_modify_qp.
 * Only the members that @mask names are checked.
 */
#define usiw_check_qp_attrs(ret, attr, mask)						\
do {											\
	const __u32 mask_ = (mask);							\
											\
	if (mask_ & (USIW_QP_REFUSED | ~USIW_QP_KNOWN))					\
		(ret) = -EOPNOTSUPP;							\
	else if (((mask_ & USIW_QP_PORT) && (attr)->port_num != 1) ||			\
		 ((mask_ & USIW_QP_ACCESS_FLAGS) &&					\
		  ((attr)->qp_access_flags & ~USIW_ACCESS_OF_QP)) ||			\
		 ((mask_ & USIW_QP_PATH_MTU) && !(attr)->path_mtu) ||			\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_PATH_MTU, (attr)->path_mtu, 5) ||	\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_PKEY_INDEX, (attr)->pkey_index, 0) || \
		 usiw_qp_attr_exceeds(mask_, USIW_QP_TIMEOUT, (attr)->timeout, 31) ||	\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_RETRY_CNT, (attr)->retry_cnt, 7) ||	\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_RNR_RETRY, (attr)->rnr_retry, 7) ||	\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_MIN_RNR_TIMER,			\
				      (attr)->min_rnr_timer, 31) ||			\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_MAX_DEST_RD_ATOMIC,		\
				      (attr)->max_dest_rd_atomic, USIW_MAX_IRD) ||	\
		 usiw_qp_attr_exceeds(mask_, USIW_QP_MAX_QP_RD_ATOMIC,			\
				      (attr)->max_rd_atomic, USIW_MAX_ORD))		\
		(ret) = -EINVAL;							\
	else										\
		(ret) = 0;								\
} while (0)

/*
 * Stores in @kept the attributes of @attr that @mask names, after their check. In a connected state
 * the agreed READ depths stay. The path MTU, the port number and the P_Key index are not stored,
 * because query_qp does not need them. @state: enum usiw_qp_state.
 */
#define usiw_keep_qp_attrs(kept, attr, mask, state)					\
do {											\
	const __u32 mask_ = (mask);							\
	const int connected_ = usiw_qp_is_connected(state);				\
											\
	if (mask_ & USIW_QP_ACCESS_FLAGS)						\
		(kept)->access_flags = (__u32)(attr)->qp_access_flags;			\
	if (mask_ & USIW_QP_DEST_QPN)							\
		(kept)->dest_qp_num = (attr)->dest_qp_num;				\
	if (mask_ & USIW_QP_RQ_PSN)							\
		(kept)->rq_psn = (attr)->rq_psn;					\
	if (mask_ & USIW_QP_SQ_PSN)							\
		(kept)->sq_psn = (attr)->sq_psn;					\
	if (mask_ & USIW_QP_TIMEOUT)							\
		(kept)->timeout = (attr)->timeout;					\
	if (mask_ & USIW_QP_RETRY_CNT)							\
		(kept)->retry_cnt = (attr)->retry_cnt;					\
	if (mask_ & USIW_QP_RNR_RETRY)							\
		(kept)->rnr_retry = (attr)->rnr_retry;					\
	if (mask_ & USIW_QP_MIN_RNR_TIMER)						\
		(kept)->min_rnr_timer = (attr)->min_rnr_timer;				\
	if (!connected_ && (mask_ & USIW_QP_MAX_DEST_RD_ATOMIC))			\
		(kept)->ird = (attr)->max_dest_rd_atomic;				\
	if (!connected_ && (mask_ & USIW_QP_MAX_QP_RD_ATOMIC))				\
		(kept)->ord = (attr)->max_rd_atomic;					\
} while (0)

/* Fills @attr, a struct ib_qp_attr or ib_uverbs_query_qp_resp, from @kept and @state. */
#define usiw_fill_qp_attrs(attr, kept, state)						\
do {											\
	(attr)->qp_access_flags = (kept)->access_flags;					\
	(attr)->dest_qp_num = (kept)->dest_qp_num;					\
	(attr)->rq_psn = (kept)->rq_psn;						\
	(attr)->sq_psn = (kept)->sq_psn;						\
	(attr)->timeout = (kept)->timeout;						\
	(attr)->retry_cnt = (kept)->retry_cnt;						\
	(attr)->rnr_retry = (kept)->rnr_retry;						\
	(attr)->min_rnr_timer = (kept)->min_rnr_timer;					\
	(attr)->max_dest_rd_atomic = (kept)->ird;					\
	(attr)->max_rd_atomic = (kept)->ord;						\
	(attr)->port_num = 1;								\
	(attr)->qp_state = (attr)->cur_qp_state = usiw_qp_state_shown(state);		\
} while (0)

#endif
