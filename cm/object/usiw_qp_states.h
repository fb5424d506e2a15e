/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * States of a QP, as modify_qp sets them and query_qp reports them, for the module and usiw-run.
 *
 * rdma_cm makes the connections, so a connection moves a QP to RTS. modify_qp only leads back to
 * RTS from SQD. A program may move its QP as follows:
 *
 *	from		to
 *	RESET		RESET INIT RTR ERR	a new QP is shown as INIT: usiw_qp_state_shown()
 *	INIT		RESET INIT RTR ERR
 *	RTR		RESET ERR
 *	RTS		RESET RTS SQD ERR; INIT and RTR change nothing
 *	SQD		RESET RTS SQD ERR
 *	CLOSING		RESET ERR; SQD changes nothing
 *	ERR		RESET ERR; SQD changes nothing
 *
 * Any other move fails with EINVAL and changes nothing.
 *
 * SQD means "send queue drained". Work requests that were posted before SQD are completed. Then
 * IBV_EVENT_SQ_DRAINED is raised, if en_sqd_async_notify asked for it. Work requests that are
 * posted in SQD wait until RTS. Receives and the peer's READs go on.
 *
 * ERR ends the connection at once and flushes both queues. RESET ends it too, and empties the
 * queues without completions. The QP may be connected again after RESET.
 *
 * CLOSING is the orderly end of the connection. iw_cm asks for it when it sets the QP to SQD
 * (usiw_qp_may_end()). query_qp reports CLOSING as SQD, and only RESET and ERR lead out of it.
 * iWARP adapters begin the orderly end when a program sets SQD. rdma_disconnect(3) cannot see this
 * difference: it sets SQD and then asks rdma_cm, which asks iw_cm. So here too, earlier work
 * requests are completed, and later ones are flushed.
 *
 * INIT and RTR change nothing in RTS. A program that makes its QPs by itself (rping -q) sets these
 * states, as InfiniBand requires. By then the connection may already have set the QP to RTS.
 * SQD changes nothing in ERR, because the peer may have ended the connection before
 * rdma_disconnect(3) was called.
 */
#ifndef USIW_QP_STATES_H
#define USIW_QP_STATES_H

#include <linux/types.h>

/* States of a QP. All but CLOSING have the values of enum ib_qp_state and enum ibv_qp_state. */
enum usiw_qp_state {
	USIW_QPS_RESET,
	USIW_QPS_INIT,
	USIW_QPS_RTR,
	USIW_QPS_RTS,
	USIW_QPS_SQD,
	USIW_QPS_SQE,		/* RC QPs do not have this state */
	USIW_QPS_ERR,
	USIW_QPS_CLOSING,	/* internal: modify_qp and query_qp do not know it */
};

#define USIW_QPS_BIT(state)	(1u << USIW_QPS_##state)

/**
 * usiw_qp_may_move - true if a program's modify_qp may move a QP from one state to another
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
 * usiw_qp_state_after - return the state of a QP after an allowed modify_qp
 * @from:	enum usiw_qp_state
 * @to:		a state that usiw_qp_may_move() allows
 */
static inline __u32 usiw_qp_state_after(__u32 from, __u32 to)
{
	int unmoved = (from == USIW_QPS_RTS && (to == USIW_QPS_INIT || to == USIW_QPS_RTR)) ||
		      ((from == USIW_QPS_ERR || from == USIW_QPS_CLOSING) && to == USIW_QPS_SQD);

	return unmoved ? from : to;
}

/**
 * usiw_qp_may_end - true if iw_cm may ask for the end of the QP's connection
 * @state:	enum usiw_qp_state
 * @to:		USIW_QPS_SQD: an orderly end; USIW_QPS_ERR: the end at once
 */
static inline int usiw_qp_may_end(__u32 state, __u32 to)
{
	return to == USIW_QPS_ERR || (to == USIW_QPS_SQD && state >= USIW_QPS_RTS);
}

/**
 * usiw_qp_state_shown - return the state that query_qp reports
 * @state:	enum usiw_qp_state
 *
 * RESET is a state of InfiniBand. A QP of an RNIC begins in IDLE instead: receives may be posted,
 * and rdma_cm may connect it. So RESET is shown as INIT. siw, erdma and cxgb4 report IDLE as INIT
 * too.
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
 * usiw_qp_is_in - true if a caller of modify_qp names the present state of the QP
 * @state:	enum usiw_qp_state
 * @named:	cur_qp_state that the caller passes
 */
static inline int usiw_qp_is_in(__u32 state, __u32 named)
{
	return usiw_qp_state_shown(state) == usiw_qp_state_shown(named);
}

/* True if the QP has the depths of a connection, which modify_qp cannot change. */
static inline int usiw_qp_is_connected(__u32 state)
{
	return state == USIW_QPS_RTS || state == USIW_QPS_SQD || state == USIW_QPS_CLOSING;
}

#undef USIW_QPS_BIT

#endif
