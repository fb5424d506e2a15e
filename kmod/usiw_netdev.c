// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Handles notifications about the netdevs of devices and about lo: link, name, MAC, MTU, neighbours
 * and unregistration. Also handles removed addresses of any netdev.
 */
#include <linux/inetdevice.h>
#include <linux/netdevice.h>
#include <linux/notifier.h>
#include <net/addrconf.h>
#include <net/neighbour.h>
#include <net/netevent.h>

#include "usiw_netdev.h"

#include "usiw_addr.h"
#include "usiw_conn.h"
#include "usiw_event.h"
#include "usiw_follow.h"
#include "usiw_route.h"
#include "usiw_verbs_types.h"

/* Returns the device of @netdev with a reference, or NULL. Any context. */
static struct usiw_device *usiw_device_of(struct net_device *netdev)
{
	struct ib_device *ibdev;

	ibdev = ib_device_get_by_netdev(netdev, (enum rdma_driver_id)USIW_DRIVER_ID);
	return ibdev ? to_usiw_dev(ibdev) : NULL;
}

/* Adds 1 to a counter of @netdev's device, if it has one. Any context. */
void usiw_netdev_count(struct net_device *netdev, enum usiw_kcounter counter)
{
	struct usiw_device *dev = usiw_device_of(netdev);

	if (!dev)
		return;
	usiw_count(dev, counter);
	ib_device_put(&dev->ibdev);
}

static void usiw_dispatch(struct usiw_device *dev, enum ib_event_type type)
{
	struct ib_event event = {
		.device = &dev->ibdev,
		.element.port_num = 1,
		.event = type,
	};

	ib_dispatch_event(&event);
}

/* Queues a LINK record with the present state of the link for all contexts of @dev. */
static void usiw_link_changed(struct usiw_device *dev)
{
	struct usiw_ucontext *uctx;
	struct usiw_link_info link;

	usiw_link_info(dev, &link);
	spin_lock(&dev->ctx_lock);
	list_for_each_entry(uctx, &dev->contexts, node)
		usiw_ucontext_link_changed(uctx, &link);
	spin_unlock(&dev->ctx_lock);
}

/*
 * Raises a port event if the state of the link has changed. ib_core reads the state of the port on
 * each port event, and warns if the netdev is being removed by then. A netdev that is removed goes
 * down first. So this work runs a moment after the change, and does nothing if the netdev is being
 * removed.
 */
void usiw_port_work(struct work_struct *work)
{
	struct usiw_device *dev = container_of(to_delayed_work(work), struct usiw_device,
					       port_work);
	bool up = usiw_link_is_up(dev->netdev);

	/* Not READ_ONCE(): reg_state was a bit-field until late in 6.1 (6.1.0-50 of Debian 12). */
	if (data_race(dev->netdev->reg_state) != NETREG_REGISTERED || up == dev->port_up)
		return;
	/*
	 * An event needs the device to stay registered. ib_core waits for this reference when it
	 * unregisters the device, and then handles the events that were raised.
	 */
	if (!ib_device_try_get(&dev->ibdev))
		return;
	dev->port_up = up;
	usiw_dispatch(dev, up ? IB_EVENT_PORT_ACTIVE : IB_EVENT_PORT_ERR);
	ib_device_put(&dev->ibdev);
}

/* Handles a new MAC or MTU of lo, which connections within the host use. In atomic context. */
static void usiw_lo_changed(struct usiw_device *dev, const void *arg)
{
	/* usiw_netdev_event() itself handles a device on lo. */
	if (dev->netdev == dev->lo)
		return;
	usiw_link_changed(dev);
	usiw_follow_all(dev);
}

/*
 * Unregisters @dev, because its netns ends. In atomic context.
 *
 * lo is the last netdev of a netns to go. By then virtual netdevs have gone, and hardware has moved
 * to the initial netns. The usiw devices on those netdevs are usually being unregistered already.
 * But the event of a netdev may have missed its usiw device, because `rdma dev set netns` disables
 * a device for a while. Each usiw device holds lo. The kernel waits until nobody holds lo, and
 * meanwhile repeats NETDEV_UNREGISTER of lo every second. So no device is missed in the end.
 *
 * The kernel ends network namespaces in one worker for the whole host. That worker waits for the
 * unregistration of the devices, which runs on a workqueue of ib_core. The module's part of the
 * unregistration waits for no peer and for no process, because it ends all connections at once
 * (usiw_client_remove). uverbs takes the objects away from processes that have the device open
 * (disassociate_ucontext). As for any driver, uverbs waits only for system calls on the device that
 * have begun.
 */
static void usiw_lo_goes(struct usiw_device *dev, const void *arg)
{
	ib_unregister_device_queued(&dev->ibdev);
}

static int usiw_netdev_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct net_device *netdev = netdev_notifier_info_to_dev(ptr);
	struct usiw_device *dev;

	if ((netdev->flags & IFF_LOOPBACK) &&
	    (event == NETDEV_CHANGEADDR || event == NETDEV_CHANGEMTU))
		usiw_device_for_each(dev_net(netdev), usiw_lo_changed, NULL);
	if ((netdev->flags & IFF_LOOPBACK) && event == NETDEV_UNREGISTER)
		usiw_device_for_each(dev_net(netdev), usiw_lo_goes, NULL);
	dev = usiw_device_of(netdev);
	if (!dev)
		return NOTIFY_DONE;
	switch (event) {
	case NETDEV_UP:
	case NETDEV_DOWN:
	case NETDEV_CHANGE:
		mod_delayed_work(usiw_wq, &dev->port_work, msecs_to_jiffies(USIW_PORT_DELAY_MS));
		usiw_link_changed(dev);
		break;
	case NETDEV_CHANGEADDR:
		usiw_device_read_mac(dev);
		usiw_dispatch(dev, IB_EVENT_GID_CHANGE);
		fallthrough;
	case NETDEV_CHANGEMTU:
		usiw_link_changed(dev);
		usiw_follow_all(dev);
		break;
	case NETDEV_CHANGENAME:
		/* Tools and ib_core read this name without a lock. */
		strscpy(dev->ibdev.iw_ifname, netdev->name, sizeof(dev->ibdev.iw_ifname));
		usiw_link_changed(dev);
		break;
	case NETDEV_UNREGISTER:
		cancel_delayed_work(&dev->port_work);
		ib_unregister_device_queued(&dev->ibdev);
		break;
	}
	ib_device_put(&dev->ibdev);
	return NOTIFY_DONE;
}

static struct notifier_block usiw_netdev_nb = {
	.notifier_call = usiw_netdev_event,
};

/* ---- Addresses --------------------------------------------------------- */

static bool usiw_conn_has_local(struct usiw_conn *conn, const void *addr)
{
	return ipv6_addr_equal(&usiw_conn_tuple(conn)->local, addr);
}

/*
 * Has each connection of @dev with the local address @addr check whether @dev still serves the
 * address: see usiw_conn_work_off_flags().
 */
static void usiw_addr_check(struct usiw_device *dev, const void *addr)
{
	usiw_conn_kick_device(dev, USIW_CONN_CHECK_ADDR, usiw_conn_has_local, addr);
}

/*
 * Handles a removed address. @netdev need not have a device, because a device also serves addresses
 * of other netdevs: see usiw_addr_owner().
 */
static void usiw_addr_removed(const struct net_device *netdev, const struct in6_addr *addr)
{
	usiw_device_for_each(dev_net(netdev), usiw_addr_check, addr);
}

static int usiw_inetaddr_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct in_ifaddr *ifa = ptr;
	struct in6_addr addr;

	if (event == NETDEV_DOWN) {
		ipv6_addr_set_v4mapped(ifa->ifa_local, &addr);
		usiw_addr_removed(ifa->ifa_dev->dev, &addr);
	}
	return NOTIFY_DONE;
}

static struct notifier_block usiw_inetaddr_nb = {
	.notifier_call = usiw_inetaddr_event,
};

/* Handles changes of IPv6 addresses. In atomic context. */
static int usiw_inet6addr_event(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct inet6_ifaddr *ifa = ptr;

	if (event == NETDEV_DOWN)
		usiw_addr_removed(ifa->idev->dev, &ifa->addr);
	return NOTIFY_DONE;
}

static struct notifier_block usiw_inet6addr_nb = {
	.notifier_call = usiw_inet6addr_event,
};

/* ---- Neighbours -------------------------------------------------------- */

/* Returns true if the next hop of @conn is in @buckets, a u64 with a bit for each bucket. */
static bool usiw_conn_in_buckets(struct usiw_conn *conn, const void *buckets)
{
	int bucket = READ_ONCE(conn->nexthop_bucket);

	return bucket >= 0 && *(const u64 *)buckets & BIT_ULL(bucket);
}

void usiw_neigh_work(struct work_struct *work)
{
	struct usiw_device *dev = container_of(to_delayed_work(work), struct usiw_device,
					       neigh_work);
	u64 buckets = atomic64_xchg(&dev->neigh_pending, 0);

	usiw_conn_kick_device(dev, USIW_CONN_FOLLOW, usiw_conn_in_buckets, &buckets);
}

/*
 * Handles a neighbour update. Updates are frequent and may come in softirq, so only that of a
 * neighbour that may be the next hop of a connection queues work.
 */
static int usiw_netevent(struct notifier_block *nb, unsigned long event, void *ptr)
{
	struct neighbour *neigh = ptr;
	struct usiw_device *dev;
	int bucket;

	if (event != NETEVENT_NEIGH_UPDATE || !(READ_ONCE(neigh->nud_state) & NUD_VALID))
		return NOTIFY_DONE;
	dev = usiw_device_of(neigh->dev);
	if (!dev)
		return NOTIFY_DONE;
	bucket = usiw_nexthop_bucket(neigh->primary_key, neigh->tbl->key_len);
	if (atomic_read(&dev->nexthops[bucket])) {
		atomic64_or(BIT_ULL(bucket), &dev->neigh_pending);
		queue_delayed_work(usiw_wq, &dev->neigh_work,
				   msecs_to_jiffies(USIW_NEIGH_DELAY_MS));
	}
	ib_device_put(&dev->ibdev);
	return NOTIFY_DONE;
}

static struct notifier_block usiw_netevent_nb = {
	.notifier_call = usiw_netevent,
};

/* ---- Registration ------------------------------------------------------ */

int usiw_netdev_init(void)
{
	int ret;

	ret = register_netdevice_notifier(&usiw_netdev_nb);
	if (ret)
		return ret;
	ret = register_inetaddr_notifier(&usiw_inetaddr_nb);
	if (ret)
		goto err_netdev;
	if (IS_ENABLED(CONFIG_IPV6))
		ret = register_inet6addr_notifier(&usiw_inet6addr_nb);
	if (ret)
		goto err_inetaddr;
	ret = register_netevent_notifier(&usiw_netevent_nb);
	if (ret)
		goto err_inet6addr;
	return 0;

err_inet6addr:
	if (IS_ENABLED(CONFIG_IPV6))
		unregister_inet6addr_notifier(&usiw_inet6addr_nb);
err_inetaddr:
	unregister_inetaddr_notifier(&usiw_inetaddr_nb);
err_netdev:
	unregister_netdevice_notifier(&usiw_netdev_nb);
	return ret;
}

void usiw_netdev_exit(void)
{
	unregister_netevent_notifier(&usiw_netevent_nb);
	if (IS_ENABLED(CONFIG_IPV6))
		unregister_inet6addr_notifier(&usiw_inet6addr_nb);
	unregister_inetaddr_notifier(&usiw_inetaddr_nb);
	unregister_netdevice_notifier(&usiw_netdev_nb);
}
