/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Makes connections look their routes up again when these may have changed.
 */
#ifndef USIW_FOLLOW_H
#define USIW_FOLLOW_H

struct usiw_device;
struct work_struct;

/*
 * After a change USIW_FOLLOW_BURST connections look their routes up in each USIW_FOLLOW_MS. A round
 * without a change starts USIW_FOLLOW_USE_MS after the last one and takes USIW_FOLLOW_USE_BURST
 * connections at a time. USIW_FOLLOW_BATCH connections are kicked with the lock held and bottom
 * halves off. See usiw_follow.c.
 */
#define USIW_FOLLOW_BURST	2048
#define USIW_FOLLOW_BATCH	64
#define USIW_FOLLOW_USE_MS	5000
#define USIW_FOLLOW_USE_BURST	256

void usiw_follow_work(struct work_struct *work);
void usiw_follow_all(struct usiw_device *dev);

#endif /* USIW_FOLLOW_H */
