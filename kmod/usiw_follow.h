/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * The connections of a device follow their routes.
 */
#ifndef USIW_FOLLOW_H
#define USIW_FOLLOW_H

struct usiw_device;
struct work_struct;

/*
 * Looks for changed routes, ms, and how many connections follow at a time. Each one looks at
 * its route now and then without a reason, too. A batch is how many are kicked with the lock
 * held and bottom halves off. See usiw_follow.c.
 */
#define USIW_FOLLOW_BURST	2048
#define USIW_FOLLOW_BATCH	64
#define USIW_FOLLOW_USE_MS	5000
#define USIW_FOLLOW_USE_BURST	256

void usiw_follow_work(struct work_struct *work);
void usiw_follow_all(struct usiw_device *dev);

#endif /* USIW_FOLLOW_H */
