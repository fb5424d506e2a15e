// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * What iw_cm does not say or do, and how usiw gets by; to be deleted whole, with the callers'
 * lines, once iw_cm does.
 *
 * - A cm_id has no netns (usiw_iw_in_netns): rdma_cm listens on every device of the host, and
 *   connects by devices of other network namespaces, where these share the devices.
 * - CONNECT_REPLY cannot say which port was used (usiw_iw_set_local_port).
 */
#include <rdma/rdma_cm.h>

#include "usiw_conn.h"

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
