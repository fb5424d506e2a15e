/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The pages that processes count in, and `rdma statistic show`, which adds them up.
 */
#ifndef USIW_STATS_H
#define USIW_STATS_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../uapi/usiw_abi.h"

struct usiw_device;

/**
 * struct usiw_counters - a page that a process counts in, of a context or a QP
 * @node:	in usiw_device.counters
 * @page:	USIW_COUNTERS_SIZE bytes, counters first; the process writes all of it, the module
 *		usiw_qp_stats.accepted
 * @entry:	by which the process maps it
 * @seen:	the largest values read and believed: a total never goes back
 * @seen_ns:	when that was
 */
struct usiw_counters {
	struct list_head node;
	u64 *page;
	struct rdma_user_mmap_entry *entry;
	u64 seen[USIW_CNT_MAX];
	u64 seen_ns;
};

extern const struct rdma_stat_desc usiw_stat_descs[];
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);
void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters);
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters);

#endif /* USIW_STATS_H */
