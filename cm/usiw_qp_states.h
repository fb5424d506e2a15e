/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Where a QP may be moved by verbs: the module and the kernel-less mode ask here. */
#ifndef USIW_QP_STATES_H
#define USIW_QP_STATES_H

#include <linux/types.h>

/* Values of enum ib_qp_state and enum ibv_qp_state. */
enum usiw_qp_state {
	USIW_QPS_RESET,
	USIW_QPS_INIT,
	USIW_QPS_RTR,
	USIW_QPS_RTS,
	USIW_QPS_SQD,
	USIW_QPS_SQE,
	USIW_QPS_ERR,
};

#define USIW_QPS_BIT(state)	(1u << USIW_QPS_##state)

/**
 * usiw_qp_may_move - may modify_qp take a QP from one state to another?
 * @from:	enum usiw_qp_state
 * @to:		any number
 *
 * RTS is reached by a connection only. SQD in ERR changes nothing: rdma_disconnect(3)
 * asks for it, and the peer may have ended the connection first. Nor do INIT and RTR in
 * RTS: a program that makes its QPs by itself leads them through these states as it must
 * with InfiniBand, and the connection may have been faster (rping -q).
 */
static inline int usiw_qp_may_move(__u32 from, __u32 to)
{
	__u32 next;

	switch (from) {
	case USIW_QPS_RESET:	/* shown as INIT */
	case USIW_QPS_INIT:
	case USIW_QPS_RTR:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(INIT) | USIW_QPS_BIT(RTR) |
		       USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_RTS:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(INIT) | USIW_QPS_BIT(RTR) |
		       USIW_QPS_BIT(RTS) | USIW_QPS_BIT(SQD) | USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_SQD:
	case USIW_QPS_ERR:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(SQD) | USIW_QPS_BIT(ERR);
		break;
	default:
		next = 0;
		break;
	}
	return to <= USIW_QPS_ERR && (next >> to & 1);
}

/**
 * usiw_qp_state_after - the state in which an allowed modify_qp leaves a QP
 * @from:	enum usiw_qp_state
 * @to:		what usiw_qp_may_move() allows
 *
 * RTS and SQD are the connection's to set, and it may have ended meanwhile.
 */
static inline __u32 usiw_qp_state_after(__u32 from, __u32 to)
{
	int undone = from == USIW_QPS_RTS && (to == USIW_QPS_INIT || to == USIW_QPS_RTR);

	return to == USIW_QPS_RTS || to == USIW_QPS_SQD || undone ? from : to;
}

/**
 * usiw_qp_state_shown - the state that query_qp says
 * @state:	enum usiw_qp_state
 *
 * A QP of an RNIC begins in IDLE, which is verbs' INIT for siw, erdma and cxgb4 as well:
 * it takes receives, and rdma_cm connects it. RESET is a state of InfiniBand's.
 */
static inline __u32 usiw_qp_state_shown(__u32 state)
{
	if (state == USIW_QPS_RESET)
		return USIW_QPS_INIT;
	return state;
}

/**
 * usiw_qp_is_in - does a caller of modify_qp name the state that the QP is in?
 * @state:	enum usiw_qp_state
 * @named:	cur_qp_state of the caller
 */
static inline int usiw_qp_is_in(__u32 state, __u32 named)
{
	return usiw_qp_state_shown(state) == usiw_qp_state_shown(named);
}

#undef USIW_QPS_BIT

#endif
