// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Listeners, and the requests that reach them. A listener of iw_cm becomes a user of a UDP port and
 * joins the port's admission. The worker of the port calls usiw_listener_request() for each REQ
 * that asks for a new connection. The admission decides on the REQ. A REQ that gets a slot becomes
 * a connection, and iw_cm is notified.
 */
#include <linux/memcontrol.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <rdma/iw_cm.h>

#include "usiw_listen.h"

#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_conn_act.h"
#include "usiw_conn_run.h"
#include "usiw_device.h"
#include "usiw_admission.h"
#include "usiw_iwcm_quirks.h"
#include "usiw_route.h"
#include "usiw_sock.h"
#include "usiw_user.h"

/* ---- Listening --------------------------------------------------------- */

/* Returns true if @conn has a slot of @listener. */
static bool usiw_listener_has(struct usiw_conn *conn, const void *listener)
{
	return READ_ONCE(conn->listener) == listener;
}

/* Ends listening, and makes the listener's requests orphans. */
static void usiw_listener_leave(struct usiw_listener *listener)
{
	int ipv4;

	if (listener->us)
		usiw_admission_leave(listener);
	for (ipv4 = 0; ipv4 < 2; ipv4++)
		if (listener->families & BIT(ipv4))
			usiw_sock_put(listener->us, ipv4);
	listener->families = 0;
	listener->us = NULL;
	usiw_conn_kick_device(listener->dev, USIW_CONN_ORPHANED, usiw_listener_has, listener);
}

/* Makes the listener a user of @port, for one family. Returns 0 or -errno. */
static int usiw_listener_take(struct usiw_listener *listener, bool ipv4, __be16 port)
{
	struct usiw_sock *us = usiw_sock_get(read_pnet(&listener->dev->net), ipv4, port);

	if (IS_ERR(us))
		return PTR_ERR(us);
	listener->us = us;
	listener->families |= BIT(ipv4);
	return 0;
}

/* Takes the port, for both families if necessary, and joins its admission. Returns 0 or -errno. */
static int usiw_listener_join(struct usiw_listener *listener, bool ipv4, __be16 port, int backlog)
{
	struct iw_cm_id *cm_id = listener->cm_id;
	int ret;

	/*
	 * rdma_cm makes a wildcard listener on all devices of the host, and an error on one device
	 * would end it on all. So in the next two cases a wildcard listener joins no port, and the
	 * call succeeds. A listener at an address is on one device, so it gets the error.
	 */
	if (!usiw_iw_is_of_tcp(cm_id))
		return listener->any ? 0 : -EPROTONOSUPPORT;
	if (!usiw_iw_in_netns(cm_id))
		return listener->any ? 0 : -ENETUNREACH;
	ret = usiw_listener_take(listener, ipv4, port);
	if (!ret && listener->any && !ipv4 && !cm_id->afonly)
		ret = usiw_listener_take(listener, true, port);
	return ret ? ret : usiw_admission_join(listener, max(backlog, 1));
}

/*
 * Returns true if rdma_cm may be repeating an old listener for a new or moved device. While ib_core
 * gives a device to its clients, rdma_cm repeats all its wildcard listeners on the device, in the
 * process that adds or moves the device. That process has not asked to listen, so its cgroup is not
 * charged for the listener's REQs and connections.
 */
static bool usiw_listener_is_repeated(const struct usiw_listener *listener)
{
	return listener->any && usiw_device_is_coming(listener->dev);
}

/*
 * Returns true and logs a warning if the listener may stay although it could not join. Such a
 * listener receives nothing by this device. Only a repeated listener may stay: if it got an error,
 * rdma_cm would treat that as an error of the device, and no program could use the device. There
 * are several causes that are no error of the device. Another socket may have the port in that
 * namespace. The process that adds the device may lack memory or a capability, or its cgroup may
 * forbid the bind, although the listener's own process could listen.
 */
static bool usiw_listener_may_stay(const struct usiw_listener *listener, __be16 port, int error)
{
	if (!usiw_listener_is_repeated(listener))
		return false;
	dev_warn_ratelimited(&listener->dev->ibdev.dev,
			     "port %u %s: wildcard listener receives nothing here (error %d)\n",
			     be16_to_cpu(port),
			     error == -EADDRINUSE ? "is in use" : "cannot be bound", error);
	return true;
}

/*
 * Listens at the address of @cm_id, or at all addresses. The IPv6 wildcard includes IPv4 unless the
 * user has set the option afonly. The user may be in another netns than the device, or in another
 * port space than RDMA_PS_TCP. Then a wildcard listener takes no port and receives nothing, and a
 * listener at an address gets -ENETUNREACH or -EPROTONOSUPPORT. Returns 0, -EADDRINUSE if another
 * socket has the UDP port or another listener has the address, or another -errno. A listener that
 * usiw_listener_may_stay() lets stay returns 0 as well.
 */
int usiw_iw_create_listen(struct iw_cm_id *cm_id, int backlog)
{
	bool ipv4 = cm_id->local_addr.ss_family == AF_INET;
	struct usiw_listener *listener;
	bool repeated;
	__be16 port;
	int ret;

	listener = kzalloc(sizeof(*listener), GFP_KERNEL_ACCOUNT);
	if (!listener)
		return -ENOMEM;
	ret = usiw_addr_from_sockaddr(&listener->addr, &port, &cm_id->local_addr);
	if (!ret && !port)
		ret = -EINVAL;
	if (ret)
		goto err_free;
	kref_init(&listener->kref);
	INIT_LIST_HEAD(&listener->node);
	listener->dev = to_usiw_dev(cm_id->device);
	listener->scope = usiw_addr_scope(&cm_id->local_addr);
	listener->any = ipv4 ? !listener->addr.s6_addr32[3] : ipv6_addr_any(&listener->addr);
	listener->sender = usiw_iw_sender(cm_id);
	repeated = usiw_listener_is_repeated(listener);
	listener->user = usiw_user_get(read_pnet(&listener->dev->net), listener->sender.uid,
				       repeated);
	if (!listener->user) {
		ret = -ENOMEM;
		goto err_free;
	}
	if (!repeated)
		listener->memcg = get_mem_cgroup_from_mm(current->mm);
	listener->cm_id = cm_id;
	cm_id->add_ref(cm_id);
	usiw_device_hold(listener->dev);

	ret = usiw_listener_join(listener, ipv4, port, backlog);
	if (ret) {
		usiw_listener_leave(listener);
		if (!usiw_listener_may_stay(listener, port, ret)) {
			usiw_listener_put(listener);
			return ret;
		}
	}
	cm_id->provider_data = listener;
	return 0;

err_free:
	kfree(listener);
	return ret;
}

int usiw_iw_destroy_listen(struct iw_cm_id *cm_id)
{
	struct usiw_listener *listener = cm_id->provider_data;

	if (!listener)
		return 0;
	cm_id->provider_data = NULL;
	usiw_listener_leave(listener);
	usiw_listener_put(listener);
	return 0;
}

/* ---- Requests ---------------------------------------------------------- */

/*
 * Gives @conn a slot of @listener, and notifies iw_cm. If that fails, drops the request without an
 * answer. The peer then repeats its REQ, and iw_cm may have space in its backlog by then.
 */
static void usiw_listener_notify(struct usiw_listener *listener, struct usiw_conn *conn)
{
	lockdep_assert_held(&conn->lock);
	kref_get(&listener->kref);
	WRITE_ONCE(conn->listener, listener);
	if (!usiw_conn_insert(conn) && !usiw_conn_notify_request(conn)) {
		usiw_count(conn->dev, USIW_KCNT_CM_REQUEST);
		/*
		 * If the listener has left meanwhile, it may have searched for its requests before
		 * conn->listener was set.
		 */
		if (usiw_admission_has_left(conn->sock, listener))
			usiw_conn_kick(conn, USIW_CONN_ORPHANED);
		usiw_conn_arm(&conn->end);
		return;
	}
	usiw_count(conn->dev, USIW_KCNT_CM_BACKLOG_FULL);
	usiw_cm_end_drop(&conn->end);
}

/*
 * Returns a new connection or an error pointer. If @listener has a cgroup, that is charged for the
 * memory of the connection. The allocation must not sleep: the kernel delays a thread that charges
 * a cgroup above its limits, and this thread is the worker of all listeners of the port. Without
 * memory the peer has to repeat its REQ, and the OOM killer does not run.
 */
static struct usiw_conn *usiw_listener_alloc_conn(const struct usiw_listener *listener,
						  const struct usiw_tuple *tuple)
{
	struct mem_cgroup *before = set_active_memcg(listener->memcg);
	struct usiw_conn *conn = usiw_conn_alloc(listener->dev, tuple,
						 GFP_NOWAIT | __GFP_NOWARN | __GFP_ACCOUNT);

	set_active_memcg(before);
	return conn;
}

/*
 * Makes a connection with @isn for a REQ that has a slot of @listener, and notifies iw_cm. Returns
 * the enum usiw_reject_reason with which the caller refuses the REQ. Returns 0 if the connection
 * was made or the REQ is dropped.
 */
static int usiw_listener_open(struct usiw_listener *listener, struct usiw_sock *us,
			      const struct usiw_tuple *tuple, const struct usiw_cm_packet *req,
			      u32 isn)
{
	struct usiw_device *dev = listener->dev;
	struct usiw_conn *conn;
	struct usiw_cm_route route;
	int reason = 0;

	/*
	 * Passes true for data sockets, because the process that will accept is not known yet. If
	 * it has no data sockets and raw packets are not possible, accept returns the error.
	 */
	if (usiw_route_check(dev, tuple, &listener->sender, true, &route))
		goto return_place;
	conn = usiw_listener_alloc_conn(listener, tuple);
	if (IS_ERR(conn)) {
		usiw_count(dev, USIW_KCNT_CM_BACKLOG_FULL);
		goto return_place;
	}
	/*
	 * Fails if the last user of the family has left the port. usiw_sock_put() then waits for
	 * this worker before it frees @us.
	 */
	if (!refcount_inc_not_zero(&us->users[usiw_tuple_is_ipv4(tuple)]))
		goto put_conn;
	conn->sock = us;
	conn->sender = listener->sender;
	conn->end.tos = listener->sender.tos;
	reason = usiw_cm_init_passive(&conn->end.cm, req, isn, route.mtu, USIW_TRP_FIRST_WINDOW,
				      usiw_now_us());
	if (reason) {
		usiw_count(dev, USIW_KCNT_CM_REFUSED);
		goto put_conn;
	}
	mutex_lock(&conn->lock);
	usiw_listener_notify(listener, conn);
	mutex_unlock(&conn->lock);
	usiw_conn_put(conn);
	return 0;

put_conn:
	usiw_conn_put(conn);
return_place:
	usiw_admission_return_place(us, listener);
	return reason;
}

/*
 * Handles the REQ in @rx: makes a connection, lets the REQ wait, refuses or drops it. @req: the
 * REQ, decoded. @answer: buffer of USIW_CM_MAX_DATAGRAM bytes. Frees @rx or passes it to the
 * admission.
 */
void usiw_listener_request(struct usiw_sock *us, struct usiw_rx *rx,
			   const struct usiw_cm_packet *req, void *answer)
{
	struct usiw_tuple tuple = *usiw_rx_ends(rx);
	struct usiw_cm_admission_verdict v;
	struct usiw_listener *listener;
	int reason = 0;
	u32 len;

	len = usiw_admission_request(&v, &listener, us, &rx, req, answer);
	if (listener) {
		usiw_count(listener->dev, USIW_KCNT_CM_RX);
		if (v.pending)
			usiw_count(listener->dev, USIW_KCNT_CM_BACKLOG_FULL);
	}
	if (v.kind == USIW_CM_ADM_ADMIT)
		reason = usiw_listener_open(listener, us, &tuple, req, v.isn);
	else if (v.kind == USIW_CM_ADM_REFUSE)
		reason = USIW_REJECT_NO_LISTENER;
	if (reason)
		len = usiw_cm_build_refusal(req, reason, answer);
	if (len)
		usiw_sock_send(us, &tuple, listener ? listener->sender.tos : 0, answer, len);
	if (listener)
		usiw_listener_put(listener);
	kfree(rx);
}
