/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared receive queues.
 */
#ifndef USIW_SRQ_H
#define USIW_SRQ_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_unread.h"

/**
 * struct usiw_srq - shared receive queue
 * @ibsrq:	ib_core's part
 * @max_wr:	work requests, as requested
 * @max_sge:	SGEs of a work request, as requested
 * @limit:	as modify_srq set it; 0 if it has been reached, or if no event is wanted
 * @async:	unread asynchronous events
 */
struct usiw_srq {
	struct ib_srq ibsrq;
	u32 max_wr;
	u32 max_sge;
	u32 limit;
	struct usiw_unread async;
};

static inline struct usiw_srq *to_usiw_srq(struct ib_srq *ibsrq)
{
	return container_of(ibsrq, struct usiw_srq, ibsrq);
}

int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata);
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata);
int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);
void usiw_srq_limit_reached(struct usiw_srq *srq);

#endif /* USIW_SRQ_H */
