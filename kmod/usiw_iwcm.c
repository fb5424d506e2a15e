// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* The calls connect, accept and reject of iw_cm. usiw_listen.c has those of listeners. */
#include <net/ipv6.h>
#include <rdma/iw_cm.h>

#include "usiw_iwcm.h"

#include "../cm/usiw_cm_path.h"
#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_conn_act.h"
#include "usiw_conn_run.h"
#include "usiw_device.h"
#include "usiw_iwcm_quirks.h"
#include "usiw_qp_ref.h"
#include "usiw_route.h"
#include "usiw_sock.h"

/* ---- Addresses --------------------------------------------------------- */

static bool usiw_addr_is_unicast(const struct in6_addr *addr)
{
	__be32 ipv4 = addr->s6_addr32[3];

	if (ipv6_addr_v4mapped(addr))
		return !ipv4_is_zeronet(ipv4) && !ipv4_is_multicast(ipv4) &&
		       !ipv4_is_lbcast(ipv4);
	return !ipv6_addr_any(addr) && !ipv6_addr_is_multicast(addr);
}

/*
 * Sets the interface of link-local addresses: the one that an end names, or the device's netdev if
 * no end names one. Other addresses have the interface 0. Returns -EINVAL if the ends name
 * different interfaces.
 */
static int usiw_iw_scope(const struct iw_cm_id *cm_id, struct usiw_tuple *tuple)
{
	u32 local = usiw_addr_scope(&cm_id->local_addr);
	u32 remote = usiw_addr_scope(&cm_id->m_remote_addr);

	tuple->scope = 0;
	if (!usiw_tuple_is_link_local(tuple))
		return 0;
	if (local && remote && local != remote)
		return -EINVAL;
	tuple->scope = local | remote;
	if (!tuple->scope)
		tuple->scope = to_usiw_dev(cm_id->device)->netdev->ifindex;
	return 0;
}

static int usiw_iw_tuple(struct iw_cm_id *cm_id, struct usiw_tuple *tuple)
{
	int ret;

	ret = usiw_addr_from_sockaddr(&tuple->local, &tuple->local_port, &cm_id->local_addr);
	if (!ret)
		ret = usiw_addr_from_sockaddr(&tuple->remote, &tuple->remote_port,
					      &cm_id->m_remote_addr);
	if (ret)
		return ret;
	if (ipv6_addr_v4mapped(&tuple->local) != ipv6_addr_v4mapped(&tuple->remote) ||
	    !usiw_addr_is_unicast(&tuple->local) || !usiw_addr_is_unicast(&tuple->remote) ||
	    !tuple->local_port || !tuple->remote_port)
		return -EINVAL;
	return usiw_iw_scope(cm_id, tuple);
}

static int usiw_check_param(const struct iw_cm_conn_param *param)
{
	if (param->private_data_len > USIW_MAX_PRIVATE_DATA)
		return -EINVAL;
	return usiw_check_depths(param->ird, param->ord);
}

/* ---- Connect ----------------------------------------------------------- */

/* Drops an old connection of the 4-tuple that only lingers for its peer. */
static void usiw_iw_evict(struct usiw_device *dev, const struct usiw_tuple *tuple)
{
	struct usiw_conn *conn = usiw_conn_lookup(read_pnet(&dev->net), tuple);

	if (!conn)
		return;
	mutex_lock(&conn->lock);
	if (conn->end.cm.state == USIW_CM_LINGER)
		usiw_cm_end_drop(&conn->end);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
}

/* Sends the first datagram. All steps that can fail come before it. */
static int usiw_iw_start(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			 const struct usiw_sender *sender)
{
	int ret;

	mutex_lock(&conn->lock);
	ret = usiw_conn_insert(conn);
	if (!ret) {
		ret = usiw_conn_attach_qp(conn, qp, cm_id, sender);
		if (ret)
			usiw_cm_end_drop(&conn->end);
	}
	if (!ret) {
		usiw_count(conn->dev, USIW_KCNT_CM_CONNECT);
		usiw_cm_end_connect(&conn->end, usiw_now_us());
	}
	mutex_unlock(&conn->lock);
	return ret;
}

static int usiw_iw_connect_qp(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param,
			      struct usiw_tuple *tuple, u16 mtu, struct usiw_qp *qp,
			      const struct usiw_sender *sender)
{
	struct usiw_device *dev = to_usiw_dev(cm_id->device);
	struct usiw_sock *us;
	struct usiw_conn *conn;
	int ret;

	us = usiw_sock_get_active(read_pnet(&dev->net), usiw_tuple_is_ipv4(tuple),
				  tuple->local_port);
	if (IS_ERR(us))
		return PTR_ERR(us);
	tuple->local_port = us->port;
	conn = usiw_conn_alloc(dev, tuple, GFP_KERNEL_ACCOUNT);
	if (IS_ERR(conn)) {
		usiw_sock_put(us, usiw_tuple_is_ipv4(tuple));
		return PTR_ERR(conn);
	}
	conn->sock = us;
	ret = usiw_cm_init_active(&conn->end.cm, get_random_u32(), param->ird, param->ord, mtu,
				  USIW_TRP_FIRST_WINDOW, param->private_data,
				  param->private_data_len);
	if (!ret) {
		usiw_iw_evict(dev, tuple);
		usiw_iw_set_local_port(cm_id, tuple->local_port);
		ret = usiw_iw_start(conn, qp, cm_id, sender);
	}
	usiw_conn_put(conn);
	return ret;
}

/*
 * Returns 0, and one CONNECT_REPLY follows; or
 *
 * - -EINVAL: wrong parameters or QP
 * - -EADDRNOTAVAIL: the device serves no such address
 * - -ENETUNREACH and similar: the user is in another netns than the device, or there is no route
 * - -EPROTONOSUPPORT: another port space than RDMA_PS_TCP, or raw packets would bypass IPsec or an
 *   encapsulation
 * - -EPERM: a policy forbids the connection
 * - -EOPNOTSUPP: the device is in a VRF
 * - -EMSGSIZE: the MTU is too small
 * - -EADDRINUSE: the port or the 4-tuple is taken
 * - -EISCONN: the QP has a connection
 */
int usiw_iw_connect(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	const struct usiw_sender sender = usiw_iw_sender(cm_id);
	struct usiw_device *dev = to_usiw_dev(cm_id->device);
	struct usiw_cm_route route;
	struct usiw_tuple tuple;
	struct usiw_qp *qp;
	int ret;

	ret = usiw_check_param(param);
	if (!ret)
		ret = usiw_iw_tuple(cm_id, &tuple);
	if (ret)
		return ret;
	if (!usiw_iw_is_of_tcp(cm_id))
		return -EPROTONOSUPPORT;
	if (!usiw_iw_in_netns(cm_id))
		return -ENETUNREACH;
	if (usiw_addr_owner(dev, &tuple) == USIW_ADDR_OTHERS)
		return -EADDRNOTAVAIL;
	qp = usiw_qp_get_own(dev, param->qpn);
	if (!qp)
		return -EINVAL;
	ret = usiw_route_check(dev, &tuple, &sender, usiw_qp_can(qp, USIW_CAP_DATA_SOCKET), &route);
	if (!ret && route.mtu < USIW_MIN_MTU)
		ret = -EMSGSIZE;
	if (!ret)
		ret = usiw_iw_connect_qp(cm_id, param, &tuple, route.mtu, qp, &sender);
	usiw_qp_put(qp);
	return ret;
}

/* ---- Accept, reject ---------------------------------------------------- */

/*
 * Checks whether there is a way back to the peer if @qp accepts. Returns 0, or the error that
 * connect would return.
 *
 * A context may be without raw packets (USIW_CAP_SOCKETS_ONLY) or without data sockets. Other hosts
 * need not know which, because the wire has the same datagrams either way. Within one host the two
 * ends need a kind of port in common, else this returns -EPROTONOSUPPORT: over lo IP drops a
 * datagram with an address of its own host unless it came out of its own sockets, so a raw packet
 * reaches raw ports only. May sleep.
 */
static int usiw_conn_check_way(const struct usiw_conn *conn, const struct usiw_qp *qp,
			       const struct usiw_sender *sender)
{
	struct usiw_cm_route route;
	int ret;

	ret = usiw_route_check(conn->dev, usiw_conn_tuple(conn), sender,
			       usiw_qp_can(qp, USIW_CAP_DATA_SOCKET), &route);
	if (!ret && route.local &&
	    usiw_cm_ports_differ(usiw_conn_peer_ports(conn), usiw_qp_ports(qp)))
		ret = -EPROTONOSUPPORT;
	return ret;
}

/* Ends a connection without a further notice to iw_cm. */
static void usiw_conn_mute_and_abort(struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	usiw_cm_end_leave(&conn->end);
	usiw_cm_end_abort(&conn->end, USIW_ABORT_LOCAL, usiw_now_us());
}

static int usiw_conn_accept(struct usiw_conn *conn, struct usiw_qp *qp, struct iw_cm_id *cm_id,
			    const struct iw_cm_conn_param *param,
			    const struct usiw_sender *sender)
{
	int ret;

	mutex_lock(&conn->lock);
	ret = conn->cm_id ? -ECONNRESET : usiw_cm_end_may_accept(&conn->end);
	if (!ret)
		ret = usiw_conn_attach_qp(conn, qp, cm_id, sender);
	if (!ret) {
		/* iw_cm has had no notice yet. usiw_check_param() has ruled all errors out. */
		usiw_iw_set_accepted(cm_id, qp->proxy);
		usiw_qp_accepted(qp);
		ret = usiw_cm_end_accept(&conn->end, param->ird, param->ord, param->private_data,
					 param->private_data_len, usiw_now_us());
	}
	if (ret)
		usiw_conn_mute_and_abort(conn);
	mutex_unlock(&conn->lock);
	return ret;
}

/*
 * Handles accept on a cm_id that was accepted before. After an error iw_cm would forget the second
 * QP as it has forgotten the first one, and would run into BUG_ON() at ESTABLISHED. So the call
 * succeeds, and the connection ends at once.
 */
static int usiw_iw_accept_again(struct iw_cm_id *cm_id, u32 qpn)
{
	struct usiw_conn *conn = usiw_iw_accepted_conn(cm_id);

	usiw_iw_change_qp(cm_id, qpn);
	if (conn) {
		usiw_conn_abort(conn);
		usiw_conn_put(conn);
	}
	return 0;
}

/*
 * Returns -EINVAL (parameters, QP), -EISCONN, -ECONNRESET (the request is gone), or what connect
 * returns if there is no way back to the peer. An error ends the request, because iw_cm does not
 * use it again.
 */
int usiw_iw_accept(struct iw_cm_id *cm_id, struct iw_cm_conn_param *param)
{
	struct usiw_sender sender = { .uid = current_fsuid() };
	struct usiw_device *dev = to_usiw_dev(cm_id->device);
	struct usiw_conn *conn;
	struct usiw_qp *qp;
	int ret;

	if (usiw_iw_is_accepted(cm_id))
		return usiw_iw_accept_again(cm_id, param->qpn);
	conn = usiw_iw_request_conn(cm_id);
	if (!conn)
		return -ECONNRESET;
	sender.tos = conn->end.tos;
	ret = usiw_check_param(param);
	qp = ret ? NULL : usiw_qp_get_own(dev, param->qpn);
	if (!ret && !qp)
		ret = -EINVAL;
	if (!ret)
		ret = usiw_conn_check_way(conn, qp, &sender);
	if (!ret)
		ret = usiw_conn_accept(conn, qp, cm_id, param, &sender);
	else
		usiw_conn_abort(conn);
	if (qp)
		usiw_qp_put(qp);
	usiw_conn_put(conn);
	return ret;
}

int usiw_iw_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pd_len)
{
	bool accepted = usiw_iw_is_accepted(cm_id);
	struct usiw_conn *conn = accepted ? usiw_iw_accepted_conn(cm_id) :
					    usiw_iw_request_conn(cm_id);

	if (!conn)
		return accepted ? 0 : -ECONNRESET;
	mutex_lock(&conn->lock);
	/* iw_cm has moved an accepted id to a state in which it does not expect ESTABLISHED. */
	if (accepted)
		usiw_conn_mute_and_abort(conn);
	else
		usiw_cm_end_reject(&conn->end, pdata, pd_len, usiw_now_us());
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
	return 0;
}
