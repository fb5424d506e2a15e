// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_input.c: the first look, stray datagrams, and the verdict.
#include "cm/usiw_cm_input.h"

#include "fixture.h"

namespace {

/// A header with @p opflags, and zeros after it.
struct Raw {
  explicit Raw(uint16_t opflags, uint32_t psn = kPeerIsn, uint32_t ack = kOwnIsn) {
    for (int i = 0; i < 4; i++) {
      bytes[i] = static_cast<uint8_t>(psn >> (24 - 8 * i));
      bytes[4 + i] = static_cast<uint8_t>(ack >> (24 - 8 * i));
    }
    bytes[8] = static_cast<uint8_t>(opflags >> 8);
    bytes[9] = static_cast<uint8_t>(opflags);
  }
  uint8_t bytes[USIW_CM_MAX_DATAGRAM + 1] = {};
};

constexpr uint16_t op(unsigned opcode, unsigned flags = 0) {
  return static_cast<uint16_t>(opcode << USIW_TRP_OPCODE_SHIFT | flags);
}

usiw_cm_verdict input(usiw_cm_conn* c, const Raw& raw, uint32_t len = 14, uint8_t* answer = nullptr) {
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_input(&v, c, raw.bytes, len, kStart, answer ? answer : buf);
  return v;
}

TEST(Look, every_opcode) {
  for (unsigned opcode = 0; opcode < 16; opcode++) {
    enum usiw_cm_look want = USIW_CM_LOOK_DROP;
    if (opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN || opcode == USIW_TRP_SACK) want = USIW_CM_LOOK_DATA;
    if (opcode == USIW_TRP_REQ || opcode == USIW_TRP_ACCEPT || opcode == USIW_TRP_REJECT ||
        opcode == USIW_TRP_CONFIRM || opcode == USIW_TRP_RESET)
      want = USIW_CM_LOOK_HANDSHAKE;
    EXPECT_EQ(usiw_cm_look(Raw(op(opcode)).bytes, 14), want) << opcode;
    EXPECT_EQ(usiw_cm_look(Raw(op(opcode)).bytes, 13), USIW_CM_LOOK_DROP) << opcode;
  }
  EXPECT_EQ(usiw_cm_look(Raw(op(USIW_TRP_RESET, USIW_TRP_F_STRAY)).bytes, 14), USIW_CM_LOOK_ENGINE);
}

TEST(Look, length__of_the_handshake_is_bounded_and_of_data_is_not) {
  EXPECT_EQ(usiw_cm_look(Raw(op(USIW_TRP_REQ)).bytes, USIW_CM_MAX_DATAGRAM), USIW_CM_LOOK_HANDSHAKE);
  EXPECT_EQ(usiw_cm_look(Raw(op(USIW_TRP_REQ)).bytes, USIW_CM_MAX_DATAGRAM + 1), USIW_CM_LOOK_DROP);
  EXPECT_EQ(usiw_cm_look(Raw(op(USIW_TRP_DATA)).bytes, 9000), USIW_CM_LOOK_DATA);
}

TEST(Stray, one_in_its_time) {
  __u64 next = 0;
  EXPECT_TRUE(usiw_cm_stray_due(&next, kStart));
  EXPECT_FALSE(usiw_cm_stray_due(&next, kStart));
  EXPECT_FALSE(usiw_cm_stray_due(&next, kStart + USIW_CM_STRAY_US - 1));
  EXPECT_TRUE(usiw_cm_stray_due(&next, kStart + USIW_CM_STRAY_US));
}

TEST(Confirms, psns_near_the_isns_only) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  const auto fits = [&](uint32_t psn, uint32_t ack) { return usiw_cm_confirms(&r.c, Raw(0, psn, ack).bytes) != 0; };
  EXPECT_TRUE(fits(kPeerIsn, kOwnIsn));
  EXPECT_TRUE(fits(kPeerIsn + USIW_TRP_MAX_WINDOW - 1, kOwnIsn + USIW_TRP_MAX_WINDOW));
  EXPECT_FALSE(fits(kPeerIsn + USIW_TRP_MAX_WINDOW, kOwnIsn));
  EXPECT_FALSE(fits(kPeerIsn - 1, kOwnIsn));
  EXPECT_FALSE(fits(kPeerIsn, kOwnIsn - 1));
  EXPECT_FALSE(fits(kPeerIsn, kOwnIsn + USIW_TRP_MAX_WINDOW + 1));
}

TEST(Quotes, icmp_without_the_isn_is_not_believed) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  const Datagram req = built(i.c);
  EXPECT_TRUE(usiw_cm_quotes(&i.c, req.bytes, 4));
  EXPECT_TRUE(usiw_cm_quotes(&i.c, req.bytes, req.len));
  EXPECT_FALSE(usiw_cm_quotes(&i.c, req.bytes, 3));
  EXPECT_FALSE(usiw_cm_quotes(&i.c, nullptr, 0));
  EXPECT_FALSE(usiw_cm_quotes(&i.c, Raw(0, kOwnIsn + 1).bytes, 14));
}

TEST(Input, no_connection__a_req_asks_for_one) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  const Datagram req = built(i.c);
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_input(&v, nullptr, req.bytes, req.len, kStart, buf);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_V_ADMIT});
  EXPECT_EQ(v.actions, 0u);
  EXPECT_EQ(v.pkt.psn, kOwnIsn);
}

TEST(Input, another_version__is_refused_with_or_without_a_connection) {
  Conn r = Conn::in(Role::kResponder, State::kEstablished);
  Raw req(op(USIW_TRP_REQ), 5, 0);
  req.bytes[14] = USIW_WIRE_VERSION + 1;
  for (usiw_cm_conn* c : {static_cast<usiw_cm_conn*>(nullptr), &r.c}) {
    Datagram answer;
    const usiw_cm_verdict v = input(c, req, 30, answer.bytes);
    EXPECT_EQ(v.kind, unsigned{USIW_CM_V_ANSWER});
    answer.len = v.len;
    answer.decode();
    EXPECT_EQ(answer.pkt.opcode, USIW_TRP_REJECT);
    EXPECT_EQ(answer.pkt.reason, USIW_REJECT_VERSION);
    EXPECT_EQ(answer.pkt.ack_psn, 5u);
    EXPECT_LE(v.len, 30u);
  }
}

TEST(Input, no_connection__strays_draw_a_reset_and_resets_and_rejects_nothing) {
  for (unsigned opcode = 0; opcode < 16; opcode++) {
    if (opcode == USIW_TRP_REQ) continue;
    const bool answered = opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN || opcode == USIW_TRP_SACK ||
                          opcode == USIW_TRP_ACCEPT || opcode == USIW_TRP_CONFIRM;
    const usiw_cm_verdict v = input(nullptr, Raw(op(opcode)));
    const unsigned other = opcode == USIW_TRP_RESET ? USIW_CM_V_WITHDRAW : USIW_CM_V_DROP;
    EXPECT_EQ(v.kind, answered ? unsigned{USIW_CM_V_ANSWER} : other) << opcode;
    EXPECT_EQ(v.len, answered ? 14u : 0u) << opcode;
  }
  EXPECT_EQ(input(nullptr, Raw(op(USIW_TRP_DATA)), 13).kind, unsigned{USIW_CM_V_DROP});
}

TEST(Input, connection__what_is_malformed_draws_nothing) {
  Conn r = Conn::in(Role::kResponder, State::kEstablished);
  const usiw_cm_verdict v = input(&r.c, Raw(op(USIW_TRP_CONFIRM, 0x7)));
  EXPECT_EQ(v.kind, unsigned{USIW_CM_V_CONN});
  EXPECT_EQ(v.actions, 0u);
  EXPECT_EQ(r.c.state, USIW_CM_ESTABLISHED);
}

// The server still has a connection of this 4-tuple that this host has forgotten, and probes it when a new REQ comes.
TEST(Input, connection__data_of_an_earlier_one_draws_a_reset_while_the_req_waits) {
  for (unsigned opcode = 0; opcode < 16; opcode++) {
    Conn i = Conn::in(Role::kInitiator, State::kReqSent);
    const bool answered = opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN || opcode == USIW_TRP_SACK;
    Datagram reset;
    const usiw_cm_verdict v = input(&i.c, Raw(op(opcode), 70, 80), 14, reset.bytes);
    EXPECT_EQ(v.kind, answered ? unsigned{USIW_CM_V_ANSWER} : unsigned{USIW_CM_V_CONN}) << opcode;
    EXPECT_EQ(i.c.state, USIW_CM_REQ_SENT) << opcode;
    EXPECT_EQ(v.actions, 0u) << opcode;
    if (!answered) continue;
    reset.len = v.len;
    reset.decode();
    EXPECT_EQ(reset.pkt.opcode, USIW_TRP_RESET);
    EXPECT_EQ(reset.pkt.flags, USIW_TRP_F_STRAY);
    EXPECT_EQ(reset.pkt.psn, 80u);
    EXPECT_EQ(reset.pkt.ack_psn, 70u);
  }
  Conn installing = Conn::in(Role::kInitiator, State::kInstalling);
  EXPECT_EQ(input(&installing.c, Raw(op(USIW_TRP_SACK), 70, 80)).kind, unsigned{USIW_CM_V_CONN});
}

// The responder may send as soon as its engine has the connection. Its ACCEPT may be overtaken, or lost.
TEST(Input, connection__early_data_of_the_responder_is_ignored_while_the_req_waits) {
  for (const unsigned opcode : {USIW_TRP_DATA, USIW_TRP_SHUTDOWN, USIW_TRP_SACK}) {
    Conn i = Conn::in(Role::kInitiator, State::kReqSent);
    const usiw_cm_verdict v = input(&i.c, Raw(op(opcode), kPeerIsn, kOwnIsn));
    EXPECT_EQ(v.kind, unsigned{USIW_CM_V_CONN}) << opcode;
    EXPECT_EQ(v.actions, 0u) << opcode;
    EXPECT_EQ(i.c.answer, USIW_CM_ANSWER_NOTHING) << opcode;
    EXPECT_EQ(i.c.state, USIW_CM_REQ_SENT) << opcode;
  }
}

TEST(Input, connection__data_counts_as_confirm) {
  Conn r = Conn::in(Role::kResponder, State::kAcceptSent);
  EXPECT_EQ(input(&r.c, Raw(op(USIW_TRP_DATA), kPeerIsn + USIW_TRP_MAX_WINDOW)).actions, 0u);
  EXPECT_EQ(input(&r.c, Raw(op(USIW_TRP_DATA))).actions, unsigned{USIW_CM_A_EV_ESTABLISHED});
}

TEST(Input, connection__a_new_req_where_the_old_one_lingers_is_admitted) {
  Conn r = Conn::in(Role::kResponder, State::kLingerClosed);
  usiw_cm_conn other;
  ASSERT_EQ(usiw_cm_init_active(&other, kPeerIsn + 99, 1, 1, 1500, 1, nullptr, 0), 0);
  usiw_cm_connect(&other, kStart);
  const Datagram req = built(other);
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_input(&v, &r.c, req.bytes, req.len, kStart, buf);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_V_ADMIT});
  EXPECT_EQ(v.actions, unsigned{USIW_CM_A_DEAD});
}

// ---- Both ends ask for a connection of one 4-tuple at once ----

/// An end that has sent its REQ, and the newest verdict on what it has received.
struct Opener {
  explicit Opener(uint32_t isn) {
    EXPECT_EQ(usiw_cm_init_active(&c, isn, 1, 1, 1500, 64, nullptr, 0), 0);
    EXPECT_EQ(usiw_cm_connect(&c, kStart), unsigned{USIW_CM_A_TX});
  }
  Datagram req() const { return built(c); }
  /// Returns its answer, which is empty if there is none.
  Datagram take(const Datagram& d) {
    Datagram answer;
    usiw_cm_input(&v, &c, d.bytes, d.len, kStart + 1000, answer.bytes);
    answer.len = v.kind == USIW_CM_V_ANSWER ? v.len : 0;
    if (answer.len) answer.decode();
    return answer;
  }
  usiw_cm_conn c{};
  usiw_cm_verdict v{};
};

TEST(Crossing, the_smaller_isn_goes_on_and_the_other_end_admits_it) {
  Opener small(kPeerIsn), large(kOwnIsn);
  EXPECT_EQ(small.take(large.req()).len, 0u);
  EXPECT_EQ(small.v.actions, 0u);
  const Datagram pending = large.take(small.req());
  ASSERT_EQ(pending.len, 14u);
  EXPECT_EQ(pending.pkt.opcode, USIW_TRP_ACCEPT);
  EXPECT_EQ(pending.pkt.flags, USIW_TRP_F_PENDING);
  EXPECT_EQ(large.c.state, USIW_CM_REQ_SENT) << "anybody can send a REQ from a false address";
  small.take(pending);
  ASSERT_EQ(small.v.actions, unsigned{USIW_CM_A_TX});
  const Datagram proven = small.req();
  EXPECT_EQ(proven.pkt.ack_psn, pending.pkt.psn);
  large.take(proven);
  EXPECT_EQ(large.v.kind, unsigned{USIW_CM_V_ADMIT});
  EXPECT_EQ(large.v.actions, unsigned{USIW_CM_A_EV_REPLY | USIW_CM_A_RELEASE | USIW_CM_A_DEAD});
  EXPECT_EQ(large.c.status, -ECONNREFUSED);
  EXPECT_EQ(small.c.state, USIW_CM_REQ_SENT);
}

TEST(Crossing, without_the_number_that_was_told_nothing_gives_way) {
  Opener large(kOwnIsn);
  for (const uint32_t ack : {0u, kOwnIsn, ~kOwnIsn - 1, ~kOwnIsn + 1, kPeerIsn}) {
    Datagram forged = Opener(kPeerIsn).req();
    for (int i = 0; i < 4; i++) forged.bytes[4 + i] = static_cast<uint8_t>(ack >> (24 - 8 * i));
    for (int i = 0; i < 100; i++) EXPECT_EQ(large.take(forged).len, 14u);
    EXPECT_EQ(large.c.state, USIW_CM_REQ_SENT);
    EXPECT_EQ(large.v.actions, 0u);
  }
}

// PENDING goes to the address from which the forged REQ claims to come. The host there has no connection, and answers
// by a RESET with both PSNs of the PENDING.
TEST(Crossing, a_forged_req_draws_no_reset_that_ends_the_attempt) {
  Opener mine(kOwnIsn);
  const Datagram pending = mine.take(Opener(kPeerIsn).req());
  ASSERT_EQ(pending.len, 14u);
  usiw_cm_verdict v;
  Datagram reset;
  usiw_cm_input(&v, nullptr, pending.bytes, pending.len, kStart + 1000, reset.bytes);
  ASSERT_EQ(v.kind, unsigned{USIW_CM_V_ANSWER});
  reset.len = v.len;
  mine.take(reset);
  EXPECT_EQ(mine.v.actions, 0u);
  EXPECT_EQ(mine.c.state, USIW_CM_REQ_SENT);
}

TEST(Crossing, an_attempt_that_has_its_answer_goes_on) {
  Conn i = Conn::in(Role::kInitiator, State::kInstalling);
  Datagram proven = Opener(kPeerIsn + 5).req();
  for (int n = 0; n < 4; n++) proven.bytes[4 + n] = static_cast<uint8_t>(usiw_cm_asked_isn(&i.c) >> (24 - 8 * n));
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_input(&v, &i.c, proven.bytes, proven.len, kStart, buf);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_V_CONN});
  EXPECT_EQ(i.c.state, USIW_CM_INSTALLING);
}

}  // namespace
