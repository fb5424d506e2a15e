/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Makes connections look their routes up again when these may have changed.
 */
#ifndef USIW_FOLLOW_H
#define USIW_FOLLOW_H

struct usiw_device;
struct work_struct;

/*
 * Limits of usiw_follow_work(), which runs every USIW_FOLLOW_MS and kicks connections, so that they
 * look up their routes. Each pass kicks every connection once.
 */
#define USIW_FOLLOW_BURST	2048	/* connections per run, after a change */
#define USIW_FOLLOW_BATCH	64	/* connections per critical section of conn_lock */
#define USIW_FOLLOW_USE_MS	5000	/* ms from a pass's end to the next, without a change */
#define USIW_FOLLOW_USE_BURST	256	/* connections per run, without a change */

void usiw_follow_work(struct work_struct *work);
void usiw_follow_all(struct usiw_device *dev);

#endif /* USIW_FOLLOW_H */
