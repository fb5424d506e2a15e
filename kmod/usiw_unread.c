// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * A bound for the events that a process raises for its own CQs, SRQs and QPs and does not read.
 *
 * uverbs allocates a record of 64 bytes for each event that a driver raises, charges nobody for it,
 * and keeps it until the process reads it or destroys the object. A device raises an event when
 * something happens to an armed queue. Here a system call raises it, so without a bound a process
 * could fill the memory of the host.
 *
 * The idea: an event carries no data beside its object and its type. A program that reads one looks
 * at the object afterwards, so it also finds the causes of all events that were raised before it
 * read. Therefore the module leaves an event out while enough events of the same object and type
 * are unread. The invariant: an event is left out only while the process has another one of the
 * same object and type yet to read. So no wake-up is lost.
 *
 * uverbs does not notify drivers of reads. But its objects have a list of the unread records and a
 * count of those that were read, and the module reads these two. No header declares them;
 * usiw_unread_init() checks that they are where the module expects them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "usiw_unread.h"

/* The first members of uverbs' objects of QPs and SRQs, and of CQs (6.1 to 7.2). */
struct usiw_core_uevent {
	struct ib_uobject uobject;
	void *event_file;
	struct list_head event_list;
	u32 events_reported;
};

struct usiw_core_ucq {
	struct usiw_core_uevent uevent;
	struct list_head comp_list;
	u32 comp_events_reported;
};

/* uverbs has just initialised its object: the list is empty, and nothing has been read. */
static void usiw_unread_init(struct usiw_unread *unread, const struct list_head *records,
			     const u32 *reported)
{
	spin_lock_init(&unread->lock);
	unread->base = 0;
	unread->n = 0;
	unread->records = NULL;
	if (records->next != records || records->prev != records || *reported) {
		pr_warn_once("this kernel's uverbs is not known: unread events have no bound\n");
		return;
	}
	unread->records = records;
	unread->reported = reported;
}

/* Bounds the completion events of a CQ. @uobject: the CQ's, new. */
void usiw_unread_init_completions(struct usiw_unread *unread, const void *uobject)
{
	const struct usiw_core_ucq *ucq = uobject;

	usiw_unread_init(unread, &ucq->comp_list, &ucq->comp_events_reported);
}

/* Bounds the asynchronous events of a CQ, an SRQ or a QP. @uobject: the object's, new. */
void usiw_unread_init_async(struct usiw_unread *unread, const void *uobject)
{
	const struct usiw_core_uevent *uevent = uobject;

	usiw_unread_init(unread, &uevent->event_list, &uevent->events_reported);
}

/*
 * Forgets the events that have been read. A process reads those of an object in the order in which
 * they were raised. An empty list is more reliable than the count, because it also covers events
 * for which uverbs had no memory or no reader. The list grows only with unread->lock held.
 */
static void usiw_unread_catch_up(struct usiw_unread *unread)
{
	bool empty = list_empty(unread->records);
	u32 reported, read;

	lockdep_assert_held(&unread->lock);
	/* A reader counts the record, then unlinks it. */
	smp_rmb();
	reported = READ_ONCE(*unread->reported);
	read = min_t(u32, empty ? U32_MAX : reported - unread->base, unread->n);
	unread->base = reported;
	unread->n -= read;
	memmove(unread->types, unread->types + read, unread->n);
}

/*
 * Notes an event of @type and returns true if fewer than @most of them are unread. The caller then
 * raises the event before it releases unread->lock.
 */
bool usiw_unread_add(struct usiw_unread *unread, u8 type, unsigned int most)
{
	unsigned int same = 0, i;

	lockdep_assert_held(&unread->lock);
	if (!unread->records)
		return true;
	/*
	 * The cause of the event is visible before this looks at the records. A process reads
	 * a record, arms the queue again, which is a full barrier, and then looks for causes.
	 */
	smp_mb();
	usiw_unread_catch_up(unread);
	for (i = 0; i < unread->n; i++)
		same += unread->types[i] == type;
	if (same >= most || unread->n == USIW_UNREAD_ROOM)
		return false;
	unread->types[unread->n++] = type;
	return true;
}

/*
 * Raises @event of an object, by its @handler, unless @most events of its type are unread. Several
 * threads may call this at a time. Does not sleep.
 */
void usiw_unread_raise(struct usiw_unread *unread, struct ib_event *event, unsigned int most,
		       void (*handler)(struct ib_event *event, void *context), void *context)
{
	if (!handler)
		return;
	spin_lock(&unread->lock);
	if (usiw_unread_add(unread, event->event, most))
		handler(event, context);
	spin_unlock(&unread->lock);
}
