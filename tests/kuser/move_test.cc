// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of connections that may change their ports (USIW_CAP_PORT_MOVE): the content of PATH (kmod/usiw_follow.c),
// connections that do not change, and the datagrams that a data socket gets meanwhile (kmod/usiw_data.c).
#include "fixture.h"

namespace kuser {
namespace {

constexpr u64 kMoves = USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE;

class Move : public Connected {
 protected:
  void SetUp() override {
    caps = kMoves;
    Connected::SetUp();
  }
  void connected() {
    establish();
    mock_advance_ms(USIW_FOLLOW_MS + 1);  // the first check of the routes
    ASSERT_TRUE(paths().empty());
  }
  /// Returns the PATH records of the client since the last call. There must be no others.
  std::vector<usiw_event> paths() {
    auto records = client->events();
    for (const usiw_event& r : records) EXPECT_EQ(r.type, USIW_EVENT_PATH);
    return records;
  }
  void routes_changed() {
    init_net.genid_ipv4++;
    mock_advance_ms(USIW_FOLLOW_MS + 1);
  }
  void ipsec(int says) {
    mock_ipsec = says;
    routes_changed();
  }
  void expect_path(bool packet, usiw_not_packet why, u16 mtu) {
    const auto records = paths();
    ASSERT_EQ(records.size(), 1u);
    EXPECT_EQ((records[0].conn.flags & USIW_CONN_F_PACKET) != 0, packet);
    EXPECT_EQ(records[0].conn.not_packet, u32{why});
    EXPECT_EQ(records[0].conn.mtu, mtu);
    EXPECT_TRUE(records[0].conn.flags & USIW_CONN_F_SOCKET);
  }
  int tell(usiw_port_kind port, usiw_port_why why = USIW_PORT_WHY_FASTEST) {
    return client->report_port(client_conn()->end.id, port, why);
  }
  bool client_is_killed() {
    for (const usiw_event& r : client->events())
      if (r.type == USIW_EVENT_ABORT) return true;
    return false;
  }
  s64 count(usiw_kcounter which) { return atomic64_read(&to_usiw_dev(client->device)->kcounters[which]); }
};

// ---- The content of PATH ----

TEST_F(Move, path__route_by_another_netdev_and_back) {
  connected();
  mock_route_dev = mock_netdev("eth1");
  mock_route_mtu = 1400;
  routes_changed();
  expect_path(false, USIW_NOT_PACKET_NETDEV, 1400);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_ELSEWHERE), 1);
  routes_changed();
  EXPECT_TRUE(paths().empty());
  // No process has to leave raw packets for this, because the process may know better.
  mock_advance_ms(2 * USIW_MOVE_MS);
  ASSERT_NE(client_conn(), nullptr);
  mock_route_dev = nullptr;
  mock_route_mtu = 0;
  routes_changed();
  expect_path(true, USIW_NOT_PACKET_NONE, 1500);
}

// The process may have agreed to aggregates, which a raw port does not take. Its path changes, but raw packets do not
// become possible.
class MoveNot : public Move {
 protected:
  void SetUp() override {
    caps = kMoves | USIW_CAP_SOCKETS_ONLY;
    Connected::SetUp();
  }
};

TEST_F(MoveNot, path__packets_stay_away_from_who_takes_sockets_only) {
  connected();
  mock_route_mtu = 1400;
  routes_changed();
  expect_path(false, USIW_NOT_PACKET_OWN, 1400);
  mock_route_mtu = 0;
  ipsec(1);
  ipsec(0);
  for (const usiw_event& r : paths()) EXPECT_FALSE(r.conn.flags & USIW_CONN_F_PACKET);
  ASSERT_NE(client_conn(), nullptr);
}

TEST_F(Move, path__each_reason) {
  connected();
  ASSERT_EQ(tell(USIW_PORT_SOCKET, USIW_PORT_WHY_WISH), 0);
  ipsec(1);
  expect_path(false, USIW_NOT_PACKET_IPSEC, 1460);
  mock_ipsec = 0;
  mock_route_encap = this;
  routes_changed();
  expect_path(false, USIW_NOT_PACKET_ENCAP, 1500);
  mock_route_encap = nullptr;
  ipsec(-EREMOTE);  // no security association yet
  expect_path(false, USIW_NOT_PACKET_IPSEC, 1500);
  ipsec(0);
  expect_path(true, USIW_NOT_PACKET_NONE, 1500);
  ipsec(-EPERM);  // a policy forbids the flow, and the kernel drops datagrams of the socket
  expect_path(false, USIW_NOT_PACKET_IPSEC, 1500);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_NE(client_conn(), nullptr) << "its data does not go by raw packets";
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 0);
}

TEST_F(Move, path__one_record_for_several_changes) {
  connected();
  ipsec(1);
  mock_neigh_mac[5] = 0x99;
  mock_route_mtu = 1300;
  ipsec(0);
  expect_path(true, USIW_NOT_PACKET_NONE, 1300);
}

// The data uses the socket and follows the routes by itself. Raw packets may become possible later.
TEST_F(Move, path__raw_packets_get_possible) {
  mock_ipsec = 1;
  establish();
  EXPECT_FALSE(client->seen[0].conn.flags & USIW_CONN_F_PACKET);
  mock_neigh_known = false;
  ipsec(0);
  for (const usiw_event& r : paths()) {
    EXPECT_FALSE(r.conn.flags & USIW_CONN_F_PACKET) << "the next hop is not known";
    EXPECT_EQ(r.conn.not_packet, u32{USIW_NOT_PACKET_IPSEC});
  }
  mock_neigh_known = true;
  const in6_addr peer = ipv4("192.0.2.2");
  mock_neigh_update(mock_netdev("eth0"), &peer, mock_neigh_mac);
  mock_advance_ms(USIW_NEIGH_DELAY_MS + 1);
  const auto records = paths();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_TRUE(records[0].conn.flags & USIW_CONN_F_PACKET);
  EXPECT_EQ(records[0].conn.not_packet, u32{USIW_NOT_PACKET_NONE});
  EXPECT_EQ(records[0].conn.local_mac[5], mock_netdev("eth0")->dev_addr[5]);
  EXPECT_EQ(records[0].conn.remote_mac[5], 0x77);
}

// A process that has not read CONNECT yet now reads one with the present path.
TEST_F(Move, path__changes_before_connect_is_read) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({server.get()});
  ipsec(1);
  const auto records = client->events();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].type, USIW_EVENT_CONNECT);
  EXPECT_EQ(records[1].type, USIW_EVENT_PATH);
  for (const usiw_event& r : records) {
    EXPECT_FALSE(r.conn.flags & USIW_CONN_F_PACKET);
    EXPECT_EQ(r.conn.not_packet, u32{USIW_NOT_PACKET_IPSEC});
  }
  // The process has reported nothing and sends nothing, so there is no deadline.
  mock_advance_ms(USIW_MOVE_MS + USIW_FOLLOW_MS);
  ASSERT_NE(client_conn(), nullptr);
  EXPECT_EQ(tell(USIW_PORT_SOCKET), 0);
}

// Another record follows one that is out of date after it was copied.
TEST_F(Move, path__changes_while_it_is_read) {
  connected();
  ipsec(1);
  static usiw_conn* conn;
  conn = client_conn();
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    conn->end.info.not_packet = USIW_NOT_PACKET_ENCAP;
    usiw_evfile_push(conn, USIW_EVENT_PATH);
  };
  const auto records = paths();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].conn.not_packet, u32{USIW_NOT_PACKET_IPSEC});
  EXPECT_EQ(records[1].conn.not_packet, u32{USIW_NOT_PACKET_ENCAP});
}

TEST_F(Move, path__mtu_by_icmp_to_the_data_socket) {
  connected();
  mock_datagram data = client_datagram(1400);
  mock_deliver_too_big(&data, 8, 1400);
  mock_run();
  expect_path(true, USIW_NOT_PACKET_NONE, 1400);
  const unsigned before = mock_neigh_used;
  for (unsigned mtu = 1399; mtu > 1300; mtu--) {
    mock_deliver_too_big(&data, 0, mtu);
    mock_run();
  }
  EXPECT_LE(mock_neigh_used - before, 1u);
}

// ---- IPsec over raw packets ----

TEST_F(Move, ipsec__connection_that_moves_lives_on) {
  connected();
  ipsec(1);
  expect_path(false, USIW_NOT_PACKET_IPSEC, 1460);
  ASSERT_EQ(tell(USIW_PORT_SOCKET, USIW_PORT_WHY_IPSEC), 0);
  EXPECT_EQ(count(USIW_KCNT_PORT_MOVES), 1);
  mock_advance_ms(2 * USIW_MOVE_MS);
  ASSERT_NE(client_conn(), nullptr);
  ipsec(0);
  expect_path(true, USIW_NOT_PACKET_NONE, 1500);
  ASSERT_EQ(tell(USIW_PORT_PACKET), 0);
  EXPECT_EQ(count(USIW_KCNT_PORT_MOVES), 2);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_NE(client_conn(), nullptr);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 0);
}

TEST_F(Move, ipsec__connection_that_does_not_move_ends) {
  for (const int says : {1, -EREMOTE, -EPERM}) {
    ASSERT_EQ(client->modify(IB_QPS_RESET), 0);
    ASSERT_EQ(client->modify(IB_QPS_INIT), 0);
    connected();
    const s64 before = count(USIW_KCNT_ROUTE_FORBIDDEN);
    ipsec(says);
    expect_path(false, USIW_NOT_PACKET_IPSEC, says == 1 ? 1460 : 1500);
    mock_advance_ms(USIW_MOVE_MS - 2 * USIW_FOLLOW_MS);
    ASSERT_NE(client_conn(), nullptr);
    ASSERT_EQ(tell(USIW_PORT_PACKET), 0);  // reports only that it has not moved
    mock_advance_ms(2 * USIW_FOLLOW_MS);
    EXPECT_EQ(client_conn(), nullptr);
    EXPECT_TRUE(client_is_killed());
    EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), before + 1);
    mock_ipsec = 0;
    ASSERT_NO_FATAL_FAILURE(start_anew({&listener, &active}));
  }
}

// A process cannot evade IPsec by taking raw packets while it keeps the data socket.
TEST_F(Move, ipsec__socket_kept_open_is_no_excuse) {
  connected();
  ASSERT_EQ(client->data_fds.size(), 1u);
  ipsec(1);
  mock_advance_ms(USIW_MOVE_MS + 1);
  EXPECT_EQ(client_conn(), nullptr);
  EXPECT_EQ(client->data_fds.size(), 1u);
}

TEST_F(Move, ipsec__nothing_to_move_to) {
  connected();
  mock_close(client->data_fds.at(0));
  client->data_fds.clear();
  ipsec(1);
  EXPECT_EQ(client_conn(), nullptr) << "at once";
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 1);
}

TEST_F(Move, ipsec__goes_again_in_time) {
  connected();
  ipsec(1);
  ipsec(0);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_NE(client_conn(), nullptr);
  mock_route_dev = mock_netdev("eth1");
  ipsec(1);
  ipsec(0);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_NE(client_conn(), nullptr) << "another interface is no reason to end it";
}

TEST_F(Move, ipsec__back_to_raw_packets_too_early) {
  connected();
  ipsec(1);
  ASSERT_EQ(tell(USIW_PORT_SOCKET), 0);
  mock_advance_ms(2 * USIW_MOVE_MS);
  ASSERT_EQ(tell(USIW_PORT_PACKET), 0);
  ASSERT_NE(client_conn(), nullptr) << "it may have read what was true a moment ago";
  mock_advance_ms(USIW_MOVE_MS + 1);
  EXPECT_EQ(client_conn(), nullptr);
}

// READY without a port, from a process that has agreed to report it.
TEST_F(Move, ipsec__port_untold) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({server.get()});
  for (const usiw_event& r : client->events()) client->report(USIW_REPORT_READY, r.conn_id);
  settle({server.get()});
  ASSERT_TRUE(active.established());
  ipsec(1);
  mock_advance_ms(USIW_MOVE_MS + 1);
  EXPECT_EQ(client_conn(), nullptr);
}

// kill -9 and the end of the device, between PATH and the report.
TEST_F(Move, ipsec__process_dies_meanwhile) {
  connected();
  ipsec(1);
  client->kill();
  client->close();
  mock_advance_ms(2 * USIW_MOVE_MS);
  pump();
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 0);
}

TEST_F(Move, ipsec__process_stops_meanwhile) {
  connected();
  ipsec(1);
  client->kill();  // and its files stay open
  mock_advance_ms(USIW_MOVE_MS + 1);
  EXPECT_EQ(client_conn(), nullptr);
}

TEST_F(Move, ipsec__device_goes_meanwhile) {
  connected();
  ipsec(1);
  usiw_conn_flush_device(to_usiw_dev(client->device));
  mock_run();
  EXPECT_EQ(client_conn(), nullptr);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 0);
  usiw_conn_welcome_device(to_usiw_dev(client->device));
}

TEST_F(Move, ipsec__connection_is_closed_meanwhile) {
  connected();
  ipsec(1);
  ASSERT_EQ(active.disconnect(true), 0);
  settle({client.get(), server.get()});
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_EQ(count(USIW_KCNT_ROUTE_FORBIDDEN), 0);
}

// Without the capabilities nothing changes: a process that keeps its socket sends by it.
class NoMove : public Move {
 protected:
  void SetUp() override {
    Move::SetUp();
    for (Process* p : {client.get(), server.get()}) {
      p->close();
      p->caps = USIW_CAP_DATA_SOCKET;
      ASSERT_EQ(p->open_all(), 0);
    }
  }
};

TEST_F(NoMove, ipsec__socket_is_the_kernel_s_affair) {
  connected();
  ipsec(1);
  mock_advance_ms(2 * USIW_MOVE_MS);
  EXPECT_TRUE(paths().empty());
  EXPECT_NE(client_conn(), nullptr);
}

TEST_F(NoMove, ipsec__raw_packets_end) {
  connected();
  mock_close(client->data_fds.at(0));
  client->data_fds.clear();
  ipsec(1);
  EXPECT_EQ(client_conn(), nullptr);
}

// A process without a socket that has not answered yet gets no record of a port that it does not know.
TEST_F(NoMove, ipsec__before_ready) {
  client->close();
  client->caps = 0;
  ASSERT_EQ(client->open_all(), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({server.get()});
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({server.get()});
  ASSERT_TRUE(client_conn()->end.engine >= USIW_CM_ENGINE_GIVEN);
  ipsec(1);
  EXPECT_EQ(client_conn(), nullptr);
  const auto records = client->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_ABORT);
}

TEST_F(NoMove, path__has_the_flags_of_connect) {
  connected();
  mock_close(client->data_fds.at(0));
  client->data_fds.clear();
  mock_neigh_mac[5] = 0x99;
  routes_changed();
  expect_path(true, USIW_NOT_PACKET_NONE, 1500);
  mock_route_dev = mock_netdev("eth1");
  routes_changed();
  EXPECT_TRUE(paths().empty());
}

TEST_F(NoMove, report_port__not_agreed) {
  connected();
  EXPECT_EQ(tell(USIW_PORT_SOCKET), -EINVAL);
  EXPECT_EQ(client_conn()->end.port, 0);
}

// ---- Reports of ports ----

TEST_F(Move, report_port__garbage) {
  connected();
  const u32 id = client_conn()->end.id;
  for (const u32 port : {u32{USIW_PORT_KIND_MAX}, 0x100u, 0x80000000u, ~0u})
    EXPECT_EQ(client->report_port(id, port), -EINVAL) << port;
  for (const u32 why : {u32{USIW_PORT_WHY_MAX}, 0x100u, 0x80000000u, ~0u})
    EXPECT_EQ(client->report_port(id, USIW_PORT_SOCKET, why), -EINVAL) << why;
  EXPECT_EQ(client->report({USIW_REPORT_READY, id, 0, 0, 1, 0}), -EINVAL);
  EXPECT_EQ(client->report({USIW_REPORT_ASYNC, id, 0, 0, 0, 1}), -EINVAL);
  EXPECT_EQ(client->report({USIW_REPORT_PORT, id, 1, 0, 1, 1}), -EINVAL);
  EXPECT_EQ(client_conn()->end.port, 1 + USIW_PORT_PACKET);
  EXPECT_EQ(client->report_port(id, USIW_PORT_SHM, USIW_PORT_WHY_SAME_HOST), 0);
  EXPECT_EQ(client_conn()->end.port, 1 + USIW_PORT_SHM);
  EXPECT_EQ(client_conn()->end.port_why, USIW_PORT_WHY_SAME_HOST);
}

TEST_F(Move, report_port__of_another_connection) {
  connected();
  ASSERT_NE(client_conn()->end.id, server_conn()->end.id);
  EXPECT_EQ(client->report_port(server_conn()->end.id, USIW_PORT_SOCKET), 0);  // a stale one is ignored
  EXPECT_EQ(client->report_port(0, USIW_PORT_SOCKET), 0);
  EXPECT_EQ(client->report_port(~0u, USIW_PORT_SOCKET), 0);
  EXPECT_EQ(client_conn()->end.port, 1 + USIW_PORT_PACKET);
  EXPECT_EQ(server_conn()->end.port, 1 + USIW_PORT_PACKET);
  EXPECT_EQ(count(USIW_KCNT_PORT_MOVES), 0);
}

TEST_F(Move, report_port__in_each_state) {
  u32 id = 12345;
  const auto say = [&] {
    for (const u32 port : {USIW_PORT_SOCKET, USIW_PORT_PACKET, USIW_PORT_SHM})
      EXPECT_EQ(client->report_port(id, port), 0);
  };
  say();  // no connection
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  id = client_conn()->end.id;
  say();  // the process has not got the connection, and has guessed its number
  EXPECT_EQ(client_conn()->end.port, 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  settle({server.get()});
  say();  // CONNECT is unread
  settle({client.get(), server.get()});
  ASSERT_TRUE(active.established());
  mock_ipsec = 1;
  say();
  routes_changed();
  say();
  ASSERT_EQ(active.disconnect(), 0);
  say();
  settle({client.get(), server.get()});
  say();  // it lingers
  mock_advance_ms(60000);
  say();
  client->modify(IB_QPS_ERR);
  say();
}

TEST_F(Move, resource_show__port_as_told) {
  std::string port, why;
  const auto show = [&] {
    ASSERT_EQ(client->device->ops->fill_res_qp_entry(nullptr, client->ibqp), 0);
    port = mock_driver_word("data_port");
    why = mock_driver_word("data_port_why");
  };
  auto* stats = reinterpret_cast<usiw_qp_stats*>(const_cast<u64*>(client->qp()->counters.page));
  for (const u64 odd : {u64{USIW_PORT_WHY_MAX}, u64{77}, ~u64{0}}) {
    stats->gauges[USIW_GAUGE_PORT] = stats->gauges[USIW_GAUGE_PORT_WHY] = odd;
    show();
    EXPECT_EQ(port + why, "??") << "nothing has been told, and anything stands in the page";
  }
  connected();
  show();
  EXPECT_EQ(port + why, "packetfastest");
  ASSERT_EQ(tell(USIW_PORT_SOCKET, USIW_PORT_WHY_IPSEC), 0);
  show();
  EXPECT_EQ(port + why, "socketipsec");
}

// ---- Datagrams of a data socket ----

class Beside : public Move {
 protected:
  void begin() {
    connected();
    ASSERT_EQ(server->data_fds.size(), 1u);
    sock_ = mock_socket(server->data_fds[0]);
    ASSERT_TRUE(sock_);
  }
  mock_datagram data(unsigned opcode = USIW_TRP_DATA) {
    mock_datagram d{};
    d.from = ipv4("192.0.2.1");
    d.to = ipv4("192.0.2.2");
    d.from_port = cpu_to_be16(9000);
    d.to_port = cpu_to_be16(kPort);
    d.len = 100;
    d.data[8] = opcode << 4;
    return d;
  }
  /// Returns true if the process has got the datagram.
  bool given(const mock_datagram& d, unsigned merged = 0) {
    const int before = mock_queued(sock_);
    const s64 left = beside();
    EXPECT_TRUE(merged ? mock_deliver_merged(&d, merged) : mock_deliver(&d, 22));
    const int now = mock_queued(sock_) - before;
    EXPECT_EQ(now + (beside() - left), 1) << "given, or counted as left to the raw port";
    return now == 1;
  }
  s64 beside() { return atomic64_read(&to_usiw_dev(server->device)->kcounters[USIW_KCNT_RX_BESIDE]); }
  int server_tells(usiw_port_kind port) { return server->report_port(server_conn()->end.id, port); }
  struct socket* sock_ = nullptr;
};

TEST_F(Beside, rcv__packet_what_the_raw_port_has_seen) {
  begin();
  for (const unsigned opcode : {USIW_TRP_DATA, USIW_TRP_SACK, USIW_TRP_SHUTDOWN}) EXPECT_FALSE(given(data(opcode)));
}

TEST_F(Beside, rcv__packet_what_it_has_not) {
  begin();
  mock_datagram d = data();
  d.via = mock_netdev("eth0");
  EXPECT_TRUE(given(d)) << "by another interface";
  d.via = mock_netdev("eth1");
  EXPECT_FALSE(given(d));
  d.decrypted = true;
  EXPECT_TRUE(given(d)) << "through IPsec";
  d.decrypted = false;
  d.reassembled = true;
  EXPECT_TRUE(given(d)) << "in fragments";
  d.reassembled = false;
  EXPECT_TRUE(given(d, 50)) << "merged with others";
}

TEST_F(Beside, rcv__socket_all) {
  begin();
  ASSERT_EQ(server_tells(USIW_PORT_SOCKET), 0);
  EXPECT_TRUE(given(data()));
  ASSERT_EQ(server_tells(USIW_PORT_SHM), 0);
  EXPECT_TRUE(given(data()));
  ASSERT_EQ(server_tells(USIW_PORT_PACKET), 0);
  EXPECT_FALSE(given(data()));
}

// Between PATH and the report raw packets still arrive at the raw port. Datagrams on the new path arrive at the socket.
TEST_F(Beside, rcv__in_the_window_of_a_move) {
  begin();
  ipsec(1);
  EXPECT_FALSE(given(data()));
  mock_datagram d = data();
  d.decrypted = true;
  EXPECT_TRUE(given(d));
  ASSERT_EQ(server_tells(USIW_PORT_SOCKET), 0);
  EXPECT_TRUE(given(data())) << "of the peer, which has not moved";
  EXPECT_TRUE(given(d));
}

TEST_F(Beside, rcv__handshakes_are_the_module_s_all_the_same) {
  begin();
  for (const unsigned opcode : {USIW_TRP_REQ, USIW_TRP_CONFIRM, USIW_TRP_RESET}) {
    mock_datagram d = data(opcode);
    const s64 before = beside();
    ASSERT_TRUE(mock_deliver(&d, ~0u));
    EXPECT_EQ(mock_queued(sock_), 0);
    EXPECT_EQ(beside(), before);
  }
  pump();
  EXPECT_NE(server_conn(), nullptr);
}

TEST_F(Beside, rcv__untold_all) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests[0]->accept(*server), 0);
  ASSERT_EQ(server->events().size(), 1u);
  sock_ = mock_socket(server->data_fds.at(0));
  EXPECT_TRUE(given(data()));
  ASSERT_EQ(server_tells(USIW_PORT_PACKET), 0);
  EXPECT_FALSE(given(data()));
}

// The connection is over lo, whose device is not that of the connection.
TEST_F(Beside, rcv__local_connection) {
  CmId here, there;
  ASSERT_EQ(here.listen(server->device, ipv4("192.0.2.2"), kPort + 1), 0);
  server->close();
  ASSERT_EQ(server->open_all(), 0);
  client = std::make_unique<Process>("eth1");
  client->caps = kMoves;
  ASSERT_EQ(client->open_all(), 0);
  ASSERT_EQ(there.connect(*client, ipv4("192.0.2.2"), 9000, ipv4("192.0.2.2"), kPort + 1), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(here.requests.size(), 1u);
  ASSERT_EQ(here.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  ASSERT_TRUE(there.established());
  ASSERT_TRUE(server_conn()->end.info.flags & USIW_CONN_F_LOCAL);
  sock_ = mock_socket(server->data_fds.at(0));
  mock_datagram d = data();
  d.from = d.to;
  d.to_port = cpu_to_be16(kPort + 1);
  d.via = mock_netdev("lo");
  EXPECT_FALSE(given(d));
  d.via = mock_netdev("eth1");
  EXPECT_TRUE(given(d));
  client->close();
  server->close();
  there.destroy();
  here.destroy();
}

}  // namespace
}  // namespace kuser
