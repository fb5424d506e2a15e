// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/* Loads and unloads the module, and makes the devices of the parameter netdevs. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mmu_notifier.h>
#include <linux/module.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <net/net_namespace.h>
#include <rdma/rdma_netlink.h>

#include "../uapi/usiw_version.h"
#include "usiw_device.h"
#include "usiw_link.h"
#include "usiw_netdev.h"
#include "usiw_rx.h"
#include "usiw_sock.h"

MODULE_AUTHOR("The usiw authors");
MODULE_DESCRIPTION("usiw: software RNIC, iWARP over UDP moved by userspace");
MODULE_LICENSE("Dual BSD/GPL");
MODULE_VERSION(USIW_VERSION);
MODULE_ALIAS_RDMA_LINK("usiw");
MODULE_SOFTDEP("pre: rdma_cm");		/* usiw becomes a client after rdma_cm: usiw_link.c */

/*
 * Names of netdevs on which the module makes devices when it loads. If a name is unknown or its
 * netdev cannot have a device, the module logs an error and loads nevertheless, because interfaces
 * come and go.
 */
static char *netdevs;
module_param(netdevs, charp, 0444);
MODULE_PARM_DESC(netdevs, "comma-separated network interfaces to make devices on at load");

static struct rdma_link_ops usiw_link_ops = {
	.type = "usiw",
	.newlink = usiw_newlink,
};

static void __init usiw_add_netdevs(void)
{
	struct net_device *netdev;
	char *list, *rest, *name;
	int ret;

	if (!netdevs || !*netdevs)
		return;
	list = kstrdup(netdevs, GFP_KERNEL);
	if (!list)
		return;
	rest = list;
	while ((name = strsep(&rest, ",")) != NULL) {
		name = strim(name);
		if (!*name)
			continue;
		netdev = dev_get_by_name(current->nsproxy->net_ns, name);
		if (!netdev) {
			pr_err("netdevs=: no network interface %s; later: rdma link add NAME type usiw netdev %s\n",
			       name, name);
			continue;
		}
		ret = usiw_newlink("usiw%d", netdev);
		if (ret)
			pr_err("netdevs=: no device on %s: error %d\n", name, ret);
		dev_put(netdev);
	}
	kfree(list);
}

static int __init usiw_init(void)
{
	int ret;

	usiw_sock_init(&usiw_rx_ops);
	ret = usiw_device_init();
	if (ret)
		return ret;
	ret = ib_register_client(&usiw_client);
	if (ret)
		goto err_device;
	ret = usiw_netdev_init();
	if (ret)
		goto err_link;
	rdma_link_register(&usiw_link_ops);
	usiw_add_netdevs();
	return 0;

err_link:
	ib_unregister_client(&usiw_client);
err_device:
	usiw_device_exit();
	return ret;
}

static void __exit usiw_exit(void)
{
	rdma_link_unregister(&usiw_link_ops);
	/* Waits for each device, and so for its connections and their sockets. */
	ib_unregister_driver((enum rdma_driver_id)USIW_DRIVER_ID);
	usiw_netdev_exit();
	ib_unregister_client(&usiw_client);
	usiw_device_exit();
	/* Waits until the mm notifiers of all processes are freed. */
	mmu_notifier_synchronize();
	/* Waits for functions of call_rcu(), which free UDP ports and drop QP proxies. */
	rcu_barrier();
}

module_init(usiw_init);
module_exit(usiw_exit);
