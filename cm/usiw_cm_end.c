// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Carries out the actions of the state machine for one end of a connection. It calls the functions
 * of struct usiw_cm_host for that. usiw_cm_path.c follows the route, and decides whether the
 * connection may use raw packets. The process chooses its port and reports it.
 */
#if defined(__KERNEL__)
#include <linux/bug.h>
#include <linux/errno.h>
#include <linux/string.h>
#else
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#endif

#include "usiw_cm_end.h"
#include "usiw_cm_hint.h"
#include "usiw_cm_path.h"

/*
 * Checks the invariants of an end. A debug kernel warns of the first one that is broken. In user
 * space, a build with USIW_CM_CHECK prints it and aborts. Other builds check nothing.
 */
#if defined(__KERNEL__)
static void assert_sound(const struct usiw_cm_end *end)
{
#ifdef CONFIG_PROVE_LOCKING
	const char *wrong = usiw_cm_end_check(end);

	WARN_ONCE(wrong, "usiw: connection %u: %s\n", end->id, wrong);
#endif
}
#elif defined(USIW_CM_CHECK)
static void assert_sound(const struct usiw_cm_end *end)
{
	const char *wrong = usiw_cm_end_check(end);

	if (!wrong)
		return;
	fprintf(stderr, "connection %u: %s\n", end->id, wrong);
	abort();
}
#else
#define assert_sound(end)	((void)0)
#endif

void usiw_cm_end_init(struct usiw_cm_end *end, const struct usiw_cm_host *host, __u32 id,
		      const struct usiw_cm_tuple *tuple)
{
	memset(end, 0, sizeof(*end));
	end->host = host;
	end->id = id;
	end->tuple = *tuple;
}

void usiw_cm_end_attach(struct usiw_cm_end *end, __u8 ports)
{
	USIW_CM_PUBLISH(end->ports, ports);
}

/* ---- The user ---------------------------------------------------------- */

static void notify(struct usiw_cm_end *end, __u32 event, int status)
{
	if (usiw_cm_notify(&end->ledger, event, status))
		end->host->notify(end, event, status);
}

/*
 * Notifies the user of REPLY, and logs a hint if the attempt has failed. Returns the actions that
 * follow. If the host has no memory for the notice, the user gets a REPLY with -ENOMEM, and an open
 * connection is aborted, because no program can use it.
 */
static __u32 reply(struct usiw_cm_end *end, int status, __u64 now_us)
{
	char hint[USIW_CM_HINT_MAX];

	if (!usiw_cm_notify(&end->ledger, USIW_CM_A_EV_REPLY, status))
		return 0;
	if (usiw_cm_hint(&end->cm, hint))
		end->host->log(end, USIW_CM_LOG_NO_CONNECTION, hint);
	if (!end->host->notify(end, USIW_CM_A_EV_REPLY, status))
		return 0;
	usiw_cm_reply_lost(&end->ledger);
	end->host->notify(end, USIW_CM_A_EV_REPLY, -ENOMEM);
	return status ? 0 : usiw_cm_abort(&end->cm, USIW_ABORT_LOCAL, now_us);
}

/*
 * If the connection is open, gives back the slot of the backlog and moves the QP to RTS. The program
 * itself moves the QP of a silent connection.
 */
static void established(struct usiw_cm_end *end)
{
	if (end->cm.state != USIW_CM_ESTABLISHED)
		return;
	end->host->leave_backlog(end);
	if (!end->cm.silent)
		end->host->set_qp_state(end, USIW_QPS_RTS);
}

void usiw_cm_end_leave(struct usiw_cm_end *end)
{
	usiw_cm_ledger_mute(&end->ledger);
	end->host->release_user(end);
}

/* Gives the user the notices that it is still owed, then releases user and QP. */
static void release(struct usiw_cm_end *end, __u64 now_us)
{
	const struct usiw_cm_host *host = end->host;
	__u32 owed = usiw_cm_owed(&end->ledger);

	end->move_us = 0;
	host->follow(end, NULL);
	host->leave_backlog(end);
	if (owed & USIW_CM_A_EV_REPLY)
		reply(end, -ECONNABORTED, now_us);
	if (owed & USIW_CM_A_EV_ESTABLISHED)
		notify(end, USIW_CM_A_EV_ESTABLISHED, 0);
	if (owed & USIW_CM_A_EV_CLOSE)
		notify(end, USIW_CM_A_EV_CLOSE, 0);
	usiw_cm_end_leave(end);
	/* The engine has flushed the QP, or does so when it reads the ABORT record. */
	if (end->engine >= USIW_CM_ENGINE_GIVEN)
		host->set_qp_state(end, USIW_QPS_ERR);
	else
		end->engine = USIW_CM_ENGINE_NONE;
	host->release_qp(end);
}

/* ---- Actions ----------------------------------------------------------- */

static void abort_engine(struct usiw_cm_end *end)
{
	end->host->data(end, USIW_CM_DATA_CLOSE);
	if (end->engine < USIW_CM_ENGINE_GIVEN) {
		end->engine = USIW_CM_ENGINE_NONE;
		return;
	}
	/*
	 * Set the state first: a provider that has not read CONNECT queries the state when it
	 * reads ABORT.
	 */
	end->host->set_qp_state(end, USIW_QPS_ERR);
	end->info.reason = end->cm.abort_reason;
	end->host->record(end, USIW_EVENT_ABORT);
}

static void transmit(struct usiw_cm_end *end)
{
	__u8 buf[USIW_CM_MAX_DATAGRAM];
	__u32 len = usiw_cm_build(&end->cm, buf);

	usiw_cm_unsent(&end->cm, end->host->send(end, buf, len));
}

static __u32 act_one(struct usiw_cm_end *end, __u32 action, __u64 now_us)
{
	switch (action) {
	case USIW_CM_A_INSTALL:
		return usiw_cm_path_install(end, now_us);
	case USIW_CM_A_DRAIN:
		end->host->set_qp_state(end, USIW_QPS_CLOSING);
		end->host->record(end, USIW_EVENT_DISCONNECT);
		return 0;
	case USIW_CM_A_ABORT:
		abort_engine(end);
		return 0;
	case USIW_CM_A_PROBE:
		end->host->record(end, USIW_EVENT_PROBE);
		return 0;
	case USIW_CM_A_TX:
		transmit(end);
		return 0;
	case USIW_CM_A_EV_REPLY:
		established(end);
		return reply(end, end->cm.status, now_us);
	case USIW_CM_A_EV_ESTABLISHED:
		established(end);
		notify(end, action, end->cm.status);
		return 0;
	case USIW_CM_A_EV_DISCONNECT:
	case USIW_CM_A_EV_CLOSE:
		notify(end, action, end->cm.status);
		return 0;
	case USIW_CM_A_RELEASE:
		release(end, now_us);
		return 0;
	case USIW_CM_A_DEAD:
		end->host->data(end, USIW_CM_DATA_CLOSE);
		end->host->leave_backlog(end);
		end->host->forget(end);
		return 0;
	default:
		return 0;
	}
}

static void show_actions(struct usiw_cm_end *end, __u32 actions)
{
	if (end->host->acting)
		end->host->acting(end, actions);
}

/* Carries out @actions, and the actions that follow from them, in the order of their bits. */
static void act(struct usiw_cm_end *end, __u32 actions, __u64 now_us)
{
	__u32 action, more;

	show_actions(end, actions);
	while (actions) {
		action = actions & -actions;
		more = act_one(end, action, now_us);
		if (more)
			show_actions(end, more);
		actions = (actions & ~action) | more;
	}
	end->host->arm(end);
	assert_sound(end);
}

/* ---- Calls of the user ------------------------------------------------- */

void usiw_cm_end_connect(struct usiw_cm_end *end, __u64 now_us)
{
	usiw_cm_ledger_connected(&end->ledger);
	act(end, usiw_cm_connect(&end->cm, now_us), now_us);
}

void usiw_cm_end_connect_itself(struct usiw_cm_end *end, __u64 now_us)
{
	usiw_cm_ledger_connected(&end->ledger);
	act(end, usiw_cm_connect_itself(&end->cm, now_us), now_us);
}

int usiw_cm_end_may_accept(const struct usiw_cm_end *end)
{
	return end->cm.state == USIW_CM_REQ_RCVD ? 0 : -ECONNRESET;
}

int usiw_cm_end_accept(struct usiw_cm_end *end, __u16 ird, __u16 ord, const void *pd, __u16 pd_len,
		       __u64 now_us)
{
	int error;
	__u32 actions = usiw_cm_accept(&end->cm, ird, ord, pd, pd_len, now_us, &error);

	if (error)
		return error;
	usiw_cm_ledger_accepted(&end->ledger);
	act(end, actions, now_us);
	return 0;
}

void usiw_cm_end_reject(struct usiw_cm_end *end, const void *pd, __u16 pd_len, __u64 now_us)
{
	act(end, usiw_cm_reject(&end->cm, pd, pd_len, now_us), now_us);
}

void usiw_cm_end_disconnect(struct usiw_cm_end *end, __u64 now_us)
{
	act(end, usiw_cm_disconnect(&end->cm, now_us), now_us);
}

void usiw_cm_end_abort(struct usiw_cm_end *end, enum usiw_abort_reason reason, __u64 now_us)
{
	act(end, usiw_cm_abort(&end->cm, (__u8)reason, now_us), now_us);
}

void usiw_cm_end_drop(struct usiw_cm_end *end)
{
	act(end, usiw_cm_forget(&end->cm), 0);
}

void usiw_cm_end_flush(struct usiw_cm_end *end, __u64 now_us)
{
	usiw_cm_end_abort(end, USIW_ABORT_ADDRESS, now_us);
	usiw_cm_end_drop(end);
}

void usiw_cm_end_yield(struct usiw_cm_end *end, __u64 now_us)
{
	__u32 actions = usiw_cm_yield(&end->cm);

	if (!actions)
		return;
	usiw_cm_end_leave(end);
	end->engine = USIW_CM_ENGINE_NONE;
	act(end, actions, now_us);
}

/* ---- The engine -------------------------------------------------------- */

void usiw_cm_end_report(struct usiw_cm_end *end, const struct usiw_qp_report *report, __u64 now_us)
{
	__u32 actions;

	if (report->conn_id != end->id || end->engine < USIW_CM_ENGINE_GIVEN)
		return;
	if (report->kind == USIW_REPORT_PORT) {
		actions = usiw_cm_path_port(end, report->port, report->port_why, now_us);
	} else {
		if (report->kind == USIW_REPORT_READY)
			usiw_cm_path_ready(end);
		actions = usiw_cm_report(&end->cm, report->kind, report->error, now_us);
	}
	act(end, actions, now_us);
}

/* ---- The network ------------------------------------------------------- */

void usiw_cm_end_input(struct usiw_cm_end *end, struct usiw_cm_verdict *verdict, const void *data,
		       __u32 len, void *answer, __u64 now_us)
{
	usiw_cm_input(verdict, &end->cm, data, len, now_us, answer);
	act(end, verdict->actions, now_us);
}

void usiw_cm_end_data_seen(struct usiw_cm_end *end, __u64 now_us)
{
	act(end, usiw_cm_data_seen(&end->cm), now_us);
}

void usiw_cm_end_icmp(struct usiw_cm_end *end, enum usiw_cm_answer answer, __u64 now_us)
{
	act(end, usiw_cm_icmp(&end->cm, answer, now_us), now_us);
}

void usiw_cm_end_follow(struct usiw_cm_end *end, __u64 now_us)
{
	act(end, usiw_cm_path_follow(end, now_us), now_us);
}

/* ---- The clock --------------------------------------------------------- */

__u64 usiw_cm_end_deadline(const struct usiw_cm_end *end)
{
	__u64 at = end->cm.deadline_us;

	if (end->engine == USIW_CM_ENGINE_RESOLVING && (!at || end->resolve_us < at))
		at = end->resolve_us;
	if (end->move_us && (!at || end->move_us < at))
		at = end->move_us;
	return at;
}

/*
 * Logs once why a silent connection does not come about. It asks on, and its user gets no notice.
 * A peer that answers PENDING is not in RTR yet, which is no error.
 */
static void hint_silent(struct usiw_cm_end *end, __u64 now_us)
{
	char hint[USIW_CM_HINT_MAX];

	if (!end->cm.silent || end->hinted || end->cm.state != USIW_CM_REQ_SENT ||
	    now_us - end->cm.connect_us < USIW_CM_SILENT_HINT_US || !usiw_cm_hint(&end->cm, hint))
		return;
	end->hinted = 1;
	end->host->log(end, USIW_CM_LOG_NO_CONNECTION, hint);
}

void usiw_cm_end_tick(struct usiw_cm_end *end, __u64 now_us)
{
	__u32 actions = usiw_cm_path_tick(end, now_us);

	act(end, actions | usiw_cm_timer(&end->cm, now_us), now_us);
	hint_silent(end, now_us);
}

/* ---- Checks ------------------------------------------------------------ */

const char *usiw_cm_end_check(const struct usiw_cm_end *end)
{
	const struct usiw_cm_conn *c = &end->cm;
	int was_ready = usiw_cm_is_installed(c) && c->state != USIW_CM_INSTALLING;
	int over = usiw_cm_is_over(c);

	if (was_ready && end->engine != USIW_CM_ENGINE_READY)
		return "connected without an engine that is ready";
	if (end->engine == USIW_CM_ENGINE_RESOLVING && c->state != USIW_CM_INSTALLING)
		return "resolving the next hop outside of INSTALLING";
	if (end->engine >= USIW_CM_ENGINE_GIVEN && !over && !usiw_cm_is_installed(c))
		return "the engine has a connection that is not installed";
	if (end->move_us && (over || end->path != USIW_CM_PATH_FORBIDDEN))
		return "a deadline for leaving raw packets that are not forbidden";
	if (end->path == USIW_CM_PATH_FORBIDDEN && !over && !(end->ports & USIW_CM_MOVES))
		return "forbidden raw packets, and no other port";
	if (over && end->ledger.listens)
		return "over, and the user was not released";
	if (c->state == USIW_CM_DEAD && usiw_cm_end_deadline(end))
		return "dead, and the clock runs";
	return NULL;
}
