// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * `rdma statistic show`: the pages of all contexts and QPs, what dead ones left, and the
 * kernel's own counters. `rdma resource show qp -dd`: the page of a QP.
 */
#include <linux/ktime.h>
#include <linux/overflow.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "usiw_conn.h"

static const struct rdma_stat_desc usiw_stat_descs[USIW_CNT_MAX + USIW_KCNT_MAX] = {
	[USIW_CNT_TX_PKTS].name = "tx_pkts",
	[USIW_CNT_TX_BYTES].name = "tx_bytes",
	[USIW_CNT_RX_PKTS].name = "rx_pkts",
	[USIW_CNT_RX_BYTES].name = "rx_bytes",
	[USIW_CNT_TX_SACKS].name = "tx_sacks",
	[USIW_CNT_RX_SACKS].name = "rx_sacks",
	[USIW_CNT_RETRANS_FAST].name = "retrans_fast",
	[USIW_CNT_RETRANS_RTO].name = "retrans_rto",
	[USIW_CNT_RETRANS_RNR].name = "retrans_rnr",
	[USIW_CNT_RETRANS_UNSENT].name = "retrans_unsent",
	[USIW_CNT_SPURIOUS].name = "spurious",
	[USIW_CNT_RTO].name = "rto",
	[USIW_CNT_PROBES].name = "probes",
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
	[USIW_CNT_DROP_EARLY].name = "drop_early",
	[USIW_CNT_TX_FULL].name = "tx_full",
	[USIW_CNT_TERM_TX].name = "term_tx",
	[USIW_CNT_TERM_RX].name = "term_rx",
	[USIW_CNT_COMP_OK].name = "comp_ok",
	[USIW_CNT_COMP_FLUSH].name = "comp_flush",
	[USIW_CNT_COMP_LOC_LEN].name = "comp_loc_len",
	[USIW_CNT_COMP_LOC_OP].name = "comp_loc_op",
	[USIW_CNT_COMP_LOC_PROT].name = "comp_loc_prot",
	[USIW_CNT_COMP_REM_INV].name = "comp_rem_inv",
	[USIW_CNT_COMP_REM_ACCESS].name = "comp_rem_access",
	[USIW_CNT_COMP_REM_OP].name = "comp_rem_op",
	[USIW_CNT_COMP_RETRY].name = "comp_retry",
	[USIW_CNT_COMP_RNR].name = "comp_rnr",
	[USIW_CNT_COMP_ERR].name = "comp_err",
	[USIW_CNT_CQ_OVERRUN].name = "cq_overrun",
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

static const char * const usiw_gauge_names[USIW_GAUGE_MAX] = {
	[USIW_GAUGE_SRTT_NS] = "srtt_ns",
	[USIW_GAUGE_MIN_RTT_NS] = "min_rtt_ns",
	[USIW_GAUGE_RTO_NS] = "rto_ns",
	[USIW_GAUGE_CWND] = "cwnd",
	[USIW_GAUGE_CREDIT] = "credit",
	[USIW_GAUGE_INFLIGHT] = "inflight",
	[USIW_GAUGE_LOST] = "lost",
	[USIW_GAUGE_HELD] = "held",
	[USIW_GAUGE_READS_OUT] = "reads_out",
	[USIW_GAUGE_SQ_BUSY] = "sq_busy",
	[USIW_GAUGE_PORT] = "data_port",
	[USIW_GAUGE_PORT_WHY] = "data_port_why",
};

/* Port 0 is the device: all counters are the port's. */
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	BUILD_BUG_ON_MSG(USIW_CNT_MAX != USIW_CNT_CQ_OVERRUN + 1, "name the new counter above");
	return rdma_alloc_hw_stats_struct(usiw_stat_descs, ARRAY_SIZE(usiw_stat_descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/* No page counts faster than this, per ns: as bytes it is 512 Gb/s. */
#define USIW_STATS_PER_NS	64

/*
 * Processes can write what they like into their pages. A value that is behind the one before, or
 * further ahead of it than anything can have counted meanwhile, is not believed: totals neither go
 * back, nor are they at their end by one write.
 */
static void usiw_stats_look(struct usiw_counters *counters)
{
	u64 now = ktime_get_ns(), most, value;
	int i;

	if (check_mul_overflow(now - counters->seen_ns, (u64)USIW_STATS_PER_NS, &most))
		most = U64_MAX;
	for (i = 0; i < USIW_CNT_MAX; i++) {
		value = READ_ONCE(counters->page[i]);
		if (value > counters->seen[i] && value - counters->seen[i] <= most)
			counters->seen[i] = value;
	}
	counters->seen_ns = now;
}

static void usiw_stats_sum(u64 *sums, struct usiw_counters *counters)
{
	int i;

	usiw_stats_look(counters);
	for (i = 0; i < USIW_CNT_MAX; i++) {
		if (check_add_overflow(sums[i], counters->seen[i], &sums[i]))
			sums[i] = U64_MAX;
	}
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

/* The page is no longer shown, and its counts stay in the totals. */
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters)
{
	mutex_lock(&dev->stats_lock);
	list_del(&counters->node);
	usiw_stats_sum(dev->dead_counters, counters);
	counters->page = NULL;
	mutex_unlock(&dev->stats_lock);
}

/*
 * What the process has told of its connection's port, in place of what it wrote into its page. The
 * QP's memory is there, whether or not the QP is.
 */
static void usiw_qp_told_port(struct usiw_qp *qp, u64 *gauges)
{
	struct usiw_conn *conn = usiw_qp_get_conn(qp);

	if (!conn)
		return;
	if (READ_ONCE(conn->port)) {
		gauges[USIW_GAUGE_PORT] = READ_ONCE(conn->port);
		gauges[USIW_GAUGE_PORT_WHY] = READ_ONCE(conn->port_why);
	}
	usiw_conn_put(conn);
}

static int usiw_put_qp_stats(struct sk_buff *msg, struct usiw_qp *qp)
{
	const struct usiw_qp_stats *stats = (const struct usiw_qp_stats *)qp->counters.page;
	u64 gauges[USIW_GAUGE_MAX];
	int i, ret = 0;

	for (i = 0; i < USIW_GAUGE_MAX; i++)
		gauges[i] = READ_ONCE(stats->gauges[i]);
	usiw_qp_told_port(qp, gauges);

	for (i = 0; !ret && i < USIW_CNT_MAX; i++)
		ret = rdma_nl_put_driver_u64(msg, usiw_stat_descs[i].name,
					     READ_ONCE(stats->counters[i]));
	for (i = 0; !ret && i < USIW_GAUGE_MAX; i++)
		ret = rdma_nl_put_driver_u64(msg, usiw_gauge_names[i], gauges[i]);
	return ret;
}

/*
 * Driver's attributes of `rdma resource show qp`. The core holds a reference to the QP's
 * memory; the QP may have been destroyed all the same.
 */
int usiw_fill_res_qp_entry(struct sk_buff *msg, struct ib_qp *ibqp)
{
	struct usiw_device *dev = to_usiw_dev(ibqp->device);
	struct usiw_qp *qp = to_usiw_qp(ibqp);
	struct nlattr *table;
	int ret = 0;

	table = nla_nest_start(msg, RDMA_NLDEV_ATTR_DRIVER);
	if (!table)
		return -EMSGSIZE;
	mutex_lock(&dev->stats_lock);
	if (qp->counters.page)
		ret = usiw_put_qp_stats(msg, qp);
	mutex_unlock(&dev->stats_lock);
	if (ret) {
		nla_nest_cancel(msg, table);
		return ret;
	}
	nla_nest_end(msg, table);
	return 0;
}
