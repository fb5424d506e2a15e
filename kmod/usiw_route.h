/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* Look-ups of the route and the next hop of a connection. */
#ifndef USIW_ROUTE_H
#define USIW_ROUTE_H

#include <linux/types.h>
#include <linux/uidgid.h>

struct usiw_cm_route;
struct usiw_device;
struct usiw_tuple;

/**
 * struct usiw_sender - attributes of a sender that rules and policies match, beside the 4-tuple
 * @uid:	user whose process connected or accepted; before the accept, user who listens. The
 *		connection's data socket belongs to the process that connected or accepted. The
 *		module's own socket, which sends handshakes, belongs to the kernel
 * @tos:	IPv4 TOS or IPv6 traffic class. The responder uses the TOS of its listener, because
 *		rdma_cm does not pass on a TOS that is set between the request and accept
 *
 * There is no mark (SO_MARK), because rdma_cm has no option for one.
 */
struct usiw_sender {
	kuid_t uid;
	u8 tos;
};

int usiw_route_check(struct usiw_device *dev, const struct usiw_tuple *tuple,
		     const struct usiw_sender *sender, bool sockets, struct usiw_cm_route *route);
int usiw_route_find(struct usiw_device *dev, const struct usiw_tuple *tuple,
		    const struct usiw_sender *sender, struct usiw_cm_route *route);
int usiw_nexthop_bucket(const void *key, u32 key_len);

#endif /* USIW_ROUTE_H */
