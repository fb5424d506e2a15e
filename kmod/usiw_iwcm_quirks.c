// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What iw_cm does not say or do, and how usiw gets by; to be deleted whole, with the callers'
 * lines, once iw_cm does.
 *
 * - It keeps its reference to a QP for as long as users let it (struct usiw_qp_proxy).
 * - It leaves a cm_id that was accepted in the state in which it took accept until it has worked
 *   ESTABLISHED off, and lets users accept and reject it again meanwhile (usiw_iw_change_qp).
 * - It waits for an answer in the process that asked, where no signal ends the wait, so that one
 *   who has been killed is looked for (usiw_process_is_dying).
 * - A cm_id has no netns (usiw_iw_in_netns): rdma_cm listens on every device of the host, and
 *   connects by devices of other network namespaces, where these share the devices.
 * - A cm_id has no port space (usiw_iw_is_of_tcp): rdma_cm keeps a table of ports for each, and
 *   connects and listens by iWARP in all of them.
 * - CONNECT_REPLY cannot say which port was used (usiw_iw_set_local_port).
 */
#include <linux/rcupdate.h>
#include <rdma/rdma_cm.h>

#include "usiw_iwcm_quirks.h"

#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_qp_ref.h"

/*
 * provider_data of a cm_id made for a request: first the connection's id, shifted by one; after
 * accept, the proxy of the QP that iw_cm was given, with the lowest bit set.
 */
#define USIW_ACCEPTED	1ul

/*
 * Listeners and connections outlive the users of their cm_ids, and drop them by iw_cm's own
 * rem_ref: so iw_cm must not be unloaded before this module, which takes a symbol of it.
 */
static const typeof(&iw_destroy_cm_id) usiw_needs_iw_cm __used = iw_destroy_cm_id;

/*
 * Is the user of @cm_id in the netns of its device? The current process does not tell: rdma_cm
 * repeats old listens for a new device in the process that adds it. But each cm_id's context
 * is the rdma_cm_id, which was made in a netns; those of one wildcard listen inherit it from
 * the user's. rdma_cm is the one user of iw_cm, and its id lives as long as the cm_id is used.
 */
bool usiw_iw_in_netns(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return net_eq(id->route.addr.dev_addr.net, read_pnet(&to_usiw_dev(cm_id->device)->net));
}

/*
 * Is the user of @cm_id in the port space of connections? Only there rdma_cm knows who listens at a
 * port, and keeps others from it. In the spaces of datagrams and of InfiniBand the same port of the
 * same address would be given to another user, who could speak from it.
 */
bool usiw_iw_is_of_tcp(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return id->ps == RDMA_PS_TCP;
}

/*
 * The port that is really used. iw_cm passes on the cm_id's own address with CONNECT_REPLY, not
 * the event's; before the connection starts, because CONNECT_REPLY may come at once then.
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

/* The connection that an accepted cm_id still has, with a reference. */
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
