/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Shared by the files of struct usiw_cm_end only. The calls return actions that are due; see
 * usiw_cm.h.
 */
#ifndef USIW_CM_END_PRIVATE_H
#define USIW_CM_END_PRIVATE_H

#include "usiw_cm_end.h"

/* A store that readers without the lock of the end see whole. */
#define USIW_CM_PUBLISH(field, value)	(*(volatile __typeof__(field) *)&(field) = (value))

/* usiw_cm_end.c */
void usiw_cm_end_act(struct usiw_cm_end *end, __u32 actions, __u64 now_us);

/* usiw_cm_path.c */
__u32 usiw_cm_path_install(struct usiw_cm_end *end, __u64 now_us);
__u32 usiw_cm_path_port(struct usiw_cm_end *end, __u32 port, __u32 why, __u64 now_us);
void usiw_cm_path_ready(struct usiw_cm_end *end);
__u32 usiw_cm_path_overdue(struct usiw_cm_end *end, __u64 now_us);

#endif
