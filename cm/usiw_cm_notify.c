// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Keeps the ledger of the notices to a connection's user; see usiw_cm_notify.h. */
#include "usiw_cm_notify.h"

#define GIVEN_REPLY		0x1	/* REPLY with success */
#define GIVEN_FAILURE		0x2	/* REPLY with an error */
#define GIVEN_ESTABLISHED	0x4
#define GIVEN_DISCONNECT		0x8
#define GIVEN_CLOSE		0x10

void usiw_cm_ledger_connected(struct usiw_cm_ledger *l)
{
	l->listens = 1;
}

void usiw_cm_ledger_accepted(struct usiw_cm_ledger *l)
{
	l->listens = 1;
	l->accepted = 1;
}

void usiw_cm_ledger_mute(struct usiw_cm_ledger *l)
{
	l->listens = 0;
}

int usiw_cm_awaited(const struct usiw_cm_ledger *l)
{
	return l->listens && !(l->given & (GIVEN_REPLY | GIVEN_FAILURE | GIVEN_ESTABLISHED));
}

/* Returns the bit of the notice for @event, or 0 if the notice is not due. */
static __u8 due(const struct usiw_cm_ledger *l, __u32 event, int status)
{
	int open = (l->given & (GIVEN_REPLY | GIVEN_ESTABLISHED)) && !(l->given & GIVEN_CLOSE);

	if (!l->listens)
		return 0;
	switch (event) {
	case USIW_CM_A_EV_REPLY:
		if (l->accepted || (l->given & (GIVEN_REPLY | GIVEN_FAILURE)))
			return 0;
		return status ? GIVEN_FAILURE : GIVEN_REPLY;
	case USIW_CM_A_EV_ESTABLISHED:
		return l->accepted && !(l->given & GIVEN_ESTABLISHED) ? GIVEN_ESTABLISHED : 0;
	case USIW_CM_A_EV_DISCONNECT:
		return open && !(l->given & GIVEN_DISCONNECT) ? GIVEN_DISCONNECT : 0;
	case USIW_CM_A_EV_CLOSE:
		return open ? GIVEN_CLOSE : 0;
	default:
		return 0;
	}
}

int usiw_cm_notify(struct usiw_cm_ledger *l, __u32 event, int status)
{
	__u8 notice = due(l, event, status);

	l->given |= notice;
	return notice != 0;
}

void usiw_cm_reply_lost(struct usiw_cm_ledger *l)
{
	l->given = GIVEN_FAILURE;
}

__u32 usiw_cm_owed(const struct usiw_cm_ledger *l)
{
	if (!l->listens)
		return 0;
	return (l->accepted ? USIW_CM_A_EV_ESTABLISHED : USIW_CM_A_EV_REPLY) | USIW_CM_A_EV_CLOSE;
}
