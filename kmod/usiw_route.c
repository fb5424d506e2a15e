// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Looks up the route and the next hop of a connection for its 4-tuple. The engine builds its
 * Ethernet frames from them. A look-up does not use conntrack, so it ignores NAT on this host, and
 * raw packets bypass NAT.
 */
#include <linux/etherdevice.h>
#include <linux/jhash.h>
#include <net/inet_ecn.h>
#include <net/ip6_route.h>
#include <net/neighbour.h>
#include <net/route.h>
#include <net/xfrm.h>

#include "usiw_route.h"

#include "../cm/usiw_cm_path.h"
#include "usiw_addr.h"
#include "usiw_compat.h"
#include "usiw_device.h"

/*
 * Looks up the IPv4 route of @tuple and applies the policies of IPsec to it. Stores the route before
 * IPsec in *@out, with a reference. Returns the route after IPsec, with a reference, which may be
 * the same. If a policy forbids the flow, returns an error pointer. If there is no route, returns
 * an error pointer and leaves *@out unchanged.
 */
static struct dst_entry *usiw_route_get4(struct usiw_device *dev, const struct usiw_tuple *tuple,
					 const struct usiw_sender *sender,
					 struct usiw_cm_route *route, struct dst_entry **out)
{
	struct net *net = read_pnet(&dev->net);
	struct flowi4 fl4 = {
		.saddr = tuple->local.s6_addr32[3],
		.daddr = tuple->remote.s6_addr32[3],
		.flowi4_uid = sender->uid,
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = tuple->local_port,
		.fl4_dport = tuple->remote_port,
	};
	struct rtable *rt;

	usiw_flowi4_set_tos(&fl4, sender->tos);
	rt = __ip_route_output_key(net, &fl4);
	if (IS_ERR(rt))
		return ERR_CAST(rt);
	if (rt->rt_type != RTN_LOCAL && rt->rt_type != RTN_UNICAST) {
		ip_rt_put(rt);
		return ERR_PTR(-ENETUNREACH);
	}
	*out = &rt->dst;
	route->local = rt->rt_type == RTN_LOCAL;
	route->hop_limit = ip4_dst_hoplimit(&rt->dst);
	fl4.flowi4_oif = rt->dst.dev->ifindex;
	dst_hold(&rt->dst);
	return xfrm_lookup(net, &rt->dst, flowi4_to_flowi(&fl4), NULL, 0);
}

/* Does the same as usiw_route_get4() for IPv6. */
static struct dst_entry *usiw_route_get6(struct usiw_device *dev, const struct usiw_tuple *tuple,
					 const struct usiw_sender *sender,
					 struct usiw_cm_route *route, struct dst_entry **out)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct net *net = read_pnet(&dev->net);
	struct flowi6 fl6 = {
		.saddr = tuple->local,
		.daddr = tuple->remote,
		.flowlabel = ip6_make_flowinfo(sender->tos, 0),
		.flowi6_uid = sender->uid,
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = tuple->local_port,
		.fl6_dport = tuple->remote_port,
	};
	struct dst_entry *dst;

	/* A link-local address has a meaning only together with its link. */
	if (ipv6_addr_type(&tuple->remote) & IPV6_ADDR_LINKLOCAL)
		fl6.flowi6_oif = tuple->scope;
	dst = ip6_route_output(net, NULL, &fl6);
	if (dst->error) {
		int ret = dst->error;

		dst_release(dst);
		return ERR_PTR(ret);
	}
	*out = dst;
	route->local = !!(dst->dev->flags & IFF_LOOPBACK);
	route->hop_limit = ip6_dst_hoplimit(dst);
	dst_hold(dst);
	return xfrm_lookup(net, dst, flowi6_to_flowi(&fl6), NULL, 0);
#else
	return ERR_PTR(-EAFNOSUPPORT);
#endif
}

/* Returns whether raw packets can use the route @dst, and if not, why. IPsec is not considered. */
static enum usiw_not_packet usiw_route_judge(const struct usiw_device *dev,
					     const struct dst_entry *dst, bool local)
{
	if (dst->dev != (local ? dev->lo : dev->netdev))
		return USIW_NOT_PACKET_NETDEV;
	if (dst->lwtstate)
		return USIW_NOT_PACKET_ENCAP;
	return USIW_NOT_PACKET_NONE;
}

/*
 * Looks up the route of @tuple. Sets the members @local, @hop_limit and @mtu of @route, and
 * @reason, which shows whether raw packets can use the route. Sets @next_hop to -1, and all other
 * members to 0. Returns the route before IPsec, with a reference. Otherwise returns an error
 * pointer, such as -ENETUNREACH if there is no route, -EPERM if an IPsec policy forbids the flow,
 * and -EOPNOTSUPP if the device or the local address is in a VRF. May sleep.
 */
static struct dst_entry *usiw_route_get(struct usiw_device *dev, const struct usiw_tuple *tuple,
					const struct usiw_sender *sender,
					struct usiw_cm_route *route)
{
	struct dst_entry *dst = NULL, *after_ipsec;
	u32 mtu;

	*route = (struct usiw_cm_route){ .next_hop = -1 };
	/*
	 * Neither these look-ups nor the module's sockets support VRFs. They would use the routing
	 * tables outside the VRF, and could reach hosts in another network that have the same
	 * addresses.
	 */
	if (usiw_addr_is_of_vrf(dev, tuple))
		return ERR_PTR(-EOPNOTSUPP);
	if (usiw_tuple_is_ipv4(tuple))
		after_ipsec = usiw_route_get4(dev, tuple, sender, route, &dst);
	else
		after_ipsec = usiw_route_get6(dev, tuple, sender, route, &dst);
	if (!dst)
		return after_ipsec;
	route->reason = usiw_route_judge(dev, dst, route->local);
	mtu = min_t(u32, dst_mtu(dst), READ_ONCE(dst->dev->mtu));
	if (after_ipsec != dst) {
		/* After another error a policy exists, but no security association can be used. */
		if (after_ipsec == ERR_PTR(-EPERM)) {
			dst_release(dst);
			return after_ipsec;
		}
		route->reason = USIW_NOT_PACKET_IPSEC;
		if (!IS_ERR(after_ipsec))
			mtu = min_t(u32, mtu, dst_mtu(after_ipsec));
	}
	if (!IS_ERR(after_ipsec))
		dst_release(after_ipsec);
	route->mtu = min_t(u32, mtu, USIW_MAX_MTU);
	return dst;
}

/*
 * Looks up the route of @tuple, but not its next hop. Returns 0 if data can use the route.
 * Otherwise returns -errno for the user, such as -ENETUNREACH, -EPROTONOSUPPORT or -EPERM.
 * @sockets: data may also use a data socket, which follows every route of the kernel. May sleep.
 */
int usiw_route_check(struct usiw_device *dev, const struct usiw_tuple *tuple,
		     const struct usiw_sender *sender, bool sockets, struct usiw_cm_route *route)
{
	struct dst_entry *dst = usiw_route_get(dev, tuple, sender, route);

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	dst_release(dst);
	return sockets ? 0 : usiw_cm_not_packet_errno(route->reason);
}

/* Returns the hash bucket of a next hop, whose address @key has @key_len bytes. */
int usiw_nexthop_bucket(const void *key, u32 key_len)
{
	return jhash(key, key_len, 0) & (USIW_NEXTHOP_BUCKETS - 1);
}

/*
 * Stores in @route the MACs of the interface and of the next hop, and the hash bucket of the next
 * hop's address. If the destination is this host, both MACs are those of lo, and there is no
 * bucket. If the MAC of the next hop is not known, this call starts its resolution, and
 * route->mac_known stays false.
 */
static void usiw_route_resolve(struct dst_entry *dst, const struct usiw_tuple *tuple,
			       struct usiw_cm_route *route)
{
	const void *remote = &tuple->remote;
	u8 ha[MAX_ADDR_LEN] __aligned(2) = {};
	struct neighbour *neigh;

	memcpy(route->local_mac, dst->dev->dev_addr, ETH_ALEN);
	if (route->local) {
		memcpy(route->remote_mac, dst->dev->dev_addr, ETH_ALEN);
		route->mac_known = true;
		return;
	}
	if (usiw_tuple_is_ipv4(tuple))
		remote = &tuple->remote.s6_addr32[3];
	neigh = dst_neigh_lookup(dst, remote);
	if (IS_ERR_OR_NULL(neigh))
		return;
	route->next_hop = usiw_nexthop_bucket(neigh->primary_key, neigh->tbl->key_len);
	if (READ_ONCE(neigh->nud_state) & NUD_VALID) {
		neigh_ha_snapshot(ha, neigh, neigh->dev);
		memcpy(route->remote_mac, ha, ETH_ALEN);
		route->mac_known = true;
	}
	/* Starts the resolution, or has the kernel verify a stale entry. */
	neigh_event_send(neigh, NULL);
	neigh_release(neigh);
}

/*
 * Looks up the route of @tuple, and its next hop if raw packets can use the route. Returns 0 or the
 * error of usiw_route_get(). May sleep.
 */
int usiw_route_find(struct usiw_device *dev, const struct usiw_tuple *tuple,
		    const struct usiw_sender *sender, struct usiw_cm_route *route)
{
	struct dst_entry *dst = usiw_route_get(dev, tuple, sender, route);

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	strscpy(route->netdev, dst->dev->name, sizeof(route->netdev));
	if (route->reason == USIW_NOT_PACKET_NONE)
		usiw_route_resolve(dst, tuple, route);
	dst_release(dst);
	return 0;
}
