// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Work-arounds for faults and gaps of iw_cm and rdma_cm. The list describes each fault or gap. The
 * name in parentheses is the code that is not needed once the fault or gap is repaired.
 *
 * - A user can make iw_cm keep its reference to a QP for any time (struct usiw_qp_proxy).
 * - iw_cm leaves an accepted cm_id in its old state until it has handled ESTABLISHED. Meanwhile
 *   users can accept and reject the cm_id again (usiw_iw_change_qp).
 * - When a cm_id is disconnected or destroyed, iw_cm first waits for the answer to its connect or
 *   accept, and no signal ends that wait. So a connection checks whether its process was killed
 *   (usiw_process_is_dying).
 * - A cm_id has no netns (usiw_iw_in_netns). A wildcard listener of rdma_cm listens on every device
 *   of the host. If network namespaces share the devices, rdma_cm also connects by devices of other
 *   namespaces.
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
 * Bit of the provider_data of a cm_id that iw_cm makes for a request. Without the bit,
 * provider_data is the id of the connection, shifted left by one bit. Accept sets the bit, and
 * provider_data is then the proxy of the QP that iw_cm holds, combined with the bit.
 */
#define USIW_ACCEPTED	1ul

/*
 * Makes the module depend on iw_cm. Listeners and connections outlive the users of their cm_ids,
 * and drop the cm_ids by iw_cm's own rem_ref. So iw_cm must not be unloaded before this module.
 */
static const typeof(&iw_destroy_cm_id) usiw_needs_iw_cm __used = iw_destroy_cm_id;

/*
 * Returns true if the user of @cm_id is in the netns of the device. The current process may be
 * another one: for a new device, rdma_cm repeats old listens in the process that adds the device.
 * So this function reads the netns of the rdma_cm_id in @cm_id->context. The rdma_cm_ids of a
 * wildcard listen inherit their netns from the user's rdma_cm_id. rdma_cm is the only user of
 * iw_cm, and the rdma_cm_id lives as long as the cm_id is used.
 */
bool usiw_iw_in_netns(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return net_eq(id->route.addr.dev_addr.net, read_pnet(&to_usiw_dev(cm_id->device)->net));
}

/*
 * Returns true if the user of @cm_id is in RDMA_PS_TCP, the port space of connections. Only in that
 * port space does rdma_cm know who listens at a port, and refuse the port to others. In the port
 * spaces of datagrams and of InfiniBand, rdma_cm would let another user bind the same address and
 * port and send from it.
 */
bool usiw_iw_is_of_tcp(const struct iw_cm_id *cm_id)
{
	const struct rdma_cm_id *id = cm_id->context;

	return id->ps == RDMA_PS_TCP;
}

/*
 * Sets the local port of @cm_id to the port that is really used. iw_cm reports the address of the
 * cm_id with CONNECT_REPLY, not that of the event. The caller sets the port before the connection
 * starts, because CONNECT_REPLY may follow at once.
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

/*
 * Returns the connection of a request that is not accepted, with a reference. Returns NULL if the
 * connection is gone.
 */
struct usiw_conn *usiw_iw_request_conn(const struct iw_cm_id *cm_id)
{
	return usiw_conn_by_id((unsigned long)cm_id->provider_data >> 1);
}

/* Returns the provider_data of the request that became @conn. */
void *usiw_iw_request_data(const struct usiw_conn *conn)
{
	return (void *)((unsigned long)conn->end.id << 1);
}

/* Sets the provider_data of an accepted request. */
void usiw_iw_set_accepted(struct iw_cm_id *cm_id, struct usiw_qp_proxy *proxy)
{
	cm_id->provider_data = (void *)((unsigned long)proxy | USIW_ACCEPTED);
}

/*
 * Returns the connection of an accepted cm_id with a reference; NULL if its QP has none any more.
 */
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
 * Handles a second accept of @cm_id, with QP @qpn. iw_cm has replaced the first QP by QP @qpn
 * without dropping its reference to the first one. So this call drops that reference.
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
