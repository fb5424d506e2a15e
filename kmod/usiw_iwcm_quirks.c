// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Work-arounds for what iw_cm does not report or do. This file and its callers' lines can be
 * deleted once iw_cm does.
 *
 * - iw_cm keeps its reference to a QP for as long as users let it (struct usiw_qp_proxy).
 * - iw_cm leaves an accepted cm_id in its old state until it has handled ESTABLISHED. Meanwhile
 *   users can accept and reject the cm_id again (usiw_iw_change_qp).
 * - iw_cm waits for an answer in the process that asked, and no signal ends that wait. So a
 *   connection checks whether its process was killed (usiw_process_is_dying).
 * - A cm_id has no netns (usiw_iw_in_netns). rdma_cm listens on every device of the host. Where
 *   network namespaces share the devices, it connects by devices of other namespaces.
 * - A cm_id has no port space (usiw_iw_is_of_tcp). rdma_cm has a table of ports for each port
 *   space, and uses iWARP in all of them.
 * - CONNECT_REPLY cannot report which port was used (usiw_iw_set_local_port).
 */
#include <linux/rcupdate.h>
#include <rdma/rdma_cm.h>

#include "usiw_iwcm_quirks.h"

#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_qp_ref.h"

/*
 * The provider_data of a cm_id that iw_cm makes for a request: first the id of the connection,
 * shifted left by one bit; after accept, the proxy of the QP that iw_cm has got, with the lowest
 * bit set.
 */
#define USIW_ACCEPTED	1ul

/*
 * Listeners and connections outlive the users of their cm_ids, and drop the cm_ids by iw_cm's own
 * rem_ref. So iw_cm must not be unloaded before this module, and this symbol prevents it.
 */
static const typeof(&iw_destroy_cm_id) usiw_needs_iw_cm __used = iw_destroy_cm_id;

/*
 * Returns true if the user of @cm_id is in the netns of the device. The current process does not
 * show it: rdma_cm repeats old listens for a new device in the process that adds the device. But
 * the context of each cm_id is an rdma_cm_id, which was made in a netns. The rdma_cm_ids of a
 * wildcard listen inherit the netns of the user's. rdma_cm is the only user of iw_cm, and its id
 * lives as long as the cm_id is used.
 */
bool usiw_iw_in_netns(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return net_eq(id->route.addr.dev_addr.net, read_pnet(&to_usiw_dev(cm_id->device)->net));
}

/*
 * Returns true if the user of @cm_id is in the port space of connections. Only there rdma_cm knows
 * the listener of a port and keeps others from it. In the spaces of datagrams and of InfiniBand it
 * would give the same port of the same address to another user, who could send from it.
 */
bool usiw_iw_is_of_tcp(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return id->ps == RDMA_PS_TCP;
}

/*
 * Sets the port that is really used. With CONNECT_REPLY iw_cm passes on the address of the cm_id,
 * not that of the event. The caller sets it before the connection starts, because CONNECT_REPLY may
 * follow at once.
 */
void usiw_iw_set_local_port(struct iw_cm_id *cm_id, __be16 port)
{
	if (cm_id->local_addr.ss_family == AF_INET)
		((struct sockaddr_in *)&cm_id->local_addr)->sin_port = port;
	else
		((struct sockaddr_in6 *)&cm_id->local_addr)->sin6_port = port;
}

/* ---- Requests that are accepted twice ---- */

static struct usiw_qp_proxy *usiw_iw_accepted_proxy(const struct iw_cm_id *cm_id)
{
	return (void *)((unsigned long)cm_id->provider_data & ~USIW_ACCEPTED);
}

bool usiw_iw_is_accepted(const struct iw_cm_id *cm_id)
{
	return (unsigned long)cm_id->provider_data & USIW_ACCEPTED;
}

struct usiw_conn *usiw_iw_request_conn(const struct iw_cm_id *cm_id)
{
	return usiw_conn_by_id((unsigned long)cm_id->provider_data >> 1);
}

void *usiw_iw_request_data(const struct usiw_conn *conn)
{
	return (void *)((unsigned long)conn->end.id << 1);
}

void usiw_iw_set_accepted(struct iw_cm_id *cm_id, struct usiw_qp_proxy *proxy)
{
	cm_id->provider_data = (void *)((unsigned long)proxy | USIW_ACCEPTED);
}

/* Returns the connection that an accepted cm_id still has, with a reference; or NULL. */
struct usiw_conn *usiw_iw_accepted_conn(struct iw_cm_id *cm_id)
{
	struct usiw_qp_proxy *proxy = usiw_iw_accepted_proxy(cm_id);
	struct usiw_conn *conn = NULL;
	struct usiw_qp *qp;

	qp = proxy ? usiw_qp_proxy_get_qp(proxy) : NULL;
	if (qp) {
		conn = usiw_qp_get_conn(qp);
		usiw_qp_put(qp);
	}
	return conn;
}

/*
 * The user has accepted @cm_id again, with another QP. iw_cm has put that QP in place of the first
 * one, and has forgotten its reference to the first one, which this call drops.
 */
void usiw_iw_change_qp(struct iw_cm_id *cm_id, u32 qpn)
{
	struct usiw_qp_proxy *first = usiw_iw_accepted_proxy(cm_id);

	rcu_read_lock();
	usiw_iw_set_accepted(cm_id, usiw_qp_proxy_by_qpn(to_usiw_dev(cm_id->device), qpn));
	rcu_read_unlock();
	if (first)
		usiw_iw_rem_ref(&first->ibqp);
}
