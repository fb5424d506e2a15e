/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * What the user of a connection (iw_cm, an rdma_cm id, a simulated program) has been told and
 * is still owed, and what its engine is told. The host keeps one ledger beside each machine,
 * under the same lock, and asks it before each notice:
 *
 * - REPLY goes to an initiator, once, with success or failure.
 * - ESTABLISHED goes to a responder that has accepted, once.
 * - CLOSE follows a REPLY with success or ESTABLISHED, once; DISCONNECT, at most once, comes
 *   before it.
 * - Nothing is told to a user that has left, or that has had an error from connect or accept.
 * - RELEASE pays what is still owed: no user waits for an answer for ever.
 *
 * iw_cm runs into a BUG() when these are broken.
 */
#ifndef USIW_CM_NOTIFY_H
#define USIW_CM_NOTIFY_H

#include "../uapi/usiw_abi.h"
#include "usiw_cm.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * struct usiw_cm_ledger - notices given to a connection's user; zeroed at first
 * @listens:	the user is there and hears of what happens
 * @accepted:	accept has succeeded: the user waits for ESTABLISHED
 * @given:	private to usiw_cm_notify.c
 */
struct usiw_cm_ledger {
	__u8 listens;
	__u8 accepted;
	__u8 given;
};

/* The user's connect, or accept, cannot fail any more: it will have its answer. */
void usiw_cm_ledger_connected(struct usiw_cm_ledger *l);
void usiw_cm_ledger_accepted(struct usiw_cm_ledger *l);
/* The user leaves, or has been answered by an error: nothing more is told. */
void usiw_cm_ledger_mute(struct usiw_cm_ledger *l);

/* Does the user still wait for the answer to its connect or accept? */
int usiw_cm_awaited(const struct usiw_cm_ledger *l);

/*
 * May @event (one of USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT, _CLOSE; @status: of a REPLY) be
 * told now? 1: yes, and it counts as told from now on; 0: no.
 */
int usiw_cm_notify(struct usiw_cm_ledger *l, __u32 event, int status);

/*
 * The user could not be told of success, for want of memory: it is to be told of failure in
 * place of it. The caller aborts the connection.
 */
void usiw_cm_reply_lost(struct usiw_cm_ledger *l);

/*
 * At RELEASE: the events to be tried in the order of their bits, each through
 * usiw_cm_notify(). The status of a REPLY is -ECONNABORTED then.
 */
__u32 usiw_cm_owed(const struct usiw_cm_ledger *l, const struct usiw_cm_conn *c);

/*
 * Fill the record that gives a connection to the engine from the machine's final parameters.
 * MACs, hop limit, TOS, data_fd and USIW_CONN_F_LOCAL are the host's to add.
 */
void usiw_cm_fill_info(struct usiw_conn_info *info, const struct usiw_cm_conn *c,
		       const struct usiw_cm_tuple *tuple);

#ifdef __cplusplus
}
#endif

#endif /* USIW_CM_NOTIFY_H */
