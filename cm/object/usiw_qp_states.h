/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The states of a QP as modify_qp and query_qp know them: the one place for the module and usiw-run.
 *
 * Connections are rdma_cm's, so RTS is reached and left by a connection. A program moves its QP
 *
 *	from		to
 *	RESET		RESET INIT RTR ERR	a fresh QP is shown as INIT, see usiw_qp_state_shown()
 *	INIT		RESET INIT RTR ERR
 *	RTR		RESET ERR
 *	RTS		RESET RTS SQD ERR; INIT and RTR change nothing
 *	SQD		RESET RTS SQD ERR
 *	CLOSING		RESET ERR; SQD changes nothing
 *	ERR		RESET ERR; SQD changes nothing
 *
 * and by nothing else (EINVAL, and nothing is changed). SQD is verbs' "send queue drained": what is
 * posted is completed, IBV_EVENT_SQ_DRAINED says so if en_sqd_async_notify asked for it, what is
 * posted meanwhile waits, receives and the peer's READs go on, and RTS lets the queue run again.
 * ERR ends the connection at once and flushes both queues. RESET ends it and empties them without
 * completions; the QP may be connected again.
 *
 * CLOSING is the connection's orderly end, which iw_cm asks for by its own SQD (usiw_qp_may_end());
 * a QP that is at its end is shown as SQD, and only RESET and ERR lead out of it. Adapters for
 * iWARP take a program's SQD itself for that wish. For rdma_disconnect(3) the difference cannot be
 * seen: it moves the QP to SQD and then asks rdma_cm, which asks iw_cm, so that here as there the
 * work that was posted before is completed and what comes later is flushed.
 *
 * INIT and RTR in RTS change nothing, because a program that makes its QPs by itself leads them
 * through these states as it must with InfiniBand, and the connection may have been faster (rping
 * -q). Nor does SQD in ERR: the peer may have ended the connection ahead of rdma_disconnect(3).
 */
#ifndef USIW_QP_STATES_H
#define USIW_QP_STATES_H

#include <linux/types.h>

/* Values of enum ib_qp_state and enum ibv_qp_state, and one of ours. */
enum usiw_qp_state {
	USIW_QPS_RESET,
	USIW_QPS_INIT,
	USIW_QPS_RTR,
	USIW_QPS_RTS,
	USIW_QPS_SQD,
	USIW_QPS_SQE,		/* not of an RC QP */
	USIW_QPS_ERR,
	USIW_QPS_CLOSING,	/* no user names it */
};

#define USIW_QPS_BIT(state)	(1u << USIW_QPS_##state)

/**
 * usiw_qp_may_move - may a program's modify_qp take a QP from one state to another?
 * @from:	enum usiw_qp_state
 * @to:		any number
 */
static inline int usiw_qp_may_move(__u32 from, __u32 to)
{
	__u32 next;

	switch (from) {
	case USIW_QPS_RESET:
	case USIW_QPS_INIT:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(INIT) | USIW_QPS_BIT(RTR) |
		       USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_RTR:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_RTS:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(INIT) | USIW_QPS_BIT(RTR) |
		       USIW_QPS_BIT(RTS) | USIW_QPS_BIT(SQD) | USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_SQD:
		next = USIW_QPS_BIT(RESET) | USIW_QPS_BIT(RTS) | USIW_QPS_BIT(SQD) |
		       USIW_QPS_BIT(ERR);
		break;
	case USIW_QPS_CLOSING:
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
 */
static inline __u32 usiw_qp_state_after(__u32 from, __u32 to)
{
	int unmoved = (from == USIW_QPS_RTS && (to == USIW_QPS_INIT || to == USIW_QPS_RTR)) ||
		      ((from == USIW_QPS_ERR || from == USIW_QPS_CLOSING) && to == USIW_QPS_SQD);

	return unmoved ? from : to;
}

/**
 * usiw_qp_may_end - may iw_cm ask for the end of the QP's connection?
 * @state:	enum usiw_qp_state
 * @to:		USIW_QPS_SQD: in order, USIW_QPS_ERR: at once
 */
static inline int usiw_qp_may_end(__u32 state, __u32 to)
{
	return to == USIW_QPS_ERR || (to == USIW_QPS_SQD && state >= USIW_QPS_RTS);
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
	if (state == USIW_QPS_CLOSING)
		return USIW_QPS_SQD;
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

/* Does the QP have a connection's depths, which modify_qp cannot change? */
static inline int usiw_qp_is_connected(__u32 state)
{
	return state == USIW_QPS_RTS || state == USIW_QPS_SQD || state == USIW_QPS_CLOSING;
}

#undef USIW_QPS_BIT

#endif
