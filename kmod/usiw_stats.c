// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Reports counters to rdma(8):
 *
 * - `rdma statistic show`: the counters of a device. They are the sums over the pages of all
 *   contexts and QPs, including destroyed ones, and the module's own counters
 * - `rdma resource show qp -dd`: the counters and gauges in the page of a QP
 */
#include <linux/ktime.h>
#include <linux/overflow.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "usiw_stats.h"

#include "../uapi/usiw_names.h"
#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_qp_ref.h"

/* ---- The sums of a device ----------------------------------------------- */

#define USIW_COUNTER_DESC(id, text) \
	[USIW_CNT_##id].name = text,

static const struct rdma_stat_desc usiw_stat_descs[USIW_CNT_MAX + USIW_KCNT_MAX] = {
	USIW_COUNTER_NAMES(USIW_COUNTER_DESC)[USIW_CNT_MAX + USIW_KCNT_CM_TX].name = "cm_tx",
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

/* Allocates the statistics that usiw_get_hw_stats() fills. */
struct rdma_hw_stats *usiw_alloc_hw_port_stats(struct ib_device *ibdev, u32 port)
{
	BUILD_BUG_ON_MSG(USIW_CNT_MAX != USIW_CNT_TX_CE + 1,
			 "name the new counter in usiw_names.h");
	return rdma_alloc_hw_stats_struct(usiw_stat_descs, ARRAY_SIZE(usiw_stat_descs),
					  RDMA_HW_STATS_DEFAULT_LIFESPAN);
}

/*
 * Maximum plausible rate of a counter in a page, per ns. For a counter of bytes that is 512 Gb/s.
 */
#define USIW_STATS_PER_NS	64

/*
 * Adds the counters of a page to @sums. Processes can write any value into their pages, so an
 * implausible value is ignored and the last plausible one is added instead. A value is implausible
 * if it is less than the last plausible one, or exceeds that one by more than USIW_STATS_PER_NS
 * allows. So totals never decrease, and one write cannot bring them to their maximum.
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

/*
 * Fills @stats with the totals of the device. All counters belong to port 1. Port 0, the device,
 * has none.
 */
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

/* Includes a new page in the totals of the device. */
void usiw_stats_add(struct usiw_device *dev, struct usiw_counters *counters)
{
	counters->seen_ns = ktime_get_ns();
	mutex_lock(&dev->stats_lock);
	list_add_tail(&counters->node, &dev->counters);
	mutex_unlock(&dev->stats_lock);
}

/* Ends the reading of a page, and adds its last counts to the totals. */
void usiw_stats_del(struct usiw_device *dev, struct usiw_counters *counters)
{
	mutex_lock(&dev->stats_lock);
	list_del(&counters->node);
	usiw_stats_sum(dev->dead_counters, counters);
	counters->page = NULL;
	mutex_unlock(&dev->stats_lock);
}

/* ---- The page of a QP --------------------------------------------------- */

#define USIW_GAUGE_NAME(id, text) \
	[USIW_GAUGE_##id] = text,
#define USIW_PORT_NAME(id, text) \
	[1 + USIW_PORT_##id] = text,
#define USIW_PORT_WHY_NAME(id, text) \
	[USIW_PORT_WHY_##id] = text,

static const char *const usiw_gauge_names[USIW_GAUGE_MAX] = { USIW_GAUGE_NAMES(USIW_GAUGE_NAME) };

static const char *const usiw_port_names[1 + USIW_PORT_KIND_MAX] = {
	[0] = USIW_PORT_NAME_NONE, USIW_PORT_NAMES(USIW_PORT_NAME)
};

static const char *const usiw_port_why_names[USIW_PORT_WHY_MAX] = { USIW_PORT_WHY_NAMES(
	USIW_PORT_WHY_NAME) };

/*
 * If the process has reported the port of the QP's connection, replaces the gauges of the port by
 * the reported values. Also works for a destroyed QP, because ib_core holds a reference to its
 * memory.
 */
static void usiw_qp_reported_port(struct usiw_qp *qp, u64 *gauges)
{
	struct usiw_conn *conn = usiw_qp_get_conn(qp);

	if (!conn)
		return;
	if (READ_ONCE(conn->end.port)) {
		gauges[USIW_GAUGE_PORT] = READ_ONCE(conn->end.port);
		gauges[USIW_GAUGE_PORT_WHY] = READ_ONCE(conn->end.port_why);
	}
	usiw_conn_put(conn);
}

/*
 * Returns the name of @value, or "?" if it has none. Unless usiw_qp_reported_port() has replaced
 * @value, it comes from the page, where the process can write any number.
 */
static const char *usiw_name_of(const char *const *names, size_t n, u64 value)
{
	return value < n && names[value] ? names[value] : "?";
}

static int usiw_put_gauge(struct sk_buff *msg, int gauge, u64 value)
{
	const char *name = usiw_gauge_names[gauge];

	switch (gauge) {
	case USIW_GAUGE_SRTT_NS:
	case USIW_GAUGE_MIN_RTT_NS:
		/* 0: no round trip has been measured. */
		return value ? rdma_nl_put_driver_u64(msg, name, value) : 0;
	case USIW_GAUGE_PORT:
		return rdma_nl_put_driver_string(msg, name,
						 usiw_name_of(usiw_port_names,
							      ARRAY_SIZE(usiw_port_names), value));
	case USIW_GAUGE_PORT_WHY:
		return rdma_nl_put_driver_string(msg, name,
						 usiw_name_of(usiw_port_why_names,
							      ARRAY_SIZE(usiw_port_why_names),
							      value));
	default:
		return rdma_nl_put_driver_u64(msg, name, value);
	}
}

static int usiw_put_qp_stats(struct sk_buff *msg, struct usiw_qp *qp)
{
	const struct usiw_qp_stats *stats = (const struct usiw_qp_stats *)qp->counters.page;
	u64 gauges[USIW_GAUGE_MAX];
	int i, ret = 0;

	lockdep_assert_held(&to_usiw_dev(qp->ibqp.device)->stats_lock);
	for (i = 0; i < USIW_GAUGE_MAX; i++)
		gauges[i] = READ_ONCE(stats->gauges[i]);
	usiw_qp_reported_port(qp, gauges);

	for (i = 0; !ret && i < USIW_CNT_MAX; i++)
		ret = rdma_nl_put_driver_u64(msg, usiw_stat_descs[i].name,
					     READ_ONCE(stats->counters[i]));
	for (i = 0; !ret && i < USIW_GAUGE_MAX; i++)
		ret = usiw_put_gauge(msg, i, gauges[i]);
	return ret;
}

/*
 * Adds the driver's attributes of `rdma resource show qp`. ib_core holds a reference to the QP's
 * memory, but the QP may have been destroyed.
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
