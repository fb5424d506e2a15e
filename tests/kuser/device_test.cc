// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_device.c and usiw_main.c.
#include "../../cm/object/usiw_device_attr.h"
#include "fixture.h"

namespace kuser {
namespace {

class Device : public Kuser {};

constexpr int kOfOthers = 2;  ///< references to lo by

TEST_F(Device, query_device__limits) {
  ib_device* dev = mock_device("eth0");
  ib_device_attr attr;
  ib_udata none{};
  EXPECT_EQ(dev->ops->query_device(dev, &attr, &none), 0);
  EXPECT_EQ(attr.max_qp, USIW_MAX_QP);
  EXPECT_EQ(attr.max_send_sge, USIW_MAX_SGE);
  EXPECT_EQ(attr.max_qp_rd_atom, USIW_MAX_IRD);
  EXPECT_EQ(attr.timestamp_mask, USIW_TIMESTAMP_MASK);
  EXPECT_EQ(attr.hca_core_clock, USIW_CLOCK_KHZ);
  EXPECT_EQ(attr.max_mw, USIW_MAX_MW);
  EXPECT_EQ(attr.device_cap_flags, u64{USIW_DEVICE_CAP_FLAGS});
  EXPECT_EQ(attr.atomic_cap, IB_ATOMIC_GLOB);
  EXPECT_EQ(attr.max_srq, USIW_MAX_SRQ);
  EXPECT_EQ(attr.odp_caps.per_transport_caps.rc_odp_caps, USIW_ODP_RC_CAPS);
  none.inlen = 1;
  EXPECT_EQ(dev->ops->query_device(dev, &attr, &none), -EINVAL);
}

/// ib_core itself asks, up to 6.12 with an empty udata and later with none.
TEST_F(Device, query_device__without_udata) {
  ib_device* dev = mock_device("eth0");
  ib_device_attr attr;
  EXPECT_EQ(dev->ops->query_device(dev, &attr, nullptr), 0);
  EXPECT_EQ(attr.max_qp, USIW_MAX_QP);
}

/// Reads /sys/class/infiniband/DEV/parent in the namespace that @p core stands for. Returns the text, or -errno.
std::string parent_of(ib_device* dev, ib_core_device* core) {
  attribute* parent = dev->ops->device_group->attrs[0];
  EXPECT_STREQ(parent->name, "parent");
  EXPECT_EQ(dev->ops->device_group->attrs[1], nullptr);
  auto* file = container_of(parent, struct device_attribute, attr);
  char page[PAGE_SIZE];
  const ssize_t n = file->show(&core->dev, file, page);
  return n < 0 ? std::to_string(n) : std::string(page, static_cast<size_t>(n));
}

TEST_F(Device, parent__is_the_netdev_in_its_own_namespace) {
  ib_device* dev = mock_device("eth0");
  net_device* eth0 = mock_netdev("eth0");
  EXPECT_EQ(parent_of(dev, &dev->coredev), "eth0\n");
  strcpy(eth0->name, "renamed");
  EXPECT_EQ(parent_of(dev, &dev->coredev), "renamed\n");
  strcpy(eth0->name, "eth0");

  ib_core_device elsewhere{};
  elsewhere.owner = dev;
  net other{};
  write_pnet(&elsewhere.rdma_net, &other);
  EXPECT_EQ(parent_of(dev, &elsewhere), std::to_string(-ENODEV));

  eth0->reg_state = NETREG_UNREGISTERING;
  EXPECT_EQ(parent_of(dev, &dev->coredev), std::to_string(-ENODEV));
  eth0->reg_state = NETREG_REGISTERED;
}

TEST_F(Device, query_port__follows_the_netdev) {
  ib_device* dev = mock_device("eth0");
  ib_port_attr attr;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.state, IB_PORT_ACTIVE);
  EXPECT_EQ(attr.active_speed, IB_SPEED_FDR10);
  mock_netdev("eth0")->carrier = false;
  mock_netdev("eth0")->speed = 0;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.state, IB_PORT_DOWN);
  EXPECT_EQ(attr.active_speed, IB_SPEED_SDR);
  mock_netdev("eth0")->speed = 400000;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.active_speed, IB_SPEED_NDR);
}

// `ip link set down` and a pulled cable are shown differently, as with rxe.
TEST_F(Device, query_port__down_is_disabled_and_without_carrier_polls) {
  ib_device* dev = mock_device("eth0");
  net_device* eth0 = mock_netdev("eth0");
  ib_port_attr attr;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.phys_state, IB_PORT_PHYS_STATE_LINK_UP);
  eth0->carrier = false;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.state, IB_PORT_DOWN);
  EXPECT_EQ(attr.phys_state, IB_PORT_PHYS_STATE_POLLING);
  eth0->flags &= ~IFF_UP;
  EXPECT_EQ(dev->ops->query_port(dev, 1, &attr), 0);
  EXPECT_EQ(attr.state, IB_PORT_DOWN);
  EXPECT_EQ(attr.phys_state, IB_PORT_PHYS_STATE_DISABLED);
}

TEST_F(Device, query_gid__is_the_mac) {
  ib_device* dev = mock_device("eth0");
  union ib_gid gid;
  u16 pkey = 0;
  EXPECT_EQ(dev->ops->query_gid(dev, 1, 0, &gid), 0);
  EXPECT_EQ(memcmp(gid.raw, mock_netdev("eth0")->dev_addr, ETH_ALEN), 0);
  EXPECT_EQ(dev->ops->query_pkey(dev, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, IB_DEFAULT_PKEY_FULL);
}

TEST_F(Device, newlink__lo_has_a_gid) {
  ASSERT_EQ(mock_link_ops->newlink("usiw2", mock_netdev("lo")), 0);
  ib_device* dev = mock_device("lo");
  union ib_gid gid;
  dev->ops->query_gid(dev, 1, 0, &gid);
  EXPECT_FALSE(is_zero_ether_addr(gid.raw));
  EXPECT_EQ(is_zero_ether_addr(mock_netdev("lo")->dev_addr), USIW_MOCK_KERNEL >= 604);
}

// lo is as before, however its device ends. But a MAC that somebody else has set meanwhile stays.
TEST_F(Device, lo__has_no_mac_when_its_device_is_gone) {
  net_device* lo = mock_netdev("lo");
  ASSERT_EQ(mock_link_ops->newlink("usiw2", lo), 0);
  mock_unregister(mock_device("lo"));
  EXPECT_TRUE(is_zero_ether_addr(lo->dev_addr));
  ASSERT_EQ(mock_link_ops->newlink("usiw2", lo), 0);
  lo->dev_addr[0] = 6;
  mock_unregister(mock_device("lo"));
  EXPECT_EQ(lo->dev_addr[0], 6);
}

TEST_F(Device, newlink__second_device_on_a_netdev) {
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("eth0")), -EEXIST);
}

TEST_F(Device, newlink__not_like_ethernet) {
  mock_netdev("lo")->type = ARPHRD_INFINIBAND;
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), -EINVAL);
}

// An address of the netdev belongs to the VRF, which look-ups and sockets do not support.
TEST_F(Device, newlink__not_on_a_vrf) {
  mock_netdev("lo")->vrf = true;
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), -EINVAL);
}

TEST_F(Device, newlink__each_failure) {
  for (int n = 0;; n++) {
    mock_inject(u64{1} << n);
    const int ret = mock_link_ops->newlink("usiw9", mock_netdev("lo"));
    const bool more = mock_fallible > static_cast<unsigned>(n);
    mock_inject(0);
    if (!more) {
      EXPECT_EQ(ret, 0);
      break;
    }
    EXPECT_LT(ret, 0) << "call " << n;
    EXPECT_TRUE(is_zero_ether_addr(mock_netdev("lo")->dev_addr)) << "call " << n;
    EXPECT_EQ(mock_netdev("lo")->refs, kOfOthers);
  }
}

// The netdev goes before the device can be found by it. Nobody else would remove the device.
TEST_F(Device, newlink__netdev_goes_meanwhile) {
  mock_on_register = [] {
    mock_netdev("lo")->reg_state = NETREG_UNREGISTERING;
    mock_notify_netdev(mock_netdev("lo"), NETDEV_UNREGISTER);
  };
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), -ENODEV);
  EXPECT_EQ(mock_device("lo"), nullptr);
  EXPECT_EQ(mock_netdev("lo")->refs, kOfOthers);
}

TEST_F(Device, newlink__netdev_moves_meanwhile) {
  static net other;
  mock_on_register = [] {
    mock_notify_netdev(mock_netdev("lo"), NETDEV_UNREGISTER);
    mock_netdev("lo")->net = &other;
  };
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), -ENODEV);
  EXPECT_EQ(mock_device("lo"), nullptr);
  EXPECT_EQ(mock_netdev("lo")->refs, kOfOthers);
}

TEST_F(Device, newlink__netdev_is_going) {
  mock_netdev("lo")->reg_state = NETREG_UNREGISTERING;
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), -ENODEV);
  EXPECT_EQ(mock_netdev("lo")->refs, kOfOthers);
}

// `rdma link delete` at once: nothing may read the device afterwards.
TEST_F(Device, newlink__removed_at_once) {
  mock_on_registered = [] { mock_unregister(mock_device("lo")); };
  EXPECT_EQ(mock_link_ops->newlink("usiw9", mock_netdev("lo")), 0);
  EXPECT_EQ(mock_device("lo"), nullptr);
}

TEST_F(Device, netdevs_parameter__names) {
  EXPECT_EQ(unload(), "");
  char names[] = " eth0 ,nothing,, lo,eth0";
  *mock_param_netdevs = names;
  mock_errors[MOCK_CORE] = 0;
  ASSERT_EQ(mock_module_init(), 0);
  loaded_ = true;
  EXPECT_NE(mock_device("eth0"), nullptr);
  EXPECT_NE(mock_device("lo"), nullptr);
  EXPECT_EQ(mock_device("eth1"), nullptr);
  *mock_param_netdevs = nullptr;
}

}  // namespace
}  // namespace kuser
