/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/*
 * Routes and next hops of a connection.
 */
#ifndef USIW_ROUTE_H
#define USIW_ROUTE_H

#include <linux/types.h>
#include <linux/uidgid.h>

#include "../uapi/usiw_abi.h"

struct dst_entry;
struct usiw_device;
struct usiw_tuple;

/**
 * struct usiw_sender - attributes of a sender that rules and policies match, beside the 4-tuple
 * @uid:	user whose process connected or accepted. The data socket has the same user. The
 *		handshake's own socket is the kernel's
 * @tos:	IPv4 TOS or IPv6 traffic class. The passive end has that of its listener, because
 *		rdma_cm does not pass on what is set between the request and accept
 *
 * There is no mark: rdma_cm has none, and no other socket belongs to this connection.
 */
struct usiw_sender {
	kuid_t uid;
	u8 tos;
};

/**
 * struct usiw_route - route of the datagrams of a 4-tuple
 * @dst:	destination entry with a reference, without the changes that IPsec makes
 * @reason:	why raw packets are not eligible
 * @local:	the route leads to this host, over lo
 * @mtu:	usable IP MTU, bytes: the smallest of the interface, the route and the known path
 * @hop_limit:	IPv4 TTL or IPv6 hop limit
 *
 * NAT on this host is unknown here, because no look-up asks conntrack. Raw packets bypass NAT.
 */
struct usiw_route {
	struct dst_entry *dst;
	enum usiw_not_packet reason;
	bool local;
	u16 mtu;
	u8 hop_limit;
};

int usiw_route_get(struct usiw_device *dev, const struct usiw_tuple *tuple,
		   const struct usiw_sender *sender, struct usiw_route *route);
void usiw_route_put(struct usiw_route *route);
int usiw_route_check(struct usiw_device *dev, const struct usiw_tuple *tuple,
		     const struct usiw_sender *sender, bool sockets, struct usiw_route *route);
int usiw_route_mac(const struct usiw_route *route, const struct usiw_tuple *tuple, u8 *mac,
		   int *bucket);
int usiw_nexthop_bucket(const void *key, u32 key_len);

#endif /* USIW_ROUTE_H */
