/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Structures of contexts and of pages of counters. A context is a device that a process has opened.
 * The functions are in usiw_verbs.h and usiw_stats.h.
 */
#ifndef USIW_VERBS_TYPES_H
#define USIW_VERBS_TYPES_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../uapi/usiw_abi.h"

struct usiw_evfile;

/**
 * struct usiw_counters - page of a context or of a QP, in which the process counts
 * @node:	entry in usiw_device.counters
 * @page:	USIW_COUNTERS_SIZE bytes, counters first. The process may write all of it; the
 *		module writes usiw_qp_stats.accepted only
 * @entry:	mmap entry by which the process maps @page
 * @seen:	largest plausible values read so far, so that a total never decreases
 * @seen_ns:	time of the last reading, ns
 */
struct usiw_counters {
	struct list_head node;
	u64 *page;
	struct rdma_user_mmap_entry *entry;
	u64 seen[USIW_CNT_MAX];
	u64 seen_ns;
};

/**
 * struct usiw_ucontext - device that a process has opened
 * @ibuc:	ib_core's part
 * @node:	entry in usiw_device.contexts
 * @caps:	USIW_CAP_* on which the provider and the module have agreed
 * @events:	event stream, with a reference. NULL until it is opened, constant afterwards.
 *		Written under usiw_device.ctx_lock
 * @link_missed: the link changed while @events was NULL; guarded by usiw_device.ctx_lock
 * @counters:	page of the context itself, beside those of its QPs
 */
struct usiw_ucontext {
	struct ib_ucontext ibuc;
	struct list_head node;
	u64 caps;
	struct usiw_evfile *events;
	bool link_missed;
	struct usiw_counters counters;
};

static inline struct usiw_ucontext *to_usiw_uctx(struct ib_ucontext *ibuc)
{
	return container_of(ibuc, struct usiw_ucontext, ibuc);
}

#endif /* USIW_VERBS_TYPES_H */
