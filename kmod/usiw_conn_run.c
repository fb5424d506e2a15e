// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Makes and frees connections, and passes their inputs to cm/ (struct usiw_cm_end): the calls by
 * which iw_cm ends a connection, reports of the provider, datagrams from the port's worker, and
 * timers and flags in conn->work. usiw_iwcm.c passes on connect, accept and reject.
 *
 * All inputs take conn->lock, which may sleep. So softirq only sets a flag and queues conn->work.
 */
#include <linux/slab.h>
#include <rdma/uverbs_types.h>

#include "usiw_conn_run.h"

#include "usiw_addr.h"
#include "usiw_admission.h"
#include "usiw_conn.h"
#include "usiw_conn_act.h"
#include "usiw_data.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_process.h"
#include "usiw_qp_ref.h"
#include "usiw_sock.h"
#include "usiw_user.h"

/* ---- Lifetime ---------------------------------------------------------- */

static void usiw_conn_work(struct work_struct *work);

static void usiw_conn_free_work(struct work_struct *work)
{
	struct usiw_conn *conn = container_of(work, struct usiw_conn, free_work);

	WARN_ON_ONCE(conn->table == USIW_CONN_HASHED || conn->qp || conn->cm_id);
	usiw_conn_leave_backlog(&conn->end);
	usiw_data_close(conn);
	if (conn->sock)
		usiw_sock_put(conn->sock, usiw_tuple_is_ipv4(usiw_conn_tuple(conn)));
	if (conn->events)
		uverbs_uobject_put(&conn->events->uobj);
	usiw_conn_unregister(conn);
	kfree_rcu(conn, rcu);
}

/*
 * Returns a new connection with one reference. It is not in the table and has no socket. Returns an
 * error pointer if that fails: -ENOMEM, or -ENODEV if the device may not have connections now
 * (usiw_device.dying). @flags: GFP flags with __GFP_ACCOUNT.
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
	usiw_cm_end_init(&conn->end, &usiw_conn_host, 0, usiw_cm_tuple(tuple));
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

/* Ends the connection without LINGER and bars it from the table, because the device is going. */
static void usiw_conn_flush(struct usiw_conn *conn, u64 now)
{
	usiw_cm_end_flush(&conn->end, now);
	conn->table = USIW_CONN_BARRED;
}

/*
 * Ends a connection whose user waits for an answer, in two cases in which nothing else ends it:
 *
 * - The process was killed, and one of its threads waits while it closes the cm_id. That thread
 *   still uses the memory of the process. So the kernel does not call the mm notifier
 *   by which usiw_process.c ends connections.
 * - The device is being deleted or moves to another netns, and ib_core removes it from rdma_cm
 *   earlier than from the module's own client and from uverbs. rdma_cm then closes its cm_ids. The
 *   order of the clients depends on the order in which their modules were loaded.
 */
static void usiw_conn_check_waiter(struct usiw_conn *conn, u64 now)
{
	lockdep_assert_held(&conn->lock);
	if (usiw_device_is_going(conn->dev))
		usiw_conn_flush(conn, now);
	else if (usiw_process_is_dying(conn->qp->owner))
		usiw_cm_end_abort(&conn->end, USIW_ABORT_LOCAL, now);
}

/*
 * Handles a request whose listener has left. iw_cm drops the requests that it has not handled by
 * then, without naming them, but its user may still accept the others. So the request remains as an
 * orphan, without a slot in a backlog. If the user already has too many orphans, the request ends.
 */
static void usiw_conn_orphan(struct usiw_conn *conn)
{
	struct usiw_user *user;

	lockdep_assert_held(&conn->lock);
	if (!conn->listener || conn->cm_id || conn->end.cm.state != USIW_CM_REQ_RCVD)
		return;
	user = conn->listener->user;
	if (!usiw_user_adopt_orphan(user)) {
		usiw_cm_end_abort(&conn->end, USIW_ABORT_LOCAL, usiw_now_us());
		return;
	}
	usiw_conn_leave_backlog(&conn->end);
	conn->orphan_of = user;
}

/* Handles and clears the flags that usiw_conn_kick() has set. */
static void usiw_conn_work_off_flags(struct usiw_conn *conn, u64 now)
{
	struct usiw_cm_end *end = &conn->end;

	if (test_and_clear_bit(USIW_CONN_FLUSH, &conn->flags))
		usiw_conn_flush(conn, now);
	if (test_and_clear_bit(USIW_CONN_ORPHANED, &conn->flags))
		usiw_conn_orphan(conn);
	if (test_and_clear_bit(USIW_CONN_ICMP, &conn->flags))
		usiw_cm_end_icmp(end, READ_ONCE(conn->icmp_answer), now);
	if (test_and_clear_bit(USIW_CONN_DATA_SEEN, &conn->flags))
		usiw_cm_end_data_seen(end, now);
	if (test_and_clear_bit(USIW_CONN_CHECK_ADDR, &conn->flags) &&
	    conn->table == USIW_CONN_HASHED &&
	    usiw_addr_owner(conn->dev, usiw_conn_tuple(conn)) == USIW_ADDR_OTHERS)
		usiw_cm_end_abort(end, USIW_ABORT_ADDRESS, now);
	if (test_and_clear_bit(USIW_CONN_FOLLOW, &conn->flags))
		usiw_cm_end_follow(end, now);
	if (test_and_clear_bit(USIW_CONN_PROCESS_GONE, &conn->flags))
		usiw_cm_end_abort(end, USIW_ABORT_LOCAL, now);
}

static void usiw_conn_work(struct work_struct *work)
{
	struct usiw_conn *conn = container_of(to_delayed_work(work), struct usiw_conn, work);
	u64 now = usiw_now_us();

	mutex_lock(&conn->lock);
	usiw_conn_work_off_flags(conn, now);
	if (usiw_cm_awaited(&conn->end.ledger))
		usiw_conn_check_waiter(conn, now);
	usiw_cm_end_tick(&conn->end, now);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
}

/* ---- Inputs from iw_cm, the QP, the provider and the port's worker ----- */

void usiw_conn_disconnect(struct usiw_conn *conn)
{
	mutex_lock(&conn->lock);
	usiw_cm_end_disconnect(&conn->end, usiw_now_us());
	mutex_unlock(&conn->lock);
}

/*
 * Ends the connection at once. Afterwards iw_cm has had its last notice, and the connection has
 * released its QP and its cm_id.
 */
void usiw_conn_abort(struct usiw_conn *conn)
{
	mutex_lock(&conn->lock);
	usiw_cm_end_abort(&conn->end, USIW_ABORT_LOCAL, usiw_now_us());
	mutex_unlock(&conn->lock);
}

/* Handles a report of the provider. */
void usiw_conn_report(struct usiw_conn *conn, const struct usiw_qp_report *report)
{
	u8 before;

	mutex_lock(&conn->lock);
	before = conn->end.port;
	usiw_cm_end_report(&conn->end, report, usiw_now_us());
	if (before && before != conn->end.port)
		usiw_count(conn->dev, USIW_KCNT_PORT_MOVES);
	mutex_unlock(&conn->lock);
}

/* Handles a handshake datagram of the connection's 4-tuple as usiw_cm_end_input() does. */
void usiw_conn_input(struct usiw_conn *conn, struct usiw_cm_verdict *verdict, const void *data,
		     u32 len, void *answer)
{
	mutex_lock(&conn->lock);
	usiw_count(conn->dev, USIW_KCNT_CM_RX);
	usiw_cm_end_input(&conn->end, verdict, data, len, answer, usiw_now_us());
	mutex_unlock(&conn->lock);
}
