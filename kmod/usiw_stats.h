/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Pages in which processes count, and their sums for `rdma statistic show`.
 */
#ifndef USIW_STATS_H
#define USIW_STATS_H

#include <linux/list.h>
#include <linux/types.h>
#include <rdma/ib_verbs.h>

#include "../uapi/usiw_abi.h"

struct usiw_device;

/**
 * struct usiw_counters - page in which a process counts, of a context or a QP
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

extern const struct rdma_stat_desc usiw_stat_descs[];
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);
void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters);
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters);

#endif /* USIW_STATS_H */
