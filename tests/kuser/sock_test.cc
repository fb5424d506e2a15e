// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_sock.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Sock : public Connected {};

TEST_F(Sock, open__each_failure) {
  for (const bool v6 : {false, true}) {
    for (int n = 0; n < (v6 ? 3 : 2); n++) {
      mock_errors[MOCK_SOCKET] = u64{1} << n;
      EXPECT_LT(active.connect(*client, v6 ? ipv6("2001:db8::1") : ipv4("192.0.2.1"), 9000,
                               v6 ? ipv6("2001:db8::2") : ipv4("192.0.2.2"), kPort),
                0);
      EXPECT_EQ(mock_sockets, 1);  // the listener's
    }
  }
}

TEST_F(Sock, open__wildcard_beside_an_address) {
  CmId any;
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 7400, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(any.listen(client->device, ipv4("0.0.0.0"), 7400), 0);
  EXPECT_EQ(mock_sockets, 3);
}

TEST_F(Sock, get__shared_by_connections_of_a_port) {
  Process other("eth0");
  CmId second;
  ASSERT_EQ(other.open_all(), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  ASSERT_EQ(second.connect(other, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort + 1), 0);
  EXPECT_EQ(mock_sockets, 2);
  EXPECT_EQ(client_conn()->sock, other.qp()->conn->sock);
}

TEST_F(Sock, get__shared_with_a_wildcard_listener) {
  CmId any;
  ASSERT_EQ(any.listen(client->device, ipv4("0.0.0.0"), 7400), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 7400, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_sockets, 2);
}

TEST_F(Sock, get__link_local_has_its_link) {
  CmId on_eth1;
  ASSERT_EQ(on_eth1.listen(server->device, ipv6("fe80::2"), 7500), 0);
  ASSERT_EQ(active.connect(*client, ipv6("fe80::1"), 9000, ipv6("fe80::2"), 7500), 0);
  EXPECT_EQ(client_conn()->sock->scope, mock_netdev("eth0")->ifindex);
  settle({client.get(), server.get()});
  ASSERT_EQ(on_eth1.requests.size(), 1u);
}

TEST_F(Sock, put__port_is_free_afterwards) {
  const in6_addr local = ipv4("192.0.2.2");
  EXPECT_TRUE(mock_port_is_open(&local, cpu_to_be16(kPort)));
  listener.destroy();
  EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(kPort)));
}

TEST_F(Sock, send__error_is_made_good_by_repetition) {
  mock_errors[MOCK_SOCKET] = 4;  // the third call: sendmsg, behind create and bind
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_sent(), 0u);
  mock_advance_ms(USIW_CM_RETRY_FIRST_US / 1000 + 1);
  EXPECT_EQ(mock_sent(), 1u);
}

// What is queued when the last user goes must not be worked on behind it: the worker would look at
// the netns, which waits for users only.
TEST_F(Sock, put__queued_datagrams_go_with_it) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  mock_datagram req;
  ASSERT_TRUE(mock_take(&req));
  mock_deliver(&req, 8);
  EXPECT_EQ(static_cast<usiw_listener*>(listener.id.provider_data)->nodes[0].us->rx_len, 1u);
  listener.destroy();
  mock_run();
  EXPECT_TRUE(listener.requests.empty());
  EXPECT_EQ(mock_sent(), 0u);
}

}  // namespace
}  // namespace kuser
