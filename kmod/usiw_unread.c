// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Bounds the number of events that a process raises for its own CQs, SRQs and QPs and does not
 * read.
 *
 * uverbs allocates a record of 64 bytes for each event that a driver raises, and charges no cgroup
 * for it. uverbs keeps the record until the process reads it, destroys the object or closes the
 * file from which it would read. A hardware device raises an event when something happens to an
 * armed queue. Here the process raises the event by a system call. So without a bound the process
 * could fill the memory of the host.
 *
 * The idea: an event carries no data beside its object and its type. A program that reads an event
 * checks the object afterwards. So the program also finds the causes of all events that were raised
 * before it read. Therefore the module omits an event while enough events of the same object and
 * type are unread. The invariant: the module omits an event only while the process has yet to read
 * another one of the same object and type. So no wake-up is lost.
 *
 * uverbs does not notify drivers of reads. But its objects have a list of the unread records and a
 * count of those that were read, and the module reads these two. No header declares the two, so
 * usiw_unread_init() checks that they are where the module expects them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/string.h>
#include <rdma/ib_verbs.h>

#include "usiw_unread.h"

/*
 * First members of uverbs' object for a QP, an SRQ or a CQ (usiw_core_uevent), and those that
 * follow for a CQ (usiw_core_ucq), in kernels 6.1 to 7.2.
 */
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

/*
 * Sets up @unread. uverbs has just initialised its object, so @records has to be empty and
 * *@reported has to be 0. If they are not, the layout of the object is unknown, and there is no
 * bound.
 */
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

/*
 * Sets up @unread for the completion events of a CQ. @uobject: uverbs' object of the CQ, which is
 * new.
 */
void usiw_unread_init_completions(struct usiw_unread *unread, const void *uobject)
{
	const struct usiw_core_ucq *ucq = uobject;

	usiw_unread_init(unread, &ucq->comp_list, &ucq->comp_events_reported);
}

/*
 * Sets up @unread for the asynchronous events of a CQ, an SRQ or a QP. @uobject: uverbs' object for
 * that CQ, SRQ or QP, which is new.
 */
void usiw_unread_init_async(struct usiw_unread *unread, const void *uobject)
{
	const struct usiw_core_uevent *uevent = uobject;

	usiw_unread_init(unread, &uevent->event_list, &uevent->events_reported);
}

/*
 * Removes from @unread the events that have been read. A process reads the events of an object in
 * the order in which they were raised. If uverbs' list is empty, this function removes all events,
 * even if the process has read fewer: uverbs drops events for which it has no memory or no reader.
 * The list grows only with unread->lock held.
 */
static void usiw_unread_catch_up(struct usiw_unread *unread)
{
	bool empty = list_empty(unread->records);
	u32 reported, read;

	lockdep_assert_held(&unread->lock);
	/*
	 * A reader counts the record, then unlinks it. So if the list was empty, the count read
	 * below includes all records that were read.
	 */
	smp_rmb();
	reported = READ_ONCE(*unread->reported);
	read = min_t(u32, empty ? U32_MAX : reported - unread->base, unread->n);
	unread->base = reported;
	unread->n -= read;
	memmove(unread->types, unread->types + read, unread->n);
}

/*
 * If fewer than @most events of @type are unread, adds one and returns true. The caller then raises
 * the event before it releases unread->lock. Returns false if @most of them, or USIW_UNREAD_ROOM of
 * all types, are unread. Without uverbs' records always returns true.
 */
bool usiw_unread_add(struct usiw_unread *unread, u8 type, unsigned int most)
{
	unsigned int same = 0, i;

	lockdep_assert_held(&unread->lock);
	if (!unread->records)
		return true;
	/*
	 * Makes the cause of the event visible before this thread reads uverbs' records. A process
	 * reads a record, arms the queue again, which is a full barrier, and then checks for
	 * causes.
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
 * Raises @event by @handler, unless usiw_unread_add() returns false. Several threads may call this
 * at the same time. Does not sleep.
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
