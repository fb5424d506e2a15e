// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// A connection that goes on by another port.
#include "fixture.h"

namespace usiw::sim {
namespace {

/// Hears nothing unless it is told to: what arrives is left for the other port. Watches what it is given.
class SecondPort final : public SimPort {
 public:
  SecondPort(SimWire& wire, int side) : SimPort(wire, side, 9000, 2048) { deaf = true; }
  size_t tx(std::span<TxBuf> bufs) override {
    for (const TxBuf& b : bufs) longest = std::max(longest, b.len), ++offered;
    return SimPort::tx(bufs);
  }
  uint32_t share(Path& path, uint32_t, uint64_t) override {
    counted = ++path.counted;
    ++asked;
    return 8;
  }
  uint32_t longest = 0;
  uint64_t offered = 0;
  uint64_t asked = 0;  ///< for its share
  uint64_t counted = 0;  ///< how often this path was by then
};

/// Each side has a second port.
class EngineMove : public EngineTest {
 protected:
  EngineMove() {
    more_a = w.a.engine.add_port(second_a);
    more_b = w.b.engine.add_port(second_b);
    std::tie(qa, qb) = w.connect();
    w.a.engine.qp_also(qa, more_a);
    w.b.engine.qp_also(qb, more_b);
    from = w.a.region(kBytes);
    to = w.b.region(kBytes);
    fill(from->bytes, 5);
    w.a.events.which_port = [this](const EngineEvents::PortAsked& a) -> EngineEvents::PortAnswer {
      return {a.silent ? now_a = now_a == more_a ? w.a.port_no : more_a : now_a};
    };
    w.b.events.which_port = [this](const EngineEvents::PortAsked& a) -> EngineEvents::PortAnswer {
      return {a.silent ? now_b = now_b == more_b ? w.b.port_no : more_b : now_b};
    };
    now_a = w.a.port_no;
    now_b = w.b.port_no;
  }
  ~EngineMove() override {
    w.a.owned.reset();
    w.b.owned.reset();
    EXPECT_EQ(second_a.total_buffers(), second_a.free_buffers());
    EXPECT_EQ(second_b.total_buffers(), second_b.free_buffers());
  }
  void expect_written(size_t writes) {
    EXPECT_EQ(std::vector<WcStatus>(writes, kSuccess), statuses(w.a, w.a.send_cq, writes));
    EXPECT_EQ(from->bytes, to->bytes);
    EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
    EXPECT_TRUE(w.a.events.failed.empty());
    EXPECT_TRUE(w.b.events.failed.empty());
  }
  static constexpr size_t kBytes = 1 << 20;
  SecondPort second_a{w.wire, 0}, second_b{w.wire, 1};
  int more_a, more_b, now_a, now_b;
  Qp *qa, *qb;
  Region *from, *to;
};

TEST_F(EngineMove, in_the_middle_of_a_message_loses_nothing_and_sends_little_again) {
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  for (int i = 0; i < 40; ++i) {
    w.run_for(20'000);
    now_a = i % 2 == 0 ? more_a : w.a.port_no;
    w.a.engine.qp_move(qa, {now_a});
  }
  expect_written(1);
  EXPECT_GT(second_a.offered, 100u);
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RETRANS_FAST));
}

TEST_F(EngineMove, when_all_that_is_sent_vanishes_goes_on_by_the_other_port) {
  w.wire.filter = [this](int side, Datagram&) { return side != 0 || now_a == more_a; };
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  expect_written(1);
  ASSERT_EQ(1u, w.a.events.asked.size());
  EXPECT_TRUE(w.a.events.asked[0].silent);
  EXPECT_EQ(0u, w.b.events.asked.size());
}

TEST_F(EngineMove, when_only_acknowledgements_vanish_their_sender_goes_on_by_the_other_port) {
  w.a.events.which_port = nullptr;
  w.wire.filter = [this](int side, Datagram&) { return side != 1 || now_b == more_b; };
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  expect_written(1);
  EXPECT_EQ(1u, w.b.events.asked.size());
}

TEST_F(EngineMove, when_only_acknowledgements_vanish_questions_are_enough) {
  w.a.events.which_port = nullptr;
  bool come = false;
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h{};
    if (side != 0) return now_b == more_b;
    return !decode_trp(d, h) || h.opcode == USIW_TRP_SACK || !std::exchange(come, true);
  };
  write(qa, from->sge(0, 64), to->addr(), to->stag);
  EXPECT_EQ(std::vector{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(1u, w.b.events.asked.size());
}

TEST_F(EngineMove, when_answers_to_probes_vanish_their_sender_goes_on_by_the_other_port) {
  w.a.events.which_port = nullptr;
  w.wire.filter = [this](int side, Datagram&) { return side != 1 || now_b == more_b; };
  w.run_for(60 * kSec);
  EXPECT_EQ(1u, w.b.events.asked.size());
  EXPECT_TRUE(w.a.events.failed.empty());
  EXPECT_TRUE(w.b.events.failed.empty());
}

TEST_F(EngineMove, when_only_repetitions_vanish_nobody_who_is_heard_goes_on_by_the_other_port) {
  w.b.events.which_port = nullptr;
  w.a.events.which_port = nullptr;
  const uint64_t heals = w.clock.now + 2 * kSec;
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h{};
    return side == 1 || w.clock.now > heals || !decode_trp(d, h) || h.opcode == USIW_TRP_SACK;
  };
  write(qa, from->sge(0, 64), to->addr(), to->stag);
  EXPECT_EQ(std::vector{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(0u, w.b.events.asked.size());
}

TEST_F(EngineMove, each_way_needs_another_port_and_both_ends_find_theirs) {
  // What a sends passes by its second port only, what b sends by its first.
  w.wire.filter = [this](int side, Datagram&) { return side == 0 ? now_a == more_a : now_b != more_b; };
  Region* back = w.a.region(kBytes);
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  write(qb, to->sge(0, kBytes / 2), back->addr(), back->stag, 7);
  expect_written(1);
  EXPECT_EQ(std::vector{kSuccess}, statuses(w.b, w.b.send_cq, 1));
}

TEST_F(EngineMove, when_no_port_works_the_peer_is_given_up_as_ever) {
  w.wire.filter = [](int, Datagram&) { return false; };
  write(qa, from->sge(0, 100), to->addr(), to->stag);
  const uint64_t before = w.clock.now;
  ASSERT_TRUE(failed(w.a));
  expect_failed(w.a, -ETIMEDOUT, AsyncEvent::kNone);
  EXPECT_LT(w.clock.now - before, 6 * kSec);
  EXPECT_GE(w.a.events.asked.size(), 3u);
  EXPECT_LE(w.a.events.asked.size(), 8u);
}

TEST_F(EngineMove, receives_by_both_ports) {
  second_b.deaf = false;
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  expect_written(1);
  EXPECT_EQ(0u, w.b.count(USIW_CNT_DROP_NO_CONN));
}

TEST_F(EngineMove, a_path_that_shrinks_cuts_new_segments_shorter_and_leaves_old_ones_alone) {
  w.wire.filter = [this](int side, Datagram&) { return side != 0 || now_a == more_a; };
  write(qa, from->sge(0, kBytes), to->addr(), to->stag);
  w.run_for(3'000'000);
  EXPECT_EQ(1500u - 4, w.a.engine.qp_ways(qa).longest);  // cut in multiples of 8
  w.a.engine.qp_path(qa, {w.last_flow, {}, {}, 64, 0}, 1000);
  EXPECT_EQ(1500u - 4, w.a.engine.qp_ways(qa).longest);
  w.a.engine.qp_move(qa, {now_a = more_a});
  w.run([&] { return w.a.engine.qp_ways(qa).longest <= 1000; });
  const uint32_t then = second_a.longest;
  EXPECT_GT(then, 1400u);  // what was outstanding, sent again as it was cut
  second_a.longest = 0;
  expect_written(1);
  EXPECT_LE(second_a.longest, 1000u - 28);
  EXPECT_EQ(0u, w.a.engine.qp_ways(qa).longest);
}

/// What the peer may send is what the new port holds, not what the one before does.
TEST_F(EngineMove, asks_the_new_port_for_its_share_before_it_advertises_credit) {
  write(qb, to->sge(0, kBytes), from->addr(), from->stag);
  w.run_for(kMs);
  w.a.engine.qp_move(qa, {more_a});
  EXPECT_EQ(0u, second_a.asked);
  w.run([&] { return second_a.offered != 0; });
  EXPECT_EQ(1u, second_a.asked);
}

/// A flow counts once among those that share a buffer, whatever its runtime says of its path.
TEST_F(EngineMove, new_path_is_not_counted_again) {
  write(qb, to->sge(0, kBytes), from->addr(), from->stag);
  w.a.engine.qp_move(qa, {more_a});
  w.run([&] { return second_a.asked == 2; });
  w.a.engine.qp_path(qa, {w.last_flow, {}, {}, 64, 0}, 1000);
  second_a.deaf = false;
  w.run([&] { return second_a.asked == 3; });
  EXPECT_EQ(3u, second_a.counted);
}

TEST_F(EngineMove, is_asked_again_at_the_time_of_the_review) {
  uint64_t at = w.clock.now + 5 * kMs;
  w.a.events.which_port = [&](const EngineEvents::PortAsked& a) -> EngineEvents::PortAnswer {
    EXPECT_FALSE(a.silent);
    EXPECT_GE(a.now, at);
    return {};
  };
  w.a.engine.qp_move(qa, {more_a, at});
  w.run_for(20 * kMs);
  EXPECT_EQ(1u, w.a.events.asked.size());
}

TEST_F(EngineMove, of_an_ended_connection_moves_what_it_still_answers) {
  w.b.engine.qp_shutdown(qb);
  ASSERT_TRUE(w.run([&] { return !w.b.events.closed.empty(); }));
  const uint64_t before = second_a.offered;
  w.a.engine.qp_move(qa, {more_a});
  w.b.engine.qp_reset(qb);
  EXPECT_EQ(before, second_a.offered);
  EXPECT_EQ(QpState::kError, qa->state());
}

}  // namespace
}  // namespace usiw::sim
