// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Devices as the other files use them: link, users and network namespace. usiw_link.c registers
 * devices with ib_core.
 */
#include <linux/etherdevice.h>
#include <linux/random.h>
#include <linux/rtnetlink.h>
#include <net/netns/generic.h>

#include "usiw_device.h"

struct workqueue_struct *usiw_wq;

bool usiw_link_is_up(const struct net_device *netdev)
{
	return netif_running(netdev) && netif_carrier_ok(netdev);
}

/*
 * Sets GID 0 to the MAC, by which rdma_cm may find the device. If the netdev has no MAC, the GID
 * stays as it is. If it is zeros then, it becomes random, because ib_core treats a GID of zeros as
 * missing.
 */
void usiw_device_read_mac(struct usiw_device *dev)
{
	u8 mac[ETH_ALEN] __aligned(2) = {};

	memcpy(mac, dev->netdev->dev_addr, min_t(size_t, dev->netdev->addr_len, ETH_ALEN));
	spin_lock_bh(&dev->gid_lock);
	if (!is_zero_ether_addr(mac))
		memcpy(dev->gid, mac, ETH_ALEN);
	else if (is_zero_ether_addr(dev->gid))
		eth_random_addr(dev->gid);
	spin_unlock_bh(&dev->gid_lock);
}

/* Fills @link with the present state of the netdev and the MTU of lo. */
void usiw_link_info(struct usiw_device *dev, struct usiw_link_info *link)
{
	struct net_device *netdev = dev->netdev;

	memset(link, 0, sizeof(*link));
	link->ifindex = netdev->ifindex;
	link->mtu = min_t(u32, READ_ONCE(netdev->mtu), USIW_MAX_MTU);
	link->lo_mtu = min_t(u32, READ_ONCE(dev->lo->mtu), USIW_MAX_MTU);
	memcpy(link->mac, netdev->dev_addr, min_t(size_t, netdev->addr_len, ETH_ALEN));
	link->up = usiw_link_is_up(netdev);
	link->is_loopback = !!(netdev->flags & IFF_LOOPBACK);
	strscpy(link->ifname, netdev->name, sizeof(link->ifname));
}

/*
 * Returns true while ib_core takes the device from its clients, because the device is deleted or
 * moves to another network namespace. ib_core does not notify drivers of that, but it holds
 * unregistration_lock meanwhile. It takes the lock before it removes the device from the first
 * client, and holds it until all clients have left the device. In case of a move it holds the lock
 * until the clients have the device again.
 */
bool usiw_device_is_going(struct usiw_device *dev)
{
	return mutex_is_locked(&dev->ibdev.unregistration_lock);
}

/*
 * Returns true if the caller may run in a client of ib_core that is just getting the device.
 * ib_core gives a new device to its clients in the thread that registers it. If the device moves to
 * another network namespace, ib_core gives it to them with unregistration_lock held. The lock alone
 * does not show whether they lose the device or get it, so this function returns true in both
 * cases. Clients get the device in the order in which their modules were loaded.
 */
bool usiw_device_is_coming(struct usiw_device *dev)
{
	return READ_ONCE(dev->registrar) == current || usiw_device_is_going(dev);
}

/* Takes a reference, for a user that may still read the device after ib_core has released it. */
void usiw_device_hold(struct usiw_device *dev)
{
	refcount_inc(&dev->users);
}

void usiw_device_release(struct usiw_device *dev)
{
	if (refcount_dec_and_test(&dev->users))
		complete(&dev->users_gone);
}

/* Drops the device's own reference and waits for the others. Called once. */
void usiw_device_wait_users(struct usiw_device *dev)
{
	usiw_device_release(dev);
	wait_for_completion(&dev->users_gone);
}

/* ---- Network namespaces ------------------------------------------------ */

static LIST_HEAD(usiw_devices);
static DEFINE_SPINLOCK(usiw_devices_lock);

static atomic64_t usiw_last_order;

/*
 * Makes the device the last one in the order of usiw_device_is_before(). Called when the device is
 * made, and whenever ib_core gives the device to its clients.
 */
void usiw_device_is_last(struct usiw_device *dev)
{
	atomic64_set(&dev->order, atomic64_inc_return(&usiw_last_order));
}

/* Returns true if the clients of ib_core got @dev before @other. */
bool usiw_device_is_before(const struct usiw_device *dev, const struct usiw_device *other)
{
	return atomic64_read(&dev->order) < atomic64_read(&other->order);
}

/*
 * Enters the netns of the netdev. The device and its sockets have no reference to the netns.
 * Instead the device holds lo, because a netns does not end while somebody holds its lo; see
 * usiw_lo_goes(). Under RTNL no netdev leaves a netns, and lo is the last to leave, so lo is still
 * there.
 */
void usiw_device_enter_net(struct usiw_device *dev)
{
	struct net *net = dev_net(dev->netdev);

	ASSERT_RTNL();
	usiw_device_is_last(dev);
	write_pnet(&dev->net, net);
	dev->lo = net->loopback_dev;
	netdev_hold(dev->lo, &dev->lo_tracker, GFP_KERNEL);
	spin_lock_bh(&usiw_devices_lock);
	list_add_tail(&dev->node, &usiw_devices);
	spin_unlock_bh(&usiw_devices_lock);
}

/*
 * Leaves the netns and drops lo, so that the netns may end. Nothing may read the netns for this
 * device any more.
 */
void usiw_device_leave_net(struct usiw_device *dev)
{
	spin_lock_bh(&usiw_devices_lock);
	list_del(&dev->node);
	spin_unlock_bh(&usiw_devices_lock);
	netdev_put(dev->lo, &dev->lo_tracker);
}

/*
 * Calls @fn for each registered device of @net. @fn must not sleep. Any context but a hard
 * interrupt.
 */
void usiw_device_for_each(const struct net *net,
			  void (*fn)(struct usiw_device *dev, const void *arg), const void *arg)
{
	struct usiw_device *dev;

	spin_lock_bh(&usiw_devices_lock);
	list_for_each_entry(dev, &usiw_devices, node) {
		if (!net_eq(read_pnet(&dev->net), net) || !ib_device_try_get(&dev->ibdev))
			continue;
		fn(dev, arg);
		ib_device_put(&dev->ibdev);
	}
	spin_unlock_bh(&usiw_devices_lock);
}

/*
 * Verifies that no device of @net is left. lo is gone, and each device held lo; see
 * usiw_device_enter_net().
 */
static void __net_exit usiw_net_exit(struct net *net)
{
	struct usiw_device *dev;

	spin_lock_bh(&usiw_devices_lock);
	list_for_each_entry(dev, &usiw_devices, node)
		WARN_ON(net_eq(read_pnet(&dev->net), net));
	spin_unlock_bh(&usiw_devices_lock);
}

static unsigned int usiw_net_id;

/*
 * Returns the pools and the secret key for REQs, which all listeners of @net share. The caller has
 * a device of @net, which keeps them in memory.
 */
struct usiw_cm_admission_net *usiw_net_admission(struct net *net)
{
	return net_generic(net, usiw_net_id);
}

static int __net_init usiw_net_init(struct net *net)
{
	__u64 key[2];

	get_random_bytes(key, sizeof(key));
	usiw_cm_admission_net_init(usiw_net_admission(net), key);
	return 0;
}

static struct pernet_operations usiw_net_ops = {
	.init = usiw_net_init,
	.exit = usiw_net_exit,
	.id = &usiw_net_id,
	.size = sizeof(struct usiw_cm_admission_net),
};

int usiw_device_init(void)
{
	int ret;

	usiw_wq = alloc_workqueue("usiw", WQ_UNBOUND, 0);
	if (!usiw_wq)
		return -ENOMEM;
	ret = register_pernet_subsys(&usiw_net_ops);
	if (ret)
		destroy_workqueue(usiw_wq);
	return ret;
}

void usiw_device_exit(void)
{
	unregister_pernet_subsys(&usiw_net_ops);
	destroy_workqueue(usiw_wq);
}
