/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
#include "operations.h"

#include <string.h>

enum { NOT_OURS = -1 };

#define ROW_HAS(first, name, ...)	{ first, offsetof(struct usiw_operations, name) },
#define ROW_NOT(first, name)		{ first, NOT_OURS },

static const struct {
	unsigned int first;	/* rdma-core */
	int at;			/* in struct usiw_operations */
} rows[] = { USIW_OPERATIONS(ROW_HAS, ROW_NOT) };

_Static_assert(sizeof(rows) / sizeof(rows[0]) == USIW_OPERATIONS_ALL &&
	       (int)USIW_OPERATIONS_ALL < (int)USIW_OPERATIONS_SLOTS, "operations");

void usiw_operations_lay_out(const struct usiw_operations *operations, unsigned int rdma_core, usiw_slot *slots)
{
	unsigned int count = 0;

	memset(slots, 0, USIW_OPERATIONS_SLOTS * sizeof(*slots));
	for (unsigned int i = 0; i < USIW_OPERATIONS_ALL; i++) {
		if (rows[i].first > rdma_core)
			continue;
		if (rows[i].at != NOT_OURS)
			memcpy(&slots[count], (const char *)operations + rows[i].at, sizeof(*slots));
		count++;
	}
}
