/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * States of a QP on the RoCE face, as InfiniBand has them (IBA 1.4, 11.2.5.2). The other face has
 * usiw_qp_states.h.
 *
 * modify_qp may move a QP as follows. Each move requires some attributes, permits some others, and
 * refuses the rest.
 *
 *	from	to
 *	RESET	RESET INIT
 *	INIT	RESET INIT RTR ERR
 *	RTR	RESET RTS ERR
 *	RTS	RESET RTS SQD ERR
 *	SQD	RESET RTS SQD ERR
 *	ERR	RESET ERR
 */
#ifndef USIW_FACE_STATES_H
#define USIW_FACE_STATES_H

#include "usiw_qp_attrs.h"

#define USIW_QP_EN_SQD_ASYNC_NOTIFY	(1u << 2)
#define USIW_QP_AV			(1u << 7)

/* The attributes of a move from one state to another. */
struct usiw_face_move {
	__u8 from;
	__u8 to;
	__u32 required;
	__u32 permitted;
};

#define USIW_FACE_NAMES		(USIW_QP_PKEY_INDEX | USIW_QP_PORT | USIW_QP_ACCESS_FLAGS)
#define USIW_FACE_RUNNING	(USIW_QP_CUR_STATE | USIW_QP_ACCESS_FLAGS | USIW_QP_MIN_RNR_TIMER)

/**
 * usiw_face_check_move - return 0 if modify_qp may move a QP, else -EINVAL
 * @from:	enum usiw_qp_state
 * @to:		any number; @from if @mask does not name a state
 * @mask:	attributes that modify_qp names
 */
static inline int usiw_face_check_move(__u32 from, __u32 to, __u32 mask)
{
	static const struct usiw_face_move moves[] = {
		{ USIW_QPS_RESET, USIW_QPS_INIT, USIW_FACE_NAMES, 0 },
		{ USIW_QPS_INIT, USIW_QPS_INIT, 0, USIW_FACE_NAMES },
		{ USIW_QPS_INIT, USIW_QPS_RTR,
		  USIW_QP_AV | USIW_QP_PATH_MTU | USIW_QP_DEST_QPN | USIW_QP_RQ_PSN |
			  USIW_QP_MAX_DEST_RD_ATOMIC | USIW_QP_MIN_RNR_TIMER,
		  USIW_QP_ACCESS_FLAGS | USIW_QP_PKEY_INDEX },
		{ USIW_QPS_RTR, USIW_QPS_RTS,
		  USIW_QP_TIMEOUT | USIW_QP_RETRY_CNT | USIW_QP_RNR_RETRY | USIW_QP_SQ_PSN |
			  USIW_QP_MAX_QP_RD_ATOMIC,
		  USIW_FACE_RUNNING },
		{ USIW_QPS_RTS, USIW_QPS_RTS, 0, USIW_FACE_RUNNING },
		{ USIW_QPS_RTS, USIW_QPS_SQD, 0, USIW_QP_EN_SQD_ASYNC_NOTIFY },
		{ USIW_QPS_SQD, USIW_QPS_RTS, 0, USIW_FACE_RUNNING },
		{ USIW_QPS_SQD, USIW_QPS_SQD, 0,
		  USIW_QP_PORT | USIW_QP_AV | USIW_QP_TIMEOUT | USIW_QP_RETRY_CNT |
			  USIW_QP_RNR_RETRY | USIW_QP_MAX_QP_RD_ATOMIC |
			  USIW_QP_MAX_DEST_RD_ATOMIC | USIW_QP_ACCESS_FLAGS | USIW_QP_PKEY_INDEX |
			  USIW_QP_MIN_RNR_TIMER },
	};
	__u32 i;

	mask &= ~USIW_QP_STATE;
	if (to == USIW_QPS_RESET || (to == USIW_QPS_ERR && from != USIW_QPS_RESET))
		return mask ? -EINVAL : 0;
	for (i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		if (moves[i].from != from || moves[i].to != to)
			continue;
		if ((mask & moves[i].required) != moves[i].required ||
		    (mask & ~(moves[i].required | moves[i].permitted)))
			return -EINVAL;
		return 0;
	}
	return -EINVAL;
}

#undef USIW_FACE_NAMES
#undef USIW_FACE_RUNNING

#endif
