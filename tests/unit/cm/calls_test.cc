// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm.c: set-up, and the calls of the user and of the engine, in its order. matrix_test.cc has the
// effect of each call in each state. Here are the values that the calls set.
#include "fixture.h"

namespace {

TEST(InitActive, limits__are_capped) {
  usiw_cm_conn c;
  ASSERT_EQ(usiw_cm_init_active(&c, 7, 1000, 65535, 65535, 1, nullptr, 0), 0);
  EXPECT_EQ(c.state, USIW_CM_IDLE);
  EXPECT_EQ(c.ird, USIW_MAX_IRD);
  EXPECT_EQ(c.ord, USIW_MAX_ORD);
  EXPECT_EQ(c.mtu, USIW_MAX_MTU);
  EXPECT_EQ(c.deadline_us, 0u);
}

TEST(InitActive, bad_arguments__einval) {
  usiw_cm_conn c;
  uint8_t pd[513] = {};
  EXPECT_EQ(usiw_cm_init_active(&c, 7, 1, 1, 1500, 1, pd, 513), -EINVAL);
  EXPECT_EQ(usiw_cm_init_active(&c, 7, 1, 1, 1500, 0, nullptr, 0), -EINVAL);
  EXPECT_EQ(usiw_cm_init_active(&c, 7, 1, 1, 1500, 1, pd, 512), 0);
}

TEST(InitPassive, parameters__taken_from_the_request) {
  Conn r(Role::kResponder);
  EXPECT_EQ(r.c.state, USIW_CM_REQ_RCVD);
  EXPECT_EQ(r.c.peer_isn, kPeerIsn);
  EXPECT_EQ(r.c.peer_ird, 16);
  EXPECT_EQ(r.c.peer_ord, 8);
  EXPECT_EQ(r.c.mtu, 1500);
  EXPECT_EQ(r.c.peer_window, 256);
  EXPECT_EQ(private_data(r.c), "peer");
  EXPECT_EQ(r.c.deadline_us, kStart + USIW_CM_REQ_RCVD_US);
}

TEST(InitPassive, refusals) {
  usiw_cm_conn c;
  usiw_cm_packet req = packet(USIW_TRP_REQ);
  req.mtu = USIW_MIN_MTU - 1;
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 1, 1), USIW_REJECT_MTU);
  req.mtu = USIW_MIN_MTU;
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 1, 1), 0);
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 500, 1, 1), USIW_REJECT_MTU);
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 0, 1), USIW_REJECT_NO_RESOURCE);
  req.features = 0x00010000;
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 1, 1), USIW_REJECT_FEATURES);
  req.features = 0x00008000;  // an optional feature
  EXPECT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 1, 1), 0);
  EXPECT_EQ(c.features, 0u);
  const usiw_cm_packet accept = packet(USIW_TRP_ACCEPT);
  EXPECT_EQ(usiw_cm_init_passive(&c, &accept, 1, 9000, 1, 1), USIW_REJECT_MALFORMED);
}

TEST(Offer, what_both_ends_offer_is_agreed__and_in_time_only) {
  usiw_cm_conn c;
  usiw_cm_packet req = packet(USIW_TRP_REQ);
  for (const uint32_t asked : {0u, 1u, 2u, 3u}) {
    req.features = asked;
    ASSERT_EQ(usiw_cm_init_passive(&c, &req, 1, 9000, 1, 1), 0);
    EXPECT_EQ(c.features, 0u) << "nothing that nobody here has offered";
    usiw_cm_offer(&c, USIW_FEATURE_MERGED);
    EXPECT_EQ(c.features, asked & USIW_FEATURE_MERGED);
  }
  ASSERT_EQ(usiw_cm_init_active(&c, 1, 1, 1, 1500, 1, nullptr, 0), 0);
  usiw_cm_offer(&c, USIW_FEATURE_MERGED);
  EXPECT_EQ(c.features, USIW_FEATURE_MERGED);
  ASSERT_NE(usiw_cm_connect(&c, 1), 0u);
  usiw_cm_offer(&c, 2);
  EXPECT_EQ(c.features, USIW_FEATURE_MERGED) << "the REQ has gone out";
}

TEST(InitPassive, peer_limits__are_capped) {
  usiw_cm_conn c;
  usiw_cm_packet req = packet(USIW_TRP_REQ);
  req.ird = req.ord = req.mtu = 65535;
  ASSERT_EQ(usiw_cm_init_passive(&c, &req, 1, 65535, 1, 1), 0);
  EXPECT_EQ(c.peer_ird, USIW_MAX_IRD);
  EXPECT_EQ(c.peer_ord, USIW_MAX_ORD);
  EXPECT_EQ(c.mtu, USIW_MAX_MTU);
}

TEST(Connect, req_sent__repeats_with_back_off_then_times_out) {
  Conn i(Role::kInitiator);
  i.connect();
  std::vector<uint64_t> sent{0};
  uint32_t actions = 0;
  while (i.c.state == USIW_CM_REQ_SENT) {
    actions = i.next_timer();
    if (i.c.state != USIW_CM_REQ_SENT) break;
    EXPECT_EQ(actions, static_cast<uint32_t>(USIW_CM_A_TX));
    EXPECT_EQ(built(i.c).pkt.opcode, USIW_TRP_REQ);
    sent.push_back(i.now - kStart);
  }
  EXPECT_EQ(sent, (std::vector<uint64_t>{0, 100000, 300000, 700000, 1500000, 3100000}));
  EXPECT_EQ(i.now - kStart, 6300000u);
  EXPECT_EQ(actions, static_cast<uint32_t>(USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE));
  EXPECT_EQ(i.c.status, -ETIMEDOUT);
}

TEST(Accept, ird_and_ord__lowered_to_what_both_take) {
  Conn r(Role::kResponder);
  r.accept(1000, 1000);
  EXPECT_EQ(r.c.ird, USIW_MAX_IRD);
  EXPECT_EQ(r.c.ord, 16);  // ird of the peer
  Conn s(Role::kResponder);
  s.accept(0, 3);
  EXPECT_EQ(s.c.ird, 0);
  EXPECT_EQ(s.c.ord, 3);
}

TEST(Accept, too_much_private_data__einval_and_still_open) {
  Conn r(Role::kResponder);
  EXPECT_EQ(r.accept(1, 1, 513), 0u);
  EXPECT_EQ(r.err, -EINVAL);
  EXPECT_EQ(r.c.state, USIW_CM_REQ_RCVD);
  EXPECT_EQ(r.accept(1, 1, 512), static_cast<uint32_t>(USIW_CM_A_INSTALL));
  EXPECT_EQ(r.err, 0);
}

TEST(Accept, after_the_request_ended__econnreset) {
  for (int how = 0; how < 3; how++) {
    Conn r(Role::kResponder);
    if (how == 0) r.receive(packet(USIW_TRP_RESET));
    if (how == 1) r.expire();
    if (how == 2) r.abort();
    EXPECT_EQ(r.accept(), 0u);
    EXPECT_EQ(r.err, -ECONNRESET);
    EXPECT_EQ(r.reject(), 0u);
  }
}

TEST(Accept, accept_sent__repeats_with_back_off_then_resets) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  int sent = 1;
  uint32_t actions = 0;
  while (r.c.state == USIW_CM_ACCEPT_SENT) {
    actions = r.next_timer();
    if (r.c.state != USIW_CM_ACCEPT_SENT) break;
    EXPECT_EQ(built(r.c).pkt.opcode, USIW_TRP_ACCEPT);
    sent++;
  }
  EXPECT_EQ(sent, USIW_CM_ACCEPT_TRIES);
  EXPECT_GT(r.now - kStart, USIW_CM_INSTALL_US);  // the engine of the initiator may need that long
  EXPECT_EQ(actions, static_cast<uint32_t>(USIW_CM_A_ABORT | USIW_CM_A_TX | USIW_CM_A_EV_ESTABLISHED |
                                           USIW_CM_A_EV_DISCONNECT | USIW_CM_A_EV_CLOSE | USIW_CM_A_RELEASE));
  EXPECT_EQ(r.c.abort_reason, USIW_ABORT_NO_CONFIRM);
  EXPECT_EQ(r.c.status, -ETIMEDOUT);
  EXPECT_EQ(built(r.c).pkt.opcode, USIW_TRP_RESET);
}

TEST(Reject, long_private_data__cut) {
  Conn r(Role::kResponder);
  static const uint8_t kData[600] = {1};
  usiw_cm_reject(&r.c, kData, 600, r.now);
  EXPECT_EQ(built(r.c).pkt.pd_len, 512);
}

TEST(Disconnect, closing__times_out) {
  Conn i = Conn::in(Role::kInitiator, State::kClosing);
  EXPECT_EQ(i.expire(), static_cast<uint32_t>(USIW_CM_A_ABORT | USIW_CM_A_TX | USIW_CM_A_EV_CLOSE | USIW_CM_A_RELEASE));
  EXPECT_EQ(i.now, kStart + USIW_CM_CLOSING_US);
  EXPECT_EQ(i.c.status, -ETIMEDOUT);
}

TEST(Abort, linger__reset_is_repeated_three_times_in_all) {
  Conn i = Conn::in(Role::kInitiator, State::kEstablished);
  EXPECT_TRUE(i.abort(USIW_ABORT_ADDRESS) & USIW_CM_A_TX);
  EXPECT_EQ(i.c.abort_reason, USIW_ABORT_ADDRESS);
  std::vector<uint64_t> sent{0};
  while (i.c.state == USIW_CM_LINGER)
    if (i.next_timer() & USIW_CM_A_TX) {
      EXPECT_EQ(built(i.c).pkt.opcode, USIW_TRP_RESET);
      sent.push_back(i.now - kStart);
    }
  EXPECT_EQ(sent, (std::vector<uint64_t>{0, 100000, 300000}));
  EXPECT_EQ(i.now, kStart + USIW_CM_LINGER_US);
}

TEST(Abort, req_sent__reset_waits_until_the_peers_isn_is_known) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  EXPECT_EQ(i.abort(), static_cast<uint32_t>(USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE));
  EXPECT_EQ(i.c.status, -ECONNABORTED);
  EXPECT_EQ(i.receive(packet(USIW_TRP_ACCEPT)), static_cast<uint32_t>(USIW_CM_A_TX));
  const Datagram d = built(i.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_RESET);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);
}

TEST(Abort, req_rcvd__reject_says_no_resource) {
  Conn r(Role::kResponder);
  r.abort();
  EXPECT_EQ(built(r.c).pkt.reason, USIW_REJECT_NO_RESOURCE);
}

TEST(Ready, installing__initiator_reports_parameters) {
  Conn i(Role::kInitiator, /*ird=*/32, /*ord=*/100);
  i.connect();
  i.receive(packet(USIW_TRP_ACCEPT));
  EXPECT_EQ(i.ready(), static_cast<uint32_t>(USIW_CM_A_TX | USIW_CM_A_EV_REPLY));
  EXPECT_EQ(i.c.status, 0);
  EXPECT_EQ(i.c.ord, 16);  // lowered to the ird of ACCEPT
  EXPECT_EQ(i.c.ird, 8);   // ord of ACCEPT
  EXPECT_EQ(i.c.mtu, 1500);
  EXPECT_EQ(private_data(i.c), "peer");
}

TEST(Refused, installing__status_is_never_success) {
  for (int error : {0, 5, -5000, INT32_MIN}) {
    Conn i = Conn::in(Role::kInitiator, State::kInstalling);
    i.refused(error);
    EXPECT_EQ(i.c.status, -EIO) << error;
  }
  Conn i = Conn::in(Role::kInitiator, State::kInstalling);
  i.refused(-ENOMEM);
  EXPECT_EQ(i.c.status, -ENOMEM);
  EXPECT_EQ(i.c.peer_pd_len, 0);
}

TEST(Installing, timeout__kills) {
  Conn i = Conn::in(Role::kInitiator, State::kInstalling);
  EXPECT_EQ(i.expire(), static_cast<uint32_t>(USIW_CM_A_ABORT | USIW_CM_A_TX | USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE));
  EXPECT_EQ(i.c.status, -EIO);
  EXPECT_EQ(i.now, kStart + USIW_CM_INSTALL_US);
}

TEST(PeerClosed, accept_sent__counts_as_confirm) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  EXPECT_EQ(r.peer_closed(),
            static_cast<uint32_t>(USIW_CM_A_EV_ESTABLISHED | USIW_CM_A_EV_DISCONNECT |
                                  USIW_CM_A_EV_CLOSE | USIW_CM_A_RELEASE));
  EXPECT_EQ(r.c.status, 0);
}

/// In each state and at both ends a report has the effect of the call of its name. Any other report has no effect.
TEST(Report, each_kind__is_its_call) {
  using Call = uint32_t (*)(Conn&);
  const std::pair<uint32_t, Call> kCalls[] = {
      {USIW_REPORT_READY, [](Conn& c) { return c.ready(); }},
      {USIW_REPORT_REFUSED, [](Conn& c) { return c.refused(-EPROTO); }},
      {USIW_REPORT_PEER_CLOSED, [](Conn& c) { return c.peer_closed(); }},
      {USIW_REPORT_CLOSED, [](Conn& c) { return c.closed(); }},
      {USIW_REPORT_FAILED, [](Conn& c) { return c.failed(-EPROTO); }},
      {0, [](Conn&) { return 0u; }},
      {USIW_REPORT_ASYNC, [](Conn&) { return 0u; }},
      {USIW_REPORT_PORT, [](Conn&) { return 0u; }},
      {UINT32_MAX, [](Conn&) { return 0u; }},
  };
  for (Role role : {Role::kInitiator, Role::kResponder})
    for (State state : {State::kInstalling, State::kEstablished, State::kClosing, State::kDead})
      for (auto [kind, call] : kCalls) {
        Conn called = Conn::in(role, state), reported = Conn::in(role, state);
        EXPECT_EQ(reported.report(kind, -EPROTO), call(called)) << kind;
        EXPECT_EQ(reported.c.state, called.c.state) << kind;
        EXPECT_EQ(reported.c.status, called.c.status) << kind;
      }
}

TEST(Failed, bad_error_code__eio) {
  Conn i = Conn::in(Role::kInitiator, State::kEstablished);
  i.failed(0);
  EXPECT_EQ(i.c.status, -EIO);
}

}  // namespace
