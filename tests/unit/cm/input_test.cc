// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_input.c: the first look, stray datagrams, and the verdict.
#include "cm/usiw_cm_input.h"

#include "fixture.h"

namespace {

/// A header with @p opflags and, behind it, zeros.
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

TEST(Quotes, d10_icmp_without_the_isn_is_not_believed) {
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
    EXPECT_EQ(v.kind, unsigned{answered ? USIW_CM_V_ANSWER : USIW_CM_V_DROP}) << opcode;
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

}  // namespace
