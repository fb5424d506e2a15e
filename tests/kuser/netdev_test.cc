// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_netdev.c and usiw_route.c.
#include "fixture.h"

namespace kuser {
namespace {

class Netdev : public Connected {
 protected:
  /// Connects the client to @p second, a process on the same device that listens by @p own.
  void connect_to_own_address(CmId& own, Process& second) {
    ASSERT_EQ(own.listen(client->device, ipv4("192.0.2.1"), 7600), 0);
    ASSERT_EQ(second.open_all(), 0);
    ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.1"), 7600), 0);
    settle({client.get(), &second});
    ASSERT_EQ(own.requests.size(), 1u);
    ASSERT_EQ(own.requests[0]->accept(second), 0);
    settle({client.get(), &second});
  }
};

TEST_F(Netdev, port__event_after_it_is_clear_which) {
  net_device* eth0 = mock_netdev("eth0");
  eth0->carrier = false;
  mock_notify_netdev(eth0, NETDEV_CHANGE);
  EXPECT_EQ(mock_events, 0u);
  mock_advance_ms(USIW_PORT_DELAY_MS + 1);
  EXPECT_EQ(mock_events, 1u);
  EXPECT_EQ(mock_last_event.event, IB_EVENT_PORT_ERR);
  eth0->carrier = true;
  mock_notify_netdev(eth0, NETDEV_CHANGE);
  mock_notify_netdev(eth0, NETDEV_UP);
  mock_advance_ms(USIW_PORT_DELAY_MS + 1);
  EXPECT_EQ(mock_events, 2u);
  EXPECT_EQ(mock_last_event.event, IB_EVENT_PORT_ACTIVE);
}

TEST_F(Netdev, port__removal_says_nothing) {
  net_device* eth0 = mock_netdev("eth0");
  eth0->flags = 0;
  mock_notify_netdev(eth0, NETDEV_DOWN);
  eth0->reg_state = NETREG_UNREGISTERING;
  mock_advance_ms(USIW_PORT_DELAY_MS + 1);
  EXPECT_EQ(mock_events, 0u);
}

// ib_core no longer waits for the handling of such an event.
TEST_F(Netdev, port__device_is_going) {
  net_device* eth0 = mock_netdev("eth0");
  eth0->carrier = false;
  mock_notify_netdev(eth0, NETDEV_CHANGE);
  client->device->unregistering = true;
  mock_advance_ms(USIW_PORT_DELAY_MS + 1);
  EXPECT_EQ(mock_events, 0u);
  client->device->unregistering = false;
}

TEST_F(Netdev, mac__gid_follows) {
  net_device* eth0 = mock_netdev("eth0");
  union ib_gid gid;
  eth0->dev_addr[5] = 0x55;
  mock_notify_netdev(eth0, NETDEV_CHANGEADDR);
  client->device->ops->query_gid(client->device, 1, 0, &gid);
  EXPECT_EQ(gid.raw[5], 0x55);
  EXPECT_EQ(mock_last_event.event, IB_EVENT_GID_CHANGE);
  const auto records = client->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].link.mac[5], 0x55);
}

TEST_F(Netdev, name__follows_a_rename) {
  net_device* eth0 = mock_netdev("eth0");
  snprintf(eth0->name, sizeof(eth0->name), "wan0");
  mock_notify_netdev(eth0, NETDEV_CHANGENAME);
  EXPECT_STREQ(client->device->iw_ifname, "wan0");
  const auto records = client->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_STREQ(reinterpret_cast<const char*>(records[0].link.ifname), "wan0");
  snprintf(eth0->name, sizeof(eth0->name), "eth0");
}

// Connections to an own address go over lo, which has no device here.
TEST_F(Netdev, lo__its_mtu_is_told_to_each_device_of_the_netns) {
  net_device* lo = mock_netdev("lo");
  const auto before = lo->mtu;
  lo->mtu = 1300;
  mock_notify_netdev(lo, NETDEV_CHANGEMTU);
  for (Process* process : {client.get(), server.get()}) {
    const auto records = process->events();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ(records[0].type, u32{USIW_EVENT_LINK});
    EXPECT_EQ(records[0].link.lo_mtu, 1300u);
  }
  lo->mtu = before;
}

TEST_F(Netdev, lo__of_another_netns_is_not_meant) {
  net foreign{.hash_mix = 9, .loopback_dev = nullptr};
  net_device other = *mock_netdev("lo");
  other.net = &foreign;
  mock_notify_netdev(&other, NETDEV_CHANGEMTU);
  EXPECT_TRUE(client->events().empty());
}

// The frames of a local connection carry the MAC of lo, which may change.
TEST_F(Netdev, lo__its_mac_is_told_to_local_connections) {
  CmId own;
  Process second("eth0");
  ASSERT_NO_FATAL_FAILURE(connect_to_own_address(own, second));
  client->events();
  net_device* lo = mock_netdev("lo");
  lo->dev_addr[5] = 0x66;
  mock_notify_netdev(lo, NETDEV_CHANGEADDR);
  mock_advance_ms(1);
  bool told = false;
  for (const auto& record : client->events())
    told |= record.type == USIW_EVENT_PATH && record.conn.local_mac[5] == 0x66 && record.conn.remote_mac[5] == 0x66;
  EXPECT_TRUE(told);
  lo->dev_addr[5] = 0;
}

TEST_F(Netdev, addr_removed__connections_of_it_end) {
  establish();
  const in6_addr other = ipv6("2001:db8::1"), own = ipv4("192.0.2.1");
  mock_remove_addr(mock_netdev("eth0"), &other);
  mock_run();
  EXPECT_NE(client->qp()->conn, nullptr);
  mock_remove_addr(mock_netdev("eth0"), &own);
  mock_run();
  EXPECT_EQ(client->qp()->conn, nullptr);
  EXPECT_TRUE(active.told(IW_CM_EVENT_CLOSE));
}

TEST_F(Netdev, neigh__others_do_not_matter) {
  establish();
  const u8 mac[ETH_ALEN] = {2, 0, 0, 0, 0, 0x42};
  const in6_addr stranger = ipv4("192.0.2.200");
  mock_neigh_update(mock_netdev("lo"), &stranger, mac);
  mock_neigh_update(mock_netdev("eth0"), &stranger, mac);
  mock_advance_ms(USIW_NEIGH_DELAY_MS + 1);
  EXPECT_TRUE(client->events().empty());
}

TEST_F(Netdev, route__own_address_goes_over_lo) {
  CmId own;
  Process second("eth0");
  ASSERT_NO_FATAL_FAILURE(connect_to_own_address(own, second));
  ASSERT_EQ(client->seen.size(), 1u);
  EXPECT_EQ(client->seen[0].conn.flags, USIW_CONN_F_INITIATOR | USIW_CONN_F_LOCAL);
  EXPECT_EQ(client->seen[0].conn.mtu, USIW_MAX_MTU);
}

TEST_F(Netdev, route__each_failure) {
  for (int n = 0; n < 3; n++) {
    mock_errors[MOCK_NET] = u64{1} << n;
    CmId id;
    id.connect(*client, ipv4("192.0.2.1"), 9100 + n, ipv4("192.0.2.2"), kPort);
    settle({client.get(), server.get()});
    client->modify(IB_QPS_ERR);
    client->modify(IB_QPS_RESET);
    client->modify(IB_QPS_INIT);
    settle({client.get(), server.get()});
    EXPECT_EQ(mock_routes, 0);
    EXPECT_EQ(mock_neighbours, 0);
  }
}

}  // namespace
}  // namespace kuser
