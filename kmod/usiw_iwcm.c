// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Functions that iw_cm calls to connect, accept and reject. usiw_listen.c contains the functions
 * that iw_cm calls to listen.
 */
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
 * Sets tuple->scope. If an address is link-local, the scope is the interface that @cm_id names for
 * either address, or the device's netdev if @cm_id names none. Otherwise the scope is 0. Returns 0,
 * or -EINVAL if @cm_id names different interfaces for the two addresses.
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

/* Sets @tuple from the addresses of @cm_id. Returns 0 or -errno. */
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

/* Drops an old connection of the 4-tuple if it is in LINGER. */
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

/*
 * Enters the connection in the table, attaches its QP, and sends the REQ. All steps that can fail
 * come before the REQ.
 */
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
 * Connects @cm_id to its remote address, with the QP param->qpn. Returns 0, and then exactly one
 * CONNECT_REPLY follows. Otherwise returns
 *
 * - -ENOMEM: no memory
 * - -EINVAL: wrong parameters or QP
 * - -EADDRNOTAVAIL: the device does not serve the local address
 * - -ENODEV: the device may not have connections now (usiw_device.dying)
 * - -ENETUNREACH and similar: the user is in another netns than the device, there is no route, or
 *   the process has no data sockets and the route leaves by another interface
 * - -EPROTONOSUPPORT: another port space than RDMA_PS_TCP, or the process has no data sockets and
 *   raw packets would bypass IPsec or an encapsulation
 * - -EPERM: a policy forbids the connection
 * - -EOPNOTSUPP: the device or the address is in a VRF
 * - -EMSGSIZE: the MTU is too small
 * - -EADDRINUSE: the port or the 4-tuple is taken
 * - -EISCONN: the QP has a connection
 * - another error of bind(2): the module cannot bind the port
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
 * Checks whether @qp could send to the peer if it accepts. Returns 0, or the error that connect
 * would return. May sleep.
 *
 * A context may be unable to use raw packets (USIW_CAP_SOCKETS_ONLY) or data sockets. A peer on
 * another host need not know, because the wire has the same datagrams either way. Within one host
 * both ends need a common kind of port, else this function returns -EPROTONOSUPPORT. The reason: on
 * lo, IP drops a datagram from a local address unless a local socket sent it. So a raw packet
 * reaches raw ports only.
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
		/*
		 * Mark the request as accepted before usiw_cm_end_accept(), by which the engine
		 * gets the connection. The marks need no undo, because usiw_cm_end_accept() cannot
		 * fail: usiw_check_param() has checked the length of the private data, and
		 * usiw_cm_end_may_accept() the state.
		 */
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
 * Handles accept on a cm_id that was accepted before. iw_cm has already replaced the first QP by
 * the second one. If this call failed, iw_cm would set the cm_id to idle, and hit a BUG_ON() at the
 * ESTABLISHED of the first accept. So the call succeeds, and the connection ends at once.
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
 * Accepts a request. Returns 0, -EINVAL (wrong parameters or QP), -EISCONN (the QP has a
 * connection), -ECONNRESET (the request has ended), or an error of usiw_conn_check_way(). After an
 * error the request ends, because iw_cm does not use it again.
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

/*
 * Rejects a request. If the request was accepted before, ends the connection. Returns 0, or
 * -ECONNRESET if the request was not accepted and its connection is gone.
 */
int usiw_iw_reject(struct iw_cm_id *cm_id, const void *pdata, u8 pd_len)
{
	bool accepted = usiw_iw_is_accepted(cm_id);
	struct usiw_conn *conn = accepted ? usiw_iw_accepted_conn(cm_id) :
					    usiw_iw_request_conn(cm_id);

	if (!conn)
		return accepted ? 0 : -ECONNRESET;
	mutex_lock(&conn->lock);
	/*
	 * iw_cm hits a BUG_ON() if it gets ESTABLISHED for a cm_id that was accepted and then
	 * rejected. So an accepted connection ends without a further notice.
	 */
	if (accepted)
		usiw_conn_mute_and_abort(conn);
	else
		usiw_cm_end_reject(&conn->end, pdata, pd_len, usiw_now_us());
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
	return 0;
}
