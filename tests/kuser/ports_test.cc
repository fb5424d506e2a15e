// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of the ports that the ends of a connection can use, and of their part of the handshake.
#include "fixture.h"

namespace kuser {
namespace {

constexpr uint64_t kAny = USIW_CAP_DATA_SOCKET, kSocketsOnly = USIW_CAP_DATA_SOCKET | USIW_CAP_SOCKETS_ONLY,
                   kPacketsOnly = 0;

class Ports : public Kuser {
 protected:
  void TearDown() override {
    close();
    Kuser::TearDown();
  }
  void close() {
    if (active && active->id.device) active->destroy();
    if (listener) {
      for (auto& request : listener->requests) request->destroy();
      listener->destroy();
    }
    for (auto& p : {&client, &server})
      if (*p) (*p)->close();
    pump();
    mock_advance_ms(3000);
    pump();
    mock_grace_period();
    client.reset();
    server.reset();
    active.reset();
    listener.reset();
  }
  /// Connects two ends with these capabilities, of two hosts or of one. Returns the result of accept.
  int meet(uint64_t of_client, uint64_t of_server, bool one_host) {
    close();
    const char* to = one_host ? "192.0.2.1" : "192.0.2.2";
    client = std::make_unique<Process>("eth0");
    server = std::make_unique<Process>(one_host ? "eth0" : "eth1");
    active = std::make_unique<CmId>();
    listener = std::make_unique<CmId>();
    client->caps = of_client;
    server->caps = of_server;
    EXPECT_EQ(client->open_all(), 0);
    EXPECT_EQ(server->open_all(), 0);
    EXPECT_EQ(listener->listen(server->device, ipv4(to), kPort), 0);
    EXPECT_EQ(active->connect(*client, ipv4("192.0.2.1"), 9000, ipv4(to), kPort), 0);
    pump();
    if (listener->requests.size() != 1) return -ENOENT;
    const int ret = listener->requests[0]->accept(*server);
    settle({client.get(), server.get()});
    return ret;
  }
  const usiw_conn_info& at_client() { return connect_of(*client); }
  const usiw_conn_info& at_server() { return connect_of(*server); }
  static const usiw_conn_info& connect_of(const Process& process) {
    static const usiw_conn_info none{};
    for (const usiw_event& e : process.seen)
      if (e.type == USIW_EVENT_CONNECT) return e.conn;
    ADD_FAILURE() << "no CONNECT";
    return none;
  }
  static bool offers(const usiw_conn_info& info, uint32_t flag) { return (info.flags & flag) != 0; }

  std::unique_ptr<Process> client, server;
  std::unique_ptr<CmId> listener, active;
};

TEST_F(Ports, merged__agreed_where_both_ends_take_sockets_only) {
  for (const auto& [c, s] : {std::pair{kSocketsOnly, kSocketsOnly},
                             {kSocketsOnly, kAny},
                             {kAny, kSocketsOnly},
                             {kAny, kAny},
                             {kSocketsOnly, kPacketsOnly},
                             {kPacketsOnly, kSocketsOnly}}) {
    ASSERT_EQ(meet(c, s, false), 0);
    ASSERT_TRUE(active->established());
    const uint32_t agreed = c == kSocketsOnly && s == kSocketsOnly ? USIW_FEATURE_MERGED : 0;
    EXPECT_EQ(at_client().features, agreed) << c << s;
    EXPECT_EQ(at_server().features, agreed) << c << s;
  }
}

TEST_F(Ports, merges__agreed_where_both_processes_heed_it) {
  constexpr uint64_t kMerges = kAny | USIW_CAP_MERGES, kOnlyMerges = kSocketsOnly | USIW_CAP_MERGES;
  for (const auto& [c, s] : {std::pair{kMerges, kMerges}, {kMerges, kAny}, {kAny, kMerges}, {kMerges, kOnlyMerges},
                             {kOnlyMerges, kMerges}, {kMerges, kPacketsOnly}}) {
    ASSERT_EQ(meet(c, s, false), 0);
    const uint32_t agreed = (c & s & USIW_CAP_MERGES) != 0 ? USIW_FEATURE_MERGES : 0;
    EXPECT_EQ(at_client().features, agreed) << c << s;
    EXPECT_EQ(at_server().features, agreed) << c << s;
  }
}

// The process may have agreed to aggregates, so it must not get a raw port afterwards.
TEST_F(Ports, packets__never_offered_to_who_takes_sockets_only) {
  ASSERT_EQ(meet(kSocketsOnly, kAny, false), 0);
  EXPECT_TRUE(offers(at_client(), USIW_CONN_F_SOCKET));
  EXPECT_FALSE(offers(at_client(), USIW_CONN_F_PACKET));
  EXPECT_EQ(at_client().not_packet, uint32_t{USIW_NOT_PACKET_OWN});
  EXPECT_TRUE(offers(at_server(), USIW_CONN_F_PACKET)) << "to another host it is each end's own affair";
}

// The ends do not wait for a MAC that neither needs.
TEST_F(Ports, packets__no_next_hop_for_who_takes_none) {
  mock_neigh_known = false;
  ASSERT_EQ(meet(kSocketsOnly, kSocketsOnly, false), 0);
  EXPECT_TRUE(active->established());
}

TEST_F(Ports, one_host__an_end_follows_the_one_that_takes_less) {
  ASSERT_EQ(meet(kAny, kAny, true), 0);
  for (const usiw_conn_info* end : {&at_client(), &at_server()}) {
    EXPECT_TRUE(offers(*end, USIW_CONN_F_LOCAL));
    EXPECT_TRUE(offers(*end, USIW_CONN_F_SOCKET) && offers(*end, USIW_CONN_F_PACKET));
  }
  for (const bool at_the_client : {true, false}) {
    ASSERT_EQ(meet(at_the_client ? kPacketsOnly : kAny, at_the_client ? kAny : kPacketsOnly, true), 0);
    ASSERT_TRUE(active->established());
    const usiw_conn_info& other = at_the_client ? at_server() : at_client();
    EXPECT_FALSE(offers(other, USIW_CONN_F_SOCKET)) << "raw packets over lo reach raw ports only";

    ASSERT_EQ(meet(at_the_client ? kSocketsOnly : kAny, at_the_client ? kAny : kSocketsOnly, true), 0);
    ASSERT_TRUE(active->established());
    const usiw_conn_info& another = at_the_client ? at_server() : at_client();
    EXPECT_TRUE(offers(another, USIW_CONN_F_SOCKET));
    EXPECT_FALSE(offers(another, USIW_CONN_F_PACKET));
    EXPECT_EQ(another.not_packet, uint32_t{USIW_NOT_PACKET_PEER});
  }
}

// Neither end would receive from the other. Both are notified at once, and no connection ends by timeouts.
TEST_F(Ports, one_host__ends_without_a_common_port_do_not_connect) {
  for (const bool at_the_client : {true, false}) {
    EXPECT_EQ(meet(at_the_client ? kPacketsOnly : kSocketsOnly, at_the_client ? kSocketsOnly : kPacketsOnly, true),
              -EPROTONOSUPPORT);
    ASSERT_TRUE(active->told(IW_CM_EVENT_CONNECT_REPLY));
    EXPECT_FALSE(active->established());
  }
}

}  // namespace
}  // namespace kuser
