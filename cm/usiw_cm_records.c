// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Keeps the unread event records of one connection; see usiw_cm_records.h. */
#ifdef __KERNEL__
#include <linux/string.h>
#else
#include <string.h>
#endif

#include "usiw_cm_records.h"

#define BIT_OF(type)	(1u << (type))

/*
 * Order in which a process reads the records. CONNECT is first, because the engine has to know the
 * connection before any other record. ABORT is last, because nothing follows it.
 */
static const __u8 order[] = {
	USIW_EVENT_CONNECT,    USIW_EVENT_PATH,	 USIW_EVENT_PROBE,
	USIW_EVENT_DISCONNECT, USIW_EVENT_ABORT,
};

void usiw_cm_records_push(struct usiw_cm_records *r, __u32 type, const struct usiw_conn_info *info)
{
	if (type == USIW_EVENT_ABORT)
		r->pending = 0;
	r->pending |= BIT_OF(type);
	r->info = *info;
}

int usiw_cm_records_peek(const struct usiw_cm_records *r, struct usiw_event *record)
{
	unsigned int i;

	for (i = 0; i < sizeof(order) && !(r->pending & BIT_OF(order[i])); i++)
		;
	if (i == sizeof(order))
		return 0;
	memset(record, 0, sizeof(*record));
	record->type = order[i];
	record->conn = r->info;
	return 1;
}

/* True if @a and @b are equal in all fields that a PATH record reports. */
static int same_path(const struct usiw_conn_info *a, const struct usiw_conn_info *b)
{
	return !memcmp(a->local_mac, b->local_mac, sizeof(a->local_mac)) &&
	       !memcmp(a->remote_mac, b->remote_mac, sizeof(a->remote_mac)) &&
	       a->flags == b->flags && a->not_packet == b->not_packet && a->mtu == b->mtu;
}

int usiw_cm_records_pop(struct usiw_cm_records *r, const struct usiw_event *record)
{
	if (record->type != USIW_EVENT_PATH || same_path(&record->conn, &r->info))
		r->pending &= ~BIT_OF(record->type);
	return r->pending != 0;
}
