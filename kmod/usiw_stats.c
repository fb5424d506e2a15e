// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * `rdma statistic show`: the counters pages of all contexts, what dead contexts left,
 * and the kernel's own counters.
 */
#include "usiw.h"

static const struct rdma_stat_desc usiw_stat_descs[USIW_CNT_MAX + USIW_KCNT_MAX] = {
	[USIW_CNT_TX_PKTS].name = "tx_pkts",
	[USIW_CNT_TX_BYTES].name = "tx_bytes",
	[USIW_CNT_RX_PKTS].name = "rx_pkts",
	[USIW_CNT_RX_BYTES].name = "rx_bytes",
	[USIW_CNT_TX_SACKS].name = "tx_sacks",
	[USIW_CNT_RX_SACKS].name = "rx_sacks",
	[USIW_CNT_RETRANS_FAST].name = "retrans_fast",
	[USIW_CNT_RETRANS_RTO].name = "retrans_rto",
	[USIW_CNT_RTO].name = "rto",
	[USIW_CNT_RX_DUP].name = "rx_dup",
	[USIW_CNT_RX_OOO].name = "rx_ooo",
	[USIW_CNT_RX_HELD].name = "rx_held",
	[USIW_CNT_NOT_READY_TX].name = "not_ready_tx",
	[USIW_CNT_NOT_READY_RX].name = "not_ready_rx",
	[USIW_CNT_DROP_MALFORMED].name = "drop_malformed",
	[USIW_CNT_DROP_CHECKSUM].name = "drop_checksum",
	[USIW_CNT_DROP_NO_CONN].name = "drop_no_conn",
	[USIW_CNT_DROP_WINDOW].name = "drop_window",
	[USIW_CNT_DROP_RESET].name = "drop_reset",
	[USIW_CNT_DROP_STATE].name = "drop_state",
	[USIW_CNT_DROP_NO_BUFFER].name = "drop_no_buffer",
	[USIW_CNT_TX_FULL].name = "tx_full",
	[USIW_CNT_TERM_TX].name = "term_tx",
	[USIW_CNT_TERM_RX].name = "term_rx",
	[USIW_CNT_COMP_OK].name = "comp_ok",
	[USIW_CNT_COMP_FLUSH].name = "comp_flush",
	[USIW_CNT_COMP_ERR].name = "comp_err",
	[USIW_CNT_CQ_OVERRUN].name = "cq_overrun",
	[USIW_CNT_MAX + USIW_KCNT_CM_TX].name = "cm_tx",
	[USIW_CNT_MAX + USIW_KCNT_CM_RX].name = "cm_rx",
	[USIW_CNT_MAX + USIW_KCNT_CM_CONNECT].name = "cm_connect",
	[USIW_CNT_MAX + USIW_KCNT_CM_REQUEST].name = "cm_request",
	[USIW_CNT_MAX + USIW_KCNT_CM_ESTABLISHED].name = "cm_established",
	[USIW_CNT_MAX + USIW_KCNT_CM_BACKLOG_FULL].name = "cm_backlog_full",
	[USIW_CNT_MAX + USIW_KCNT_CM_REFUSED].name = "cm_refused",
};

/* Port 0 is the device: all counters are the port's. */
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	BUILD_BUG_ON_MSG(USIW_CNT_MAX != USIW_CNT_CQ_OVERRUN + 1, "name the new counter above");
	return rdma_alloc_hw_stats_struct(usiw_stat_descs, ARRAY_SIZE(usiw_stat_descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

int usiw_get_hw_stats(struct ib_device *ibdev, struct rdma_hw_stats *stats, u32 port, int index)
{
	struct usiw_device *dev = to_usiw_dev(ibdev);
	struct usiw_ucontext *uctx;
	int i;

	if (!port)
		return 0;
	spin_lock(&dev->ctx_lock);
	for (i = 0; i < USIW_CNT_MAX; i++)
		stats->value[i] = dev->dead_counters[i];
	list_for_each_entry(uctx, &dev->contexts, node)
		for (i = 0; i < USIW_CNT_MAX; i++)
			stats->value[i] += READ_ONCE(uctx->counters[i]);
	spin_unlock(&dev->ctx_lock);
	for (i = 0; i < USIW_KCNT_MAX; i++)
		stats->value[USIW_CNT_MAX + i] = atomic64_read(&dev->kcounters[i]);
	return stats->num_counters;
}

void usiw_stats_add_context(struct usiw_ucontext *uctx)
{
	struct usiw_device *dev = to_usiw_dev(uctx->ibuc.device);

	spin_lock(&dev->ctx_lock);
	list_add_tail(&uctx->node, &dev->contexts);
	spin_unlock(&dev->ctx_lock);
}

void usiw_stats_del_context(struct usiw_ucontext *uctx)
{
	struct usiw_device *dev = to_usiw_dev(uctx->ibuc.device);
	int i;

	spin_lock(&dev->ctx_lock);
	list_del(&uctx->node);
	for (i = 0; i < USIW_CNT_MAX; i++)
		dev->dead_counters[i] += READ_ONCE(uctx->counters[i]);
	spin_unlock(&dev->ctx_lock);
}
