// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Local addresses: which device serves an address, and conversion from and to sockaddrs. */
#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <net/addrconf.h>

#include "usiw_addr.h"

#include "usiw_compat.h"
#include "usiw_device.h"

/* ---- The device of an address ------------------------------------------ */

static bool usiw_netdev_is_vlan_on(const struct net_device *vlan, const struct net_device *below)
{
	return is_vlan_dev(vlan) && vlan_dev_real_dev(vlan) == below;
}

/*
 * Returns true if the netdevs are twins: rdma_cm confuses them when it looks for the device of an
 * address. Before 6.4 rdma_cm compares MACs. By default a VLAN has the MAC of the netdev below it,
 * and a bond or a bridge has the MAC of one of its ports. Since 6.4 rdma_cm compares netdevs, but
 * still takes a VLAN for the netdev below it.
 *
 * rdma_cm uses the first device that it finds, so the module cannot choose. The route of a
 * connection from the address of a twin usually leaves by the twin. Then the connection needs a
 * data socket, because its raw packets would leave by the device's own netdev.
 */
static bool usiw_netdevs_are_twins(const struct net_device *a, const struct net_device *b)
{
	if (USIW_RDMA_CM_NEEDS_MAC)
		return a->addr_len == ETH_ALEN && b->addr_len == ETH_ALEN &&
		       !is_zero_ether_addr(a->dev_addr) &&
		       ether_addr_equal(a->dev_addr, b->dev_addr);
	return usiw_netdev_is_vlan_on(a, b) || usiw_netdev_is_vlan_on(b, a);
}

/*
 * Returns the netdev that has the local address of @tuple, or NULL. The caller holds
 * rcu_read_lock(), which keeps the netdev in memory.
 */
static struct net_device *usiw_addr_netdev(struct usiw_device *dev, const struct usiw_tuple *tuple)
{
	const struct in6_addr *addr = &tuple->local;
	struct net *net = read_pnet(&dev->net);

	RCU_LOCKDEP_WARN(!rcu_read_lock_held(), "the netdev may go");
	if (ipv6_addr_v4mapped(addr))
		return __ip_dev_find(net, addr->s6_addr32[3], false);
#if IS_ENABLED(CONFIG_IPV6)
	if (ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL) {
		struct net_device *netdev = dev_get_by_index_rcu(net, tuple->scope);

		return netdev && ipv6_chk_addr(net, addr, netdev, 1) ? netdev : NULL;
	}
	if (ipv6_chk_addr(net, addr, dev->netdev, 1))
		return dev->netdev;
	if (ipv6_chk_addr(net, addr, dev->lo, 1))
		return dev->lo;
	return ipv6_dev_find(net, addr, NULL);
#else
	return NULL;
#endif
}

static enum usiw_addr_owner usiw_addr_owner_by(const struct usiw_device *dev,
					       const struct net_device *netdev)
{
	if (!netdev)
		return USIW_ADDR_OTHERS;
	if (netdev == dev->netdev || usiw_netdevs_are_twins(netdev, dev->netdev))
		return USIW_ADDR_OURS;
	return netdev->flags & IFF_LOOPBACK ? USIW_ADDR_OF_LO : USIW_ADDR_OTHERS;
}

/*
 * Returns the relation of the local address of @tuple to @dev. Every device serves the addresses of
 * lo, because rdma_cm connects from 127.0.0.1 or ::1 by any device. To listen there, rdma_cm uses
 * only the device of lo.
 */
enum usiw_addr_owner usiw_addr_owner(struct usiw_device *dev, const struct usiw_tuple *tuple)
{
	enum usiw_addr_owner owner;

	rcu_read_lock();
	owner = usiw_addr_owner_by(dev, usiw_addr_netdev(dev, tuple));
	rcu_read_unlock();
	return owner;
}

/*
 * Returns true if the device's netdev, or the netdev that has the local address, is in a VRF.
 * Returns false for an address of lo.
 */
bool usiw_addr_is_of_vrf(struct usiw_device *dev, const struct usiw_tuple *tuple)
{
	const struct net_device *netdev;
	bool of_vrf;

	rcu_read_lock();
	netdev = usiw_addr_netdev(dev, tuple);
	of_vrf = usiw_addr_owner_by(dev, netdev) != USIW_ADDR_OF_LO &&
		 (netif_is_l3_slave(dev->netdev) || (netdev && netif_is_l3_slave(netdev)));
	rcu_read_unlock();
	return of_vrf;
}

/*
 * Returns true if a datagram that arrived by interface @ifindex may be for @dev. The interface then
 * is the device's netdev, a twin of it, or lo.
 */
bool usiw_addr_comes_by(const struct usiw_device *dev, int ifindex)
{
	const struct net_device *netdev;
	bool comes;

	if (ifindex == dev->netdev->ifindex || ifindex == dev->lo->ifindex)
		return true;
	rcu_read_lock();
	netdev = dev_get_by_index_rcu(read_pnet(&dev->net), ifindex);
	comes = netdev && usiw_netdevs_are_twins(netdev, dev->netdev);
	rcu_read_unlock();
	return comes;
}

/* ---- sockaddrs --------------------------------------------------------- */

/*
 * Converts @sa to an address and a port. Returns 0, or -EAFNOSUPPORT if @sa is neither IPv4 nor
 * IPv6.
 */
int usiw_addr_from_sockaddr(struct in6_addr *addr, __be16 *port,
			    const struct sockaddr_storage *sa)
{
	const struct sockaddr_in *sin = (const struct sockaddr_in *)sa;
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)sa;

	switch (sa->ss_family) {
	case AF_INET:
		ipv6_addr_set_v4mapped(sin->sin_addr.s_addr, addr);
		*port = sin->sin_port;
		return 0;
	case AF_INET6:
		*addr = sin6->sin6_addr;
		*port = sin6->sin6_port;
		return 0;
	default:
		return -EAFNOSUPPORT;
	}
}

/*
 * Returns the interface that @sa names for a link-local address; 0 for any other address, or if @sa
 * names no interface.
 */
u32 usiw_addr_scope(const struct sockaddr_storage *sa)
{
	const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)sa;

	if (sa->ss_family != AF_INET6 || !(ipv6_addr_type(&sin6->sin6_addr) & IPV6_ADDR_LINKLOCAL))
		return 0;
	return sin6->sin6_scope_id;
}

/* Fills in @sa and returns its length. @ifindex: the link of a link-local address. */
int usiw_addr_to_sockaddr(struct sockaddr_storage *sa, const struct in6_addr *addr, __be16 port,
			  int ifindex)
{
	struct sockaddr_in *sin = (struct sockaddr_in *)sa;
	struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)sa;

	memset(sa, 0, sizeof(*sa));
	if (ipv6_addr_v4mapped(addr)) {
		sin->sin_family = AF_INET;
		sin->sin_addr.s_addr = addr->s6_addr32[3];
		sin->sin_port = port;
		return sizeof(*sin);
	}
	sin6->sin6_family = AF_INET6;
	sin6->sin6_addr = *addr;
	sin6->sin6_port = port;
	if (ipv6_addr_type(addr) & IPV6_ADDR_LINKLOCAL)
		sin6->sin6_scope_id = ifindex;
	return sizeof(*sin6);
}
