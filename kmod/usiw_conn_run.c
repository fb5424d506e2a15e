// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What drives a connection's machine in cm/.
 *
 * Everything that happens to a connection goes through conn->lock: calls of iw_cm and of
 * the provider, datagrams (from the worker of the socket) and the clock (conn->work).
 * Softirq only sets a bit in conn->flags and queues conn->work.
 */
#include <linux/slab.h>

#include "usiw_conn.h"
#include "usiw_iwcm_quirks.h"

/* ---- Lifetime ---------------------------------------------------------- */

static void usiw_conn_work(struct work_struct *work);

static void usiw_conn_free_work(struct work_struct *work)
{
	struct usiw_conn *conn = container_of(work, struct usiw_conn, free_work);

	WARN_ON_ONCE(conn->hashed || conn->qp || conn->cm_id);
	usiw_conn_no_longer_half_open(conn);
	usiw_conn_no_longer_orphan(conn);
	usiw_data_close(conn);
	if (conn->sock)
		usiw_sock_put(conn->sock, usiw_tuple_is_ipv4(&conn->tuple));
	if (conn->events)
		usiw_evfile_put(conn->events);
	usiw_conn_unregister(conn);
	kfree_rcu(conn, rcu);
}

/*
 * A connection that is in no table yet and has no socket, with one reference. Return -ENOMEM,
 * -ENODEV (the device is going). @flags: for its memory, with __GFP_ACCOUNT.
 */
struct usiw_conn *usiw_conn_alloc(struct usiw_device *dev, const struct usiw_tuple *tuple,
				  gfp_t flags)
{
	struct usiw_conn *conn;
	int ret;

	conn = kzalloc(sizeof(*conn), flags);
	if (!conn)
		return ERR_PTR(-ENOMEM);
	mutex_init(&conn->lock);
	kref_init(&conn->kref);
	INIT_DELAYED_WORK(&conn->work, usiw_conn_work);
	INIT_WORK(&conn->free_work, usiw_conn_free_work);
	INIT_LIST_HEAD(&conn->ev_node);
	conn->net = read_pnet(&dev->net);
	conn->dev = dev;
	conn->tuple = *tuple;
	conn->nexthop_bucket = -1;
	conn->icmp_next = jiffies;
	ret = usiw_conn_register(conn, flags);
	if (ret) {
		kfree(conn);
		return ERR_PTR(ret);
	}
	return conn;
}

/* ---- The clock --------------------------------------------------------- */

/*
 * While iw_cm's user is owed the answer to connect or accept, nobody can close the id: whoever tries
 * waits for the answer, where no signal reaches it. So each such connection is looked at five times a
 * second, for the two cases in which nobody else ends it (usiw_conn_check_waiter()).
 */
void usiw_conn_arm(struct usiw_conn *conn)
{
	u64 now = usiw_now_us(), at = conn->cm.deadline_us;
	bool waits = conn->cm.state == USIW_CM_ACCEPT_SENT;

	lockdep_assert_held(&conn->lock);
	if (waits != conn->waits_confirm) {
		WRITE_ONCE(conn->waits_confirm, waits);
		atomic_add(waits ? 1 : -1, &conn->sock->confirm_waiters);
	}
	if (conn->resolving && (!at || conn->resolve_us < at))
		at = conn->resolve_us;
	if (conn->move_us && (!at || conn->move_us < at))
		at = conn->move_us;
	if (usiw_cm_awaited(&conn->ledger) && (!at || now + USIW_OWNER_US < at))
		at = now + USIW_OWNER_US;
	if (!at)
		return;
	usiw_conn_queue(conn, at > now ? usecs_to_jiffies(at - now) + 1 : 0);
	/* That may have put off a kick; one that comes from here on queues by itself. */
	if (READ_ONCE(conn->flags))
		usiw_conn_queue(conn, 0);
}

static void usiw_conn_do(struct usiw_conn *conn, u32 actions)
{
	usiw_conn_perform(conn, actions);
	usiw_conn_arm(conn);
}

/* The device is going: RESET once, no lingering. */
static void usiw_conn_flush(struct usiw_conn *conn, u64 now)
{
	usiw_conn_perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_ADDRESS, now));
	conn->cm.state = USIW_CM_DEAD;
	conn->cm.deadline_us = 0;
	conn->flushed = true;
	usiw_conn_unhash(conn);
}

/*
 * A process that was killed may have a thread that closes the id, and does not leave its memory then
 * (usiw_process.c). A device that is deleted may be taken from rdma_cm, which closes its ids, before
 * it is taken from the module's own client and from uverbs: that depends on who was loaded last.
 */
static void usiw_conn_check_waiter(struct usiw_conn *conn, u64 now)
{
	lockdep_assert_held(&conn->lock);
	if (usiw_device_is_going(conn->dev))
		usiw_conn_flush(conn, now);
	else if (usiw_qp_owner_is_dying(conn->qp))
		usiw_conn_perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, now));
}

static void usiw_conn_work(struct work_struct *work)
{
	struct usiw_conn *conn = container_of(to_delayed_work(work), struct usiw_conn, work);
	u64 now = usiw_now_us();

	mutex_lock(&conn->lock);
	if (test_and_clear_bit(USIW_CONN_FLUSH, &conn->flags))
		usiw_conn_flush(conn, now);
	if (test_and_clear_bit(USIW_CONN_ORPHANED, &conn->flags))
		usiw_conn_orphan(conn);
	if (test_and_clear_bit(USIW_CONN_ICMP, &conn->flags))
		usiw_conn_perform(conn, usiw_cm_icmp(&conn->cm, READ_ONCE(conn->icmp_heard), now));
	if (test_and_clear_bit(USIW_CONN_DATA_SEEN, &conn->flags))
		usiw_conn_perform(conn, usiw_cm_data_seen(&conn->cm, now));
	if (test_and_clear_bit(USIW_CONN_CHECK_ADDR, &conn->flags) && conn->hashed &&
	    usiw_addr_owner(conn->dev, &conn->tuple) == USIW_ADDR_OTHERS)
		usiw_conn_perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_ADDRESS, now));
	if (test_and_clear_bit(USIW_CONN_FOLLOW, &conn->flags))
		usiw_conn_perform(conn, usiw_conn_follow(conn));
	if (conn->move_us && now >= conn->move_us)
		usiw_conn_perform(conn, usiw_conn_move_overdue(conn));
	if (test_and_clear_bit(USIW_CONN_PROCESS_GONE, &conn->flags))
		usiw_conn_perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, now));
	if (usiw_cm_awaited(&conn->ledger))
		usiw_conn_check_waiter(conn, now);
	if (conn->resolving && now >= conn->resolve_us)
		usiw_conn_resolve(conn);
	if (conn->cm.deadline_us && now >= conn->cm.deadline_us)
		usiw_conn_perform(conn, usiw_cm_timer(&conn->cm, now));
	usiw_conn_arm(conn);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
}

/* ---- Calls of iw_cm, of the provider, of the socket's worker ----------- */

void usiw_conn_disconnect(struct usiw_conn *conn)
{
	mutex_lock(&conn->lock);
	usiw_conn_do(conn, usiw_cm_disconnect(&conn->cm, usiw_now_us()));
	mutex_unlock(&conn->lock);
}

/* When it returns, iw_cm has been told and QP and iw_cm are no longer held. */
void usiw_conn_abort(struct usiw_conn *conn, enum usiw_kill_reason reason)
{
	mutex_lock(&conn->lock);
	usiw_conn_do(conn, usiw_cm_abort(&conn->cm, reason, usiw_now_us()));
	mutex_unlock(&conn->lock);
}

/* A report on another connection than the QP's present one is out of date. */
void usiw_conn_report(struct usiw_conn *conn, const struct usiw_qp_report *report)
{
	u32 actions = 0;

	if (report->conn_id != conn->id)
		return;
	mutex_lock(&conn->lock);
	/* Who has not been given the connection cannot say anything about it. */
	if (conn->announced) {
		if (report->kind == USIW_REPORT_READY) {
			conn->ready = true;
			usiw_conn_port_known(conn);
		}
		if (report->kind == USIW_REPORT_PORT)
			actions = usiw_conn_told_port(conn, report->port, report->port_why);
		else
			actions = usiw_cm_report(&conn->cm, report->kind, report->error,
						 usiw_now_us());
	}
	usiw_conn_do(conn, actions);
	mutex_unlock(&conn->lock);
}

/* A handshake datagram of its 4-tuple: usiw_cm_input(). */
void usiw_conn_input(struct usiw_conn *conn, struct usiw_cm_verdict *verdict, const void *data,
		     u32 len, void *answer)
{
	mutex_lock(&conn->lock);
	usiw_count(conn->dev, USIW_KCNT_CM_RX);
	usiw_cm_input(verdict, &conn->cm, data, len, usiw_now_us(), answer);
	usiw_conn_do(conn, verdict->actions);
	mutex_unlock(&conn->lock);
}
