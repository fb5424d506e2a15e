/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The counters and gauges that `rdma statistic show` and `rdma resource show qp -dd` print.
 */
#ifndef USIW_STATS_H
#define USIW_STATS_H

#include <linux/types.h>

struct ib_device;
struct ib_qp;
struct rdma_hw_stats;
struct sk_buff;
struct usiw_counters;
struct usiw_device;

struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port);
int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index);
void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters);
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters);
int usiw_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp);

#endif /* USIW_STATS_H */
