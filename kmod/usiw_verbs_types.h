/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Contexts: devices that processes have opened. Their functions are in usiw_verbs.h.
 */
#ifndef USIW_VERBS_TYPES_H
#define USIW_VERBS_TYPES_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "usiw_stats.h"

struct usiw_evfile;

/**
 * struct usiw_ucontext - device that a process has opened
 * @ibuc:	ib_core's part
 * @node:	entry in usiw_device.contexts
 * @caps:	USIW_CAP_* on which the provider and the module have agreed
 * @events:	event stream, with a reference. NULL until it is opened, constant afterwards.
 *		Written under usiw_device.ctx_lock
 * @link_missed: the link changed while there was no @events to report it; guarded by
 *		usiw_device.ctx_lock
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
