// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file outage_test.cc
/// The wire carries nothing for a while, and a whole window is lost; or it loses much all the time.
#include "fixture.h"

namespace usiw::sim {
namespace {

class Outage : public EngineTest {
 protected:
  Outage() {
    w.wire.faults.per_packet = 12'000;  // 1 Gb/s
    w.wire.faults.delay = 50'000;
    ra = w.a.region(65536);
    rb = w.b.region(65536);
    std::tie(qa, qb) = w.connect();
  }
  /// Keeps two WRITEs under way.
  void keep_busy() {
    for (; posted < done + 2; ++posted) write(qa, ra->sge(0, 65536), rb->addr(), rb->stag, posted);
    done += w.a.poll(w.a.send_cq).size();
  }
  void stream_for(uint64_t ns) {
    w.run([&] {
      keep_busy();
      return false;
    }, ns);
  }
  Region *ra, *rb;
  Qp *qa, *qb;
  uint64_t posted = 0, done = 0;
};

/// A lone repetition of a lost window comes back faster than any round trip that had to queue behind others. Its
/// acknowledgement counts all the same: it tells that everything else is missing, and the window goes out at once, not
/// one datagram for each time-out.
TEST_F(Outage, lost_window_is_repeated_at_once) {
  stream_for(50 * kMs);
  const uint64_t before = done;
  w.wire.faults.cut[0] = true;
  stream_for(20 * kMs);
  w.wire.faults.cut[0] = false;
  const uint64_t rtos = w.a.count(USIW_CNT_RTO);
  stream_for(26 * kMs);
  const uint64_t resumed = done;
  stream_for(50 * kMs);
  EXPECT_LE(w.a.count(USIW_CNT_RTO), rtos + 2);
  EXPECT_GT(before, 50u);
  EXPECT_GE(done - resumed, before * 9 / 10);
}

/// Time-outs back off, the questions between them do not: however long the outage was, messages complete a few round
/// trips after its end.
TEST_F(Outage, end_of_an_outage_is_noticed_at_once) {
  for (const uint64_t outage : {5 * kMs, 20 * kMs, 300 * kMs, 3 * kSec}) {
    stream_for(50 * kMs);
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
    stream_for(outage);
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
    const uint64_t back = w.clock.now, before = done;
    while (done == before && w.clock.now < back + kSec) stream_for(100'000);
    EXPECT_LE(w.clock.now - back, 3 * kMs) << outage;
  }
}

/// Those that wait for the same wire take turns with their questions, however many they are: the wire is not filled
/// with them, the first hears of its return at once, and the last soon.
TEST_F(EngineTest, a_thousand_connections_wait_for_one_wire) {
  constexpr size_t kQps = 1000;
  constexpr uint64_t kOutage = 2 * kSec;
  PairOptions o;
  o.max_send_wr = o.max_recv_wr = 2;
  Region* source = w.a.region(64);
  Region* sink = w.b.region(64);
  std::vector<Qp*> qps;
  for (size_t i = 0; i < kQps; ++i) qps.push_back(w.connect(o).first);
  for (int round = 0; round < 2; ++round) {
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = round == 1;
    for (Qp* q : qps) write(q, source->sge(0, 64), sink->addr(), sink->stag);
    if (round == 0) wait(w.a, w.a.send_cq, kQps);
  }
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  w.run_for(kOutage);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS) - before, kOutage / 100'000 + 12 * kQps);
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
  const uint64_t back = w.clock.now;
  size_t done = 0;
  const auto wait_for = [&](size_t number) {
    w.run([&] {
      done += w.a.poll(w.a.send_cq).size();
      return done >= number;
    }, kSec);
    return w.clock.now - back;
  };
  EXPECT_LE(wait_for(1), 2 * kMs);
  EXPECT_LE(wait_for(kQps), 20 * kMs);
}

/// Time stamps wrap after 65 ms. On a path of 40 ms, where the answer to a repetition comes when they say that it is
/// older than that, no repetition counts as needless.
TEST_F(EngineTest, repetition_on_a_long_path_is_not_spurious) {
  w.wire.faults.delay = 20 * kMs;
  auto [from, to] = w.connect();
  Region* source = w.a.region(1 << 18);
  Region* sink = w.b.region(1 << 18);
  write(from, source->sge(0, 1 << 18), sink->addr(), sink->stag);
  wait(w.a, w.a.send_cq, 1);
  const uint64_t before = w.a.count(USIW_CNT_SPURIOUS);  // the first time-out, before the path was measured
  unsigned datagrams = 0;
  w.wire.filter = [&](int side, Datagram&) { return side != 0 || ++datagrams % 40 != 5; };
  for (int i = 0; i < 4; ++i) write(from, source->sge(0, 1 << 18), sink->addr(), sink->stag);
  wait(w.a, w.a.send_cq, 4);
  EXPECT_GE(w.a.count(USIW_CNT_RETRANS_FAST), 10u);
  EXPECT_EQ(before, w.a.count(USIW_CNT_SPURIOUS));
}

/// A peer that is short of processors answers every tenth message late. Its time-outs are needless, which shows, and
/// become fewer; whatever is lost is still repeated soon.
TEST_F(EngineTest, a_peer_that_is_late_now_and_then_is_waited_for) {
  constexpr unsigned kMessages = 1000;
  auto [from, to] = w.connect();
  Region* source = w.a.region(64);
  Region* sink = w.b.region(64);
  for (unsigned i = 0; i < kMessages; ++i) {
    write(from, source->sge(0, 64), sink->addr(), sink->stag);
    if (i % 10 == 9) {
      w.b_frozen = true;
      w.run_for(700'000);
      w.b_frozen = false;
    }
    wait(w.a, w.a.send_cq, 1);
  }
  EXPECT_LE(w.a.count(USIW_CNT_RTO), kMessages / 10 / 5);
  EXPECT_GE(w.a.count(USIW_CNT_SPURIOUS), 1u);
  w.wire.faults.cut[0] = true;
  write(from, source->sge(0, 64), sink->addr(), sink->stag);
  w.run_for(20 * kMs);
  w.wire.faults.cut[0] = false;
  const uint64_t back = w.clock.now;
  wait(w.a, w.a.send_cq, 1);
  EXPECT_LE(w.clock.now - back, 3 * kMs);
}

/// The last segment of a WRITE that is ahead of its turn is kept until then, and room for that is scarce. A stream of
/// short WRITEs is all last segments: a peer that is told of more room than there is repeats all that found none.
TEST_F(EngineTest, one_lost_short_write_does_not_have_hundreds_repeated) {
  constexpr size_t kWrites = 30'000;
  w.wire.faults.delay = kMs;
  PairOptions o;
  o.max_send_wr = 2048;
  auto [from, to] = w.connect(o);
  Region* source = w.a.region(1024);
  Region* sink = w.b.region(1024);
  unsigned datagrams = 0, lost = 0;
  w.wire.filter = [&](int side, Datagram& d) {
    const bool drop = side == 0 && d.size() > 1000 && ++datagrams % 3000 == 0;
    lost += drop;
    return !drop;
  };
  size_t posted = 0, done = 0;
  w.run([&, qp = from] {  // Clang before 16 captures no structured binding
    for (; posted < std::min(kWrites, done + 1500); ++posted)
      write(qp, source->sge(0, 1024), sink->addr(), sink->stag);
    done += w.a.poll(w.a.send_cq).size();
    return done == kWrites;
  }, 60 * kSec);
  EXPECT_EQ(kWrites, done);
  EXPECT_GE(lost, 8u);
  EXPECT_LE(w.a.count(USIW_CNT_RETRANS_FAST) + w.a.count(USIW_CNT_RETRANS_RTO), 10u * lost);
}

/// A peer that stands still (SIGSTOP, a debugger, a virtual machine that is moved) is waited for as long as was said,
/// whatever the connection was doing: sending, reading, or nothing.
TEST_F(Outage, stopped_peer_is_waited_for_as_long_as_was_said) {
  w.a.engine.set_patience(40 * kSec);
  w.b.engine.set_patience(40 * kSec);
  for (const bool reads : {false, true}) {
    stream_for(20 * kMs);
    if (reads) {
      w.run([&] {
        done += w.a.poll(w.a.send_cq).size();
        return done == posted;
      });
      const Sge into = ra->sge(0, 65536);
      const Qp::SendWr wr{posted++, WrOpcode::kRdmaRead, kWrSignaled, rb->addr(), rb->stag};
      ASSERT_EQ(0, qa->post_send(wr, std::span(&into, 1)));
      qa->ring_send();
    }
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
    w.run_for(35 * kSec);
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
    w.run([&] {
      done += w.a.poll(w.a.send_cq).size();
      return done == posted;
    }, 2 * kSec);
    EXPECT_EQ(posted, done) << reads;
  }
  EXPECT_EQ(QpState::kRts, qa->state());
  w.wire.faults.cut[0] = true;
  keep_busy();
  w.run_for(39 * kSec);
  EXPECT_EQ(QpState::kRts, qa->state());
  w.run_for(3 * kSec);
  EXPECT_EQ(QpState::kError, qa->state());
}

/// Much loss is congestion, wherever a connection's PSNs begin. (Where they began in the upper half, all of it was
/// taken for loss while the receiver was not ready, which says nothing about the network: the window only ever grew.)
TEST_F(EngineTest, much_loss_cuts_the_window_whatever_the_psn) {
  for (const uint32_t psn : {0x1000u, 0x7fffff00u, 0x80001000u, 0xfffffe00u}) {
    usiw_qp_stats stats{};
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 16;
    attr.max_send_sge = attr.max_recv_sge = 1;
    attr.stats = &stats;
    Qp* from = w.a.qp(attr);
    attr.stats = nullptr;
    Qp* to = w.b.qp(attr);
    PairOptions o;
    o.psn[0] = psn;
    w.connect(from, to, o);
    Region* source = w.a.region(1 << 20);
    Region* sink = w.b.region(1 << 20);
    unsigned datagrams = 0;
    w.wire.filter = [&](int side, Datagram&) { return side != 0 || ++datagrams % 5 != 0; };
    write(from, source->sge(0, 1 << 20), sink->addr(), sink->stag);
    wait(w.a, w.a.send_cq, 1);
    w.wire.filter = nullptr;
    EXPECT_GT(stats.counters[USIW_CNT_RETRANS_FAST], 100u) << psn;
    EXPECT_LT(stats.gauges[USIW_GAUGE_CWND], 32u) << psn;
  }
}

}  // namespace
}  // namespace usiw::sim
