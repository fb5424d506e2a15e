/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * usiw.ko: the workqueue and the clock that all files share. Each other header belongs to the .c
 * file of its name. A header X_types.h has the structures of X for files on floors below X.
 */
#ifndef USIW_H
#define USIW_H

#include <linux/ktime.h>
#include <linux/types.h>

struct workqueue_struct;

/* Runs the module's work that may sleep. It is unbound, so devices do not wait for each other. */
extern struct workqueue_struct *usiw_wq;

/* The clock of cm/ and of all timers of connections: CLOCK_MONOTONIC, us. */
static inline u64 usiw_now_us(void)
{
	return ktime_to_us(ktime_get());
}

#endif /* USIW_H */
