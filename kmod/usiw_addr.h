/* SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB */
/* The 4-tuple of a connection, and which device an address belongs to. */
#ifndef USIW_ADDR_H
#define USIW_ADDR_H

#include <linux/in6.h>
#include <linux/socket.h>
#include <net/ipv6.h>

#include "../cm/usiw_cm.h"

struct usiw_device;

/*
 * The 4-tuple of a connection. IPv4 addresses are mapped (::ffff:a.b.c.d). If an address is
 * link-local, @scope is the interface of its link, because each link has its own addresses;
 * otherwise @scope is 0. The structure is hashed as a whole, so it must have no padding.
 */
struct usiw_tuple {
	struct in6_addr local;
	struct in6_addr remote;
	__be16 local_port;
	__be16 remote_port;
	u32 scope;
};

/* struct usiw_cm_tuple of cm/ has the same layout, so a pointer can be cast. */
static_assert(sizeof(struct usiw_cm_tuple) == sizeof(struct usiw_tuple));
static_assert(offsetof(struct usiw_cm_tuple, remote) == offsetof(struct usiw_tuple, remote));
static_assert(offsetof(struct usiw_cm_tuple, local_port) ==
	      offsetof(struct usiw_tuple, local_port));
static_assert(offsetof(struct usiw_cm_tuple, scope) == offsetof(struct usiw_tuple, scope));

static inline const struct usiw_cm_tuple *usiw_cm_tuple(const struct usiw_tuple *tuple)
{
	return (const struct usiw_cm_tuple *)tuple;
}

static inline bool usiw_tuple_is_ipv4(const struct usiw_tuple *tuple)
{
	return ipv6_addr_v4mapped(&tuple->local);
}

static inline bool usiw_tuple_is_link_local(const struct usiw_tuple *tuple)
{
	return (ipv6_addr_type(&tuple->local) | ipv6_addr_type(&tuple->remote)) &
	       IPV6_ADDR_LINKLOCAL;
}

/*
 * Relation of a local address to a device. If several devices match a REQ, the one with the highest
 * value gets the REQ. Two netdevs are twins if rdma_cm may confuse them (usiw_addr.c).
 */
enum usiw_addr_owner {
	USIW_ADDR_OTHERS,	/* the device does not serve the address */
	USIW_ADDR_OF_LO,	/* lo has the address, so every device serves it */
	USIW_ADDR_OURS,		/* the device's netdev, or a twin of the netdev, has the address */
};

enum usiw_addr_owner usiw_addr_owner(struct usiw_device *dev, const struct usiw_tuple *tuple);
bool usiw_addr_is_of_vrf(struct usiw_device *dev, const struct usiw_tuple *tuple);
bool usiw_addr_comes_by(const struct usiw_device *dev, int ifindex);
u32 usiw_addr_scope(const struct sockaddr_storage *sa);
int usiw_addr_from_sockaddr(struct in6_addr *addr, __be16 *port, const struct sockaddr_storage *sa);
int usiw_addr_to_sockaddr(struct sockaddr_storage *sa, const struct in6_addr *addr, __be16 port,
			  int ifindex);

#endif /* USIW_ADDR_H */
