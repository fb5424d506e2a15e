/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A context: a device that a process has opened.
 */
#ifndef USIW_VERBS_TYPES_H
#define USIW_VERBS_TYPES_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_stats.h"

struct usiw_evfile;

/**
 * struct usiw_ucontext - a device that a process has opened
 * @ibuc:	the core's part of it
 * @node:	in usiw_device.contexts
 * @caps:	USIW_CAP_* that the provider and the module have agreed on
 * @events:	its event stream, with a reference; NULL until it is opened, then for good the
 *		same. Written under usiw_device.ctx_lock
 * @link_missed: the link has changed since the provider was told, and there was no @events;
 *		guarded by usiw_device.ctx_lock
 * @counters:	its own page, beside those of its QPs
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
