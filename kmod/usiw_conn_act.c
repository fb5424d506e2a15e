// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What the connection machine asks for: datagrams, records for the provider, and upcalls to
 * iw_cm. All with conn->lock held, so that each party is told things in the order in which
 * they happened.
 *
 * What iw_cm must not be told, on pain of BUG(), cm/usiw_cm_notify.c decides. It is asked
 * before each upcall; iw_cm works the events of a cm_id off in order, so what was told first
 * has taken effect. iw_connect and iw_accept open the ledger only once they cannot fail any
 * more, in the same section of conn->lock.
 *
 * What cannot be helped here: a user who rejects a cm_id between ESTABLISHED's being told and
 * its being worked off makes iw_cm run into BUG_ON(state != IW_CM_STATE_CONN_RECV), with any
 * iWARP driver. See docs/security.md.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ratelimit.h>
#include <linux/slab.h>

#include "../cm/usiw_cm_hint.h"
#include "usiw_conn.h"
#include "usiw_iwcm_quirks.h"

/* ---- Upcalls ----------------------------------------------------------- */

static void usiw_conn_fill_event(struct usiw_conn *conn, struct iw_cm_event *event,
				 enum iw_cm_event_type type, int status)
{
	memset(event, 0, sizeof(*event));
	event->event = type;
	event->status = status;
	usiw_addr_to_sockaddr(&event->local_addr, &conn->tuple.local, conn->tuple.local_port,
			      conn->tuple.scope);
	usiw_addr_to_sockaddr(&event->remote_addr, &conn->tuple.remote, conn->tuple.remote_port,
			      conn->tuple.scope);
}

static void usiw_conn_fill_private_data(struct usiw_conn *conn, struct iw_cm_event *event)
{
	event->private_data_len = min_t(u16, conn->cm.peer_pd_len, USIW_IW_MAX_PRIVATE_DATA);
	if (event->private_data_len)
		event->private_data = conn->cm.peer_pd;
}

/* rdma_cm turns ird into initiator_depth: READs that this end may have outstanding. */
static void usiw_conn_fill_depths(struct usiw_conn *conn, struct iw_cm_event *event)
{
	event->ird = min_t(u16, conn->cm.ord, U8_MAX);
	event->ord = min_t(u16, conn->cm.ird, U8_MAX);
}

/*
 * Tell the listener's application. iw_cm's answer is -ENOMEM when its backlog is full, in
 * which case the application never hears of it.
 */
int usiw_conn_tell_request(struct usiw_conn *conn)
{
	struct iw_cm_id *cm_id = conn->listener->cm_id;
	struct iw_cm_event event;

	lockdep_assert_held(&conn->lock);
	usiw_conn_fill_event(conn, &event, IW_CM_EVENT_CONNECT_REQUEST, 0);
	usiw_conn_fill_private_data(conn, &event);
	event.ird = min_t(u16, conn->cm.peer_ird, U8_MAX);
	event.ord = min_t(u16, conn->cm.peer_ord, U8_MAX);
	event.provider_data = usiw_iw_request_data(conn);
	return cm_id->event_handler(cm_id, &event);
}

/* iw_cm has prepared memory for each event but for the private data of a reply. */
static void usiw_conn_tell(struct usiw_conn *conn, u32 action, enum iw_cm_event_type type)
{
	struct iw_cm_event event;

	lockdep_assert_held(&conn->lock);
	if (!usiw_cm_notify(&conn->ledger, action, 0))
		return;
	usiw_conn_fill_event(conn, &event, type, 0);
	if (type == IW_CM_EVENT_ESTABLISHED)
		usiw_conn_fill_depths(conn, &event);
	conn->cm_id->event_handler(conn->cm_id, &event);
}

/*
 * Log why connect has failed, which rdma_cm's event does not say. Any user can cause these lines,
 * so a minute has ten at most, and the kernel prints no warning about the others.
 */
static void usiw_conn_explain(struct usiw_conn *conn, const struct iw_cm_event *reply)
{
	static struct ratelimit_state limit =
		RATELIMIT_STATE_INIT_FLAGS(limit, 60 * HZ, 10, RATELIMIT_MSG_ON_RELEASE);
	char hint[USIW_CM_HINT_MAX];

	if (usiw_cm_hint(&conn->cm, hint) && __ratelimit(&limit))
		pr_info("%s: no connection to %pISpc: %s\n", dev_name(&conn->dev->ibdev.dev),
			&reply->remote_addr, hint);
}

/* Returns further actions: when the reply cannot be told the connection is of no use. */
static u32 usiw_conn_tell_reply(struct usiw_conn *conn, int status)
{
	struct iw_cm_event event;

	lockdep_assert_held(&conn->lock);
	if (!usiw_cm_notify(&conn->ledger, USIW_CM_A_EV_REPLY, status))
		return 0;
	usiw_conn_fill_event(conn, &event, IW_CM_EVENT_CONNECT_REPLY, status);
	usiw_conn_explain(conn, &event);
	usiw_conn_fill_private_data(conn, &event);
	usiw_conn_fill_depths(conn, &event);
	if (!conn->cm_id->event_handler(conn->cm_id, &event))
		return 0;

	event.status = -ENOMEM;
	event.private_data = NULL;
	event.private_data_len = 0;
	usiw_cm_reply_lost(&conn->ledger);
	conn->cm_id->event_handler(conn->cm_id, &event);
	return status ? 0 : usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, usiw_now_us());
}

/* ---- The engine -------------------------------------------------------- */

/* @remote_mac: NULL if raw packets are not eligible. */
static void usiw_conn_announce(struct usiw_conn *conn, const struct usiw_route *route,
			       const u8 *remote_mac)
{
	struct usiw_conn_info *info = &conn->info;

	usiw_cm_fill_info(info, &conn->cm, usiw_cm_tuple(&conn->tuple));
	if (remote_mac) {
		ether_addr_copy(info->local_mac, route->dst->dev->dev_addr);
		ether_addr_copy(info->remote_mac, remote_mac);
	}
	if (conn->takes_socket) {
		info->flags |= USIW_CONN_F_SOCKET;
		if (remote_mac)
			info->flags |= USIW_CONN_F_PACKET;
		info->not_packet = route->reason;
	}
	if (route->local)
		info->flags |= USIW_CONN_F_LOCAL;
	info->mtu = usiw_conn_mtu(conn, route);
	info->hop_limit = route->hop_limit;
	info->tos = conn->sender.tos;
	conn->elsewhere = route->reason == USIW_NOT_PACKET_NETDEV;

	usiw_qp_set_depths(conn->qp, conn->cm.ird, conn->cm.ord);
	conn->announced = true;
	usiw_evfile_push(conn, USIW_EVENT_CONNECT);
}

/*
 * INSTALL needs the next hop's MAC. It is asked for again every USIW_RESOLVE_US until the
 * machine's time for INSTALL is over; as a rule the handshake has made it known already.
 */
static u32 usiw_conn_try_install(struct usiw_conn *conn)
{
	struct usiw_route route;
	u8 mac[ETH_ALEN] __aligned(2);
	int bucket, ret;

	conn->resolving = false;
	ret = usiw_route_get(conn->dev, &conn->tuple, &conn->sender, &route);
	if (ret)
		return usiw_cm_refused(&conn->cm, -EHOSTUNREACH, usiw_now_us());
	usiw_conn_judge(conn, &route);
	ret = usiw_route_eligible(&route);
	if (ret) {
		if (conn->takes_socket)
			usiw_conn_announce(conn, &route, NULL);
		usiw_route_put(&route);
		return conn->takes_socket ? 0 : usiw_cm_refused(&conn->cm, ret, usiw_now_us());
	}
	ret = usiw_route_mac(&route, &conn->tuple, mac, &bucket);
	if (!ret) {
		usiw_conn_set_nexthop(conn, bucket);
		usiw_conn_announce(conn, &route, mac);
	} else {
		conn->resolving = true;
		conn->resolve_us = usiw_now_us() + USIW_RESOLVE_US;
	}
	usiw_route_put(&route);
	return 0;
}

void usiw_conn_resolve(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	usiw_conn_perform(conn, usiw_conn_try_install(conn));
}

static void usiw_conn_kill_engine(struct usiw_conn *conn)
{
	conn->resolving = false;
	usiw_data_close(conn);
	if (!conn->announced)
		return;
	/* Ahead of the event: a provider that did not see CONNECT asks for the state. */
	if (conn->qp)
		usiw_qp_set_state(conn->qp, USIW_QPS_ERR);
	usiw_evfile_kill(conn, conn->cm.kill_reason);
}

/* ---- References -------------------------------------------------------- */

/* No datagram reaches it any more. */
void usiw_conn_unhash(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	if (!conn->hashed)
		return;
	usiw_data_close(conn);
	usiw_conn_remove(conn);
}

/* The peer has confirmed, or the connection has ended. */
void usiw_conn_no_longer_half_open(struct usiw_conn *conn)
{
	lockdep_assert(lockdep_is_held(&conn->lock) || !kref_read(&conn->kref));
	if (!conn->half_open)
		return;
	conn->half_open = false;
	usiw_gate_return_place(conn->sock, conn->listener);
	usiw_listener_put(conn->listener);
	conn->listener = NULL;
}

void usiw_conn_no_longer_orphan(struct usiw_conn *conn)
{
	lockdep_assert(lockdep_is_held(&conn->lock) || !kref_read(&conn->kref));
	if (conn->orphan_of)
		usiw_user_drop_orphan(conn->orphan_of);
	conn->orphan_of = NULL;
}

/*
 * The listener has gone. iw_cm drops requests that it has not worked off by then, and does not
 * say which. Others may still be accepted; so this one goes on, without a place in a backlog, if
 * its listener's user does not have too many of these.
 */
void usiw_conn_orphan(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	if (!conn->half_open || conn->cm_id || conn->cm.state != USIW_CM_REQ_RCVD)
		return;
	if (usiw_user_adopt_orphan(conn->listener->user))
		conn->orphan_of = conn->listener->user;
	usiw_conn_no_longer_half_open(conn);
	if (!conn->orphan_of)
		usiw_conn_perform(conn, usiw_cm_abort(&conn->cm, USIW_KILL_LOCAL, usiw_now_us()));
}

/*
 * Tie the connection to the QP and to iw_cm's id of it. Return -EINVAL if the QP cannot
 * take one (state, being destroyed), -EISCONN if it has one.
 */
int usiw_conn_attach_qp(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			const struct usiw_sender *sender)
{
	int ret = usiw_qp_attach(qp, conn);

	lockdep_assert_held(&conn->lock);
	if (ret)
		return ret;
	usiw_conn_no_longer_orphan(conn);
	conn->qp = qp;
	conn->qpn = qp->ibqp.qp_num;
	conn->events = qp->uctx->events;
	usiw_conn_take_ports(conn, qp);
	usiw_evfile_forget(conn->events, conn->qpn);
	usiw_evfile_get(conn->events);
	conn->sender = *sender;
	cm_id->add_ref(cm_id);
	conn->cm_id = cm_id;
	return 0;
}

/* Let go of iw_cm and of the QP, after what iw_cm is still owed. */
void usiw_conn_release(struct usiw_conn *conn)
{
	struct iw_cm_id *cm_id = conn->cm_id;
	struct usiw_qp *qp = conn->qp;

	lockdep_assert_held(&conn->lock);
	conn->resolving = false;
	conn->move_us = 0;
	usiw_conn_set_nexthop(conn, -1);
	usiw_conn_no_longer_half_open(conn);
	usiw_conn_no_longer_orphan(conn);
	if (cm_id) {
		u32 owed = usiw_cm_owed(&conn->ledger, &conn->cm);

		if (owed & USIW_CM_A_EV_REPLY)
			usiw_conn_tell_reply(conn, -ECONNABORTED);
		if (owed & USIW_CM_A_EV_ESTABLISHED)
			usiw_conn_tell(conn, USIW_CM_A_EV_ESTABLISHED, IW_CM_EVENT_ESTABLISHED);
		if (owed & USIW_CM_A_EV_CLOSE)
			usiw_conn_tell(conn, USIW_CM_A_EV_CLOSE, IW_CM_EVENT_CLOSE);
		usiw_cm_ledger_mute(&conn->ledger);
		conn->cm_id = NULL;
		cm_id->rem_ref(cm_id);
	}
	if (qp) {
		/* The engine has flushed it, or will when it reads KILL. */
		if (conn->announced)
			usiw_qp_set_state(qp, USIW_QPS_ERR);
		conn->qp = NULL;
		usiw_qp_detach(qp, conn);
	}
}

/* ---- Actions ----------------------------------------------------------- */

static void usiw_conn_send(struct usiw_conn *conn)
{
	u8 buf[USIW_CM_MAX_DATAGRAM];
	u32 len = usiw_cm_build(&conn->cm, buf);

	usiw_count(conn->dev, USIW_KCNT_CM_TX);
	usiw_cm_unsent(&conn->cm, usiw_sock_send(conn->sock, &conn->tuple, conn->sender.tos, buf,
						 len));
}

static void usiw_conn_established(struct usiw_conn *conn)
{
	if (conn->cm.state != USIW_CM_ESTABLISHED)
		return;
	usiw_conn_no_longer_half_open(conn);
	usiw_count(conn->dev, USIW_KCNT_CM_ESTABLISHED);
	usiw_qp_set_state(conn->qp, USIW_QPS_RTS);
}

static u32 usiw_conn_perform_one(struct usiw_conn *conn, u32 action)
{
	switch (action) {
	case USIW_CM_A_INSTALL:
		return usiw_conn_try_install(conn);
	case USIW_CM_A_GRACE:
		usiw_qp_set_state(conn->qp, USIW_QPS_CLOSING);
		usiw_evfile_push(conn, USIW_EVENT_DISCONNECT);
		return 0;
	case USIW_CM_A_KILL:
		usiw_conn_kill_engine(conn);
		return 0;
	case USIW_CM_A_PROBE:
		usiw_evfile_push(conn, USIW_EVENT_PROBE);
		return 0;
	case USIW_CM_A_TX:
		usiw_conn_send(conn);
		return 0;
	case USIW_CM_A_EV_REPLY:
		usiw_conn_established(conn);
		return usiw_conn_tell_reply(conn, conn->cm.status);
	case USIW_CM_A_EV_ESTABLISHED:
		usiw_conn_established(conn);
		usiw_conn_tell(conn, action, IW_CM_EVENT_ESTABLISHED);
		return 0;
	case USIW_CM_A_EV_DISCONNECT:
		usiw_conn_tell(conn, action, IW_CM_EVENT_DISCONNECT);
		return 0;
	case USIW_CM_A_EV_CLOSE:
		usiw_conn_tell(conn, action, IW_CM_EVENT_CLOSE);
		return 0;
	case USIW_CM_A_RELEASE:
		usiw_conn_release(conn);
		return 0;
	case USIW_CM_A_DEAD:
		usiw_conn_unhash(conn);
		return 0;
	default:
		return 0;
	}
}

/* Carry out the machine's actions, and those that come of them, in the order of their bits. */
void usiw_conn_perform(struct usiw_conn *conn, u32 actions)
{
	u32 action;

	lockdep_assert_held(&conn->lock);
	while (actions) {
		action = actions & -actions;
		actions &= ~action;
		actions |= usiw_conn_perform_one(conn, action);
	}
}
