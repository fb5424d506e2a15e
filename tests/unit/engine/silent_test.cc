// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file silent_test.cc
/// Tests of silent connections and of the limits that a program sets for them (docs/face.md): how long a QP waits for
/// its peer, for a receive of its peer, and for its first connection.
#include "fixture.h"

namespace usiw::sim {
namespace {

constexpr uint64_t kForEver = UINT64_MAX;
constexpr QpLimits kNone = {.retry_ns = kForEver, .rnr_ns = kForEver, .first_ns = kForEver, .ord = 16};

struct Silent : EngineTest {
  void SetUp() override {
    std::tie(qa, qb) = w.connect({.silent = true});
    ra = w.a.region(4096);
    rb = w.b.region(4096);
    for (Qp* qp : {qa, qb}) permit(qp, kAccessRemoteWrite | kAccessRemoteRead);
    limit(qa, {.retry_ns = 2 * kSec, .rnr_ns = kForEver, .first_ns = 10 * kSec, .ord = 16});
  }
  Engine& engine_of(const Qp* qp) { return qp == qb ? w.b.engine : w.a.engine; }
  void permit(Qp* qp, uint32_t access) { engine_of(qp).qp_permit(qp, access); }
  void limit(Qp* qp, const QpLimits& limits) { engine_of(qp).qp_limit(qp, limits); }
  /// Posts eight READs. Returns how many are outstanding at a time, at most.
  unsigned reads_at_a_time() {
    unsigned requests = 0, answered = 0, most = 0;
    w.wire.filter = [&](int side, Datagram& d) {
      TrpHeader h;
      if (!decode_trp(d, h) || h.opcode != USIW_TRP_DATA) return true;
      (side == 0 ? requests : answered)++;
      most = std::max(most, requests - answered);
      return true;
    };
    for (unsigned i = 0; i < 8; i++) read(qa, ra->sge(8 * i, 8), rb->addr(), rb->stag, i);
    EXPECT_EQ(Statuses(8, kSuccess), statuses(w.a, w.a.send_cq, 8));
    w.wire.filter = nullptr;
    return most;
  }
  /// The peer is gone, and nothing answers in its place.
  void cut() { w.wire.faults.cut[0] = w.wire.faults.cut[1] = true; }

  Qp *qa = nullptr, *qb = nullptr;
  Region *ra = nullptr, *rb = nullptr;
};

// ---- The peer ----

TEST_F(Silent, idle_peer_is_gone__nothing_happens) {
  post_recv(qa, {ra->sge(0, 8)});
  cut();
  w.run_for(600 * kSec);
  EXPECT_EQ(QpState::kRts, qa->state());
  EXPECT_TRUE(w.a.poll(w.a.recv_cq).empty());
  EXPECT_TRUE(w.a.events.failed.empty());
}

TEST_F(Silent, send_to_a_peer_that_is_gone) {
  cut();
  const uint64_t t = w.clock.now;
  send(qa, ra->sge(0, 8));
  send(qa, ra->sge(0, 8));
  EXPECT_EQ((Statuses{kRetryExcErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_GE(w.clock.now - t, 2 * kSec);
  EXPECT_LT(w.clock.now - t, 2 * kSec + 600 * kMs);
  expect_failed(w.a, -ETIMEDOUT, AsyncEvent::kNone);
}

TEST_F(Silent, short_limit_is_exact) {
  limit(qa, {.retry_ns = 100 * kMs, .rnr_ns = kForEver, .first_ns = kForEver, .ord = 16});
  cut();
  const uint64_t t = w.clock.now;
  send(qa, ra->sge(0, 8));
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_GE(w.clock.now - t, 100 * kMs);
  EXPECT_LT(w.clock.now - t, 110 * kMs);
}

TEST_F(Silent, no_limit__the_peer_is_stopped_for_an_hour) {
  limit(qa, kNone);
  post_recv(qb, {rb->sge(0, 8)});
  w.b_frozen = true;
  send(qa, ra->sge(0, 8));
  read(qa, ra->sge(8, 8), rb->addr(), rb->stag);
  w.run_for(3600 * kSec);
  EXPECT_EQ(QpState::kRts, qa->state());
  w.b_frozen = false;
  EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
}

/// Answers are on their way: it was this end that has not looked.
TEST_F(Silent, this_end_was_stopped) {
  post_recv(qb, {rb->sge(0, 8)});
  send(qa, ra->sge(0, 8));
  w.a.engine.progress();
  w.a_frozen = true;
  w.run_for(30 * kSec);
  w.a_frozen = false;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Silent, read_whose_response_does_not_come) {
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h;
    return side == 0 || !decode_trp(d, h) || h.opcode != USIW_TRP_DATA;
  };
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(50 * kMs);
  cut();
  const uint64_t t = w.clock.now;
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_LT(w.clock.now - t, 3 * kSec);
}

/// The QP was idle for longer than its limit before it waits.
TEST_F(Silent, read_after_a_long_pause_waits_for_the_whole_limit) {
  limit(qa, {.retry_ns = 5 * kSec, .rnr_ns = kForEver, .first_ns = kForEver, .ord = 16});
  w.run_for(8 * kSec);
  cut();
  const uint64_t t = w.clock.now;
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_GE(w.clock.now - t, 5 * kSec);
  EXPECT_LT(w.clock.now - t, 6 * kSec);
}

/// A peer that has read, and is gone before it has acknowledged the response, is not missed.
TEST_F(Silent, response_is_not_acknowledged) {
  for (const bool limited : {true, false}) {
    World other;
    const auto [qc, qd] = other.connect({.silent = true});
    Region *rc = other.a.region(64), *rd = other.b.region(64);
    for (auto [engine, qp] : {std::pair(&other.a.engine, qc), std::pair(&other.b.engine, qd)})
      engine->qp_permit(qp, kAccessRemoteWrite | kAccessRemoteRead);
    if (limited)
      other.b.engine.qp_limit(qd, {.retry_ns = 2 * kSec, .rnr_ns = kForEver, .first_ns = kForEver, .ord = 16});
    other.wire.filter = [](int side, Datagram&) { return side == 0; };
    const Sge sge = rc->sge(0, 8);
    ASSERT_EQ(0, qc->post_send({1, WrOpcode::kRdmaRead, kWrSignaled, rd->addr(), rd->stag}, {&sge, 1}));
    qc->ring_send();
    other.run_for(10 * kMs);
    other.wire.faults.cut[0] = other.wire.faults.cut[1] = true;
    other.run_for(60 * kSec);
    EXPECT_EQ(QpState::kRts, qd->state());
    EXPECT_TRUE(other.b.events.failed.empty());
    if (!limited) continue;
    const uint64_t t = other.clock.now;
    const Sge of_d = rd->sge(0, 8);
    ASSERT_EQ(0, qd->post_send({2, WrOpcode::kSend, kWrSignaled, 0, 0}, {&of_d, 1}));
    qd->ring_send();
    EXPECT_TRUE(other.run([&] { return !other.b.events.failed.empty(); }, 5 * kSec));
    EXPECT_EQ(kRetryExcErr, other.b.poll(other.b.send_cq).at(0).status);
    EXPECT_GE(other.clock.now - t, 1 * kSec);
  }
}

/// A RESET that any other connection would verify: the PSNs of this end's own datagrams, exchanged.
TEST_F(Silent, stray_reset_is_ignored) {
  const PairOptions o;
  Datagram reset;
  for (const uint32_t psn : {o.psn[1], o.psn[0]})
    for (int shift = 24; shift >= 0; shift -= 8) reset.push_back(static_cast<std::byte>(psn >> shift));
  reset.push_back(std::byte{USIW_TRP_RESET << 4});
  reset.push_back(std::byte{USIW_TRP_F_STRAY});
  w.wire.filter = [&](int side, Datagram& d) {
    if (side == 1) std::copy(reset.begin(), reset.end(), d.begin());
    return true;
  };
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(1 * kSec);
  EXPECT_EQ(QpState::kRts, qa->state());
  EXPECT_GT(w.a.count(USIW_CNT_DROP_RESET), 0u);
  w.wire.filter = nullptr;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Silent, keeps_connection__on_which_a_message_has_passed) {
  const auto [c, d] = w.connect({.silent = true});
  EXPECT_FALSE(w.a.engine.qp_keeps_connection(c));
  EXPECT_FALSE(w.b.engine.qp_keeps_connection(d));
  send(c, ra->sge(0, 8));
  post_recv(d, {rb->sge(0, 8)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_TRUE(w.a.engine.qp_keeps_connection(c));
  EXPECT_TRUE(w.b.engine.qp_keeps_connection(d));
  w.a.engine.qp_reset(c);
  EXPECT_FALSE(w.a.engine.qp_keeps_connection(c));
}

// ---- What goes to a peer that does not answer ----

/// RoCE sends nothing on a connection without work. Nor does the peer of a dead end, nor a live pair.
TEST_F(Silent, idle_connection_sends_nothing) {
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  read(qb, rb->sge(8, 8), ra->addr(), ra->stag);
  w.run_for(1 * kSec);
  for (const bool gone : {false, true}) {
    if (gone) cut();
    const uint64_t from_a = w.a.count(USIW_CNT_TX_PKTS), from_b = w.b.count(USIW_CNT_TX_PKTS);
    w.run_for(600 * kSec);
    EXPECT_EQ(w.a.count(USIW_CNT_TX_PKTS) - from_a, 0u);
    EXPECT_EQ(w.b.count(USIW_CNT_TX_PKTS) - from_b, 0u);
  }
}

/// The kernel wants to know whether the peer is there. Nothing answers.
TEST_F(Silent, idle_connection__the_probe_of_the_kernel_is_not_repeated) {
  cut();
  w.run_for(1 * kSec);
  w.a.engine.qp_probe(qa);
  const uint64_t from_a = w.a.count(USIW_CNT_TX_PKTS);
  w.run_for(60 * kSec);
  EXPECT_EQ(w.a.count(USIW_CNT_TX_PKTS) - from_a, 0u);
  EXPECT_EQ(w.a.engine.next_deadline_ns(), kForEver);
}

/// A question is much cheaper than a SEND, but there may be thousands of QPs whose peers have gone.
TEST_F(Silent, questions_to_a_peer_that_is_gone_back_off) {
  limit(qa, kNone);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(1 * kSec);
  cut();
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(8 * kSec);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS) - before, 120u);
  const uint64_t later = w.a.count(USIW_CNT_TX_PKTS);
  w.run_for(100 * kSec);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS) - later, 300u);
}

TEST_F(Silent, tries_at_a_receiver_that_is_not_ready_and_then_gone_back_off) {
  limit(qa, kNone);
  send(qa, ra->sge(0, 8));
  w.run_for(1 * kSec);
  cut();
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  w.run_for(100 * kSec);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS) - before, 400u);
  EXPECT_EQ(QpState::kRts, qa->state());
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
  post_recv(qb, {rb->sge(0, 8)});
  const uint64_t t = w.clock.now;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_LT(w.clock.now - t, 500 * kMs);
}

/// The program of this end waits for nothing: the peer has read, and is gone.
TEST_F(Silent, response_to_a_peer_that_is_gone_is_repeated_ever_more_rarely) {
  w.wire.filter = [](int side, Datagram&) { return side == 0; };
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(10 * kMs);
  cut();
  w.run_for(100 * kSec);
  const uint64_t before = w.b.count(USIW_CNT_TX_PKTS);
  w.run_for(1000 * kSec);
  EXPECT_LT(w.b.count(USIW_CNT_TX_PKTS) - before, 60u);
  EXPECT_EQ(QpState::kRts, qb->state());
}

/// One datagram is lost, or its first repetition as well: the repair takes as long as on a connection of rdma_cm.
TEST_F(Silent, repair_of_a_loss_is_not_slower) {
  for (const unsigned losses : {1u, 2u, 3u}) {
    uint64_t took[2];
    for (const bool silent : {false, true}) {
      World other;
      const auto [qc, qd] = other.connect({.silent = silent});
      Region *rc = other.a.region(64), *rd = other.b.region(64);
      other.b.engine.qp_permit(qd, kAccessRemoteWrite);
      const auto write_one = [&] {
        const Sge sge = rc->sge(0, 8);
        ASSERT_EQ(0, qc->post_send({1, WrOpcode::kRdmaWrite, kWrSignaled, rd->addr(), rd->stag}, {&sge, 1}));
        qc->ring_send();
        EXPECT_TRUE(other.run([&] { return !other.a.poll(other.a.send_cq).empty(); }));
      };
      for (int i = 0; i < 20; ++i) write_one();
      unsigned left = losses;
      other.wire.filter = [&](int side, Datagram& d) {
        TrpHeader h;
        return side != 0 || left == 0 || !decode_trp(d, h) || h.opcode != USIW_TRP_DATA || left-- == 0;
      };
      const uint64_t t = other.clock.now;
      write_one();
      took[silent] = other.clock.now - t;
    }
    EXPECT_LE(took[true], took[false]) << losses;
  }
}

// ---- The receiver ----

TEST_F(Silent, receive_comes_after_ten_minutes) {
  send(qa, ra->sge(0, 8));
  w.run_for(600 * kSec);
  EXPECT_EQ(QpState::kRts, qa->state());
  EXPECT_EQ(QpState::kRts, qb->state());
  post_recv(qb, {rb->sge(0, 8)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
}

TEST_F(Silent, receive_does_not_come) {
  for (const uint64_t rnr_ns : {uint64_t{0}, 50 * kMs}) {
    World other;
    const auto [qc, qd] = other.connect({.silent = true});
    Region* rc = other.a.region(64);
    other.a.engine.qp_limit(qc, {.retry_ns = 2 * kSec, .rnr_ns = rnr_ns, .first_ns = kForEver, .ord = 16});
    const uint64_t t = other.clock.now;
    const Sge sge = rc->sge(0, 8);
    ASSERT_EQ(0, qc->post_send({1, WrOpcode::kSend, kWrSignaled, 0, 0}, {&sge, 1}));
    qc->ring_send();
    EXPECT_TRUE(other.run([&] { return !other.a.events.failed.empty(); }, 5 * kSec));
    EXPECT_EQ(kRnrRetryExcErr, other.a.poll(other.a.send_cq).at(0).status);
    EXPECT_GE(other.clock.now - t, rnr_ns);
    EXPECT_LT(other.clock.now - t, rnr_ns + 20 * kMs);
    EXPECT_EQ(QpState::kRts, qd->state());
  }
}

TEST_F(Silent, peer_is_gone_while_it_is_not_ready) {
  send(qa, ra->sge(0, 8));
  w.run_for(5 * kSec);
  cut();
  const uint64_t t = w.clock.now;
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_LT(w.clock.now - t, 3 * kSec);
}

// ---- The first connection ----

struct FirstContact : Silent {
  void SetUp() override {
    attr.max_send_wr = attr.max_recv_wr = 16;
    attr.max_send_sge = attr.max_recv_sge = 2;
    qa = w.a.qp(attr);
    qb = w.b.qp(attr);
    ra = w.a.region(4096);
    rb = w.b.region(4096);
    limit(qa, {.retry_ns = 2 * kSec, .rnr_ns = kForEver, .first_ns = 10 * kSec, .ord = 16});
  }
  QpAttr attr{};
};

TEST_F(FirstContact, waits_for_ever_while_nothing_is_posted) {
  post_recv(qa, {ra->sge(0, 8)});
  w.run_for(600 * kSec);
  EXPECT_EQ(QpState::kIdle, qa->state());
  EXPECT_TRUE(w.a.events.failed.empty());
}

TEST_F(FirstContact, posted_work_waits_for_a_while) {
  w.run_for(60 * kSec);
  send(qa, ra->sge(0, 8));
  w.run_for(5 * kSec);
  send(qa, ra->sge(0, 8));
  post_recv(qa, {ra->sge(8, 8)});
  w.run_for(4900 * kMs);
  EXPECT_TRUE(w.a.events.failed.empty());
  w.run_for(200 * kMs);
  EXPECT_EQ((Statuses{kRetryExcErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1));
  expect_failed(w.a, -ETIMEDOUT, AsyncEvent::kNone);
}

TEST_F(FirstContact, connection_comes_in_time) {
  send(qa, ra->sge(0, 8));
  w.run_for(9 * kSec);
  post_recv(qb, {rb->sge(0, 8)});
  w.connect(qa, qb, {.silent = true});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_TRUE(w.a.events.failed.empty()) << w.a.events.failed[0].error;
  w.run_for(60 * kSec);
  EXPECT_TRUE(w.a.events.failed.empty()) << w.a.events.failed[0].error;
  EXPECT_EQ(QpState::kRts, qa->state());
}

/// The responder has the connection first, and its message must not be lost meanwhile.
TEST_F(FirstContact, responder_sends_first) {
  const FlowKey flow = w.next_flow(false);
  const Path pa{flow, {}, {}, 64, 0}, pb{SimWire::reversed(flow), {}, {}, 64, 0};
  const auto conn = [](bool initiator) {
    return ConnAttr{.snd_psn = 5,
                    .rcv_psn = 5,
                    .snd_window = 8,
                    .ird = 1,
                    .ord = 1,
                    .mtu = 1500,
                    .initiator = initiator,
                    .silent = true};
  };
  post_recv(qa, {ra->sge(0, 8)});
  send(qb, rb->sge(0, 8));
  ASSERT_EQ(0, w.b.engine.qp_connect(qb, w.b.port_no, pb, conn(false)));
  w.run_for(5 * kMs);
  const uint64_t t = w.clock.now;
  ASSERT_EQ(0, w.a.engine.qp_connect(qa, w.a.port_no, pa, conn(true)));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1));
  EXPECT_LT(w.clock.now - t, 1 * kMs);
  EXPECT_EQ(w.b.count(USIW_CNT_RTO), 0u);
}

/// The peer has begun anew, with other PSNs, before the connection was used. The new one carries the posted work.
TEST_F(FirstContact, another_connection_takes_the_place_of_an_unused_one) {
  const FlowKey flow = w.next_flow(false);
  const Path pa{flow, {}, {}, 64, 0}, pb{SimWire::reversed(flow), {}, {}, 64, 0};
  const auto conn = [](uint32_t psn, bool initiator) {
    return ConnAttr{.snd_psn = psn,
                    .rcv_psn = psn,
                    .snd_window = 8,
                    .ird = 1,
                    .ord = 1,
                    .mtu = 1500,
                    .initiator = initiator,
                    .silent = true};
  };
  post_recv(qa, {ra->sge(0, 8)});
  post_recv(qb, {rb->sge(0, 8)});
  send(qb, rb->sge(8, 8));
  ASSERT_EQ(0, w.b.engine.qp_connect(qb, w.b.port_no, pb, conn(5, false)));
  w.run_for(50 * kMs);
  ASSERT_EQ(0, w.b.engine.qp_connect(qb, w.b.port_no, pb, conn(77, false)));
  ASSERT_EQ(0, w.a.engine.qp_connect(qa, w.a.port_no, pa, conn(77, true)));
  send(qa, ra->sge(8, 8));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.recv_cq, 1));
  EXPECT_EQ(EISCONN, w.b.engine.qp_connect(qb, w.b.port_no, pb, conn(99, false))) << "messages have passed";
  EXPECT_EQ(EISCONN, w.a.engine.qp_connect(qa, w.a.port_no, pa, conn(99, true)));
}

/// The first datagram of a message is lost, and the peer begins anew. Nothing of that message counts for the next
/// connection.
TEST_F(FirstContact, another_connection__a_part_of_a_message_has_arrived_early) {
  for (const bool shared : {false, true}) {
    World other;
    QpAttr of_b = attr;
    of_b.srq = shared ? other.b.srq(4) : nullptr;
    Qp *qc = other.a.qp(attr), *qd = other.b.qp(of_b);
    Region *rc = other.a.region(4096), *rd = other.b.region(8192);
    const FlowKey flow = other.next_flow(false);
    const Path pa{flow, {}, {}, 64, 0}, pb{SimWire::reversed(flow), {}, {}, 64, 0};
    const auto connect = [&](uint32_t psn) {
      ConnAttr conn{.snd_psn = psn,
                    .rcv_psn = psn,
                    .snd_window = 8,
                    .ird = 1,
                    .ord = 1,
                    .mtu = 1500,
                    .initiator = false,
                    .silent = true};
      ASSERT_EQ(0, other.b.engine.qp_connect(qd, other.b.port_no, pb, conn));
      conn.initiator = true;
      ASSERT_EQ(0, other.a.engine.qp_connect(qc, other.a.port_no, pa, conn));
    };
    const auto send = [&](uint32_t length) {
      const Sge sge = rc->sge(0, length);
      ASSERT_EQ(0, qc->post_send({1, WrOpcode::kSend, kWrSignaled, 0, 0}, {&sge, 1}));
      qc->ring_send();
    };
    for (uint64_t id : {1, 2}) {
      const Sge sge = rd->sge(4096 * (id - 1), 4096);
      if (shared) {
        ASSERT_EQ(0, of_b.srq->post_recv(id, {&sge, 1}));
        of_b.srq->ring_recv();
      } else {
        ASSERT_EQ(0, qd->post_recv({id}, {&sge, 1}));
        qd->ring_recv();
      }
    }
    connect(5);
    other.wire.filter = [](int side, Datagram& d) {
      TrpHeader h;
      return side != 0 || !decode_trp(d, h) || h.opcode != USIW_TRP_DATA || h.psn != 5;
    };
    send(4096);
    other.run_for(1 * kMs);
    ASSERT_GT(other.b.count(USIW_CNT_RX_OOO), 0u);
    other.a.engine.qp_reset(qc);
    other.wire.filter = nullptr;
    connect(7777);
    send(4096);
    EXPECT_TRUE(other.run([&] { return !other.b.recv_cq->empty(); }, 5 * kSec));
    const auto got = other.b.poll(other.b.recv_cq);
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].status, kSuccess);
    EXPECT_EQ(got[0].byte_len, 4096u);
    send(4096);
    EXPECT_TRUE(other.run([&] { return !other.b.recv_cq->empty(); }, 5 * kSec));
    EXPECT_TRUE(other.b.events.failed.empty());
  }
}

/// The QP has found no receive for a message, and the peer begins anew.
TEST_F(FirstContact, another_connection__the_receiver_was_not_ready) {
  Srq* srq = w.b.srq(4);
  attr.srq = srq;
  qb = w.b.qp(attr);
  const FlowKey flow = w.next_flow(false);
  const Path pa{flow, {}, {}, 64, 0}, pb{SimWire::reversed(flow), {}, {}, 64, 0};
  const auto connect = [&](uint32_t psn) {
    ConnAttr conn{.snd_psn = psn,
                  .rcv_psn = psn,
                  .snd_window = 8,
                  .ird = 1,
                  .ord = 1,
                  .mtu = 1500,
                  .initiator = false,
                  .silent = true};
    ASSERT_EQ(0, w.b.engine.qp_connect(qb, w.b.port_no, pb, conn));
    conn.initiator = true;
    ASSERT_EQ(0, w.a.engine.qp_connect(qa, w.a.port_no, pa, conn));
  };
  connect(5);
  send(qa, ra->sge(0, 8));
  w.run_for(5 * kMs);
  w.a.engine.qp_reset(qa);
  connect(7777);
  send(qa, ra->sge(0, 8));
  w.run_for(5 * kMs);
  const uint64_t t = w.clock.now;
  const Sge sge = rb->sge(0, 8);
  ASSERT_EQ(0, srq->post_recv(1, {&sge, 1}));
  srq->ring_recv();
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
  EXPECT_LT(w.clock.now - t, 100 * kUs) << "the receive does not wait for the next try of the peer";
}

TEST_F(FirstContact, reset_ends_the_wait) {
  send(qa, ra->sge(0, 8));
  w.run_for(5 * kSec);
  w.a.engine.qp_reset(qa);
  w.run_for(60 * kSec);
  EXPECT_EQ(QpState::kIdle, qa->state());
  EXPECT_TRUE(w.a.events.failed.empty());
}

// ---- Rights and READ depths ----

TEST_F(Silent, access__none_is_none) {
  permit(qb, 0);
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kRemAccessErr}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Silent, access__atomics_need_their_own_flag) {
  Region* words = w.b.region(64, Host::kAllRights | kAccessRemoteAtomic);
  post(qa, WrOpcode::kFetchAdd, {ra->sge(0, 8)}, 1, kWrSignaled, words->addr(), words->stag);
  EXPECT_EQ(Statuses{kRemAccessErr}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(Silent, reads__no_more_at_a_time_than_the_program_permits) {
  QpLimits one = kNone;
  one.ord = 1;
  limit(qa, one);
  EXPECT_EQ(reads_at_a_time(), 1u);
}

/// In SQD a program may raise the limit again, up to that of the connection.
TEST_F(Silent, reads__limit_is_raised_again) {
  QpLimits limits = kNone;
  for (const uint16_t ord : {1, 8}) {
    limits.ord = ord;
    limit(qa, limits);
  }
  EXPECT_EQ(reads_at_a_time(), 8u);
}

// ---- SQD before the connection ----

TEST_F(FirstContact, pause__what_was_posted_before_is_sent_and_no_more) {
  send(qa, ra->sge(0, 8));
  w.a.engine.qp_pause(qa, true);
  send(qa, ra->sge(0, 8));
  EXPECT_TRUE(w.a.events.drained.empty());
  for (int i = 0; i < 2; i++) post_recv(qb, {rb->sge(0, 8)});
  w.connect(qa, qb, {.silent = true});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  w.run_for(1 * kSec);
  EXPECT_EQ(w.a.events.drained.size(), 1u);
  EXPECT_TRUE(w.a.send_cq->empty()) << "was posted behind SQD";
  w.a.engine.qp_resume(qa);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

TEST_F(FirstContact, pause__nothing_was_posted) {
  w.a.engine.qp_pause(qa, true);
  EXPECT_EQ(w.a.events.drained.size(), 1u);
  send(qa, ra->sge(0, 8));
  w.run_for(60 * kSec);
  EXPECT_TRUE(w.a.events.failed.empty()) << "waits for the program, and not for the peer";
  w.a.engine.qp_resume(qa);
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
}

}  // namespace
}  // namespace usiw::sim
