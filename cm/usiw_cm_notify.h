/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Ledger of the notices to the user of a connection: iw_cm, an id of rdma_cm, or a simulated
 * program.
 *
 * A user must get each notice once and in order, also if it leaves at the wrong moment or there is
 * no memory for a notice. iw_cm runs into a BUG() otherwise. So the host has one ledger for each
 * connection, under the same lock, and asks it before each notice:
 *
 * - An initiator gets one REPLY, with success or failure.
 * - A responder that has accepted gets one ESTABLISHED.
 * - After a REPLY with success or an ESTABLISHED the user gets one CLOSE. DISCONNECT comes at most
 *   once, and before CLOSE.
 * - A user that has left, or that got an error from connect or accept, is not notified of anything.
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
 * @listens:	the user is there, and may be notified
 * @accepted:	accept has succeeded, so the user waits for ESTABLISHED
 * @given:	private to usiw_cm_notify.c
 */
struct usiw_cm_ledger {
	__u8 listens;
	__u8 accepted;
	__u8 given;
};

/* connect, accept: the call cannot fail any more. The user gets its answer by a notice. */
void usiw_cm_ledger_connected(struct usiw_cm_ledger *l);
void usiw_cm_ledger_accepted(struct usiw_cm_ledger *l);
/* The user leaves, or its call has returned an error: it gets no more notices. */
void usiw_cm_ledger_mute(struct usiw_cm_ledger *l);

/* True if the user still waits for the answer to its connect or accept. */
int usiw_cm_awaited(const struct usiw_cm_ledger *l);

/*
 * Returns true if the user is to be notified of @event now, and counts the notice as given. @event:
 * USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE. @status: of a REPLY.
 */
int usiw_cm_notify(struct usiw_cm_ledger *l, __u32 event, int status);

/*
 * There was no memory to notify the user of success. It is notified of a failure instead, and the
 * caller aborts the connection.
 */
void usiw_cm_reply_lost(struct usiw_cm_ledger *l);

/*
 * Returns the events that the user may still be owed at RELEASE. The host passes them to
 * usiw_cm_notify() in the order of their bits. A REPLY has the status -ECONNABORTED then.
 */
__u32 usiw_cm_owed(const struct usiw_cm_ledger *l);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_NOTIFY_H */
