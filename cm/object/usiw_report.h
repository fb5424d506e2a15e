/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Checks of the reports that a provider sends about a QP.
 *
 * A program can send any report, so the kernel side checks each. The module and usiw-run have to
 * refuse the same reports, so the checks are here once.
 */
#ifndef USIW_REPORT_H
#define USIW_REPORT_H

#include "../../uapi/usiw_abi.h"

/*
 * Values of enum ib_event_type and enum ibv_event_type. A report may have an event up to
 * SQ_DRAINED, or LAST_WQE_REACHED.
 */
#define USIW_ASYNC_SQ_DRAINED		5u
#define USIW_ASYNC_LAST_WQE_REACHED	16u

#define USIW_MAX_ERRNO	4095

/*
 * True if the port in a report is valid. A PORT report requires USIW_CAP_PORT_REPORT. Any other
 * report has zeros there. @caps: USIW_CAP_* that both sides have agreed on.
 */
static inline int usiw_reported_port_is_valid(const struct usiw_qp_report *report, __u64 caps)
{
	if (report->kind != USIW_REPORT_PORT)
		return !report->port && !report->port_why;
	return (caps & USIW_CAP_PORT_REPORT) && report->port < USIW_PORT_KIND_MAX &&
	       report->port_why < USIW_PORT_WHY_MAX;
}

/*
 * True if a report is valid. In a report the event 0 means "none": it is CQ_ERR, which is no event
 * of a QP.
 */
static inline int usiw_report_is_valid(const struct usiw_qp_report *report, __u64 caps)
{
	return report->kind >= USIW_REPORT_READY && report->kind <= USIW_REPORT_PORT &&
	       report->error <= 0 && report->error >= -USIW_MAX_ERRNO &&
	       (report->async_event <= USIW_ASYNC_SQ_DRAINED ||
		report->async_event == USIW_ASYNC_LAST_WQE_REACHED) &&
	       usiw_reported_port_is_valid(report, caps);
}

#endif
