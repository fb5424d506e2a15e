// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_receive.c and of the clock in cm/usiw_cm.c, in their order. matrix_test.cc has the effect of each
// packet in each state.
#include "fixture.h"

namespace {

constexpr uint32_t kTx = USIW_CM_A_TX;

TEST(ReceiveReq, established__other_isn_only_probes) {
  for (Role role : {Role::kInitiator, Role::kResponder}) {
    Conn e = Conn::in(role, State::kEstablished);
    usiw_cm_packet req = packet(USIW_TRP_REQ);
    req.psn++;
    for (int i = 0; i < 100; i++) {
      EXPECT_EQ(e.receive(req), static_cast<uint32_t>(USIW_CM_A_PROBE));
      EXPECT_EQ(e.c.state, USIW_CM_ESTABLISHED);
    }
  }
}

TEST(ReceiveReq, linger__other_isn_makes_room) {
  Conn r = Conn::in(Role::kResponder, State::kLingerClosed);
  usiw_cm_packet req = packet(USIW_TRP_REQ);
  req.psn++;
  EXPECT_EQ(r.receive(req), static_cast<uint32_t>(USIW_CM_A_DEAD));
}

TEST(ReceiveReq, accept_sent__does_not_disturb_the_back_off) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  const uint64_t deadline = r.c.deadline_us;
  EXPECT_EQ(r.receive(packet(USIW_TRP_REQ)), kTx);
  EXPECT_EQ(built(r.c).pkt.opcode, USIW_TRP_ACCEPT);
  EXPECT_EQ(r.c.deadline_us, deadline);
}

TEST(ReceivePending, req_sent__patience_is_renewed_but_bounded) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  const usiw_cm_packet pending = packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING);
  unsigned sent = 0;
  while (i.c.state == USIW_CM_REQ_SENT) {
    EXPECT_EQ(i.receive(pending), sent == 0 ? kTx : 0u);  // the REQ with the ISN of PENDING is sent at once
    sent += !!(i.next_timer() & kTx);
  }
  EXPECT_EQ(i.now, kStart + USIW_CM_REQ_LIMIT_US);
  EXPECT_EQ(i.c.status, -ETIMEDOUT);
  EXPECT_NEAR(sent, USIW_CM_REQ_LIMIT_US / USIW_CM_PENDING_REPEAT_US, 2);
}

TEST(ReceivePending, without_an_isn_it_does_not_spoil_the_peers_reset) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  usiw_cm_packet pending = packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING);
  pending.psn = 0;  // the peer has the REQ, and no ISN for it
  EXPECT_EQ(i.receive(pending), 0u);
  EXPECT_TRUE(i.c.pending);
  EXPECT_FALSE(i.c.peer_known);
  i.receive(packet(USIW_TRP_RESET));
  EXPECT_EQ(i.c.state, USIW_CM_LINGER);
  EXPECT_EQ(i.c.status, -ECONNRESET);
}

TEST(ReceivePending, req_sent__silence_afterwards_is_noticed) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSentPending);
  i.expire();
  EXPECT_EQ(i.now, kStart + USIW_CM_PENDING_US);
  EXPECT_EQ(i.c.status, -ETIMEDOUT);
  EXPECT_EQ(built(i.c).pkt.opcode, USIW_TRP_RESET);  // the peer can verify it, because its ISN is known
}

TEST(ReceivePending, req_sent__frequent_pendings_do_not_hold_off_the_repetition) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSentPending);
  const uint64_t due = i.c.repeat_us;
  i.now += USIW_CM_PENDING_REPEAT_US / 2;
  i.receive(packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING));
  EXPECT_EQ(i.c.repeat_us, due);
}

TEST(ReceiveAccept, req_sent__wrong_isn_is_ignored) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  for (uint16_t flags : {0, USIW_TRP_F_PENDING}) {
    usiw_cm_packet p = packet(USIW_TRP_ACCEPT, flags);
    p.ack_psn++;
    EXPECT_EQ(i.receive(p), 0u);
    EXPECT_FALSE(i.c.peer_known);
  }
}

TEST(ReceiveAccept, req_sent__claims_beyond_the_offer_reset) {
  for (int which = 0; which < 3; which++) {
    Conn i = Conn::in(Role::kInitiator, State::kReqSent);
    usiw_cm_packet p = packet(USIW_TRP_ACCEPT);
    if (which == 0) p.features = 1;
    if (which == 1) p.ord = 33;
    if (which == 2) p.mtu = USIW_MIN_MTU - 1;
    EXPECT_EQ(i.receive(p),
              static_cast<uint32_t>(kTx | USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE)) << which;
    EXPECT_EQ(i.c.status, -EPROTO);
    const Datagram d = built(i.c);
    EXPECT_EQ(d.pkt.opcode, USIW_TRP_RESET);
    EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);
    EXPECT_EQ(i.c.peer_pd_len, 0);
  }
}

TEST(ReceiveAccept, established__both_isns_must_match) {
  Conn i = Conn::in(Role::kInitiator, State::kEstablished);
  usiw_cm_packet p = packet(USIW_TRP_ACCEPT);
  EXPECT_EQ(i.receive(p), kTx);
  EXPECT_EQ(built(i.c).pkt.opcode, USIW_TRP_CONFIRM);
  p.psn++;
  EXPECT_EQ(i.receive(p), 0u);
}

TEST(ReceiveConfirm, accept_sent__both_isns_must_match) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  usiw_cm_packet p = packet(USIW_TRP_CONFIRM);
  p.psn++;
  EXPECT_EQ(r.receive(p), 0u);
  p.psn--, p.ack_psn--;
  EXPECT_EQ(r.receive(p), 0u);
  p.ack_psn++;
  EXPECT_EQ(r.receive(p), static_cast<uint32_t>(USIW_CM_A_EV_ESTABLISHED));
  EXPECT_EQ(r.c.deadline_us, 0u);
}

TEST(ReceiveReject, req_sent__status_and_private_data_by_reason) {
  for (int reason = 0; reason < 256; reason++) {
    Conn i = Conn::in(Role::kInitiator, State::kReqSent);
    usiw_cm_packet p = packet(USIW_TRP_REJECT);
    p.reason = static_cast<uint8_t>(reason);
    if (reason == USIW_REJECT_NO_LISTENER) i.now += USIW_CM_NO_LISTENER_GRACE_US;
    EXPECT_EQ(i.receive(p), static_cast<uint32_t>(USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE |
                                                  USIW_CM_A_DEAD));
    const bool protocol = reason == USIW_REJECT_VERSION || reason == USIW_REJECT_FEATURES ||
                          reason == USIW_REJECT_MALFORMED || reason == USIW_REJECT_MTU;
    EXPECT_EQ(i.c.status, protocol ? -EPROTO : -ECONNREFUSED) << reason;
    EXPECT_EQ(private_data(i.c), reason == USIW_REJECT_USER ? "peer" : "") << reason;
  }
}

TEST(ReceiveReject, req_sent__wrong_isn_is_ignored) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  usiw_cm_packet p = packet(USIW_TRP_REJECT);
  p.ack_psn++;
  EXPECT_EQ(i.receive(p), 0u);
}

TEST(ReceiveReset, every_state__near_misses_are_ignored) {
  for (Role role : {Role::kInitiator, Role::kResponder})
    for (State state : {State::kInstalling, State::kEstablished, State::kClosing}) {
      Conn e = Conn::in(role, state);
      const uint8_t before = e.c.state;
      for (int delta : {-1, 1, 2, 1000}) {
        usiw_cm_packet p = packet(USIW_TRP_RESET);
        p.psn += static_cast<uint32_t>(delta);
        EXPECT_EQ(e.receive(p), 0u);
        p = packet(USIW_TRP_RESET);
        p.ack_psn += static_cast<uint32_t>(delta);
        EXPECT_EQ(e.receive(p), 0u);
      }
      EXPECT_EQ(e.receive(packet(USIW_TRP_RESET, USIW_TRP_F_STRAY)), 0u);
      EXPECT_EQ(e.c.state, before);
    }
}

TEST(ReceiveReset, req_sent__own_isn_is_enough_until_pending_told_the_peers) {
  usiw_cm_packet p = packet(USIW_TRP_RESET);
  p.psn = 99;
  Conn i = Conn::in(Role::kInitiator, State::kReqSentPending);
  EXPECT_EQ(i.receive(p), 0u);
  Conn j = Conn::in(Role::kInitiator, State::kReqSent);
  EXPECT_EQ(j.receive(p), static_cast<uint32_t>(kTx | USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE));
  EXPECT_EQ(j.c.status, -ECONNRESET);
  EXPECT_EQ(built(j.c).pkt.ack_psn, 99u);
}

TEST(ReceiveReset, linger__an_answer_stops_the_repetition) {
  Conn i = Conn::in(Role::kInitiator, State::kLingerReset);
  EXPECT_EQ(i.receive(packet(USIW_TRP_RESET)), 0u);
  EXPECT_EQ(i.next_timer(), static_cast<uint32_t>(USIW_CM_A_DEAD));
}

TEST(ReceiveReset, linger__two_answering_ends_fall_silent) {
  Conn i = Conn::in(Role::kInitiator, State::kLingerWasReset);
  int answers = 1;
  for (int n = 0; n < 20; n++) answers += !!(i.receive(packet(USIW_TRP_RESET)) & kTx);
  EXPECT_EQ(answers, USIW_CM_RESET_TRIES);
}

TEST(Receive, unknown_opcode__nothing) {
  Conn e = Conn::in(Role::kResponder, State::kEstablished);
  for (int opcode : {0, 4, 5, 8, 255}) {
    usiw_cm_packet p = packet(USIW_TRP_RESET);
    p.opcode = static_cast<uint8_t>(opcode);
    EXPECT_EQ(e.receive(p), 0u);
  }
}

// A server may listen anew between two connections. The initiator waits for it.
TEST(ReceiveReject, req_sent__no_listener_is_asked_again_for_a_while) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  usiw_cm_packet p = packet(USIW_TRP_REJECT);
  p.reason = USIW_REJECT_NO_LISTENER;
  const uint64_t end = i.now + USIW_CM_NO_LISTENER_GRACE_US;
  unsigned reqs = 0;
  while (i.now < end) {
    ASSERT_EQ(reqs % 2 == 0 ? i.receive(p) : i.unreachable(), 0u);
    EXPECT_LE(i.c.deadline_us, i.now + USIW_CM_NO_LISTENER_REPEAT_US);
    i.now = i.c.deadline_us;
    ASSERT_EQ(i.timer(), static_cast<uint32_t>(USIW_CM_A_TX));
    EXPECT_EQ(built(i.c).pkt.opcode, USIW_TRP_REQ);
    ++reqs;
  }
  EXPECT_EQ(reqs, USIW_CM_NO_LISTENER_GRACE_US / USIW_CM_NO_LISTENER_REPEAT_US);
  i.receive(p);
  EXPECT_EQ(i.c.status, -ECONNREFUSED);
  EXPECT_EQ(i.c.state, USIW_CM_DEAD);
}

TEST(ReceiveReject, req_sent__no_listener_at_first_then_accept) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  usiw_cm_packet p = packet(USIW_TRP_REJECT);
  p.reason = USIW_REJECT_NO_LISTENER;
  EXPECT_EQ(i.receive(p), 0u);
  EXPECT_EQ(i.receive(packet(USIW_TRP_ACCEPT)), static_cast<uint32_t>(USIW_CM_A_INSTALL));
}

TEST(Unreachable, req_sent__refused_after_a_while) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  EXPECT_EQ(i.unreachable(), 0u);
  i.now += USIW_CM_NO_LISTENER_GRACE_US;
  i.unreachable();
  EXPECT_EQ(i.c.status, -ECONNREFUSED);
  EXPECT_EQ(i.c.state, USIW_CM_DEAD);
}

TEST(Timer, early__nothing) {
  for (Role role : {Role::kInitiator, Role::kResponder})
    for (State state : {State::kInstalling, State::kClosing, State::kLingerClosed}) {
      Conn e = Conn::in(role, state);
      e.now = e.c.deadline_us - 1;
      EXPECT_EQ(e.timer(), 0u);
    }
}

TEST(Timer, very_late__goes_straight_to_the_end_of_the_state) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  i.now += 1'000'000'000;
  EXPECT_EQ(i.timer(), static_cast<uint32_t>(USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE));
}

TEST(Timer, req_rcvd__the_application_never_decided) {
  Conn r(Role::kResponder);
  EXPECT_EQ(r.expire(), static_cast<uint32_t>(kTx | USIW_CM_A_RELEASE));
  EXPECT_EQ(r.now, kStart + USIW_CM_REQ_RCVD_US);
  EXPECT_EQ(built(r.c).pkt.opcode, USIW_TRP_REJECT);
}

}  // namespace
