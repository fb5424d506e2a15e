// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file end_test.cc
/// Tests of one end of a connection, with a host that obeys the test: which notices the user gets, which records the
/// engine reads, and what a change of the route does.
#include <gtest/gtest.h>

#include "cm/usiw_cm_path.h"
#include "tests/support/cm_end_host.h"

namespace {

constexpr uint64_t kStart = 5'000'000;
constexpr uint32_t kPeerIsn = 0x01020304u;
constexpr uint8_t kBoth = USIW_CM_SOCKET | USIW_CM_PACKETS, kMoves = kBoth | USIW_CM_MOVES;

using Types = std::vector<uint32_t>;

class CmEnd : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(end.broken, ""); }

  void report(uint32_t kind, int error = 0, uint32_t port = 0, uint32_t conn_id = 7) {
    usiw_qp_report r{};
    r.kind = kind;
    r.conn_id = conn_id;
    r.error = error;
    r.port = port;
    usiw_cm_end_report(&end, &r, now);
  }
  void receive(uint8_t opcode) {
    usiw_cm_conn peer{};
    peer.local_isn = kPeerIsn;
    peer.peer_isn = end.cm.local_isn;
    peer.peer_known = 1;
    peer.tx_opcode = opcode;
    peer.ird = peer.ord = 4;
    peer.mtu = 9000;
    peer.window = 64;
    peer.features = end.cm.features;
    uint8_t bytes[USIW_CM_MAX_DATAGRAM], answer[USIW_CM_MAX_DATAGRAM];
    const uint32_t len = usiw_cm_build(&peer, bytes);
    usiw_cm_verdict v;
    usiw_cm_end_input(&end, &v, bytes, len, answer, now);
  }

  /// Makes an initiator in INSTALLING, or in the state to which its route leads.
  void connect(uint8_t ports) {
    ASSERT_EQ(usiw_cm_init_active(&end.cm, 100, 4, 4, 9000, 64, nullptr, 0), 0);
    end.contract.connected();
    end.attach(ports);
    usiw_cm_end_connect(&end, now);
    receive(USIW_TRP_ACCEPT);
  }
  void establish(uint8_t ports) {
    connect(ports);
    report(USIW_REPORT_READY);
    ASSERT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
    EXPECT_EQ(end.read(), Types{USIW_EVENT_CONNECT});
    EXPECT_EQ(end.qp_state, USIW_QPS_RTS);
  }
  /// Makes a responder in REQ_RCVD.
  void request() {
    usiw_cm_packet req{};
    req.opcode = USIW_TRP_REQ;
    req.psn = kPeerIsn;
    req.ird = req.ord = 4;
    req.mtu = 9000;
    req.window = 64;
    ASSERT_EQ(usiw_cm_init_passive(&end.cm, &req, 100, 9000, 64, now), 0);
    end.contract.handed_up();
    end.in_backlog = true;
  }
  void route(usiw_not_packet reason) {
    end.next_route.reason = reason;
    usiw_cm_end_follow(&end, now);
  }
  void pass(uint64_t us) {
    now += us;
    usiw_cm_end_tick(&end, now);
  }

  TestEnd end;
  uint64_t now = kStart;
};

// ---- Set-up and the end ----

TEST_F(CmEnd, connect__notifies_once_and_gives_the_engine_all) {
  end.next_route.local_mac[5] = 1;
  end.next_route.remote_mac[5] = 2;
  establish(kMoves);
  EXPECT_EQ(end.count(USIW_CM_A_EV_REPLY), 1u);
  EXPECT_EQ(end.info.flags & (USIW_CONN_F_PACKET | USIW_CONN_F_SOCKET), USIW_CONN_F_PACKET | USIW_CONN_F_SOCKET);
  EXPECT_EQ(end.info.remote_mac[5], 2);
  EXPECT_EQ(end.info.mtu, 1500u);
  EXPECT_EQ(end.followed, 1);
}

TEST_F(CmEnd, connect__reply_that_cannot_be_told_ends_it) {
  end.reply_fails = true;
  connect(kMoves);
  report(USIW_REPORT_READY);
  ASSERT_EQ(end.count(USIW_CM_A_EV_REPLY), 1u);
  EXPECT_EQ(end.notices[0].status, -ENOMEM);
  EXPECT_EQ(end.count(USIW_CM_A_EV_CLOSE), 0u);
  EXPECT_FALSE(end.has_user);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_ABORT}) << "CONNECT is out of date";
  EXPECT_EQ(end.qp_state, USIW_QPS_ERR);
}

TEST_F(CmEnd, connect__failure_is_logged_with_its_reason) {
  ASSERT_EQ(usiw_cm_init_active(&end.cm, 100, 4, 4, 9000, 64, nullptr, 0), 0);
  end.contract.connected();
  end.attach(kMoves);
  usiw_cm_end_connect(&end, now);
  usiw_cm_end_icmp(&end, USIW_CM_ANSWER_NO_PORT, now + USIW_CM_NO_LISTENER_GRACE_US);
  ASSERT_EQ(end.notices.size(), 1u);
  EXPECT_EQ(end.notices[0].status, -ECONNREFUSED);
  EXPECT_EQ(end.logs, std::vector{USIW_CM_LOG_NO_CONNECTION});
  EXPECT_FALSE(end.in_table);
}

TEST_F(CmEnd, accept__leaves_the_backlog_when_the_peer_has_confirmed) {
  request();
  ASSERT_EQ(usiw_cm_end_may_accept(&end), 0);
  end.attach(kMoves);
  end.contract.accepted();
  ASSERT_EQ(usiw_cm_end_accept(&end, 4, 4, nullptr, 0, now), 0);
  EXPECT_EQ(usiw_cm_end_may_accept(&end), -ECONNRESET);
  report(USIW_REPORT_READY);
  EXPECT_TRUE(end.in_backlog);
  receive(USIW_TRP_CONFIRM);
  EXPECT_FALSE(end.in_backlog);
  EXPECT_EQ(end.count(USIW_CM_A_EV_ESTABLISHED), 1u);
  EXPECT_EQ(end.qp_state, USIW_QPS_RTS);
}

TEST_F(CmEnd, leave__no_notice_for_who_has_gone) {
  establish(kMoves);
  usiw_cm_end_leave(&end);
  usiw_cm_end_abort(&end, USIW_ABORT_LOCAL, now);
  EXPECT_EQ(end.notices.size(), 1u) << "the REPLY of before";
  EXPECT_FALSE(end.has_qp);
}

TEST_F(CmEnd, abort__pays_what_is_owed) {
  request();
  end.attach(kMoves);
  end.contract.accepted();
  ASSERT_EQ(usiw_cm_end_accept(&end, 4, 4, nullptr, 0, now), 0);
  usiw_cm_end_abort(&end, USIW_ABORT_LOCAL, now);
  EXPECT_EQ(end.count(USIW_CM_A_EV_ESTABLISHED), 1u);
  EXPECT_EQ(end.count(USIW_CM_A_EV_CLOSE), 1u);
}

TEST_F(CmEnd, flush__dead_at_once_and_the_user_has_an_answer) {
  connect(kMoves);
  usiw_cm_end_flush(&end, now);
  EXPECT_EQ(end.cm.state, USIW_CM_DEAD);
  EXPECT_FALSE(end.in_table);
  EXPECT_EQ(end.count(USIW_CM_A_EV_REPLY), 1u);
  EXPECT_EQ(usiw_cm_end_deadline(&end), 0u);
}

TEST_F(CmEnd, disconnect__drains_and_closes) {
  establish(kMoves);
  usiw_cm_end_disconnect(&end, now);
  EXPECT_EQ(end.qp_state, USIW_QPS_CLOSING);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_DISCONNECT});
  report(USIW_REPORT_CLOSED);
  EXPECT_EQ(end.qp_state, USIW_QPS_ERR);
  EXPECT_EQ(end.count(USIW_CM_A_EV_CLOSE), 1u);
}

TEST_F(CmEnd, report__of_another_connection_or_before_CONNECT_is_ignored) {
  ASSERT_EQ(usiw_cm_init_active(&end.cm, 100, 4, 4, 9000, 64, nullptr, 0), 0);
  end.contract.connected();
  end.attach(kMoves);
  usiw_cm_end_connect(&end, now);
  report(USIW_REPORT_FAILED, -EIO);
  EXPECT_EQ(end.cm.state, USIW_CM_REQ_SENT);
  receive(USIW_TRP_ACCEPT);
  report(USIW_REPORT_READY, 0, 0, 8);
  EXPECT_EQ(end.cm.state, USIW_CM_INSTALLING);
}

// ---- The route at the beginning ----

TEST_F(CmEnd, install__without_a_route_it_fails) {
  end.route_error = -ENETUNREACH;
  connect(kMoves);
  ASSERT_EQ(end.notices.size(), 1u);
  EXPECT_EQ(end.notices[0].status, -EHOSTUNREACH);
  EXPECT_EQ(end.read(), Types{}) << "the engine has not heard of it";
}

TEST_F(CmEnd, install__raw_packets_alone_wait_for_the_MAC) {
  end.next_route.mac_known = 0;
  connect(USIW_CM_PACKETS);
  EXPECT_EQ(end.engine, USIW_CM_ENGINE_RESOLVING);
  EXPECT_EQ(usiw_cm_end_deadline(&end), now + USIW_CM_RESOLVE_US);
  pass(USIW_CM_RESOLVE_US);
  EXPECT_EQ(end.engine, USIW_CM_ENGINE_RESOLVING);
  end.next_route.mac_known = 1;
  pass(USIW_CM_RESOLVE_US);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_CONNECT});
  EXPECT_EQ(end.info.flags & USIW_CONN_F_SOCKET, 0u);
}

TEST_F(CmEnd, install__a_MAC_that_never_comes) {
  end.next_route.mac_known = 0;
  connect(USIW_CM_PACKETS);
  for (uint64_t waited = 0; waited < USIW_CM_INSTALL_US; waited += USIW_CM_RESOLVE_US) pass(USIW_CM_RESOLVE_US);
  ASSERT_EQ(end.notices.size(), 1u);
  EXPECT_LT(end.notices[0].status, 0);
}

TEST_F(CmEnd, install__who_has_a_socket_does_not_wait_and_changes_later) {
  end.next_route.mac_known = 0;
  establish(kMoves);
  EXPECT_EQ(end.info.flags & (USIW_CONN_F_PACKET | USIW_CONN_F_SOCKET), USIW_CONN_F_SOCKET);
  EXPECT_EQ(end.info.not_packet, USIW_NOT_PACKET_NETDEV);
  EXPECT_EQ(end.followed, 1) << "for the update of the neighbour";
  end.next_route.mac_known = 1;
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_PATH});
  EXPECT_NE(end.info.flags & USIW_CONN_F_PACKET, 0u);
  EXPECT_EQ(end.info.not_packet, USIW_NOT_PACKET_NONE);
}

TEST_F(CmEnd, install__raw_packets_alone_and_no_way_for_them) {
  for (const auto& [reason, error] :
       {std::pair{USIW_NOT_PACKET_NETDEV, -ENETUNREACH}, {USIW_NOT_PACKET_IPSEC, -EPROTONOSUPPORT}}) {
    TestEnd fresh;
    std::swap(static_cast<usiw_cm_end&>(end), static_cast<usiw_cm_end&>(fresh));
    end.notices.clear();
    end.contract = {};
    end.in_table = true;
    end.next_route.reason = reason;
    connect(USIW_CM_PACKETS);
    ASSERT_EQ(end.notices.size(), 1u);
    EXPECT_EQ(end.notices[0].status, error);
  }
}

TEST_F(CmEnd, install__a_peer_on_this_host_decides_the_kind_of_port) {
  end.next_route.local = 1;
  end.next_route.peer_ports = USIW_CM_PACKETS;
  establish(kMoves);
  EXPECT_EQ(end.ports, USIW_CM_PACKETS) << "the peer has no socket";
  EXPECT_EQ(end.info.flags & (USIW_CONN_F_LOCAL | USIW_CONN_F_SOCKET), USIW_CONN_F_LOCAL);
}

TEST_F(CmEnd, install__a_peer_on_this_host_without_raw_packets) {
  end.next_route.local = 1;
  end.next_route.peer_ports = USIW_CM_SOCKET;
  establish(kMoves);
  EXPECT_EQ(end.info.not_packet, USIW_NOT_PACKET_PEER);
}

TEST(CmPorts, differ__if_they_have_no_kind_in_common) {
  EXPECT_TRUE(usiw_cm_ports_differ(USIW_CM_SOCKET, USIW_CM_PACKETS));
  EXPECT_TRUE(usiw_cm_ports_differ(USIW_CM_SOCKET | USIW_CM_MOVES, USIW_CM_PACKETS | USIW_CM_MOVES));
  EXPECT_FALSE(usiw_cm_ports_differ(kBoth, USIW_CM_PACKETS));
  EXPECT_FALSE(usiw_cm_ports_differ(0, USIW_CM_PACKETS)) << "it has no QP yet";
}

// ---- Changes of the route ----

TEST_F(CmEnd, connect__the_route_is_narrower_than_the_handshake_has_agreed) {
  end.next_route.mtu = 1400;
  establish(kMoves);
  EXPECT_EQ(end.info.mtu, 1400u);
  EXPECT_EQ(end.info.handshake_mtu, 9000u) << "the peer may send so much";
}

TEST_F(CmEnd, follow__the_same_again_is_no_news) {
  establish(kMoves);
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.read(), Types{});
}

TEST_F(CmEnd, follow__another_next_hop_and_MTU) {
  establish(kMoves);
  end.next_route.remote_mac[5] = 9;
  end.next_route.next_hop = 5;
  end.next_route.mtu = 1400;
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_PATH});
  EXPECT_EQ(end.info.remote_mac[5], 9);
  EXPECT_EQ(end.info.mtu, 1400u);
  EXPECT_EQ(end.followed, 5);
}

TEST_F(CmEnd, follow__an_unknown_MAC_leaves_the_old_one) {
  end.next_route.remote_mac[5] = 2;
  establish(kMoves);
  end.next_route.mac_known = 0;
  end.next_route.remote_mac[5] = 0;
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.info.remote_mac[5], 2);
  EXPECT_NE(end.info.flags & USIW_CONN_F_PACKET, 0u);
}

TEST_F(CmEnd, follow__no_route_changes_nothing) {
  establish(kMoves);
  end.route_error = -ENETUNREACH;
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.read(), Types{});
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
}

TEST_F(CmEnd, elsewhere__is_logged_once_and_the_socket_takes_over) {
  establish(kMoves);
  route(USIW_NOT_PACKET_NETDEV);
  route(USIW_NOT_PACKET_NETDEV);
  EXPECT_EQ(end.logs, std::vector{USIW_CM_LOG_ELSEWHERE});
  EXPECT_EQ(end.read(), Types{USIW_EVENT_PATH});
  EXPECT_EQ(end.info.not_packet, USIW_NOT_PACKET_NETDEV);
  route(USIW_NOT_PACKET_NONE);
  EXPECT_EQ(end.path, USIW_CM_PATH_FOLLOWED);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_PATH});
}

TEST_F(CmEnd, elsewhere__who_cannot_change_goes_on) {
  establish(USIW_CM_PACKETS);
  route(USIW_NOT_PACKET_NETDEV);
  EXPECT_EQ(end.read(), Types{});
  EXPECT_EQ(end.logs, std::vector{USIW_CM_LOG_ELSEWHERE});
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
}

TEST_F(CmEnd, forbidden__ends_who_does_not_leave_in_time) {
  establish(kMoves);
  route(USIW_NOT_PACKET_IPSEC);
  EXPECT_EQ(end.read(), Types{USIW_EVENT_PATH});
  EXPECT_EQ(end.path, USIW_CM_PATH_FORBIDDEN);
  EXPECT_EQ(end.move_us, now + USIW_MOVE_MS * 1000u);
  pass(USIW_MOVE_MS * 1000u - 1);
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
  pass(1);
  EXPECT_EQ(end.cm.state, USIW_CM_LINGER);
  EXPECT_EQ(end.logs, std::vector{USIW_CM_LOG_FORBIDDEN});
  EXPECT_EQ(end.count(USIW_CM_A_EV_CLOSE), 1u);
}

TEST_F(CmEnd, forbidden__who_reports_its_socket_stays) {
  establish(kMoves);
  route(USIW_NOT_PACKET_ENCAP);
  report(USIW_REPORT_PORT, 0, USIW_PORT_SOCKET);
  EXPECT_EQ(end.move_us, 0u);
  EXPECT_FALSE(end.by_packets);
  pass(10 * USIW_MOVE_MS * 1000u);
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
  // The process reports raw packets again, which are still forbidden: the time begins anew.
  report(USIW_REPORT_PORT, 0, USIW_PORT_PACKET);
  EXPECT_NE(end.move_us, 0u);
}

TEST_F(CmEnd, forbidden__permitted_again_in_time) {
  establish(kMoves);
  route(USIW_NOT_PACKET_IPSEC);
  route(USIW_NOT_PACKET_NONE);
  EXPECT_EQ(end.move_us, 0u);
  EXPECT_EQ(end.path, USIW_CM_PATH_FOLLOWED);
  pass(10 * USIW_MOVE_MS * 1000u);
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
}

TEST_F(CmEnd, forbidden__ends_at_once_who_has_no_socket) {
  establish(kMoves);
  end.socket_is_open = false;
  route(USIW_NOT_PACKET_IPSEC);
  EXPECT_EQ(end.cm.state, USIW_CM_LINGER);
}

TEST_F(CmEnd, forbidden__ends_at_once_who_cannot_change) {
  establish(USIW_CM_PACKETS);
  end.route_error = -EPERM;
  usiw_cm_end_follow(&end, now);
  EXPECT_EQ(end.cm.state, USIW_CM_LINGER);
  EXPECT_EQ(end.logs, std::vector{USIW_CM_LOG_FORBIDDEN});
}

TEST_F(CmEnd, forbidden__before_the_engine_is_ready_nothing_is_sent_yet) {
  connect(kMoves);
  route(USIW_NOT_PACKET_IPSEC);
  EXPECT_EQ(end.move_us, 0u);
  report(USIW_REPORT_PORT, 0, USIW_PORT_PACKET);
  EXPECT_NE(end.move_us, 0u);
}

TEST_F(CmEnd, forbidden__the_end_of_the_connection_ends_the_deadline) {
  establish(kMoves);
  route(USIW_NOT_PACKET_IPSEC);
  usiw_cm_end_abort(&end, USIW_ABORT_LOCAL, now);
  EXPECT_EQ(end.move_us, 0u);
  report(USIW_REPORT_PORT, 0, USIW_PORT_PACKET);
  EXPECT_EQ(end.move_us, 0u);
}

TEST_F(CmEnd, follow__the_kernel_follows_a_socket_that_is_used_for_good) {
  establish(kBoth);  // the process cannot change its port, and keeps its socket open
  route(USIW_NOT_PACKET_IPSEC);
  EXPECT_EQ(end.cm.state, USIW_CM_ESTABLISHED);
  EXPECT_EQ(end.path, USIW_CM_PATH_FOLLOWED);
}

// ---- Records ----

TEST(CmRecords, read_in_order__whatever_order_they_came_in) {
  usiw_cm_records r{};
  const usiw_conn_info info{};
  for (const uint32_t type : {USIW_EVENT_DISCONNECT, USIW_EVENT_PROBE, USIW_EVENT_PATH, USIW_EVENT_CONNECT})
    usiw_cm_records_push(&r, type, &info);
  usiw_event e;
  for (const uint32_t type : {USIW_EVENT_CONNECT, USIW_EVENT_PATH, USIW_EVENT_PROBE, USIW_EVENT_DISCONNECT}) {
    ASSERT_EQ(usiw_cm_records_peek(&r, &e), 1);
    EXPECT_EQ(e.type, type);
    EXPECT_EQ(usiw_cm_records_pop(&r, &e), type != USIW_EVENT_DISCONNECT);
  }
  EXPECT_EQ(usiw_cm_records_peek(&r, &e), 0);
}

TEST(CmRecords, path__that_changes_while_it_is_read_is_read_again) {
  usiw_cm_records r{};
  usiw_conn_info info{};
  usiw_cm_records_push(&r, USIW_EVENT_PATH, &info);
  usiw_event e;
  usiw_cm_records_peek(&r, &e);
  info.mtu = 1400;
  usiw_cm_records_push(&r, USIW_EVENT_PATH, &info);
  EXPECT_EQ(usiw_cm_records_pop(&r, &e), 1);
  ASSERT_EQ(usiw_cm_records_peek(&r, &e), 1);
  EXPECT_EQ(e.conn.mtu, 1400u);
  EXPECT_EQ(usiw_cm_records_pop(&r, &e), 0);
}

TEST(CmRecords, kill__replaces_all_others) {
  usiw_cm_records r{};
  const usiw_conn_info info{};
  usiw_cm_records_push(&r, USIW_EVENT_CONNECT, &info);
  usiw_cm_records_push(&r, USIW_EVENT_ABORT, &info);
  usiw_event e;
  ASSERT_EQ(usiw_cm_records_peek(&r, &e), 1);
  EXPECT_EQ(e.type, u_int32_t{USIW_EVENT_ABORT});
  EXPECT_EQ(usiw_cm_records_pop(&r, &e), 0);
}

}  // namespace
