// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/*
 * Creation of a device by `rdma link add` or by the parameter netdevs: registration with ib_core,
 * and the attributes that the device reports. Also the end of a device.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/ethtool.h>
#include <linux/etherdevice.h>
#include <linux/if_arp.h>
#include <linux/module.h>
#include <linux/rtnetlink.h>
#include <linux/sysfs.h>
#include <net/addrconf.h>
#include <net/net_namespace.h>
#include <rdma/ib_mad.h>
#include <rdma/iw_cm.h>

#include "usiw_link.h"

#include "../cm/object/usiw_device_attr.h"
#include "../uapi/usiw_version.h"
#include "usiw_compat.h"
#include "usiw_conn.h"
#include "usiw_device.h"
#include "usiw_follow.h"
#include "usiw_iwcm.h"
#include "usiw_listen.h"
#include "usiw_mr.h"
#include "usiw_netdev.h"
#include "usiw_qp.h"
#include "usiw_qp_ref.h"
#include "usiw_stats.h"
#include "usiw_uapi.h"
#include "usiw_verbs.h"

/* ---- Attributes -------------------------------------------------------- */

static int usiw_get_port_immutable(struct ib_device *ibdev, u32 port,
				   struct ib_port_immutable *immutable)
{
	immutable->gid_tbl_len = USIW_GIDS;
	immutable->pkey_tbl_len = USIW_PKEYS;
	immutable->core_cap_flags = RDMA_CORE_PORT_IWARP;
	return 0;
}

static void usiw_get_dev_fw_str(struct ib_device *ibdev, char *str)
{
	snprintf(str, IB_FW_VERSION_NAME_MAX, "%s", USIW_VERSION);
}

static int usiw_query_device(struct ib_device *ibdev, struct ib_device_attr *attr,
			     struct ib_udata *udata)
{
	/* ib_core itself passes an empty udata in kernels up to 6.12, and NULL in 7.2. */
	if (udata && (udata->inlen || udata->outlen))
		return -EINVAL;

	memset(attr, 0, sizeof(*attr));
	usiw_fill_device_attr(attr, PAGE_SIZE);
	attr->sys_image_guid = ibdev->node_guid;
	BUILD_BUG_ON(USIW_DEVICE_CAPS_OF_WINDOWS !=
		     (IB_DEVICE_MEM_WINDOW | IB_DEVICE_MEM_MGT_EXTENSIONS |
		      IB_DEVICE_MEM_WINDOW_TYPE_2B));
	BUILD_BUG_ON(USIW_DEVICE_SRQ_RESIZE != IB_DEVICE_SRQ_RESIZE);
	BUILD_BUG_ON(USIW_ATOMIC_GLOB != IB_ATOMIC_GLOB);
	attr->kernel_cap_flags = IBK_ALLOW_USER_UNREG | IBK_ON_DEMAND_PAGING;
	attr->max_send_sge = USIW_MAX_SGE;
	attr->max_recv_sge = USIW_MAX_SGE;
	attr->timestamp_mask = USIW_TIMESTAMP_MASK;
	attr->hca_core_clock = USIW_CLOCK_KHZ;
	attr->odp_caps.general_caps = USIW_ODP_GENERAL_CAPS;
	attr->odp_caps.per_transport_caps.rc_odp_caps = USIW_ODP_RC_CAPS;
	return 0;
}

/*
 * Returns the speed in Mb/s; 0 if it is unknown. ib_get_eth_speed() is not used, because each call
 * of it warns about an interface without a speed, such as lo and bridges.
 */
static u32 usiw_netdev_speed(struct net_device *netdev)
{
	struct ethtool_link_ksettings settings;
	u32 mbps = 0;

	rtnl_lock();
	if (netdev->reg_state == NETREG_REGISTERED &&
	    !__ethtool_get_link_ksettings(netdev, &settings) &&
	    settings.base.speed != (u32)SPEED_UNKNOWN)
		mbps = settings.base.speed;
	rtnl_unlock();
	return mbps;
}

static int usiw_query_port(struct ib_device *ibdev, u32 port, struct ib_port_attr *attr)
{
	struct net_device *netdev = to_usiw_dev(ibdev)->netdev;
	const struct usiw_netdev_is is = {
		.up = usiw_link_is_up(netdev),
		.enabled = netif_running(netdev),
		.mtu = READ_ONCE(netdev->mtu),
		.mbps = usiw_netdev_speed(netdev),
	};

	memset(attr, 0, sizeof(*attr));
	usiw_fill_port_attr(attr, &is);
	return 0;
}

/*
 * Reports the default P_Key. iWARP has no partitions, but rdma_cm needs a P_Key of a device that it
 * binds to 127.0.0.1.
 */
static int usiw_query_pkey(struct ib_device *ibdev, u32 port, u16 index, u16 *pkey)
{
	*pkey = IB_DEFAULT_PKEY_FULL;
	return 0;
}

static int usiw_query_gid(struct ib_device *ibdev, u32 port, int index, union ib_gid *gid)
{
	struct usiw_device *dev = to_usiw_dev(ibdev);

	memset(gid, 0, sizeof(*gid));
	spin_lock_bh(&dev->gid_lock);
	memcpy(gid->raw, dev->gid, ETH_ALEN);
	spin_unlock_bh(&dev->gid_lock);
	return 0;
}

/* ---- sysfs -------------------------------------------------------------- */

/*
 * Prints the netdev's name, as rxe does. In RDMA's shared mode every network namespace has the
 * device, but in another namespace the name may belong to another netdev. So the attribute returns
 * -ENODEV outside of the netdev's namespace.
 *
 * usiw sets no dev.parent, because udev would rename a device with a PCI parent (rdma_rename of
 * rdma-core).
 */
static ssize_t parent_show(struct device *device, struct device_attribute *attr, char *buf)
{
	struct usiw_device *dev = rdma_device_to_drv_device(device, struct usiw_device, ibdev);
	const struct ib_core_device *seen = container_of(device, struct ib_core_device, dev);
	struct net_device *netdev = dev->netdev;
	ssize_t ret = -ENODEV;

	/* RTNL keeps the netdev from being renamed, moved or unregistered. */
	rtnl_lock();
	if (netdev->reg_state == NETREG_REGISTERED &&
	    net_eq(dev_net(netdev), read_pnet(&seen->rdma_net)))
		ret = sysfs_emit(buf, "%s\n", netdev->name);
	rtnl_unlock();
	return ret;
}

static DEVICE_ATTR_RO(parent);

static struct attribute *usiw_device_attributes[] = {
	&dev_attr_parent.attr,
	NULL
};

static const struct attribute_group usiw_device_group = {
	.attrs = usiw_device_attributes,
};

/* ---- The client of ib_core --------------------------------------------- */

/*
 * The module is a client of ib_core, so that all connections of a device end before rdma_cm waits
 * for them.
 *
 * When a device is deleted or moves to another network namespace, ib_core takes it from its clients
 * one after the other, the latest client first. rdma_cm then waits for connects that have no answer
 * yet. A peer can delay the answer for USIW_CM_REQ_LIMIT_US. If uverbs lost the device first, that
 * would end these connects, but uverbs may follow after rdma_cm. The module's client is usually
 * later than rdma_cm (see MODULE_SOFTDEP), so it loses the device earlier. If rdma_cm was loaded
 * again since, usiw_conn_check_waiter() ends each connect and accept that waits. The clients get a
 * moved device back at once.
 */
static int usiw_client_add(struct ib_device *ibdev)
{
	if (ibdev->driver_def != usiw_uapi_defs)
		return -EOPNOTSUPP;
	usiw_conn_welcome_device(to_usiw_dev(ibdev));
	return 0;
}

static void usiw_client_remove(struct ib_device *ibdev, void *client_data)
{
	usiw_conn_flush_device(to_usiw_dev(ibdev));
}

struct ib_client usiw_client = {
	.name = "usiw",
	.add = usiw_client_add,
	.remove = usiw_client_remove,
};

/* ---- Registration ------------------------------------------------------ */

/* Sets the MAC of @lo. dev_set_mac_address() refuses zeros, which are lo's default MAC. */
static void usiw_lo_set_mac(struct net_device *lo, const u8 *mac)
{
	ASSERT_RTNL();
	eth_hw_addr_set(lo, mac);
	call_netdevice_notifiers(NETDEV_CHANGEADDR, lo);
}

/*
 * Gives lo a MAC if rdma_cm needs one to find the device on lo. Since 6.4 rdma_cm finds an iWARP
 * device by its netdev. Before, it searches by MAC and treats zeros as missing, so it would not
 * find a device on lo by 127.0.0.1. lo has the MAC for as long as the device exists. The MAC is
 * random, because each netns has a lo.
 */
static void usiw_lend_lo_a_mac(struct usiw_device *dev)
{
	ASSERT_RTNL();
	if (!USIW_RDMA_CM_NEEDS_MAC || !(dev->netdev->flags & IFF_LOOPBACK) ||
	    !is_zero_ether_addr(dev->netdev->dev_addr))
		return;
	eth_random_addr(dev->lent_mac);
	usiw_lo_set_mac(dev->netdev, dev->lent_mac);
}

/* Sets the MAC of lo back to zeros, unless somebody has changed it since. */
static void usiw_take_back_the_mac(struct usiw_device *dev)
{
	static const u8 none[ETH_ALEN];

	if (is_zero_ether_addr(dev->lent_mac))
		return;
	rtnl_lock();
	if (dev->netdev->reg_state == NETREG_REGISTERED &&
	    !memcmp(dev->netdev->dev_addr, dev->lent_mac, ETH_ALEN))
		usiw_lo_set_mac(dev->netdev, none);
	rtnl_unlock();
}

/*
 * Ends everything that uses the device. ib_core calls this once, before it frees the device, even
 * if the device was never registered.
 */
static void usiw_dealloc_driver(struct ib_device *ibdev)
{
	struct usiw_device *dev = to_usiw_dev(ibdev);

	usiw_conn_flush_device(dev);
	usiw_device_wait_users(dev);
	cancel_delayed_work_sync(&dev->follow_work);
	cancel_delayed_work_sync(&dev->neigh_work);
	cancel_delayed_work_sync(&dev->port_work);
	WARN_ON(!xa_empty(&dev->qps));
	xa_destroy(&dev->qps);
	xa_destroy(&dev->stags);
	ida_destroy(&dev->cqns);
	usiw_take_back_the_mac(dev);
	netdev_put(dev->netdev, &dev->netdev_tracker);
	usiw_device_leave_net(dev);
}

static const struct ib_device_ops usiw_device_ops = {
	.owner = THIS_MODULE,
	.driver_id = (enum rdma_driver_id)USIW_DRIVER_ID,
	.uverbs_abi_ver = USIW_ABI_VERSION,

	.alloc_hw_port_stats = usiw_alloc_hw_port_stats,
	.alloc_mw = usiw_alloc_mw,
	.alloc_pd = usiw_alloc_pd,
	.alloc_ucontext = usiw_alloc_ucontext,
	.create_cq = usiw_create_cq,
	.create_qp = usiw_create_qp,
	.create_srq = usiw_create_srq,
	.dealloc_driver = usiw_dealloc_driver,
	.dealloc_mw = usiw_dealloc_mw,
	.dealloc_pd = usiw_dealloc_pd,
	.dealloc_ucontext = usiw_dealloc_ucontext,
	.dereg_mr = usiw_dereg_mr,
	.destroy_cq = usiw_destroy_cq,
	.destroy_qp = usiw_destroy_qp,
	.destroy_srq = usiw_destroy_srq,
	.device_group = &usiw_device_group,
	.disassociate_ucontext = usiw_disassociate_ucontext,
	.fill_res_qp_entry = usiw_fill_res_qp_entry,
	.get_dev_fw_str = usiw_get_dev_fw_str,
	.get_dma_mr = usiw_get_dma_mr,
	.get_hw_stats = usiw_get_hw_stats,
	.get_port_immutable = usiw_get_port_immutable,
	.iw_accept = usiw_iw_accept,
	.iw_add_ref = usiw_iw_add_ref,
	.iw_connect = usiw_iw_connect,
	.iw_create_listen = usiw_iw_create_listen,
	.iw_destroy_listen = usiw_iw_destroy_listen,
	.iw_get_qp = usiw_iw_get_qp,
	.iw_reject = usiw_iw_reject,
	.iw_rem_ref = usiw_iw_rem_ref,
	.mmap = usiw_mmap,
	.mmap_free = usiw_mmap_free,
	.modify_qp = usiw_modify_qp,
	.modify_srq = usiw_modify_srq,
	.poll_cq = usiw_poll_cq,
	.post_recv = usiw_post_recv,
	.post_send = usiw_post_send,
	.post_srq_recv = usiw_post_srq_recv,
	.query_device = usiw_query_device,
	.query_gid = usiw_query_gid,
	.query_pkey = usiw_query_pkey,
	.query_port = usiw_query_port,
	.query_qp = usiw_query_qp,
	.query_srq = usiw_query_srq,
	.reg_user_mr = usiw_reg_user_mr,
	.req_notify_cq = usiw_req_notify_cq,
	.usiw_op_resize_cq = usiw_resize_cq,
	.rereg_user_mr = usiw_rereg_user_mr,

	INIT_RDMA_OBJ_SIZE(ib_cq, usiw_cq, ibcq),
	INIT_RDMA_OBJ_SIZE(ib_mw, usiw_mw, ibmw),
	INIT_RDMA_OBJ_SIZE(ib_pd, usiw_pd, ibpd),
	INIT_RDMA_OBJ_SIZE(ib_qp, usiw_qp, ibqp),
	INIT_RDMA_OBJ_SIZE(ib_srq, usiw_srq, ibsrq),
	INIT_RDMA_OBJ_SIZE(ib_ucontext, usiw_ucontext, ibuc),
};

static struct usiw_device *usiw_device_alloc(struct net_device *netdev)
{
	struct usiw_device *dev;

	ASSERT_RTNL();
	dev = ib_alloc_device(usiw_device, ibdev);
	if (!dev)
		return NULL;
	dev->netdev = netdev;
	netdev_hold(netdev, &dev->netdev_tracker, GFP_KERNEL);
	usiw_device_enter_net(dev);
	spin_lock_init(&dev->gid_lock);
	xa_init_flags(&dev->qps, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	xa_init_flags(&dev->stags, XA_FLAGS_ALLOC | XA_FLAGS_ACCOUNT);
	ida_init(&dev->cqns);
	spin_lock_init(&dev->ctx_lock);
	INIT_LIST_HEAD(&dev->contexts);
	mutex_init(&dev->stats_lock);
	INIT_LIST_HEAD(&dev->counters);
	spin_lock_init(&dev->conn_lock);
	INIT_LIST_HEAD(&dev->conns);
	dev->dying = true;	/* usiw_conn_welcome_device() resets it */
	refcount_set(&dev->users, 1);
	init_completion(&dev->users_gone);
	INIT_DELAYED_WORK(&dev->neigh_work, usiw_neigh_work);
	INIT_DELAYED_WORK(&dev->follow_work, usiw_follow_work);
	dev->use_next = jiffies;
	INIT_DELAYED_WORK(&dev->port_work, usiw_port_work);
	dev->port_up = usiw_link_is_up(netdev);
	usiw_lend_lo_a_mac(dev);
	usiw_device_read_mac(dev);
	return dev;
}

static struct usiw_device *usiw_device_create(struct net_device *netdev)
{
	struct usiw_device *dev = ERR_PTR(-ENODEV);

	rtnl_lock();
	if (netdev->reg_state == NETREG_REGISTERED)
		dev = usiw_device_alloc(netdev) ?: ERR_PTR(-ENOMEM);
	rtnl_unlock();
	return dev;
}

static int usiw_device_register(struct usiw_device *dev, const char *ibdev_name)
{
	struct net_device *netdev = dev->netdev;
	struct ib_device *ibdev = &dev->ibdev;
	int ret;

	ibdev->node_type = RDMA_NODE_RNIC;
	ibdev->phys_port_cnt = 1;
	ibdev->num_comp_vectors = USIW_COMP_VECTORS;
	ibdev->iw_driver_flags = IW_F_NO_PORT_MAP;
	addrconf_addr_eui48((u8 *)&ibdev->node_guid, dev->gid);
	strscpy(ibdev->node_desc, "usiw software RNIC", sizeof(ibdev->node_desc));
	strscpy(ibdev->iw_ifname, netdev->name, sizeof(ibdev->iw_ifname));
	ib_set_device_ops(ibdev, &usiw_device_ops);
	ibdev->driver_def = usiw_uapi_defs;

	ret = ib_device_set_netdev(ibdev, netdev, 1);
	if (ret)
		return ret;
	WRITE_ONCE(dev->registrar, current);
	ret = ib_register_device(ibdev, ibdev_name, NULL);
	WRITE_ONCE(dev->registrar, NULL);
	/* If the name is taken, ib_core returns -ENFILE, whose text is "too many open files". */
	if (ret == -ENFILE)
		return -EEXIST;
	if (ret)
		return ret;
	pr_info("%s on %s, MAC %pM, MTU %u\n", dev_name(&ibdev->dev), netdev->name, dev->gid,
		netdev->mtu);
	return 0;
}

/*
 * Unregisters the new device of @netdev if @netdev has gone or left @net in the meantime. Before
 * the device was registered, the notifier could not find it by its netdev, so nothing else would
 * unregister it, and the netdev would wait for it. Returns -ENODEV in that case, else 0.
 */
static int usiw_device_follow(struct net_device *netdev, const struct net *net)
{
	struct ib_device *ibdev;
	bool there;

	rtnl_lock();
	there = netdev->reg_state == NETREG_REGISTERED && net_eq(dev_net(netdev), net);
	rtnl_unlock();
	if (there)
		return 0;
	ibdev = ib_device_get_by_netdev(netdev, (enum rdma_driver_id)USIW_DRIVER_ID);
	if (ibdev)
		ib_unregister_device_and_put(ibdev);
	return -ENODEV;
}

static int usiw_device_add(const char *ibdev_name, struct net_device *netdev)
{
	struct ib_device *ibdev;
	struct usiw_device *dev;
	int ret;

	ibdev = ib_device_get_by_netdev(netdev, (enum rdma_driver_id)USIW_DRIVER_ID);
	if (ibdev) {
		ib_device_put(ibdev);
		return -EEXIST;
	}

	dev = usiw_device_create(netdev);
	if (IS_ERR(dev))
		return PTR_ERR(dev);
	/*
	 * Once registered, the device may be unregistered at any time. The reference keeps its
	 * memory.
	 */
	get_device(&dev->ibdev.dev);
	ret = usiw_device_register(dev, ibdev_name);
	if (ret)
		ib_dealloc_device(&dev->ibdev);
	else
		ret = usiw_device_follow(netdev, read_pnet(&dev->net));
	put_device(&dev->ibdev.dev);
	return ret;
}

/*
 * Makes a device on @netdev, to which the caller has a reference. Returns 0, or -EINVAL if @netdev
 * is a VRF or neither Ethernet nor loopback, -EEXIST if @netdev has a device or the name is taken,
 * -ENODEV if @netdev is going or leaves its netns, -ENOMEM, or another error of ib_core.
 */
int usiw_newlink(const char *ibdev_name, struct net_device *netdev)
{
	static DEFINE_MUTEX(one_at_a_time);
	int ret;

	if ((netdev->type != ARPHRD_ETHER && netdev->type != ARPHRD_LOOPBACK) ||
	    netif_is_l3_master(netdev))
		return -EINVAL;
	mutex_lock(&one_at_a_time);
	ret = usiw_device_add(ibdev_name, netdev);
	mutex_unlock(&one_at_a_time);
	return ret;
}
