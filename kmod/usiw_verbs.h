/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Contexts, the pages in which they count, and protection domains.
 */
#ifndef USIW_VERBS_H
#define USIW_VERBS_H

#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_stats.h"
#include "usiw_verbs_types.h"

struct vm_area_struct;

struct usiw_pd {
	struct ib_pd ibpd;
};

int usiw_alloc_ucontext(struct ib_ucontext *ibuc, struct ib_udata *udata);
void usiw_dealloc_ucontext(struct ib_ucontext *ibuc);
void usiw_disassociate_ucontext(struct ib_ucontext *ibuc);
int usiw_read_request(struct ib_udata *udata, void *req, size_t size, size_t least);
int usiw_read_create_request(struct ib_udata *udata);
int usiw_write_response(struct ib_udata *udata, void *resp, size_t size);
int usiw_counters_alloc(struct usiw_ucontext *uctx, struct usiw_counters *counters);
void usiw_counters_free(struct usiw_counters *counters);
int usiw_mmap(struct ib_ucontext *ibuc, struct vm_area_struct *vma);
void usiw_mmap_free(struct rdma_user_mmap_entry *entry);
int usiw_alloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);
int usiw_dealloc_pd(struct ib_pd *ibpd, struct ib_udata *udata);

#endif /* USIW_VERBS_H */
