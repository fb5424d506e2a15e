// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fairness_test.cc
/// What one connection takes must not be the ruin of the others of its engine.
#include "fixture.h"

namespace usiw::sim {
namespace {

class Fairness : public EngineTest {
 protected:
  Fairness() {
    ra = w.a.region(100'000);
    rb = w.b.region(100'000);
  }
  /// As many WRITEs as the queue holds.
  void keep_busy(Qp* q) {
    const Sge from = ra->sge(0, 50'000);
    while (q->post_send({++busy_, WrOpcode::kRdmaWrite, 0, rb->addr(), rb->stag}, std::span(&from, 1)) == 0) {
    }
    q->ring_send();
  }
  uint64_t repeated(const Host& h) const {
    return h.count(USIW_CNT_RETRANS_FAST) + h.count(USIW_CNT_RETRANS_RTO);
  }
  Region *ra, *rb;
  uint64_t busy_ = 0;
};

/// The port is always full because of one connection. The acknowledgements of a second one and the data of a third one
/// get through all the same.
TEST_F(Fairness, full_port_is_shared) {
  for (const size_t room : {1, 2, 5}) {
    auto [a1, b1] = w.connect();
    auto [a2, b2] = w.connect();
    auto [a3, b3] = w.connect();
    w.a.port.tx_limit = room;
    keep_busy(a1);
    w.run_for(20 * kMs);
    const uint64_t full = w.a.count(USIW_CNT_TX_FULL);
    write(b2, rb->sge(0, 8), ra->addr(), ra->stag, 1);
    write(a3, ra->sge(0, 8), rb->addr(), rb->stag, 1);
    bool at_a = false, at_b = false;
    EXPECT_TRUE(w.run([&, busy = a1] {  // Clang before 16 captures no structured binding
      keep_busy(busy);
      at_a |= !w.a.poll(w.a.send_cq).empty();
      at_b |= !w.b.poll(w.b.send_cq).empty();
      return at_a && at_b;
    }, 50 * kMs)) << "room for " << room << ": " << at_a << at_b;
    EXPECT_GT(w.a.count(USIW_CNT_TX_FULL), full) << "the port was not full";
    EXPECT_TRUE(w.a.events.failed.empty() && w.b.events.failed.empty());
    for (Qp* q : {a1, a2, a3}) w.a.engine.qp_abort(q);
    for (Qp* q : {b1, b2, b3}) w.b.engine.qp_abort(q);
    w.run_for(1 * kMs);
    w.a.poll(w.a.send_cq);
  }
}

/// A port that takes nothing at all is tried at times only, so that whoever drives the engine may sleep. The datagrams go
/// out by themselves when the port takes them again.
TEST_F(Fairness, port_that_stays_full_is_tried_at_times) {
  const auto [q, peer] = w.connect();
  w.a.port.tx_limit = 0;
  write(q, ra->sge(0, 8), rb->addr(), rb->stag);
  unsigned runs = 0;
  for (const uint64_t end = w.clock.now + 10 * kMs; w.clock.now < end; ++runs) {
    w.a.engine.progress();
    const uint64_t at = w.a.engine.next_deadline_ns();
    w.clock.now = at == 0 ? w.clock.now + 300 : at;
  }
  EXPECT_LT(runs, 200u);
  EXPECT_GT(runs, 50u);
  w.a.port.tx_limit = SIZE_MAX;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kMs));
}

/// However many connections have something to send, the engine looks soon at what has come; and who has not had its
/// turn is the first in the next run.
TEST_F(Fairness, one_run_sends_only_so_much) {
  constexpr unsigned kQps = 100, kEach = 12, kBudget = 256, kQuantum = 16;
  std::vector<Qp*> qps;
  for (unsigned i = 0; i < kQps; ++i) qps.push_back(w.connect().first);
  const Sge from = ra->sge(0, 8);
  for (Qp* q : qps) {
    for (unsigned i = 0; i < kEach; ++i)
      ASSERT_EQ(0, q->post_send({i, WrOpcode::kRdmaWrite, 0, rb->addr(), rb->stag}, std::span(&from, 1)));
    q->ring_send();
  }
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  unsigned runs = 0;
  for (uint64_t sent = 0; sent < kQps * kEach; ++runs) {
    w.a.engine.progress();
    const uint64_t now = w.a.count(USIW_CNT_TX_PKTS) - before;
    ASSERT_GT(now, sent);
    EXPECT_LT(now - sent, kBudget + kQuantum);
    sent = now;
  }
  EXPECT_EQ(runs, (kQps * kEach + kBudget - 1) / kBudget);
}

/// Who has the wire for himself sends more between two looks at the port.
TEST_F(Fairness, one_that_is_alone_sends_more_in_a_run) {
  constexpr unsigned kQuantum = 16, kLoneQuantum = 92;
  const Sge from = ra->sge(0, 100'000);
  for (const unsigned qps : {1, 2}) {
    std::vector<Qp*> all;
    for (unsigned i = 0; i < qps; ++i) all.push_back(w.connect().first);
    const auto post = [&] {
      for (Qp* q : all) {
        for (unsigned n : {1, 2})
          ASSERT_EQ(0, q->post_send({n, WrOpcode::kRdmaWrite, 0, rb->addr(), rb->stag}, std::span(&from, 1)));
        q->ring_send();
      }
    };
    post();  // the windows open
    w.run_for(10 * kMs);
    post();
    const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
    w.a.engine.progress();
    EXPECT_EQ(w.a.count(USIW_CNT_TX_PKTS) - before, qps == 1 ? kLoneQuantum : qps * kQuantum);
    w.run_for(10 * kMs);
  }
}

/// A peer that leaves a gap has what comes behind it kept for as long as it likes. Another connection still has room
/// for what one lost datagram of its own holds up.
TEST_F(Fairness, room_for_held_datagrams_is_shared) {
  w.connect();
  const FlowKey hog = SimWire::reversed(w.last_flow);
  for (uint32_t i = 1; i < 1000; ++i) {
    Datagram d(kTrpBytes + kTaggedBytes + 8);
    encode_trp(d.data(), {.psn = 0x1000 + i, .ack_psn = 0xfffffe00, .flags = 0, .opcode = USIW_TRP_DATA,
                          .credit = 1024, .echo = 0});
    DdpSegment seg{};
    seg.tagged = seg.last = true;
    seg.stag = rb->stag;
    seg.to = rb->addr();
    encode_ddp(d.data() + kTrpBytes, seg);
    w.wire.inject(1, d, hog);
  }
  w.run_for(1 * kMs);
  EXPECT_GT(w.b.count(USIW_CNT_RX_HELD), 100u);

  auto [qa, qb] = w.connect();
  bool lost = false;
  w.wire.filter = [&](int side, Datagram&) { return side != 0 || std::exchange(lost, true); };
  for (int i = 0; i < 60; ++i) write(qa, ra->sge(0, 1000), rb->addr(), rb->stag, i);
  EXPECT_EQ(Statuses(60, kSuccess), statuses(w.a, w.a.send_cq, 60, 100 * kMs));
  EXPECT_EQ(1u, repeated(w.a));
}

}  // namespace
}  // namespace usiw::sim
