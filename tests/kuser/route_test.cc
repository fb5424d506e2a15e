// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_route.c and usiw_follow.c: where raw packets may go, and connections that follow their routes.
#include "../../cm/usiw_cm_path.h"
#include "fixture.h"

namespace kuser {
namespace {

class Route : public Connected {
 protected:
  int look(usiw_cm_route& route, const char* to = "192.0.2.2") {
    usiw_tuple tuple{};
    tuple.local = ipv4("192.0.2.1");
    tuple.remote = ipv4(to);
    const usiw_sender sender{};
    return usiw_route_check(to_usiw_dev(client->device), &tuple, &sender, true, &route);
  }
  int connect(bool ipv6_too = false) {
    return ipv6_too ? active.connect(*client, ipv6("2001:db8::1"), 9000, ipv6("2001:db8::2"), kPort)
                    : active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort);
  }
};

TEST_F(Route, eligible__out_of_the_netdev_and_over_lo) {
  usiw_cm_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_NONE);
  EXPECT_EQ(usiw_cm_not_packet_errno(route.reason), 0);
  ASSERT_EQ(look(route, "192.0.2.1"), 0);
  EXPECT_TRUE(route.local);
  EXPECT_EQ(usiw_cm_not_packet_errno(route.reason), 0);
}

// `ip rule add uidrange` applies as it does to the data socket, which belongs to that user.
TEST_F(Route, get__for_the_user_who_connects_and_the_one_who_accepts) {
  for (const bool v6 : {false, true}) {
    mock_user = 1000;
    ASSERT_EQ(connect(v6), 0);
    EXPECT_EQ(mock_route_user, 1000u);
    EXPECT_EQ(client_conn()->sender.uid.val, 1000u);
    mock_user = 0;
    pump();
    if (v6) break;  // the listener of the fixture uses IPv4
    ASSERT_EQ(listener.requests.size(), 1u);
    mock_user = 2000;
    ASSERT_EQ(listener.requests[0]->accept(*server), 0);
    EXPECT_EQ(mock_route_user, 2000u);
    EXPECT_EQ(server_conn()->sender.uid.val, 2000u);
    mock_user = 0;
    settle({client.get(), server.get()});
    start_anew({&active});
  }
}

TEST_F(Route, eligible__not_by_another_netdev) {
  mock_route_dev = mock_netdev("eth1");
  usiw_cm_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_NETDEV);
  EXPECT_EQ(usiw_cm_not_packet_errno(route.reason), -ENETUNREACH);
  EXPECT_EQ(connect(), -ENETUNREACH);
}

TEST_F(Route, eligible__not_through_a_lightweight_tunnel) {
  mock_route_encap = this;
  usiw_cm_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_ENCAP);
  EXPECT_EQ(connect(), -EPROTONOSUPPORT);
}

// With a security association, without one yet, and with a policy that forbids the flow.
TEST_F(Route, ipsec__connect_does_not_send_in_clear) {
  for (const int says : {1, -EREMOTE, -EAGAIN, -EINVAL}) {
    mock_ipsec = says;
    usiw_cm_route route;
    ASSERT_EQ(look(route), 0);
    EXPECT_EQ(route.reason, USIW_NOT_PACKET_IPSEC);
    EXPECT_EQ(route.mtu, says == 1 ? 1460 : 1500);
    EXPECT_EQ(connect(), -EPROTONOSUPPORT) << says;
    EXPECT_EQ(connect(true), -EPROTONOSUPPORT) << says;
  }
  mock_ipsec = -EPERM;
  EXPECT_EQ(connect(), -EPERM);
  EXPECT_EQ(connect(true), -EPERM);
  EXPECT_EQ(mock_sent(), 0u);
}

TEST_F(Route, ipsec__local_connections_are_not_meant) {
  mock_ipsec = 1;
  usiw_cm_route route;
  ASSERT_EQ(look(route, "192.0.2.1"), 0);
  EXPECT_EQ(usiw_cm_not_packet_errno(route.reason), 0);
}

TEST_F(Route, ipsec__accept_does_not_send_in_clear) {
  ASSERT_EQ(connect(), 0);
  mock_ipsec = 1;  // on the responder's route back
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  EXPECT_EQ(listener.requests[0]->accept(*server), -EPROTONOSUPPORT);
  settle({client.get(), server.get()});
  EXPECT_FALSE(active.established());
  EXPECT_TRUE(client->seen.empty());
}

// The policy is added between REQ and ACCEPT. The initiator's engine does not get the connection.
TEST_F(Route, ipsec__not_installed) {
  ASSERT_EQ(connect(), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  mock_ipsec = 1;
  settle({client.get(), server.get()});
  EXPECT_TRUE(client->seen.empty());
  EXPECT_FALSE(active.established());
  EXPECT_EQ(client_conn(), nullptr);
}

// By the main table the frames and handshakes would leave for other networks.
TEST_F(Route, vrf__connect_is_refused_and_sends_nothing) {
  mock_netdev("eth0")->in_vrf = true;
  for (const bool sockets : {false, true}) {
    if (sockets) client->context()->caps |= USIW_CAP_DATA_SOCKET;
    EXPECT_EQ(connect(), -EOPNOTSUPP);
    EXPECT_EQ(connect(true), -EOPNOTSUPP);
  }
  EXPECT_EQ(mock_routes, 0);
  EXPECT_EQ(mock_sent(), 0u);
}

// The netdev joins a VRF between request and accept.
TEST_F(Route, vrf__accept_is_refused) {
  ASSERT_EQ(connect(), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  mock_netdev("eth1")->in_vrf = true;
  EXPECT_EQ(listener.requests[0]->accept(*server), -EOPNOTSUPP);
  EXPECT_FALSE(active.established());
}

// rdma_cm uses any device for 127.0.0.1.
TEST_F(Route, vrf__connections_over_lo_are_not_meant) {
  mock_netdev("eth0")->in_vrf = true;
  usiw_tuple tuple{};
  tuple.local = tuple.remote = ipv4("127.0.0.1");
  const usiw_sender sender{};
  usiw_cm_route route;
  ASSERT_EQ(usiw_route_check(to_usiw_dev(client->device), &tuple, &sender, true, &route), 0);
  EXPECT_TRUE(route.local);
}

TEST_F(Route, get__errors_of_the_look_up) {
  usiw_cm_route route;
  EXPECT_EQ(look(route, "192.0.2.66"), -ENETUNREACH);  // a blackhole
  mock_errors[MOCK_NET] = 1;
  EXPECT_EQ(connect(true), -ENETUNREACH);
  EXPECT_EQ(mock_routes, 0);
}

// ---- Connections that follow ----

class Follow : public Route {
 protected:
  void SetUp() override {
    Route::SetUp();
    establish();
    mock_advance_ms(USIW_FOLLOW_MS + 1);  // the first check of the routes
    events();
  }
  /// Returns the records since the last call.
  std::vector<usiw_event> events() { return client->events(); }
  void routes_changed() {
    init_net.genid_ipv4++;
    mock_advance_ms(USIW_FOLLOW_MS + 1);
  }
  s64 count(usiw_kcounter which) { return atomic64_read(&to_usiw_dev(client->device)->kcounters[which]); }
};

// uapi/usiw_abi.h promises this.
TEST_F(Follow, own_mac__reaches_live_connections) {
  mock_netdev("eth0")->dev_addr[5] = 0x55;
  mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEADDR);
  mock_run();
  const auto records = events();
  ASSERT_EQ(records.size(), 2u);  // LINK, too
  const usiw_event& neigh = records[records[0].type == USIW_EVENT_PATH ? 0 : 1];
  ASSERT_EQ(neigh.type, USIW_EVENT_PATH);
  EXPECT_EQ(neigh.conn.local_mac[5], 0x55);
  EXPECT_EQ(neigh.conn.remote_mac[5], 0x77);
  EXPECT_EQ(neigh.conn.mtu, 1500);
}

// The change of the own MAC has emptied the neighbour table. The old next hop is better than none.
TEST_F(Follow, own_mac__while_the_next_hop_is_not_known) {
  mock_netdev("eth0")->dev_addr[5] = 0x55;
  mock_neigh_known = false;
  mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEADDR);
  mock_run();
  auto records = events();
  ASSERT_EQ(records.size(), 2u);
  const usiw_event& neigh = records[records[0].type == USIW_EVENT_PATH ? 0 : 1];
  EXPECT_EQ(neigh.conn.local_mac[5], 0x55);
  EXPECT_EQ(neigh.conn.remote_mac[5], 0x77);
  // The update by which it becomes known is noticed.
  mock_neigh_known = true;
  mock_neigh_mac[5] = 0x78;
  const in6_addr peer = ipv4("192.0.2.2");
  mock_neigh_update(mock_netdev("eth0"), &peer, mock_neigh_mac);
  mock_advance_ms(USIW_NEIGH_DELAY_MS + 1);
  records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].conn.remote_mac[5], 0x78);
}

// No notifier reports this.
TEST_F(Follow, route__other_next_hop_of_which_nobody_tells) {
  mock_neigh_mac[5] = 0x99;
  mock_advance_ms(USIW_FOLLOW_MS + 1);
  EXPECT_TRUE(events().empty());
  routes_changed();
  const auto records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_PATH);
  EXPECT_EQ(records[0].conn.remote_mac[5], 0x99);
  routes_changed();
  EXPECT_TRUE(events().empty());
}

TEST_F(Follow, route__of_ipv6) {
  mock_neigh_mac[5] = 0x99;
  init_net.genid_ipv6++;
  mock_advance_ms(USIW_FOLLOW_MS + 1);
  EXPECT_EQ(events().size(), 1u);
}

// If only the engine sends to a next hop, the module has to use it so that the kernel verifies it.
TEST_F(Follow, next_hop__is_used_now_and_then) {
  mock_advance_ms(USIW_FOLLOW_USE_MS + 2 * USIW_FOLLOW_MS);
  const unsigned before = mock_neigh_used;
  mock_advance_ms(USIW_FOLLOW_USE_MS / 2);
  EXPECT_LE(mock_neigh_used - before, 2u);  // one per connection
  mock_advance_ms(USIW_FOLLOW_USE_MS);
  EXPECT_GE(mock_neigh_used - before, 2u);
  EXPECT_LE(mock_neigh_used - before, 4u);
  mock_neigh_mac[5] = 0x99;
  mock_advance_ms(USIW_FOLLOW_USE_MS + 2 * USIW_FOLLOW_MS);
  EXPECT_EQ(events().size(), 1u);
}

TEST_F(Follow, work__ends_with_the_last_connection) {
  EXPECT_TRUE(to_usiw_dev(client->device)->follow_work.work.pending);
  client->modify(IB_QPS_ERR);
  settle({client.get(), server.get()});
  mock_advance_ms(60000);
  EXPECT_FALSE(to_usiw_dev(client->device)->follow_work.work.pending);
}

TEST_F(Follow, route__by_another_netdev_is_told_once) {
  mock_route_dev = mock_netdev("eth1");
  routes_changed();
  routes_changed();
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(count(USIW_KCNT_ROUTE_ELSEWHERE), 1);
  EXPECT_NE(client_conn(), nullptr);
  mock_route_dev = nullptr;
  routes_changed();
  mock_route_dev = mock_netdev("eth1");
  routes_changed();
  EXPECT_EQ(count(USIW_KCNT_ROUTE_ELSEWHERE), 2);
}

TEST_F(Follow, route__none_changes_nothing) {
  mock_errors[MOCK_NET] = 3;
  routes_changed();
  EXPECT_TRUE(events().empty());
  EXPECT_NE(client_conn(), nullptr);
}

// ---- Many connections of a device ----

/// Connections on eth0 that only follow their routes. They send nothing.
class FollowMany : public Follow {
 public:
  static constexpr int kConns = 3 * USIW_FOLLOW_BATCH + 10;
  void SetUp() override {
    Follow::SetUp();
    for (int i = 0; i < kConns; i++) add();
  }
  void TearDown() override {
    mock_on_resched = nullptr;
    for (usiw_conn* conn : conns) usiw_conn_put(conn);
    conns.clear();
    mock_run();
    Follow::TearDown();
  }
  void add() {
    const usiw_tuple tuple{};
    usiw_conn* conn = usiw_conn_alloc(dev(), &tuple, GFP_KERNEL_ACCOUNT);
    ASSERT_FALSE(IS_ERR(conn));
    conns.push_back(conn);
  }
  void remove(usiw_conn* conn) {
    std::erase(conns, conn);
    usiw_conn_put(conn);
    mock_run();
  }
  usiw_device* dev() { return to_usiw_dev(client->device); }
  /// Returns the number of connections that have not been in the present pass.
  int due() {
    int n = 0;
    for (const usiw_conn* conn : conns) n += conn->pass != dev()->pass;
    return n;
  }
  static inline std::vector<usiw_conn*> conns;
};

// Each connection that begins or ends, and each neighbour update in softirq, waits for this lock.
TEST_F(FollowMany, work__holds_the_lock_for_a_batch_at_a_time) {
  const unsigned before = dev()->pass;
  mock_most_queued = 0;
  routes_changed();
  EXPECT_EQ(dev()->pass, before + 1);
  EXPECT_EQ(due(), 0);
  EXPECT_GT(mock_most_queued, 1u);
  EXPECT_LE(mock_most_queued, unsigned{USIW_FOLLOW_BATCH});
}

TEST_F(FollowMany, work__takes_a_burst_at_a_time) {
  while (conns.size() < USIW_FOLLOW_BURST + 100) add();
  routes_changed();
  EXPECT_EQ(due(), 100 + 1);  // the connection of the fixture was the first of all
  mock_advance_ms(USIW_FOLLOW_MS);
  EXPECT_EQ(due(), 0);
}

TEST_F(FollowMany, work__connections_come_and_go_between_two_batches) {
  static FollowMany* test;
  static int batches;
  test = this;
  batches = 0;
  mock_on_resched = [] {
    batches++;
    test->remove(conns.front());  // it has been in the pass
    test->remove(conns.back());   // it is the last that is due, or new
    test->add();
  };
  const unsigned before = dev()->pass;
  routes_changed();
  EXPECT_EQ(dev()->pass, before + 1);
  EXPECT_GE(batches, kConns / USIW_FOLLOW_BATCH);
  EXPECT_EQ(due(), 0);
}

// The next pass handles changes that happen during this one.
TEST_F(FollowMany, work__routes_change_between_two_batches) {
  mock_on_resched = [] {
    init_net.genid_ipv4++;
    mock_on_resched = nullptr;
  };
  const unsigned before = dev()->pass;
  routes_changed();
  EXPECT_EQ(dev()->pass, before + 1);
  EXPECT_EQ(due(), 0);
  mock_advance_ms(USIW_FOLLOW_MS);
  EXPECT_EQ(dev()->pass, before + 2);
  EXPECT_EQ(due(), 0);
}

// No further frame leaves. The socket notifies the peer, and IPsec covers it.
TEST_F(Follow, ipsec__ends_a_live_connection) {
  mock_ipsec = -EREMOTE;  // no security association yet
  routes_changed();
  EXPECT_EQ(client_conn(), nullptr);
  EXPECT_TRUE(active.told(IW_CM_EVENT_CLOSE));
  const auto records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_ABORT);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 1);
}

TEST_F(Follow, ipsec__forbidden_flow) {
  mock_ipsec = -EPERM;
  routes_changed();
  EXPECT_EQ(client_conn(), nullptr);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 1);
}

// A router on the path has a smaller MTU than both ends.
class PathMtu : public Follow {
 protected:
  void too_big(unsigned mtu) {
    mock_datagram data = client_datagram(1400);
    mock_deliver_too_big(&data, 8, mtu);
    mock_run();
    mock_advance_ms(USIW_ICMP_MS);
  }
};

TEST_F(PathMtu, too_big__reaches_a_live_connection) {
  too_big(1400);
  auto records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_PATH);
  EXPECT_EQ(records[0].conn.mtu, 1400);
  EXPECT_EQ(records[0].conn.remote_mac[5], 0x77);
  too_big(1400);
  EXPECT_TRUE(events().empty());
  too_big(300);
  records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].conn.mtu, USIW_MIN_MTU);
}

TEST_F(PathMtu, too_big__forged_ones_cost_one_look_each_20_ms) {
  const unsigned before = mock_neigh_used;
  for (unsigned mtu = 1499; mtu > 1400; mtu--) {
    mock_datagram data{};
    data.from = ipv4("192.0.2.1");
    data.from_port = cpu_to_be16(9000);
    data.to = ipv4("192.0.2.2");
    data.to_port = cpu_to_be16(kPort);
    mock_deliver_too_big(&data, 0, mtu);
    mock_run();
  }
  EXPECT_EQ(mock_neigh_used - before, 1u);
}

TEST_F(PathMtu, grows_again__no_further_than_agreed) {
  too_big(1400);
  events();
  mock_route_mtu = 9000;
  routes_changed();
  const auto records = events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].conn.mtu, 1500);
}

class NewPathMtu : public Route {};

TEST_F(NewPathMtu, learned_before__is_in_the_handshake) {
  mock_route_mtu = 1400;
  establish();
  ASSERT_FALSE(client->seen.empty());
  EXPECT_EQ(client->seen[0].conn.mtu, 1400);
  EXPECT_EQ(server->seen[0].conn.mtu, 1400);
}

// The change is between REQ and the installation, so the peer need not know it.
TEST_F(NewPathMtu, learned_in_between__lowers_what_is_announced) {
  ASSERT_EQ(connect(), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  mock_route_mtu = 1300;
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  ASSERT_FALSE(client->seen.empty());
  EXPECT_EQ(client->seen[0].type, USIW_EVENT_CONNECT);
  EXPECT_EQ(client->seen[0].conn.mtu, 1300);
}

}  // namespace
}  // namespace kuser
