// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * The functions of struct usiw_cm_host, by which cm/ acts on the module: notices to iw_cm, the
 * state of the QP, event records, datagrams and routes. cm/ calls them with conn->lock held, so
 * each receiver is notified in the order of events.
 *
 * In some of its states iw_cm hits a BUG_ON() if it gets an event that it does not expect. So cm/
 * asks cm/usiw_cm_notify.c before each upcall about a cm_id of a connection whether iw_cm may get
 * the event. iw_cm handles the events of a cm_id in order, so each takes effect before the next
 * one. iw_connect and iw_accept permit notices once they cannot fail any more, before they release
 * conn->lock.
 *
 * One case remains, as with any iWARP driver: a user rejects a cm_id after ESTABLISHED was sent and
 * before iw_cm has handled it. iw_cm then hits BUG_ON(state != IW_CM_STATE_CONN_RECV).
 * docs/security.md describes the case.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ratelimit.h>
#include <rdma/iw_cm.h>
#include <rdma/uverbs_types.h>

#include "usiw_conn_act.h"

#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_data.h"
#include "usiw_device.h"
#include "usiw_event.h"
#include "usiw_admission.h"
#include "usiw_iwcm_quirks.h"
#include "usiw_qp_ref.h"
#include "usiw_route.h"
#include "usiw_sock.h"
#include "usiw_user.h"

static struct usiw_conn *to_usiw_conn(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = container_of(end, struct usiw_conn, end);

	lockdep_assert_held(&conn->lock);
	return conn;
}

/* ---- The user ---------------------------------------------------------- */

static void usiw_conn_fill_event(struct usiw_conn *conn, struct iw_cm_event *event,
				 enum iw_cm_event_type type, int status)
{
	const struct usiw_tuple *tuple = usiw_conn_tuple(conn);

	memset(event, 0, sizeof(*event));
	event->event = type;
	event->status = status;
	usiw_addr_to_sockaddr(&event->local_addr, &tuple->local, tuple->local_port, tuple->scope);
	usiw_addr_to_sockaddr(&event->remote_addr, &tuple->remote, tuple->remote_port,
			      tuple->scope);
}

static void usiw_conn_fill_private_data(struct usiw_conn *conn, struct iw_cm_event *event)
{
	const struct usiw_cm_conn *cm = &conn->end.cm;

	event->private_data_len = min_t(u16, cm->peer_pd_len, USIW_IW_MAX_PRIVATE_DATA);
	if (event->private_data_len)
		event->private_data = conn->end.cm.peer_pd;
}

/*
 * Sets the depths of @event. rdma_cm reports event->ird as initiator_depth, which is the number of
 * READs that this end may have outstanding. So the two are swapped.
 */
static void usiw_conn_fill_depths(struct usiw_conn *conn, struct iw_cm_event *event)
{
	event->ird = min_t(u16, conn->end.cm.ord, U8_MAX);
	event->ord = min_t(u16, conn->end.cm.ird, U8_MAX);
}

/*
 * Notifies iw_cm of a REQ. Returns 0, or -ENOMEM if iw_cm's own backlog is full or iw_cm has no
 * memory for the private data. In both cases the application is not notified.
 */
int usiw_conn_notify_request(struct usiw_conn *conn)
{
	struct iw_cm_id *cm_id = conn->listener->cm_id;
	struct iw_cm_event event;

	lockdep_assert_held(&conn->lock);
	usiw_conn_fill_event(conn, &event, IW_CM_EVENT_CONNECT_REQUEST, 0);
	usiw_conn_fill_private_data(conn, &event);
	event.ird = min_t(u16, conn->end.cm.peer_ird, U8_MAX);
	event.ord = min_t(u16, conn->end.cm.peer_ord, U8_MAX);
	event.provider_data = usiw_iw_request_data(conn);
	return cm_id->event_handler(cm_id, &event);
}

/*
 * Passes @notice to iw_cm as an event, and returns what iw_cm's handler returns. iw_cm allocates
 * memory for all events beforehand, except for the private data of a reply. If it lacks that
 * memory, cm/ repeats the reply with -ENOMEM as its status, so such a reply has no private data.
 */
static int usiw_conn_notify(struct usiw_cm_end *end, __u32 notice, int status)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	struct iw_cm_event event;

	switch (notice) {
	case USIW_CM_A_EV_REPLY:
		usiw_conn_fill_event(conn, &event, IW_CM_EVENT_CONNECT_REPLY, status);
		if (status != -ENOMEM)
			usiw_conn_fill_private_data(conn, &event);
		usiw_conn_fill_depths(conn, &event);
		break;
	case USIW_CM_A_EV_ESTABLISHED:
		usiw_conn_fill_event(conn, &event, IW_CM_EVENT_ESTABLISHED, 0);
		usiw_conn_fill_depths(conn, &event);
		break;
	case USIW_CM_A_EV_DISCONNECT:
		usiw_conn_fill_event(conn, &event, IW_CM_EVENT_DISCONNECT, 0);
		break;
	default:
		usiw_conn_fill_event(conn, &event, IW_CM_EVENT_CLOSE, 0);
		break;
	}
	return conn->cm_id->event_handler(conn->cm_id, &event);
}

static void usiw_conn_release_user(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	struct iw_cm_id *cm_id = conn->cm_id;

	conn->cm_id = NULL;
	if (cm_id)
		cm_id->rem_ref(cm_id);
}

/* ---- The QP and its engine --------------------------------------------- */

/*
 * Attaches @qp and @cm_id, to which @conn gets references. Returns 0, or -EINVAL if the QP's state
 * allows no connection or the QP is being destroyed, and -EISCONN if the QP has a connection.
 */
int usiw_conn_attach_qp(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			const struct usiw_sender *sender)
{
	struct usiw_cm_end *end = &conn->end;
	int ret = usiw_qp_attach(qp, conn);

	lockdep_assert_held(&conn->lock);
	if (ret)
		return ret;
	if (conn->orphan_of)
		usiw_user_drop_orphan(conn->orphan_of);
	conn->orphan_of = NULL;
	conn->qp = qp;
	conn->qpn = qp->ibqp.qp_num;
	conn->events = qp->uctx->events;
	usiw_evfile_forget(conn->events, conn->qpn);
	uverbs_uobject_get(&conn->events->uobj);
	conn->sender = *sender;
	end->tos = sender->tos;
	cm_id->add_ref(cm_id);
	conn->cm_id = cm_id;
	usiw_cm_end_attach(end, usiw_qp_ports(qp));
	/*
	 * Offers features to the peer. MERGED: this end receives by sockets only. If both ends do,
	 * their kernels may pass on several datagrams as one aggregate. MERGES: this end receives
	 * aggregates at times, while messages are long. The header of each datagram that it sends
	 * shows whether it does so now.
	 */
	if (!(end->ports & USIW_CM_PACKETS))
		usiw_cm_offer(&end->cm, USIW_FEATURE_MERGED);
	if (usiw_qp_can(qp, USIW_CAP_MERGES))
		usiw_cm_offer(&end->cm, USIW_FEATURE_MERGES);
	return 0;
}

static void usiw_conn_set_qp_state(struct usiw_cm_end *end, enum usiw_qp_state state)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	if (state == USIW_QPS_RTS)
		usiw_count(conn->dev, USIW_KCNT_CM_ESTABLISHED);
	if (conn->qp)
		usiw_qp_set_state(conn->qp, state);
}

static void usiw_conn_release_qp(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	struct usiw_qp *qp = conn->qp;

	conn->qp = NULL;
	if (qp)
		usiw_qp_detach(qp, conn);
}

static void usiw_conn_record(struct usiw_cm_end *end, enum usiw_event_type type)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	if (type == USIW_EVENT_CONNECT)
		usiw_qp_set_depths(conn->qp, end->cm.ird, end->cm.ord);
	usiw_evfile_push(conn, type);
}

static int usiw_conn_data(struct usiw_cm_end *end, enum usiw_cm_data what)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	switch (what) {
	case USIW_CM_DATA_CLOSE:
		usiw_data_close(conn);
		return 0;
	case USIW_CM_DATA_BY_PACKETS:
	case USIW_CM_DATA_BY_SOCKET:
		usiw_data_by_packets(conn, what == USIW_CM_DATA_BY_PACKETS);
		return 0;
	default:
		return usiw_data_is_open(conn);
	}
}

/* ---- The network ------------------------------------------------------- */

static int usiw_conn_send(struct usiw_cm_end *end, const void *data, __u32 len)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	usiw_count(conn->dev, USIW_KCNT_CM_TX);
	return usiw_sock_send(conn->sock, usiw_conn_tuple(conn), end->tos, data, len);
}

static int usiw_conn_route(struct usiw_cm_end *end, struct usiw_cm_route *route)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	int ret = usiw_route_find(conn->dev, usiw_conn_tuple(conn), &conn->sender, route);

	if (!ret && route->local)
		route->peer_ports = usiw_conn_peer_ports(conn);
	return ret;
}

/*
 * Counts the connection in the bucket of the next hop of @route, so that neighbour updates reach
 * the connection. With NULL the connection counts in no bucket. A next hop without a known MAC
 * counts as well, because the connection waits for the update of this next hop.
 */
static void usiw_conn_follow(struct usiw_cm_end *end, const struct usiw_cm_route *route)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	struct usiw_device *dev = conn->dev;
	int bucket = route ? route->next_hop : -1;

	if (conn->nexthop_bucket >= 0)
		atomic_dec(&dev->nexthops[conn->nexthop_bucket]);
	if (bucket >= 0)
		atomic_inc(&dev->nexthops[bucket]);
	WRITE_ONCE(conn->nexthop_bucket, bucket);
}

/*
 * Logs that a connection could not be made. Any user can cause such lines, so this function logs at
 * most ten per minute. RATELIMIT_MSG_ON_RELEASE keeps the kernel from warning about the lines that
 * are left out.
 */
static void usiw_conn_log_no_connection(struct usiw_conn *conn, const char *why)
{
	static struct ratelimit_state limit = RATELIMIT_STATE_INIT_FLAGS(limit, 60 * HZ, 10,
									 RATELIMIT_MSG_ON_RELEASE);
	const struct usiw_tuple *tuple = usiw_conn_tuple(conn);
	struct sockaddr_storage to;

	if (!__ratelimit(&limit))
		return;
	usiw_addr_to_sockaddr(&to, &tuple->remote, tuple->remote_port, tuple->scope);
	pr_info("%s: no connection to %pISpc: %s\n", dev_name(&conn->dev->ibdev.dev), &to, why);
}

static void usiw_conn_log(struct usiw_cm_end *end, enum usiw_cm_log what, const char *text)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	switch (what) {
	case USIW_CM_LOG_NO_CONNECTION:
		usiw_conn_log_no_connection(conn, text);
		break;
	case USIW_CM_LOG_ELSEWHERE:
		usiw_count(conn->dev, USIW_KCNT_ROUTE_ELSEWHERE);
		/*
		 * A process with USIW_CM_MOVES changes to a port that works, so the log needs no
		 * line.
		 */
		if (!(end->ports & USIW_CM_MOVES))
			pr_info_ratelimited(
				"%s: %pI6c to %pI6c: the route leaves by %s now, data goes on as before\n",
				dev_name(&conn->dev->ibdev.dev), &usiw_conn_tuple(conn)->local,
				&usiw_conn_tuple(conn)->remote, text);
		break;
	case USIW_CM_LOG_FORBIDDEN:
		usiw_count(conn->dev, USIW_KCNT_ROUTE_FORBIDDEN);
		pr_warn_ratelimited(
			"%s: %pI6c to %pI6c ends: raw packets would go past IPsec or a tunnel now\n",
			dev_name(&conn->dev->ibdev.dev), &usiw_conn_tuple(conn)->local,
			&usiw_conn_tuple(conn)->remote);
		break;
	}
}

/* ---- The table and the backlog ----------------------------------------- */

static void usiw_conn_forget(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = to_usiw_conn(end);

	if (conn->table == USIW_CONN_HASHED)
		usiw_conn_remove(conn);
}

/*
 * Returns the connection's slot to its listener and drops the listener. Also drops the connection
 * from its user's orphans. The caller holds conn->lock, or has dropped the last reference.
 */
void usiw_conn_leave_backlog(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = container_of(end, struct usiw_conn, end);
	struct usiw_listener *listener = conn->listener;

	lockdep_assert(lockdep_is_held(&conn->lock) || !kref_read(&conn->kref));
	if (conn->orphan_of)
		usiw_user_drop_orphan(conn->orphan_of);
	conn->orphan_of = NULL;
	if (!listener)
		return;
	WRITE_ONCE(conn->listener, NULL);
	usiw_admission_return_place(conn->sock, listener);
	usiw_listener_put(listener);
}

/* ---- The clock --------------------------------------------------------- */

/*
 * Queues conn->work for the next deadline of the connection. A process that waits for the answer to
 * connect or accept cannot close its cm_id, and no signal ends that wait. So the work of such a
 * connection also runs five times a second, and checks for the two cases in which nothing else ends
 * the wait (usiw_conn_check_waiter()).
 */
void usiw_conn_arm(struct usiw_cm_end *end)
{
	struct usiw_conn *conn = to_usiw_conn(end);
	u64 now = usiw_now_us(), at = usiw_cm_end_deadline(end);
	bool waits = end->cm.state == USIW_CM_ACCEPT_SENT;

	if (waits != conn->waits_confirm) {
		WRITE_ONCE(conn->waits_confirm, waits);
		atomic_add(waits ? 1 : -1, &conn->sock->confirm_waiters);
	}
	if (usiw_cm_awaited(&end->ledger) && (!at || now + USIW_OWNER_US < at))
		at = now + USIW_OWNER_US;
	if (!at)
		return;
	usiw_conn_queue(conn, at > now ? usecs_to_jiffies(at - now) + 1 : 0);
	/*
	 * If a flag was set before, the call above may have delayed work that was due at once. A
	 * later usiw_conn_kick() queues the work itself.
	 */
	if (READ_ONCE(conn->flags))
		usiw_conn_queue(conn, 0);
}

const struct usiw_cm_host usiw_conn_host = {
	.send = usiw_conn_send,
	.notify = usiw_conn_notify,
	.release_user = usiw_conn_release_user,
	.set_qp_state = usiw_conn_set_qp_state,
	.release_qp = usiw_conn_release_qp,
	.record = usiw_conn_record,
	.route = usiw_conn_route,
	.follow = usiw_conn_follow,
	.data = usiw_conn_data,
	.leave_backlog = usiw_conn_leave_backlog,
	.forget = usiw_conn_forget,
	.arm = usiw_conn_arm,
	.log = usiw_conn_log,
};
