// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_test.cc
/// Tests of cm/usiw_face.h and of silent connections: two QPs and a wire between them. The test carries each datagram.
#include "cm/usiw_face.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "cm/object/usiw_face_states.h"
#include "cm/usiw_cm_cookie.h"
#include "cm/usiw_cm_hint.h"
#include "tests/support/cm_end_host.h"

namespace {

using Datagram = std::vector<uint8_t>;

constexpr __u64 kKey[2] = {11, 22};
constexpr uint8_t kSmall[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
constexpr uint8_t kLarge[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2};

usiw_cm_tuple reversed(const usiw_cm_tuple& t) {
  usiw_cm_tuple r = t;
  std::memcpy(r.local, t.remote, 16);
  std::memcpy(r.remote, t.local, 16);
  r.local_port = t.remote_port;
  r.remote_port = t.local_port;
  return r;
}

uint8_t opcode(const Datagram& d) { return d[8] >> 4; }
bool is_pending(const Datagram& d) { return opcode(d) == USIW_TRP_ACCEPT && (d[9] & USIW_TRP_F_PENDING) != 0; }

/// A QP with its host: what usiw-run's class Face does.
struct FaceQp {
  FaceQp(const uint8_t (&own)[16], uint32_t qpn) {
    std::memcpy(address, own, 16);
    usiw_face_init(&face, qpn, qpn);
  }
  void rtr(const FaceQp& peer, uint32_t rq_psn) { rtr(peer.address, peer.face.qpn, rq_psn); }
  void rtr(const uint8_t (&peer)[16], uint32_t peer_qpn, uint32_t rq_psn) {
    usiw_face_set_peer(&face, address, peer, 0, peer_qpn, rq_psn);
    if (usiw_face_role(&face) == USIW_FACE_ASKS) return ask();
    Datagram buf(USIW_CM_MAX_DATAGRAM);
    buf.resize(usiw_face_challenge(&face, kKey, now, buf.data()));
    if (!buf.empty()) challenges.push_back({face.req.tuple, buf});
  }
  void rts(uint32_t sq_psn) { usiw_face_set_sq_psn(&face, sq_psn); }
  void reset() {
    usiw_face_forget_peer(&face);
    if (end) usiw_cm_end_abort(end.get(), USIW_ABORT_LOCAL, now);
    expect_sound();
    end.reset();
  }
  void ask() {
    usiw_face_ask ask;
    usiw_face_build_ask(&face, &ask);
    make();
    ASSERT_EQ(usiw_cm_init_active(&end->cm, next_isn++, 4, 4, 9000, 64, &ask, sizeof ask), 0);
    usiw_cm_set_silent(&end->cm);
    usiw_cm_offer(&end->cm, USIW_FEATURE_FACE);
    end->contract.connected();
    end->attach(USIW_CM_SOCKET);
    usiw_cm_end_connect(end.get(), now);
  }
  void take() {
    const usiw_face_req* req = usiw_face_take(&face);
    ASSERT_NE(req, nullptr);
    make();
    ASSERT_EQ(usiw_cm_init_passive(&end->cm, &req->pkt, req->isn, 9000, 64, now), 0);
    usiw_cm_set_silent(&end->cm);
    end->contract.handed_up();
    end->attach(USIW_CM_SOCKET);
    end->contract.accepted();
    ASSERT_EQ(usiw_cm_end_accept(end.get(), 4, 4, nullptr, 0, now), 0);
    ready();
  }
  void make() {
    end = std::make_unique<TestEnd>();
    end->tuple = face.peer.tuple;
  }
  void ready() {
    usiw_qp_report r{};
    r.kind = USIW_REPORT_READY;
    r.conn_id = 7;
    usiw_cm_end_report(end.get(), &r, now);
  }
  /// Handles a datagram from @p from. Returns the answer, if the port itself answers.
  std::optional<Datagram> receive(const usiw_cm_tuple& from, const Datagram& d) {
    const usiw_cm_tuple tuple = reversed(from);
    usiw_face_verdict v;
    Datagram buf(USIW_CM_MAX_DATAGRAM);
    const bool known = end && std::memcmp(&tuple, &end->tuple, sizeof tuple) == 0;
    usiw_face_input(&v, &face, known ? end.get() : nullptr, &tuple, kKey, d.data(), static_cast<uint32_t>(d.size()),
                    now, buf.data());
    if (v.kind == USIW_FACE_V_TAKE) {
      if (end) {
        usiw_cm_end_yield(end.get(), now);
        expect_sound();
        EXPECT_EQ(end->state_after_yield(), "") << "the engine has not been told";
        end.reset();
      }
      take();
    }
    if (end && end->cm.state == USIW_CM_INSTALLING) ready();
    expect_sound();
    if (v.kind != USIW_FACE_V_ANSWER) return std::nullopt;
    buf.resize(v.len);
    return buf;
  }
  void expect_sound() const {
    if (end) {
      EXPECT_EQ(end->broken, "");
    }
  }
  void pass(uint64_t us) {
    now += us;
    if (end) usiw_cm_end_tick(end.get(), now);
  }
  uint8_t state() const { return end ? end->cm.state : uint8_t{USIW_CM_IDLE}; }
  std::vector<Datagram> take_sent() { return end ? std::exchange(end->wire, {}) : std::vector<Datagram>{}; }

  uint8_t address[16];
  usiw_face face;
  std::unique_ptr<TestEnd> end;
  struct Challenge {
    usiw_cm_tuple tuple;
    Datagram datagram;
  };
  std::vector<Challenge> challenges;  ///< PENDINGs sent at RTR
  uint64_t now = 5'000'000;
  uint32_t next_isn = 0x1000;
};

/// Carries datagrams between two QPs until there are none. Returns their number.
unsigned carry(FaceQp& a, FaceQp& b) {
  unsigned n = 0;
  std::vector<std::pair<bool, Datagram>> way;  // {to b, datagram}
  const auto collect = [&] {
    for (Datagram& d : a.take_sent()) way.emplace_back(true, std::move(d));
    for (Datagram& d : b.take_sent()) way.emplace_back(false, std::move(d));
    for (FaceQp* from : {&a, &b})
      std::erase_if(from->challenges, [&](const FaceQp::Challenge& c) {
        const FaceQp& to = from == &a ? b : a;
        if (c.tuple.remote_port != __builtin_bswap16(usiw_face_port(to.face.qpn))) return false;
        way.emplace_back(from == &a, c.datagram);
        return true;
      });
  };
  usiw_cm_tuple from_a{};
  std::memcpy(from_a.local, a.address, 16);
  std::memcpy(from_a.remote, b.address, 16);
  from_a.local_port = __builtin_bswap16(usiw_face_port(a.face.qpn));
  from_a.remote_port = __builtin_bswap16(usiw_face_port(b.face.qpn));
  for (collect(); !way.empty() && n < 100; n++) {
    const auto [to_b, d] = way.front();
    way.erase(way.begin());
    const auto answer = to_b ? b.receive(from_a, d) : a.receive(reversed(from_a), d);
    if (answer) way.emplace_back(!to_b, *answer);
    collect();
  }
  return n;
}

void expect_connected(const FaceQp& a, const FaceQp& b) {
  ASSERT_EQ(a.state(), USIW_CM_ESTABLISHED);
  ASSERT_EQ(b.state(), USIW_CM_ESTABLISHED);
  EXPECT_EQ(a.end->cm.local_isn, b.end->cm.peer_isn);
  EXPECT_EQ(a.end->cm.peer_isn, b.end->cm.local_isn);
}

struct FaceTest : testing::Test {
  FaceQp a{kSmall, usiw_face_qpn(40000, 1)}, b{kLarge, usiw_face_qpn(40001, 2)};
  const usiw_cm_tuple from_a = [this] {
    FaceQp copy{kSmall, a.face.qpn};
    usiw_face_set_peer(&copy.face, kSmall, kLarge, 0, b.face.qpn, 0);
    return copy.face.peer.tuple;
  }();
};

// ---- Numbers and roles ----

TEST(Face, qpn__port_and_tag) {
  for (uint32_t random : {0u, 1u, 253u, 254u, 255u, 0xffffffffu}) {
    const uint32_t qpn = usiw_face_qpn(60999, random);
    EXPECT_EQ(usiw_face_port(qpn), 60999);
    EXPECT_GE(qpn >> 16, USIW_FACE_TAG_FIRST);
    EXPECT_LE(qpn >> 16, USIW_FACE_TAG_LAST);
  }
}

TEST(Face, role__exactly_one_end_asks) {
  const uint32_t low = usiw_face_qpn(5, 0), high = usiw_face_qpn(4, 9);
  ASSERT_LT(low, high);
  const auto role = [](const uint8_t(&own)[16], uint32_t qpn, const uint8_t(&peer)[16], uint32_t peer_qpn) {
    usiw_face face;
    usiw_face_init(&face, qpn, 1);
    usiw_face_set_peer(&face, own, peer, 0, peer_qpn, 0);
    return usiw_face_role(&face);
  };
  EXPECT_EQ(role(kSmall, high, kLarge, low), USIW_FACE_ASKS);
  EXPECT_EQ(role(kLarge, low, kSmall, high), USIW_FACE_ANSWERS);
  EXPECT_EQ(role(kSmall, low, kSmall, high), USIW_FACE_ASKS);
  EXPECT_EQ(role(kSmall, high, kSmall, low), USIW_FACE_ANSWERS);
  EXPECT_EQ(role(kSmall, low, kSmall, low), USIW_FACE_ITSELF);
}

TEST(Face, mtu__the_active_one_does_not_bound) {
  EXPECT_EQ(usiw_face_mtu(3, 3, 1500, 1), 1500);
  EXPECT_EQ(usiw_face_mtu(5, 3, 1500, 1), 1500);
  EXPECT_EQ(usiw_face_mtu(3, 5, 1500, 1), 1024 + 20 + 8 + 14 + 18);
  EXPECT_EQ(usiw_face_mtu(2, 3, 1500, 0), 512 + 40 + 8 + 14 + 18);
  EXPECT_EQ(usiw_face_mtu(1, 3, 1500, 1), USIW_MIN_MTU);
  EXPECT_EQ(usiw_face_mtu(2, 3, 1500, 1), USIW_MIN_MTU);
  EXPECT_EQ(usiw_face_mtu(4, 5, 1500, 1), 1500);
}

// ---- States ----

/// Moves that the table of InfiniBand has, with all attributes that they require.
TEST(Face, states__only_the_moves_of_the_table) {
  constexpr uint32_t kInit = USIW_QP_PKEY_INDEX | USIW_QP_PORT | USIW_QP_ACCESS_FLAGS;
  constexpr uint32_t kRtr = USIW_QP_AV | USIW_QP_PATH_MTU | USIW_QP_DEST_QPN | USIW_QP_RQ_PSN |
                            USIW_QP_MAX_DEST_RD_ATOMIC | USIW_QP_MIN_RNR_TIMER;
  constexpr uint32_t kRts = USIW_QP_TIMEOUT | USIW_QP_RETRY_CNT | USIW_QP_RNR_RETRY | USIW_QP_SQ_PSN |
                            USIW_QP_MAX_QP_RD_ATOMIC;
  const struct {
    uint32_t from, to, required;
  } moves[] = {
      {USIW_QPS_RESET, USIW_QPS_RESET, 0}, {USIW_QPS_RESET, USIW_QPS_INIT, kInit}, {USIW_QPS_INIT, USIW_QPS_RESET, 0},
      {USIW_QPS_INIT, USIW_QPS_INIT, 0},   {USIW_QPS_INIT, USIW_QPS_RTR, kRtr},    {USIW_QPS_INIT, USIW_QPS_ERR, 0},
      {USIW_QPS_RTR, USIW_QPS_RESET, 0},   {USIW_QPS_RTR, USIW_QPS_RTS, kRts},     {USIW_QPS_RTR, USIW_QPS_ERR, 0},
      {USIW_QPS_RTS, USIW_QPS_RESET, 0},   {USIW_QPS_RTS, USIW_QPS_RTS, 0},        {USIW_QPS_RTS, USIW_QPS_SQD, 0},
      {USIW_QPS_RTS, USIW_QPS_ERR, 0},     {USIW_QPS_SQD, USIW_QPS_RESET, 0},      {USIW_QPS_SQD, USIW_QPS_RTS, 0},
      {USIW_QPS_SQD, USIW_QPS_SQD, 0},     {USIW_QPS_SQD, USIW_QPS_ERR, 0},        {USIW_QPS_ERR, USIW_QPS_RESET, 0},
      {USIW_QPS_ERR, USIW_QPS_ERR, 0},     {USIW_QPS_CLOSING, USIW_QPS_RESET, 0},  {USIW_QPS_CLOSING, USIW_QPS_ERR, 0}};
  for (uint32_t from = 0; from <= USIW_QPS_CLOSING; from++)
    for (uint32_t to = 0; to <= USIW_QPS_CLOSING + 1; to++) {
      if (from == USIW_QPS_SQE) continue;  // an RC QP is never there
      std::optional<uint32_t> required;
      for (const auto& m : moves)
        if (m.from == from && m.to == to) required = m.required;
      const uint32_t all = required.value_or(0) | USIW_QP_STATE;
      EXPECT_EQ(usiw_face_check_move(from, to, all), required ? 0 : -EINVAL) << from << " to " << to;
      if (!required) continue;
      for (uint32_t bit = 1; bit < 1u << 21; bit <<= 1) {
        if ((*required & bit) != 0) {
          EXPECT_EQ(usiw_face_check_move(from, to, all & ~bit), -EINVAL) << from << to << bit;
        }
      }
      EXPECT_EQ(usiw_face_check_move(from, to, all | USIW_QP_CAP), -EINVAL);
    }
}

// ---- The handshake ----

TEST_F(FaceTest, connects__whoever_is_first) {
  for (const bool a_first : {true, false}) {
    FaceQp x{kSmall, a.face.qpn}, y{kLarge, b.face.qpn};
    if (a_first) x.rtr(y, 5);
    y.rtr(x, 6);
    if (!a_first) x.rtr(y, 5);
    EXPECT_LT(carry(x, y), 10u);
    expect_connected(x, y);
    x.rts(6);
    y.rts(5);
    EXPECT_EQ(x.take_sent().size() + y.take_sent().size(), 0u);
  }
}

/// The peer comes to RTR only after a time at which every other connection would have ended.
TEST_F(FaceTest, connects__peer_is_late_by_two_minutes) {
  a.rtr(b, 5);
  unsigned datagrams = 0;
  for (int i = 0; i < 240; i++) {
    datagrams += carry(a, b);
    a.pass(500'000);
    b.now = a.now;
    ASSERT_EQ(a.state(), USIW_CM_REQ_SENT);
  }
  EXPECT_GT(datagrams, 2 * 110u);
  EXPECT_LT(datagrams, 2 * 140u) << "one question in a second";
  b.rtr(a, 6);
  EXPECT_LT(carry(a, b), 6u) << "the REQ was kept";
  expect_connected(a, b);
}

TEST_F(FaceTest, connects__answers_that_end_other_attempts_do_not) {
  a.rtr(b, 5);
  const Datagram req = a.take_sent().at(0);
  usiw_cm_packet pkt;
  ASSERT_EQ(usiw_cm_decode(&pkt, req.data(), static_cast<uint32_t>(req.size())), 0);
  for (const uint8_t reason : {USIW_REJECT_NO_LISTENER, USIW_REJECT_VERSION, USIW_REJECT_FEATURES, USIW_REJECT_USER}) {
    Datagram refusal(USIW_CM_MAX_DATAGRAM);
    refusal.resize(usiw_cm_build_refusal(&pkt, reason, refusal.data()));
    a.receive(reversed(from_a), refusal);
    EXPECT_EQ(a.state(), USIW_CM_REQ_SENT);
  }
  usiw_cm_end_icmp(a.end.get(), USIW_CM_ANSWER_NO_PORT, a.now + 5'000'000);
  EXPECT_EQ(a.state(), USIW_CM_REQ_SENT);
  b.rtr(a, 6);
  a.pass(2'000'000);
  carry(a, b);
  expect_connected(a, b);
}

/// A responder whose CONFIRM does not come stays, and answers each REQ by ACCEPT.
TEST_F(FaceTest, confirm_is_lost__nothing_ends) {
  b.rtr(a, 6);
  a.rtr(b, 5);
  const auto pending = b.receive(from_a, a.take_sent().at(0));
  ASSERT_TRUE(pending && is_pending(*pending));
  a.receive(reversed(from_a), *pending);
  const Datagram proven = a.take_sent().at(0);
  EXPECT_FALSE(b.receive(from_a, proven));
  ASSERT_EQ(b.state(), USIW_CM_ACCEPT_SENT);
  for (int i = 0; i < 100; i++) b.pass(1'000'000);
  EXPECT_EQ(b.state(), USIW_CM_ACCEPT_SENT);
  EXPECT_EQ(b.take_sent().size(), unsigned{USIW_CM_ACCEPT_TRIES});
  b.receive(from_a, proven);
  EXPECT_EQ(opcode(b.take_sent().at(0)), USIW_TRP_ACCEPT);
}

/// Two REQs were on the way when the ISN of PENDING changed. Both ISNs are valid for a while.
TEST_F(FaceTest, pendings_with_two_isns__do_not_go_round) {
  a.rtr(b, 5);
  const Datagram req = a.take_sent().at(0);
  const auto one = b.receive(from_a, req);
  b.pass(67'200'000);
  const auto other = b.receive(from_a, req);
  ASSERT_TRUE(one && other && *one != *other);
  a.receive(reversed(from_a), *one);
  a.receive(reversed(from_a), *other);
  EXPECT_LT(carry(a, b), 30u);
  b.rtr(a, 6);
  a.pass(1'000'000);
  carry(a, b);
  expect_connected(a, b);
}

TEST_F(FaceTest, itself__needs_no_datagram) {
  FaceQp alone{kSmall, a.face.qpn};
  usiw_face_set_peer(&alone.face, kSmall, kSmall, 0, alone.face.qpn, 5);
  ASSERT_EQ(usiw_face_role(&alone.face), USIW_FACE_ITSELF);
  alone.make();
  ASSERT_EQ(usiw_cm_init_active(&alone.end->cm, 77, 8, 16, 9000, 64, nullptr, 0), 0);
  usiw_cm_set_silent(&alone.end->cm);
  alone.end->contract.connected();
  alone.end->attach(USIW_CM_SOCKET);
  usiw_cm_end_connect_itself(alone.end.get(), alone.now);
  EXPECT_EQ(alone.take_sent().size(), 0u);
  alone.ready();
  alone.expect_sound();
  EXPECT_EQ(alone.state(), USIW_CM_ESTABLISHED);
  EXPECT_EQ(alone.end->info.snd_psn, 77u);
  EXPECT_EQ(alone.end->info.rcv_psn, 77u);
  EXPECT_EQ(alone.end->info.snd_window, 64u);
  EXPECT_EQ(alone.end->info.ird, 8u);
  EXPECT_EQ(alone.end->info.ord, 8u);
}

/// A person sees why nothing happens. A peer that is late is no reason.
TEST_F(FaceTest, hint__after_a_while) {
  for (const bool late : {true, false}) {
    FaceQp x{kSmall, a.face.qpn};
    x.rtr(b, 5);
    if (late) carry(x, b);
    x.take_sent();
    for (int i = 0; i < 20; i++) x.pass(500'000);
    EXPECT_EQ(x.end->logs.size(), late ? 0u : 1u);
  }
}

TEST_F(FaceTest, hint__nat) {
  a.rtr(b, 5);
  const Datagram req = a.take_sent().at(0);
  usiw_cm_tuple translated = from_a;
  translated.local_port ^= 0x100;
  const auto answer = b.receive(translated, req);
  ASSERT_TRUE(answer);
  a.receive(reversed(from_a), *answer);
  char hint[USIW_CM_HINT_MAX];
  ASSERT_TRUE(usiw_cm_hint(&a.end->cm, hint));
  EXPECT_NE(std::string(hint).find("NAT"), std::string::npos) << hint;
}

// ---- Strangers ----

TEST_F(FaceTest, psn__another_one_is_not_taken) {
  for (const bool of_a : {true, false}) {
    FaceQp x{kSmall, a.face.qpn}, y{kLarge, b.face.qpn};
    y.rtr(x, 6);
    y.rts(of_a ? 5 : 77);
    usiw_face_set_peer(&x.face, kSmall, kLarge, 0, y.face.qpn, 5);
    usiw_face_set_sq_psn(&x.face, of_a ? 88 : 6);
    x.ask();
    carry(x, y);
    EXPECT_EQ(x.state(), USIW_CM_REQ_SENT) << of_a;
    EXPECT_FALSE(y.end) << of_a;
  }
}

TEST_F(FaceTest, request__that_names_another_qp_is_refused) {
  b.rtr(a, 6);
  FaceQp stale{kSmall, a.face.qpn};
  stale.rtr(kLarge, b.face.qpn ^ 0x10000, 5);  // an earlier owner of the port
  const Datagram req = stale.take_sent().at(0);
  const auto answer = b.receive(from_a, req);
  ASSERT_TRUE(answer);
  EXPECT_EQ(opcode(*answer), USIW_TRP_REJECT);
  EXPECT_FALSE(b.end);
}

TEST_F(FaceTest, request__of_rdma_cm_or_garbage_is_refused) {
  b.rtr(a, 6);
  TestEnd cm;
  for (const bool tagged : {false, true}) {
    ASSERT_EQ(usiw_cm_init_active(&cm.cm, 1, 4, 4, 9000, 64, "hello", 5), 0);
    if (tagged) usiw_cm_offer(&cm.cm, USIW_FEATURE_FACE);
    usiw_cm_connect(&cm.cm, 1);
    Datagram req(USIW_CM_MAX_DATAGRAM);
    req.resize(usiw_cm_build(&cm.cm, req.data()));
    const auto answer = b.receive(from_a, req);
    ASSERT_TRUE(answer);
    EXPECT_EQ(opcode(*answer), USIW_TRP_REJECT);
  }
  for (size_t len = 0; len < 40; len++) EXPECT_FALSE(b.receive(from_a, Datagram(len, 0xee)));
  EXPECT_FALSE(b.end);
}

/// A forger who knows all that the programs have exchanged, but does not receive what is sent to the true peer.
TEST_F(FaceTest, forger__never_holds_the_place_of_the_peer) {
  FaceQp forger{kSmall, a.face.qpn};
  forger.next_isn = 0x9999;
  forger.rtr(b, 5);
  const Datagram forged = forger.take_sent().at(0);
  for (const bool in_rtr : {false, true}) {
    if (in_rtr) b.rtr(a, 6);
    for (uint32_t guess = 0; guess < 100; guess++) {
      Datagram d = forged;
      std::memcpy(d.data() + 4, &guess, sizeof guess);  // the ACK PSN
      const auto answer = b.receive(from_a, d);
      ASSERT_TRUE(answer && is_pending(*answer));
      EXPECT_LE(answer->size(), d.size());
    }
    EXPECT_FALSE(b.end);
    EXPECT_FALSE(b.face.req.kept);
  }
  a.rtr(b, 5);
  carry(a, b);
  expect_connected(a, b);
  EXPECT_TRUE(b.receive(from_a, forged)) << "PENDING";
  EXPECT_EQ(b.state(), USIW_CM_ESTABLISHED);
}

/// A third QP proves its address and claims to be asked for.
TEST_F(FaceTest, third_qp__waits_and_delays_the_peer_by_one_question) {
  FaceQp third{kSmall, usiw_face_qpn(40002, 7)};
  a.rtr(b, 5);
  carry(a, b);
  third.rtr(b, 5);
  carry(third, b);
  EXPECT_TRUE(b.face.req.kept);
  b.rtr(a, 6);
  carry(third, b);
  EXPECT_FALSE(b.end) << "the kept REQ was the newest, of the third QP";
  a.pass(1'000'000);
  carry(a, b);
  expect_connected(a, b);
  third.pass(1'000'000);
  carry(third, b);
  EXPECT_EQ(third.state(), USIW_CM_REQ_SENT);
  expect_connected(a, b);
}

// ---- The end ----

TEST_F(FaceTest, end__is_silent) {
  a.rtr(b, 5);
  b.rtr(a, 6);
  carry(a, b);
  expect_connected(a, b);
  const Datagram accept = [&] {
    b.end->wire.clear();
    b.receive(from_a, [&] {
      Datagram req(USIW_CM_MAX_DATAGRAM);
      a.end->cm.tx_opcode = USIW_TRP_REQ;
      req.resize(usiw_cm_build(&a.end->cm, req.data()));
      return req;
    }());
    return b.take_sent().at(0);
  }();
  a.reset();
  EXPECT_EQ(b.take_sent().size(), 0u);
  EXPECT_EQ(b.state(), USIW_CM_ESTABLISHED);
  EXPECT_FALSE(a.receive(reversed(from_a), accept)) << "no RESET in answer to a stray ACCEPT";
}

TEST_F(FaceTest, reset_of_the_peer__is_ignored) {
  a.rtr(b, 5);
  b.rtr(a, 6);
  carry(a, b);
  Datagram reset(USIW_CM_MAX_DATAGRAM);
  b.end->cm.tx_opcode = USIW_TRP_RESET;
  b.end->cm.tx_flags = 0;
  reset.resize(usiw_cm_build(&b.end->cm, reset.data()));
  a.receive(reversed(from_a), reset);
  EXPECT_EQ(a.state(), USIW_CM_ESTABLISHED);
}

/// Each end resets and connects again under the same numbers, in any order.
TEST_F(FaceTest, reset__one_end_is_first) {
  a.rtr(b, 5);
  b.rtr(a, 6);
  carry(a, b);
  for (const bool a_first : {true, false}) {
    FaceQp &first = a_first ? a : b, &second = a_first ? b : a;
    first.reset();
    first.rtr(second, 7);
    carry(a, b);
    EXPECT_NE(first.state(), USIW_CM_ESTABLISHED);
    EXPECT_EQ(second.state(), USIW_CM_ESTABLISHED) << "its old connection is not touched";
    second.reset();
    second.rtr(first, 8);
    a.pass(1'000'000);
    carry(a, b);
    expect_connected(a, b);
  }
}

/// The REQ that was kept is of an attempt that the peer has given up since. The next REQ takes its place.
TEST_F(FaceTest, reset__of_an_attempt_whose_req_was_kept) {
  a.rtr(b, 5);
  carry(a, b);
  ASSERT_TRUE(b.face.req.kept);
  a.reset();
  b.rtr(a, 6);
  carry(a, b);
  EXPECT_EQ(b.state(), USIW_CM_IDLE) << "nobody asks any more";
  a.rtr(b, 5);
  carry(a, b);
  expect_connected(a, b);
}

/// The peer begins anew after its REQ was taken, and before it has confirmed.
TEST_F(FaceTest, reset__before_confirm) {
  b.rtr(a, 6);
  a.rtr(b, 5);
  const auto pending = b.receive(from_a, a.take_sent().at(0));
  a.receive(reversed(from_a), *pending);
  b.receive(from_a, a.take_sent().at(0));
  ASSERT_EQ(b.state(), USIW_CM_ACCEPT_SENT);
  b.end->wire.clear();
  a.reset();
  a.rtr(b, 5);
  carry(a, b);
  expect_connected(a, b);
}

TEST_F(FaceTest, reset__another_peer) {
  FaceQp c{kLarge, usiw_face_qpn(40003, 3)};
  a.rtr(b, 5);
  b.rtr(a, 6);
  carry(a, b);
  a.reset();
  a.rtr(c, 5);
  c.rtr(a, 6);
  carry(a, c);
  expect_connected(a, c);
  EXPECT_EQ(b.state(), USIW_CM_ESTABLISHED);
}

/// A REQ that was captured means nothing after RESET.
TEST_F(FaceTest, reset__replayed_request_does_not_connect) {
  b.rtr(a, 6);
  a.rtr(b, 5);
  const auto pending = b.receive(from_a, a.take_sent().at(0));
  a.receive(reversed(from_a), *pending);
  const Datagram proven = a.take_sent().at(0);
  b.reset();
  a.reset();
  b.rtr(a, 6);
  const auto answer = b.receive(from_a, proven);
  ASSERT_TRUE(answer && is_pending(*answer));
  EXPECT_FALSE(b.end);
  a.rtr(b, 5);
  a.receive(reversed(from_a), *answer);
  carry(a, b);
  expect_connected(a, b);
}

}  // namespace
