/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Contexts, pages of counters, and the objects about which the kernel knows little: protection
 * domains, completion queues and shared receive queues.
 */
#ifndef USIW_VERBS_H
#define USIW_VERBS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_compat.h"
#include "usiw_unread.h"
#include "usiw_verbs_types.h"

struct vm_area_struct;

struct usiw_pd {
	struct ib_pd ibpd;
};

/**
 * struct usiw_cq - completion queue
 * @ibcq:	ib_core's part
 * @cqn:	number of the CQ
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

/**
 * struct usiw_srq - shared receive queue
 * @ibsrq:	ib_core's part
 * @max_wr:	number of work requests, as requested
 * @max_sge:	number of SGEs of a work request, as requested
 * @limit:	limit that modify_srq set. 0 if the limit has been reached, or if the program wants
 *		no event
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

int usiw_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata);
void usiw_dealloc_ucontext(struct ib_ucontext *ibuc);
void usiw_disassociate_ucontext(struct ib_ucontext *ibuc);
int usiw_read_create_request(struct ib_udata *udata);
int usiw_write_response(struct ib_udata *udata, void *resp, size_t size);
int usiw_counters_alloc(struct usiw_ucontext *uctx, struct usiw_counters *counters);
void usiw_counters_free(struct usiw_counters *counters);
int usiw_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma);
void usiw_mmap_free(struct rdma_user_mmap_entry *entry);
int usiw_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int usiw_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int usiw_create_cq(struct ib_cq *ibcq, const struct ib_cq_init_attr *attr,
		   struct usiw_create_cq_arg *arg);
int usiw_resize_cq(struct ib_cq *ibcq, usiw_resize_cqe cqe, struct ib_udata *udata);
int usiw_destroy_cq(struct ib_cq *ibcq, struct ib_udata *udata);
int usiw_poll_cq(struct ib_cq *ibcq, int num_entries, struct ib_wc *wc);
int usiw_req_notify_cq(struct ib_cq *ibcq, enum ib_cq_notify_flags flags);
int usiw_create_srq(struct ib_srq *ibsrq, struct ib_srq_init_attr *attr, struct ib_udata *udata);
int usiw_modify_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr, enum ib_srq_attr_mask mask,
		    struct ib_udata *udata);
int usiw_query_srq(struct ib_srq *ibsrq, struct ib_srq_attr *attr);
int usiw_destroy_srq(struct ib_srq *ibsrq, struct ib_udata *udata);
int usiw_post_srq_recv(struct ib_srq *ibsrq, const struct ib_recv_wr *wr,
		       const struct ib_recv_wr **bad_wr);

#endif /* USIW_VERBS_H */
