// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_route.c and usiw_follow.c: where raw packets may go, and connections that follow their routes.
#include "fixture.h"

namespace kuser {
namespace {

class Route : public Connected {
 protected:
  int look(usiw_route& route, const char* to = "192.0.2.2") {
    usiw_tuple tuple{};
    tuple.local = ipv4("192.0.2.1");
    tuple.remote = ipv4(to);
    const int ret = usiw_route_get(to_usiw_dev(client->device), &tuple, 0, &route);
    if (ret == 0) usiw_route_put(&route);
    return ret;
  }
  int connect(bool ipv6_too = false) {
    return ipv6_too ? active.connect(*client, ipv6("2001:db8::1"), 9000, ipv6("2001:db8::2"), kPort)
                    : active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort);
  }
};

TEST_F(Route, eligible__out_of_the_netdev_and_over_lo) {
  usiw_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_NONE);
  EXPECT_EQ(usiw_route_eligible(&route), 0);
  ASSERT_EQ(look(route, "192.0.2.1"), 0);
  EXPECT_TRUE(route.local);
  EXPECT_EQ(usiw_route_eligible(&route), 0);
}

TEST_F(Route, eligible__not_by_another_netdev) {
  mock_route_dev = mock_netdev("eth1");
  usiw_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_NETDEV);
  EXPECT_EQ(usiw_route_eligible(&route), -ENETUNREACH);
  EXPECT_EQ(connect(), -ENETUNREACH);
}

TEST_F(Route, eligible__not_through_a_lightweight_tunnel) {
  mock_route_encap = this;
  usiw_route route;
  ASSERT_EQ(look(route), 0);
  EXPECT_EQ(route.reason, USIW_NOT_PACKET_ENCAP);
  EXPECT_EQ(connect(), -EPROTONOSUPPORT);
}

// D3: with a security association there, without one yet, and where the policy forbids the flow.
TEST_F(Route, ipsec__connect_does_not_send_in_clear) {
  for (const int says : {1, -EREMOTE, -EAGAIN}) {
    mock_ipsec = says;
    usiw_route route;
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
  usiw_route route;
  ASSERT_EQ(look(route, "192.0.2.1"), 0);
  EXPECT_EQ(usiw_route_eligible(&route), 0);
}

TEST_F(Route, ipsec__accept_does_not_send_in_clear) {
  ASSERT_EQ(connect(), 0);
  mock_ipsec = 1;  // at the responder's way back
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  EXPECT_EQ(listener.requests[0]->accept(*server), -EPROTONOSUPPORT);
  settle({client.get(), server.get()});
  EXPECT_FALSE(active.established());
  EXPECT_TRUE(client->seen.empty());
}

// The policy comes between REQ and ACCEPT: the initiator's engine is not given the connection.
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

TEST_F(Route, get__errors_of_the_look_up) {
  usiw_route route;
  EXPECT_EQ(look(route, "192.0.2.66"), -ENETUNREACH);  // a blackhole
  mock_errors[MOCK_NET] = 1;
  EXPECT_EQ(connect(true), -ENETUNREACH);
  EXPECT_EQ(mock_routes, 0);
}

}  // namespace
}  // namespace kuser
