/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * A doubly linked list whose entries contain their own links. Private to cm/.
 *
 * An entry may be in several lists at the same time, with one link for each. Removing an entry
 * takes constant time. The list is like the kernel's list_head, but it also
 * builds outside of the kernel, counts its entries, and is empty when it is zeroed.
 */
#ifndef USIW_CM_LIST_H
#define USIW_CM_LIST_H

#include "../uapi/usiw_wire.h"

/**
 * struct usiw_cm_link - an entry's link in a list
 * @next: @prev: neighbours; NULL at an end of the list
 */
struct usiw_cm_link {
	struct usiw_cm_link *next, *prev;
};

/**
 * struct usiw_cm_list - a list; zeroed at first
 * @first: @last: ends of the list; NULL if it is empty
 * @count:	number of entries
 */
struct usiw_cm_list {
	struct usiw_cm_link *first, *last;
	__u32 count;
};

/* Inserts @link after @at, a link of @list. @at NULL: inserts it at the beginning. */
static inline void usiw_cm_list_insert(struct usiw_cm_list *list, struct usiw_cm_link *at,
				       struct usiw_cm_link *link)
{
	link->prev = at;
	link->next = at ? at->next : list->first;
	if (link->next)
		link->next->prev = link;
	else
		list->last = link;
	if (at)
		at->next = link;
	else
		list->first = link;
	list->count++;
}

static inline void usiw_cm_list_append(struct usiw_cm_list *list, struct usiw_cm_link *link)
{
	usiw_cm_list_insert(list, list->last, link);
}

static inline void usiw_cm_list_remove(struct usiw_cm_list *list, struct usiw_cm_link *link)
{
	if (link->prev)
		link->prev->next = link->next;
	else
		list->first = link->next;
	if (link->next)
		link->next->prev = link->prev;
	else
		list->last = link->prev;
	list->count--;
}

#endif /* USIW_CM_LIST_H */
