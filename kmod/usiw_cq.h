/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Completion queues.
 */
#ifndef USIW_CQ_H
#define USIW_CQ_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_compat.h"
#include "usiw_unread.h"

/**
 * struct usiw_cq - completion queue
 * @ibcq:	ib_core's part
 * @cqn:	number
 * @completions: unread completion events
 * @async:	unread asynchronous events
 */
struct usiw_cq {
	struct ib_cq ibcq;
	u32 cqn;
	struct usiw_unread completions;
	struct usiw_unread async;
};

static inline struct usiw_cq *to_usiw_cq(struct ib_cq *ibcq)
{
	return container_of(ibcq, struct usiw_cq, ibcq);
}

int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg);
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata);
int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc);
int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
void usiw_cq_completion_event(struct usiw_cq *cq);
void usiw_cq_overrun(struct usiw_cq *cq);

#endif /* USIW_CQ_H */
