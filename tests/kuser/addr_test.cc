// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_addr.c: netdevs that rdma_cm takes for the device's own, and link-local addresses.
#include "fixture.h"

namespace kuser {
namespace {

/// rdma_cm finds a device by the MAC of the netdev that has the address.
constexpr bool kByMac = USIW_RDMA_CM_NEEDS_MAC;

/// One end is on eth0 and its VLANs, the other one on eth1.
class Addr : public Kuser {
 protected:
  void SetUp() override {
    Kuser::SetUp();
    ASSERT_NO_FATAL_FAILURE(open(near, "eth0"));
    ASSERT_NO_FATAL_FAILURE(open(far, "eth1"));
  }
  void TearDown() override {
    if (active.id.device) active.destroy();
    for (CmId* listener : {&first, &second})
      if (listener->id.device) {
        for (auto& request : listener->requests) request->destroy();
        listener->destroy();
      }
    for (auto& p : {&near, &far, &third})
      if (*p) (*p)->close();
    pump();
    mock_advance_ms(3000);
    pump();
    near.reset();
    far.reset();
    third.reset();
    Kuser::TearDown();
  }
  static void open(std::unique_ptr<Process>& p, const char* netdev) {
    p = std::make_unique<Process>(netdev);
    p->caps = USIW_CAP_DATA_SOCKET;
    ASSERT_EQ(p->open_all(), 0);
  }
  /// There is a device on a VLAN, too.
  void open_vlan(const char* netdev) {
    ASSERT_EQ(mock_link_ops->newlink("usiw2", mock_netdev(netdev)), 0);
    ASSERT_NO_FATAL_FAILURE(open(third, netdev));
  }
  void accept(CmId& listener, Process& by, Process& other) {
    pump();
    ASSERT_EQ(listener.requests.size(), 1u);
    ASSERT_EQ(listener.requests[0]->accept(by), 0);
    settle({&by, &other});
    EXPECT_TRUE(active.established());
  }
  static const usiw_conn_info& told(const Process& p) {
    static const usiw_conn_info none{};
    return p.seen.empty() ? none : p.seen[0].conn;
  }
  static u32 scope_of(const sockaddr_storage& ss) { return reinterpret_cast<const sockaddr_in6&>(ss).sin6_scope_id; }
  static int index(const char* netdev) { return mock_netdev(netdev)->ifindex; }

  std::unique_ptr<Process> near, far, third;
  CmId first, second, active;
};

// The data follows the kernel's route, which leaves by the VLAN. So the netdev below it sends no raw packets.
TEST_F(Addr, vlan__connect_by_the_device_below) {
  for (const bool v6 : {false, true}) {
    const in6_addr from = v6 ? ipv6("2001:db8::3") : ipv4("192.0.2.3");
    const in6_addr to = v6 ? ipv6("2001:db8::2") : ipv4("192.0.2.2");
    ASSERT_EQ(first.listen(far->device, to, kPort), 0);
    ASSERT_EQ(active.connect(*near, from, 9000, to, kPort), 0);
    ASSERT_NO_FATAL_FAILURE(accept(first, *far, *near));
    EXPECT_EQ(told(*near).flags & USIW_CONN_F_PACKET, 0u);
    EXPECT_EQ(told(*near).not_packet, u32{USIW_NOT_PACKET_NETDEV});
    EXPECT_EQ(near->data_fds.size(), 1u);
    if (v6) break;
    start_anew({&active, &first, &second});
  }
}

// The roles may be exchanged: rdma_cm may find the device of the VLAN first.
TEST_F(Addr, vlan__connect_by_the_device_above) {
  ASSERT_NO_FATAL_FAILURE(open_vlan("eth0.3"));
  ASSERT_EQ(first.listen(far->device, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_EQ(active.connect(*third, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(first, *far, *third));
  EXPECT_EQ(told(*third).not_packet, u32{USIW_NOT_PACKET_NETDEV});
}

TEST_F(Addr, vlan__not_for_who_takes_raw_packets_only) {
  near->context()->caps = 0;
  EXPECT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), -ENETUNREACH);
  EXPECT_EQ(mock_sent(), 0u);
}

TEST_F(Addr, vlan__listen_by_the_device_below) {
  ASSERT_EQ(first.listen(near->device, ipv4("192.0.2.3"), kPort), 0);
  ASSERT_EQ(second.listen(near->device, ipv4("192.0.2.1"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.3"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(first, *near, *far));
  EXPECT_TRUE(second.requests.empty());
  EXPECT_EQ(told(*near).not_packet, u32{USIW_NOT_PACKET_NETDEV});
}

// A datagram that another netdev receives for an address reaches no listener.
TEST_F(Addr, vlan__listen_not_by_others) {
  ASSERT_EQ(first.listen(near->device, ipv4("192.0.2.3"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.3"), kPort), 0);
  mock_datagram d;
  ASSERT_TRUE(mock_take(&d));
  d.via = mock_netdev("eth1");
  mock_deliver(&d, 64);
  mock_run();
  EXPECT_TRUE(first.requests.empty());
}

// rdma_cm listens on all addresses by each device, and assigns a request to the device that it has known longest.
TEST_F(Addr, any__the_older_device_goes_first) {
  ASSERT_NO_FATAL_FAILURE(open_vlan("eth0.3"));
  ASSERT_EQ(second.listen(third->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(first.listen(near->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.3"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(first, *near, *far));
  EXPECT_TRUE(second.requests.empty());
}

TEST_F(Addr, any__one_that_clients_have_got_anew_goes_last) {
  ASSERT_NO_FATAL_FAILURE(open_vlan("eth0.3"));
  mock_take_from_client(near->device);
  mock_give_to_client(near->device);
  ASSERT_EQ(second.listen(third->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(first.listen(near->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.1"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(second, *third, *far));
  EXPECT_TRUE(first.requests.empty());
}

TEST_F(Addr, any__by_the_device_below) {
  ASSERT_EQ(first.listen(near->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.4"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(first, *near, *far));
}

// Two VLANs of one netdev have its MAC. rdma_cm takes them for each other only if it compares MACs.
TEST_F(Addr, any__by_a_vlan_s_sister) {
  ASSERT_NO_FATAL_FAILURE(open_vlan("eth0.3"));
  ASSERT_EQ(first.listen(third->device, ipv4("0.0.0.0"), kPort), 0);
  ASSERT_EQ(active.connect(*far, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.4"), kPort), 0);
  pump();
  EXPECT_EQ(first.requests.size(), kByMac ? 1u : 0u);
}

TEST_F(Addr, mac__a_vlan_with_its_own) {
  mock_netdev("eth0.3")->dev_addr[5] = 0x33;
  ASSERT_EQ(first.listen(far->device, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), kByMac ? -EADDRNOTAVAIL : 0);
}

// A bond has the MAC of its slaves, but is no VLAN.
TEST_F(Addr, mac__the_same_by_chance_or_by_a_bond) {
  mock_netdev("eth0.3")->vlan_of = nullptr;
  ASSERT_EQ(first.listen(far->device, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), kByMac ? 0 : -EADDRNOTAVAIL);
}

TEST_F(Addr, mac__none_is_nobody_s) {
  for (const char* name : {"eth0", "eth0.3"}) memset(mock_netdev(name)->dev_addr, 0, ETH_ALEN);
  mock_netdev("eth0.3")->vlan_of = nullptr;
  EXPECT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), -EADDRNOTAVAIL);
}

TEST_F(Addr, vrf__of_the_address_s_netdev) {
  mock_netdev("eth0.3")->in_vrf = true;
  EXPECT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), -EOPNOTSUPP);
  EXPECT_EQ(active.connect(*near, ipv6("2001:db8::3"), 9000, ipv6("2001:db8::2"), kPort), -EADDRNOTAVAIL);
  EXPECT_EQ(mock_sent(), 0u);
}

TEST_F(Addr, removed__from_a_netdev_without_a_device) {
  ASSERT_EQ(first.listen(far->device, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_EQ(active.connect(*near, ipv4("192.0.2.3"), 9000, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_NO_FATAL_FAILURE(accept(first, *far, *near));
  const in6_addr other = ipv4("192.0.2.1"), own = ipv4("192.0.2.3");
  mock_remove_addr(mock_netdev("eth0"), &other);
  mock_run();
  EXPECT_NE(near->qp()->conn, nullptr);
  mock_remove_addr(mock_netdev("eth0.3"), &own);
  mock_run();
  EXPECT_EQ(near->qp()->conn, nullptr);
  EXPECT_TRUE(active.told(IW_CM_EVENT_CLOSE));
}

// ---- Link-local addresses: eth0 and eth0.3 have the same one ----

TEST_F(Addr, link_local__of_the_link_that_the_program_names) {
  active.scope = index("eth0.3");
  first.scope = index("eth1");
  ASSERT_EQ(first.listen(far->device, ipv6("fe80::2"), kPort), 0);
  ASSERT_EQ(active.connect(*near, ipv6("fe80::1"), 9000, ipv6("fe80::2"), kPort), 0);
  EXPECT_EQ(near->qp()->conn->end.tuple.scope, u32(index("eth0.3")));
  pump();
  ASSERT_EQ(first.requests.size(), 1u);
  EXPECT_EQ(scope_of(first.requests[0]->id.local_addr), u32(index("eth1")));
  // The address is removed from the other link, and then from its own.
  const in6_addr own = ipv6("fe80::1");
  mock_remove_addr(mock_netdev("eth0"), &own);
  mock_run();
  EXPECT_NE(near->qp()->conn, nullptr);
  mock_remove_addr(mock_netdev("eth0.3"), &own);
  mock_run();
  EXPECT_EQ(near->qp()->conn, nullptr);
}

TEST_F(Addr, link_local__listeners_of_two_links) {
  first.scope = index("eth0");
  second.scope = index("eth0.3");
  ASSERT_EQ(first.listen(near->device, ipv6("fe80::1"), kPort), 0);
  ASSERT_EQ(second.listen(near->device, ipv6("fe80::1"), kPort), 0);
  CmId again;
  again.scope = index("eth0.3");
  EXPECT_EQ(again.listen(near->device, ipv6("fe80::1"), kPort), -EADDRINUSE);
  ASSERT_EQ(active.connect(*far, ipv6("fe80::2"), 9000, ipv6("fe80::1"), kPort), 0);
  mock_datagram d;
  ASSERT_TRUE(mock_take(&d));
  d.via = mock_netdev("eth0.3");
  mock_deliver(&d, 64);
  mock_run();
  EXPECT_TRUE(first.requests.empty());
  ASSERT_EQ(second.requests.size(), 1u);
  EXPECT_EQ(scope_of(second.requests[0]->id.local_addr), u32(index("eth0.3")));
  // The same addresses on the other link are another connection.
  d.via = mock_netdev("eth0");
  mock_deliver(&d, 64);
  mock_run();
  EXPECT_EQ(first.requests.size(), 1u);
}

TEST_F(Addr, link_local__both_ends_on_one_link) {
  iw_cm_conn_param param{nullptr, 0, 4, 4, near->ibqp->qp_num};
  near->enter();
  active.id.device = near->device;
  active.id.local_addr = endpoint(ipv6("fe80::1"), 9000, index("eth0"));
  active.id.m_remote_addr = endpoint(ipv6("fe80::2"), kPort, index("eth0.3"));
  EXPECT_EQ(near->device->ops->iw_connect(&active.id, &param), -EINVAL);
  active.id.device = nullptr;
}

TEST_F(Addr, link_local__of_no_link_or_of_a_stranger_s) {
  active.scope = 99;
  EXPECT_EQ(active.connect(*near, ipv6("fe80::1"), 9000, ipv6("fe80::2"), kPort), -EADDRNOTAVAIL);
  active.scope = index("eth1");
  EXPECT_EQ(active.connect(*near, ipv6("fe80::2"), 9000, ipv6("fe80::1"), kPort), -EADDRNOTAVAIL);
}

}  // namespace
}  // namespace kuser
