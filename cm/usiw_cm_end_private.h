/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Calls between usiw_cm_end.c and usiw_cm_path.c only. Those of usiw_cm_path.c return actions of
 * the state machine (USIW_CM_A_*), which the caller carries out.
 */
#ifndef USIW_CM_END_PRIVATE_H
#define USIW_CM_END_PRIVATE_H

#include "usiw_cm_end.h"

/* Stores a value in one piece, because a host reads such fields without the lock of the end. */
#define USIW_CM_PUBLISH(field, value)	(*(volatile __typeof__(field) *)&(field) = (value))

/* usiw_cm_end.c */
void usiw_cm_end_act(struct usiw_cm_end *end, __u32 actions, __u64 now_us);

/* usiw_cm_path.c: INSTALL, or the next look-up while the MAC of the next hop is not known. */
__u32 usiw_cm_path_install(struct usiw_cm_end *end, __u64 now_us);
/* The process has reported its port: enum usiw_port_kind, enum usiw_port_why. */
__u32 usiw_cm_path_port(struct usiw_cm_end *end, __u32 port, __u32 why, __u64 now_us);
/* The process has reported READY. */
void usiw_cm_path_ready(struct usiw_cm_end *end);
/* The process has not left forbidden raw packets by end->move_us. */
__u32 usiw_cm_path_overdue(struct usiw_cm_end *end, __u64 now_us);

#endif
