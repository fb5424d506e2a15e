/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Processes that have QPs. When a process gives up its memory, by exit or exec, its connections
 * end.
 */
#ifndef USIW_PROCESS_H
#define USIW_PROCESS_H

#include <linux/types.h>

struct pid;
struct usiw_qp;

int usiw_process_join(struct usiw_qp *qp);
void usiw_process_leave(struct usiw_qp *qp);
bool usiw_process_is_dying(struct pid *pid);

#endif /* USIW_PROCESS_H */
