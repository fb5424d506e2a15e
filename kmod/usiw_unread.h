/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Bounds the number of events of a CQ, an SRQ or a QP that its process has not read. */
#ifndef USIW_UNREAD_H
#define USIW_UNREAD_H

#include <linux/list.h>
#include <linux/spinlock.h>
#include <linux/types.h>

struct ib_event;

/*
 * Maximum number of unread completion events of a CQ, and of unread limit events of an SRQ. It is
 * more than one, because some programs arm a queue several times and expect as many events. For
 * other events the maximum is one: overruns of a CQ, and each type of events of a QP.
 */
#define USIW_UNREAD_MOST	4

/* Maximum number of unread events of an object, of all types. A QP has six types. */
#define USIW_UNREAD_ROOM	8

/**
 * struct usiw_unread - events of an object that its process has not read; see usiw_unread.c
 * @lock:	guards all fields below; events are raised with it held
 * @records:	uverbs' list of unread records. NULL if the module does not know the layout of
 *		uverbs' objects in this kernel; then all events are raised
 * @reported:	number of events that the process has read since the object was made, as uverbs
 *		counts
 * @base:	value of *@reported when the module read it last
 * @n:		number of events that were unread then or have been raised since
 * @types:	types of these events, the oldest first
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
bool usiw_unread_add(struct usiw_unread *unread, u8 type, unsigned int most);
void usiw_unread_raise(struct usiw_unread *unread, struct ib_event *event, unsigned int most,
		       void (*handler)(struct ib_event *event, void *context), void *context);

#endif /* USIW_UNREAD_H */
