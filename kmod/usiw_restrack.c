// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * `rdma resource show qp -dd`: the page of a QP.
 */
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>

#include "usiw_restrack.h"

#include "../uapi/usiw_names.h"
#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_qp_ref.h"
#include "usiw_stats.h"

#define USIW_GAUGE_NAME(id, text) \
	[USIW_GAUGE_##id] = text,
#define USIW_PORT_NAME(id, text) \
	[1 + USIW_PORT_##id] = text,
#define USIW_PORT_WHY_NAME(id, text) \
	[USIW_PORT_WHY_##id] = text,

static const char * const usiw_gauge_names[USIW_GAUGE_MAX] = {
	USIW_GAUGE_NAMES(USIW_GAUGE_NAME)
};

static const char * const usiw_port_names[1 + USIW_PORT_KIND_MAX] = {
	[0] = USIW_PORT_NAME_NONE,
	USIW_PORT_NAMES(USIW_PORT_NAME)
};

static const char * const usiw_port_why_names[USIW_PORT_WHY_MAX] = {
	USIW_PORT_WHY_NAMES(USIW_PORT_WHY_NAME)
};

/*
 * Replaces the gauges of the port by those that the process has reported for its connection.
 * ib_core holds a reference to the QP's memory, so this works for a destroyed QP, too.
 */
static void usiw_qp_told_port(struct usiw_qp *qp, u64 *gauges)
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

/* Without a report the page may contain any number. */
static const char *usiw_name_of(const char * const *names, size_t n, u64 value)
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
	usiw_qp_told_port(qp, gauges);

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
