/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A bound for the events of a CQ, an SRQ or a QP that its process has not read.
 */
#ifndef USIW_UNREAD_H
#define USIW_UNREAD_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

/*
 * Events that may be unread at a time: of completion of a CQ, and of the limit of an SRQ. More than
 * one, for programs that arm a queue several times and expect as many events. Of each type of a QP's
 * events, and of a CQ's overrun, there is one.
 */
#define USIW_UNREAD_MOST	4

/* Events of an object that may be unread at a time, of all types: six of a QP. */
#define USIW_UNREAD_ROOM	8

/**
 * struct usiw_unread - events of an object that its process has not read; see usiw_unread.c
 * @lock:	guards all below; the event is raised under it
 * @records:	uverbs' list of them; NULL: not known, and no event is left out
 * @reported:	how many have been read since the object was made, as uverbs counts
 * @base:	what @reported was when the module looked last
 * @n:		how many are unread, as of then
 * @types:	of these, the oldest first
 */
struct usiw_unread {
	spinlock_t lock;
	const struct list_head *records;
	const u32 *reported;
	u32 base;
	u8 n;
	u8 types[USIW_UNREAD_ROOM];
};

void usiw_unread_init_completions(struct usiw_unread *unread, const void *uobject);
void usiw_unread_init_async(struct usiw_unread *unread, const void *uobject);
void usiw_unread_raise(struct usiw_unread *unread, u8 type, unsigned int most,
		       void (*raise)(void *arg), void *arg);

#endif /* USIW_UNREAD_H */
