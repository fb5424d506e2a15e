// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * `rdma statistic show`: the sum over the pages of all contexts and QPs, the counts of those that
 * are gone, and the module's own counters.
 */
#include <linux/ktime.h>
#include <linux/overflow.h>

#include "usiw_stats.h"

#include "../uapi/usiw_names.h"
#include "usiw_device.h"

#define USIW_COUNTER_DESC(id, text) \
	[USIW_CNT_##id].name = text,

const struct rdma_stat_desc usiw_stat_descs[USIW_CNT_MAX + USIW_KCNT_MAX] = {
	USIW_COUNTER_NAMES(USIW_COUNTER_DESC)
	[USIW_CNT_MAX + USIW_KCNT_CM_TX].name = "cm_tx",
	[USIW_CNT_MAX + USIW_KCNT_CM_RX].name = "cm_rx",
	[USIW_CNT_MAX + USIW_KCNT_CM_CONNECT].name = "cm_connect",
	[USIW_CNT_MAX + USIW_KCNT_CM_REQUEST].name = "cm_request",
	[USIW_CNT_MAX + USIW_KCNT_CM_ESTABLISHED].name = "cm_established",
	[USIW_CNT_MAX + USIW_KCNT_CM_BACKLOG_FULL].name = "cm_backlog_full",
	[USIW_CNT_MAX + USIW_KCNT_CM_REFUSED].name = "cm_refused",
	[USIW_CNT_MAX + USIW_KCNT_CM_NO_CHECKSUM].name = "cm_no_checksum",
	[USIW_CNT_MAX + USIW_KCNT_ROUTE_ELSEWHERE].name = "route_elsewhere",
	[USIW_CNT_MAX + USIW_KCNT_ROUTE_FORBIDDEN].name = "route_forbidden",
	[USIW_CNT_MAX + USIW_KCNT_PORT_MOVES].name = "port_moves",
	[USIW_CNT_MAX + USIW_KCNT_RX_BESIDE].name = "rx_beside",
};

/* Port 0 is the device, which has no counters: all belong to the port. */
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	BUILD_BUG_ON_MSG(USIW_CNT_MAX != USIW_CNT_TX_CE + 1,
			 "name the new counter in usiw_names.h");
	return rdma_alloc_hw_stats_struct(usiw_stat_descs, ARRAY_SIZE(usiw_stat_descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/* Maximum rate at which a page is believed to count, per ns: 512 Gb/s for a counter of bytes. */
#define USIW_STATS_PER_NS	64

/*
 * Adds a page to @sums. Processes can write any value into their pages. A value below the last one
 * is ignored, and so is a value that is further above it than a page can have counted meanwhile. So
 * totals never decrease, and one write cannot bring them to their maximum.
 */
static void usiw_stats_sum(u64 *sums, struct usiw_counters *counters)
{
	u64 now = ktime_get_ns(), most, value;
	int i;

	if (check_mul_overflow(now - counters->seen_ns, (u64)USIW_STATS_PER_NS, &most))
		most = U64_MAX;
	for (i = 0; i < USIW_CNT_MAX; i++) {
		value = READ_ONCE(counters->page[i]);
		if (value > counters->seen[i] && value - counters->seen[i] <= most)
			counters->seen[i] = value;
		if (check_add_overflow(sums[i], counters->seen[i], &sums[i]))
			sums[i] = U64_MAX;
	}
	counters->seen_ns = now;
}

int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index)
{
	struct usiw_device *dev = to_usiw_dev(ibdev);
	struct usiw_counters *counters;
	int i;

	if (!port)
		return 0;
	mutex_lock(&dev->stats_lock);
	memcpy(stats->value, dev->dead_counters, sizeof(dev->dead_counters));
	list_for_each_entry(counters, &dev->counters, node)
		usiw_stats_sum(stats->value, counters);
	mutex_unlock(&dev->stats_lock);
	for (i = 0; i < USIW_KCNT_MAX; i++)
		stats->value[USIW_CNT_MAX + i] = atomic64_read(&dev->kcounters[i]);
	return stats->num_counters;
}

void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters)
{
	counters->seen_ns = ktime_get_ns();
	mutex_lock(&dev->stats_lock);
	list_add_tail(&counters->node, &dev->counters);
	mutex_unlock(&dev->stats_lock);
}

/* The page is no longer read, and its counts stay in the totals. */
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters)
{
	mutex_lock(&dev->stats_lock);
	list_del(&counters->node);
	usiw_stats_sum(dev->dead_counters, counters);
	counters->page = NULL;
	mutex_unlock(&dev->stats_lock);
}
