/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Ledger of the notices that the user of a connection gets. The user is iw_cm, an id of rdma_cm, or
 * a simulated program.
 *
 * A user must get each notice that it is owed once and in order, even if there is no memory for it.
 * The user may leave at any moment, and must get no notice after that. Otherwise iw_cm runs into a
 * BUG(). So each connection has a ledger, under the lock of the connection, which decides about
 * each notice by these rules:
 *
 * - An initiator gets one REPLY, with success or failure.
 * - A responder that has accepted gets one ESTABLISHED.
 * - After a REPLY with success or an ESTABLISHED the user gets one CLOSE. DISCONNECT comes at most
 *   once, and before CLOSE.
 * - A user that has left, or that got an error from connect or accept, gets no notice.
 * - At RELEASE the user gets the notices that it is still owed, so no user waits for an answer for
 *   ever.
 */
#ifndef USIW_CM_NOTIFY_H
#define USIW_CM_NOTIFY_H

#include "usiw_cm_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct usiw_cm_ledger - notices given to the user of a connection; zeroed at first
 * @listens:	the user may be notified: it waits for an answer or is connected, and has not left
 * @accepted:	accept has succeeded, so the user waits for ESTABLISHED
 * @given:	private to usiw_cm_notify.c
 */
struct usiw_cm_ledger {
	__u8 listens;
	__u8 accepted;
	__u8 given;
};

/*
 * Notes that the user's connect or accept cannot fail any more. A notice gives the answer from here
 * on.
 */
void usiw_cm_ledger_connected(struct usiw_cm_ledger *l);
void usiw_cm_ledger_accepted(struct usiw_cm_ledger *l);
/* Notes that the user leaves, or that its call fails. The user gets no notice from then on. */
void usiw_cm_ledger_mute(struct usiw_cm_ledger *l);

/* True if the user still waits for the answer to its connect or accept. */
int usiw_cm_awaited(const struct usiw_cm_ledger *l);

/*
 * Returns true if the user is to be notified of @event now, and counts the notice as given. @event:
 * USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE. @status: of a REPLY.
 */
int usiw_cm_notify(struct usiw_cm_ledger *l, __u32 event, int status);

/*
 * Notes that there was no memory for a REPLY. The caller notifies the user of a failure instead,
 * and aborts the connection if it is open.
 */
void usiw_cm_reply_lost(struct usiw_cm_ledger *l);

/*
 * Returns the events of which the user may still have to be notified at RELEASE. The caller passes
 * each to usiw_cm_notify(), in the order of their bits. A REPLY then has the status -ECONNABORTED.
 */
__u32 usiw_cm_owed(const struct usiw_cm_ledger *l);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_NOTIFY_H */
