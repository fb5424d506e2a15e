/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Checks of what a provider reports about a QP.
 *
 * The module and usiw-run refuse the same reports, because a program can send any.
 */
#ifndef USIW_REPORT_H
#define USIW_REPORT_H

#include "../../uapi/usiw_abi.h"

/* Values of enum ib_event_type and enum ibv_event_type. SQ_DRAINED is the last event of QPs but one. */
#define USIW_ASYNC_SQ_DRAINED		5u
#define USIW_ASYNC_LAST_WQE_REACHED	16u

#define USIW_MAX_ERRNO	4095

/* Only a provider that has agreed to report ports does so. @caps: USIW_CAP_*, agreed. */
static inline int usiw_reported_port_is_valid(const struct usiw_qp_report *report, __u64 caps)
{
	if (report->kind != USIW_REPORT_PORT)
		return !report->port && !report->port_why;
	return (caps & USIW_CAP_PORT_REPORT) && report->port < USIW_PORT_KIND_MAX &&
	       report->port_why < USIW_PORT_WHY_MAX;
}

/* 0 is the event CQ_ERR, which is no event of a QP. In a report it means "none". */
static inline int usiw_report_is_valid(const struct usiw_qp_report *report, __u64 caps)
{
	return report->kind >= USIW_REPORT_READY && report->kind <= USIW_REPORT_PORT &&
	       report->error <= 0 && report->error >= -USIW_MAX_ERRNO &&
	       (report->async_event <= USIW_ASYNC_SQ_DRAINED ||
		report->async_event == USIW_ASYNC_LAST_WQE_REACHED) &&
	       usiw_reported_port_is_valid(report, caps);
}

#endif
