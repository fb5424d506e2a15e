// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file parts_test.cc
/// The small headers one by one: serial arithmetic, bitmap, codecs, tables, timers, rings.
#include <thread>
#include <utility>

#include "engine/congestion.h"
#include "engine/flow_table.h"
#include "engine/mr_table.h"
#include "engine/psn.h"
#include "engine/rtt.h"
#include "engine/timers.h"
#include "fixture.h"

namespace usiw::sim {
namespace {

TEST(Psn, order_across_the_wrap) {
  EXPECT_TRUE(psn_lt(0xffffffff, 0));
  EXPECT_TRUE(psn_lt(0xfffffff0, 0x10));
  EXPECT_FALSE(psn_lt(0x10, 0xfffffff0));
  EXPECT_TRUE(psn_le(5, 5));
  EXPECT_EQ(2, psn_diff(1, 0xffffffff));
  EXPECT_TRUE(psn_in(0, 0xffffffff, 2));
  EXPECT_FALSE(psn_in(1, 0xffffffff, 2));
}

TEST(PsnBitmap, extract_is_test_of_64) {
  std::mt19937 rng(1);
  for (uint32_t base : {0u, 1u, 63u, 64u, 1000u, 0xfffffff0u, 0xffffffc1u}) {
    PsnBitmap b;
    std::vector<bool> want(kWindow);
    for (uint32_t i = 0; i < kWindow; ++i)
      if ((want[i] = rng() % 2)) b.set(base + i);
    for (uint32_t i = 0; i + 64 <= kWindow; ++i) {
      const uint64_t bits = b.extract(base + i);
      for (uint32_t k = 0; k < 64; ++k) ASSERT_EQ(want[i + k], (bits >> k & 1) != 0);
    }
    for (uint32_t i = 0; i < kWindow; ++i) {
      ASSERT_EQ(want[i], b.test(base + i));
      b.clear(base + i);
      ASSERT_FALSE(b.test(base + i));
    }
  }
}

TEST(Wire, trp_round_trip) {
  std::mt19937 rng(1);
  for (int i = 0; i < 1000; ++i) {
    const TrpHeader in{static_cast<uint32_t>(rng()), static_cast<uint32_t>(rng()),
                       static_cast<uint16_t>(rng() & 0xfff), static_cast<uint8_t>(rng() & 0xf),
                       static_cast<uint16_t>(rng()), static_cast<uint16_t>(rng())};
    std::byte bytes[kTrpBytes];
    encode_trp(bytes, in);
    TrpHeader out;
    ASSERT_TRUE(decode_trp(bytes, out));
    EXPECT_EQ(in.psn, out.psn);
    EXPECT_EQ(in.ack_psn, out.ack_psn);
    EXPECT_EQ(in.flags, out.flags);
    EXPECT_EQ(in.opcode, out.opcode);
    EXPECT_EQ(in.credit, out.credit);
    EXPECT_EQ(in.echo, out.echo);
    for (size_t n = 0; n < kTrpBytes; ++n) EXPECT_FALSE(decode_trp(std::span(bytes).first(n), out));
  }
}

TEST(Wire, trp_bytes) {
  std::byte bytes[kTrpBytes];
  encode_trp(bytes, {0x01020304, 0x05060708, USIW_TRP_F_ACK_REQ, USIW_TRP_SACK, 0x090a, 0x0b0c});
  const uint8_t want[] = {1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x01, 9, 10, 11, 12};
  EXPECT_EQ(0, std::memcmp(want, bytes, sizeof want));
}

TEST(Wire, ddp_round_trip_and_truncation) {
  for (const bool tagged : {true, false}) {
    for (const bool last : {true, false}) {
      DdpSegment in{};
      in.tagged = tagged;
      in.last = last;
      in.rdmap_opcode = USIW_RDMAP_SEND_SE;
      in.stag = 0x11223344;
      in.to = tagged ? 0x5566778899aabbcc : 0;
      in.qn = tagged ? 0 : 2;
      in.msn = tagged ? 0 : 3;
      in.mo = tagged ? 0 : 4;
      std::byte bytes[32];
      const size_t n = encode_ddp(bytes, in);
      ASSERT_EQ(tagged ? 14u : 18u, n);
      DdpSegment out;
      ASSERT_EQ(DdpDecode::kOk, decode_ddp(std::span(bytes).first(n + 5), out));
      EXPECT_EQ(in.tagged, out.tagged);
      EXPECT_EQ(in.last, out.last);
      EXPECT_EQ(in.rdmap_opcode, out.rdmap_opcode);
      EXPECT_EQ(in.stag, out.stag);
      EXPECT_EQ(in.to, out.to);
      EXPECT_EQ(in.qn, out.qn);
      EXPECT_EQ(in.msn, out.msn);
      EXPECT_EQ(in.mo, out.mo);
      EXPECT_EQ(5u, out.len);
      EXPECT_EQ(bytes + n, out.payload);
      for (size_t k = 0; k < n; ++k)
        EXPECT_EQ(DdpDecode::kShort, decode_ddp(std::span(bytes).first(k), out));
      bytes[0] ^= std::byte{1};
      EXPECT_EQ(DdpDecode::kDdpVersion, decode_ddp(std::span(bytes).first(n), out));
      bytes[0] ^= std::byte{1};
      bytes[1] ^= std::byte{0x80};
      EXPECT_EQ(DdpDecode::kRdmapVersion, decode_ddp(std::span(bytes).first(n), out));
      bytes[1] ^= std::byte{0x80};
      bytes[0] |= std::byte{USIW_DDP_RSVD_MASK};
      EXPECT_EQ(DdpDecode::kOk, decode_ddp(std::span(bytes).first(n), out)) << "reserved: not checked";
    }
  }
}

TEST(Wire, terminate_round_trip_and_truncation) {
  for (const size_t ddp : {size_t{0}, kTaggedBytes, kUntaggedBytes}) {
    for (const bool read : {false, true}) {
      TermInfo in{};
      in.code = term::kDdpTooLong;
      in.ddp_bytes = static_cast<uint8_t>(ddp);
      in.seg_len = ddp == 0 ? 0 : 77;
      in.has_read = read;
      fill(in.ddp, 1);
      in.ddp[0] = std::byte(ddp == kTaggedBytes ? USIW_DDP_F_TAGGED : 0);
      fill(in.read, 2);
      std::byte bytes[kTermMaxBytes];
      const size_t n = encode_terminate(bytes, in);
      ASSERT_LE(n, kTermMaxBytes);
      TermInfo out;
      ASSERT_TRUE(decode_terminate(std::span(bytes).first(n), out));
      EXPECT_EQ(in.code, out.code);
      EXPECT_EQ(in.ddp_bytes, out.ddp_bytes);
      EXPECT_EQ(in.seg_len, out.seg_len);
      EXPECT_EQ(0, std::memcmp(in.ddp, out.ddp, ddp));
      ASSERT_EQ(read, out.has_read);
      if (read) {
        EXPECT_EQ(0, std::memcmp(in.read, out.read, kReadReqBytes));
      }
      for (size_t k = 0; k < n; ++k) EXPECT_FALSE(decode_terminate(std::span(bytes).first(k), out)) << k;
    }
  }
}

TEST(FlowTable, insert_find_erase) {
  std::mt19937 rng(4);
  FlowTable<int> t(12345);
  std::vector<FlowKey> keys(3000);
  std::vector<int> values(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    for (auto& b : keys[i].remote_addr) b = static_cast<uint8_t>(rng());
    keys[i].local_port = static_cast<uint16_t>(i);
    t.insert(keys[i], &values[i]);
  }
  std::vector<bool> in(keys.size(), true);
  for (int round = 0; round < 20000; ++round) {
    const size_t i = rng() % keys.size();
    if (in[i])
      ASSERT_TRUE(t.erase(keys[i]));
    else
      t.insert(keys[i], &values[i]);
    in[i] = !in[i];
    const size_t k = rng() % keys.size();
    ASSERT_EQ(in[k] ? &values[k] : nullptr, t.find(keys[k]));
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSERT_EQ(in[i] ? &values[i] : nullptr, t.find(keys[i]));
    ASSERT_EQ(in[i], t.erase(keys[i]));
  }
  EXPECT_EQ(0u, t.size());
}

TEST(MrTable, bounds_with_iova) {
  auto t = std::make_unique<MrTable>();
  std::vector<std::byte> mem(100);
  const auto addr = reinterpret_cast<uint64_t>(mem.data());
  ASSERT_EQ(0, t->add({0x1234, 1, kAccessRemoteRead, addr, 100, 0x5000}));
  MrFault why;
  EXPECT_EQ(mem.data(), t->resolve(0x1234, 1, 0, 0x5000, 100, why).address());
  EXPECT_EQ(mem.data() + 99, t->resolve(0x1234, 1, kAccessRemoteRead, 0x5063, 1, why).address());
  EXPECT_EQ(nullptr, t->resolve(0x1234, 1, 0, 0x5000, 101, why).address());
  EXPECT_EQ(MrFault::kBounds, why);
  EXPECT_EQ(nullptr, t->resolve(0x1234, 1, 0, 0x4fff, 1, why).address());
  EXPECT_EQ(MrFault::kBounds, why);
  EXPECT_EQ(nullptr, t->resolve(0x1234, 1, 0, 0x5064, 1, why).address());
  EXPECT_EQ(nullptr, t->resolve(0x1234, 1, 0, UINT64_MAX, 2, why).address());
  EXPECT_EQ(MrFault::kWrap, why);
  EXPECT_EQ(nullptr, t->resolve(0x1234, 2, 0, 0x5000, 1, why).address());
  EXPECT_EQ(MrFault::kPd, why);
  EXPECT_EQ(nullptr, t->resolve(0x1235, 1, 0, 0x5000, 1, why).address());
  EXPECT_EQ(MrFault::kStag, why);
  EXPECT_EQ(nullptr, t->resolve(0x1234, 1, kAccessRemoteWrite, 0x5000, 1, why).address());
  EXPECT_EQ(MrFault::kAccess, why);
  EXPECT_EQ(EINVAL, t->add({0x5600, 1, 0, UINT64_MAX - 5, 10, 0}));
  EXPECT_EQ(EINVAL, t->add({0x5600, 1, 0, 0, 10, UINT64_MAX - 5}));
}

TEST(TimerHeap, pops_in_order_whatever_is_rearmed) {
  std::mt19937 rng(5);
  TimerHeap heap;
  std::vector<TimerNode> nodes(200);
  heap.reserve(nodes.size());
  for (int round = 0; round < 5000; ++round) {
    TimerNode& n = nodes[rng() % nodes.size()];
    if (rng() % 4 == 0)
      heap.disarm(n);
    else
      heap.arm(n, rng() % 1000);
    uint64_t least = kNever;
    for (const TimerNode& x : nodes) least = std::min(least, x.deadline);
    ASSERT_EQ(least, heap.next());
  }
  uint64_t last = 0;
  while (TimerNode* n = heap.pop(1000)) {
    (void)n;
    ASSERT_LE(last, heap.next());
    last = heap.next() == kNever ? last : heap.next();
  }
  EXPECT_EQ(kNever, heap.next());
}

TEST(Rtt, follows_and_backs_off) {
  RttEstimator r;
  EXPECT_EQ(RttEstimator::kInitialRtoNs, r.rto(0));
  for (int i = 0; i < 100; ++i) r.sample(10'000, kSec + i);
  EXPECT_EQ(RttEstimator::kMinRtoNs, r.rto(0));
  EXPECT_EQ(RttEstimator::kMinRtoNs * 8, r.rto(3));
  EXPECT_EQ(RttEstimator::kMaxRtoNs, r.rto(30));
  for (int i = 0; i < 100; ++i) r.sample(5 * kMs, 2 * kSec + i);
  EXPECT_GT(r.rto(0), 5 * kMs);
  EXPECT_EQ(10'000u, r.min_rtt());
}

// Over shared memory a datagram may be acknowledged before the engine reads the clock again.
TEST(Rtt, what_is_too_short_to_tell_is_no_minimum) {
  constexpr uint64_t kTooShort = RttEstimator::kTooShort;
  RttEstimator r;
  r.sample(kTooShort, kSec);
  EXPECT_TRUE(r.valid());
  EXPECT_EQ(0u, r.min_rtt());
  EXPECT_EQ(0u, r.or_minimum(kTooShort));
  r.sample(500, kSec + 1);
  EXPECT_EQ(500u, r.min_rtt());
  r.sample(kTooShort, kSec + 2);
  EXPECT_EQ(500u, r.min_rtt());
  EXPECT_EQ(500u, r.or_minimum(kTooShort)) << "no less than the minimum, which congestion control subtracts";
  EXPECT_EQ(700u, r.or_minimum(700));
  r.sample(700, kSec + 3);
  r.sample(kTooShort, kSec + 2 * RttEstimator::kMinRttWindow);
  EXPECT_EQ(500u, r.min_rtt());
  r.sample(700, kSec + 2 * RttEstimator::kMinRttWindow);
  EXPECT_EQ(700u, r.min_rtt());
}

TEST(Rtt, needless_time_outs_come_later_for_a_while) {
  RttEstimator r;
  const auto samples = [&](int n) {
    for (int i = 0; i < n; ++i) r.sample(10'000, kSec);
  };
  samples(100);
  r.needless_time_out(500'000);
  EXPECT_EQ(RttEstimator::kMinRtoNs + kMs, r.rto(0));
  samples(100);
  EXPECT_GT(r.rto(0), RttEstimator::kMinRtoNs + kMs / 2);
  r.needless_time_out(10);
  EXPECT_GT(r.rto(0), RttEstimator::kMinRtoNs + kMs / 2) << "one that was less late changes nothing";
  r.needless_time_out(kSec);
  EXPECT_EQ(RttEstimator::kMinRtoNs + RttEstimator::kMaxPatienceNs, r.rto(0));
  samples(5000);
  EXPECT_EQ(RttEstimator::kMinRtoNs, r.rto(0));
}

TEST(Rtt, an_outage_is_no_round_trip) {
  RttEstimator r;
  EXPECT_FALSE(r.is_outage(kSec, 5, 2 * kSec)) << "the first sample is one, whatever it is";
  r.sample(10'000, 2 * kSec);
  EXPECT_FALSE(r.is_outage(kMs, 1, 3 * kSec)) << "one time-out may have been too short";
  EXPECT_TRUE(r.is_outage(kSec, 9, 4 * kSec));
  EXPECT_TRUE(r.is_outage(kSec, 0, 4 * kSec + 20'000)) << "also one of those behind it";
  EXPECT_FALSE(r.is_outage(10'000, 0, 4 * kSec + 20'000)) << "sent since it is over";
  EXPECT_FALSE(r.is_outage(50 * kMs, 3, 4 * kSec + 60 * kMs)) << "again at once: the path has become longer";
  EXPECT_TRUE(r.is_outage(kSec, 2, 7 * kSec));
}

TEST(Congestion, survives_a_shared_cpu) {
  // Every round takes 4 ms whatever the window is: cutting does not help, so it is undone.
  DelayCongestion cc;
  uint32_t psn = 0;
  cc.start(0);
  for (int i = 0; i < 300; ++i) {
    const uint32_t n = cc.window();
    cc.on_ack(n, i < 5 ? 50'000 : 4 * kMs, 50'000, true, psn + n, psn + 2 * n);
    psn += n;
  }
  EXPECT_GT(cc.window(), 100u);
}

TEST(Congestion, gives_way_to_a_standing_queue) {
  // The delay is the window's own: 10 us for each datagram in flight, 5 ms at 500.
  DelayCongestion cc;
  uint32_t psn = 0;
  cc.start(0);
  for (int i = 0; i < 300; ++i) {
    const uint32_t n = cc.window();
    cc.on_ack(n, 50'000 + uint64_t{n} * 10'000, 50'000, true, psn + n, psn + 2 * n);
    psn += n;
  }
  EXPECT_LT(cc.window(), 200u);
  EXPECT_GE(cc.window(), static_cast<uint32_t>(DelayCongestion::kFloor));
}

/// Rounds of a path of 20 us that takes a datagram in 1.2 us and has room for 128 of them.
struct SmallBuffer {
  static constexpr uint64_t kRtt = 20'000, kEach = 1'200;
  static constexpr uint32_t kRoom = 128 + kRtt / kEach;

  SmallBuffer() { cc.start(0); }
  /// @p noise: datagrams of this round that are lost anyway. Returns how many have overflowed.
  uint32_t round(uint32_t noise = 0) {
    const uint32_t n = cc.window(), over = n > kRoom ? n - kRoom : 0;
    const uint64_t rtt = std::max(kRtt, std::min(n, kRoom) * kEach);
    cc.on_ack(n - over, rtt, kRtt, true, psn, psn + n);
    for (uint32_t i = 0; i < over + noise; ++i) cc.on_loss(now, now + rtt);
    now += rtt;
    cc.on_ack(0, 0, kRtt, true, psn + n, psn + 2 * n);
    psn += n;
    sent += n;
    return over;
  }
  DelayCongestion cc;
  uint32_t psn = 0;
  uint64_t now = kSec, sent = 0;
};

TEST(Congestion, comes_close_to_what_overflows_by_small_steps) {
  SmallBuffer path;
  uint32_t lost = 0, least = UINT32_MAX;
  for (int i = 0; i < 200; ++i) path.round();
  path.sent = 0;
  for (int i = 0; i < 5000; ++i) {
    lost += path.round();
    least = std::min(least, path.cc.window());
  }
  EXPECT_LT(lost * 2000, path.sent) << "0.05 %; with steps of a sixteenth they were 0.6 %";
  EXPECT_GT(lost, 0u) << "it does look for more";
  EXPECT_GE(least, SmallBuffer::kRoom * 6 / 10);
}

TEST(Congestion, marks_are_answered_once_per_window_however_rare_they_are) {
  DelayCongestion cc;
  cc.start(100);
  uint32_t window = cc.window();
  const auto cuts = [&](uint32_t una, uint32_t nxt) {
    cc.on_mark(una, nxt);
    return std::exchange(window, cc.window()) > cc.window();
  };
  EXPECT_TRUE(cuts(101, 165));
  EXPECT_FALSE(cuts(110, 170));
  EXPECT_FALSE(cuts(164, 220));
  EXPECT_TRUE(cuts(165, 221));
  for (const uint32_t later : {uint32_t{1} << 30, uint32_t{1} << 31, uint32_t{3} << 30}) {
    EXPECT_TRUE(cuts(221 + later, 241 + later)) << later;
    EXPECT_FALSE(cuts(222 + later, 242 + later)) << later;
    EXPECT_TRUE(cuts(221, 241)) << "PSNs wrap";
    cc = {};
    cc.start(221);
    window = cc.window();
  }
}

TEST(Congestion, losses_without_a_queue_do_not_make_it_slow) {
  SmallBuffer path;
  for (int i = 0; i < 5; ++i) path.round();
  for (int i = 0; i < 300; ++i) path.round(i % 3 == 0 && path.cc.window() < 60 ? 1 : 0);
  uint32_t rounds = 0;
  for (; path.cc.window() < 100 && rounds < 1000; ++rounds) path.round();
  EXPECT_LT(rounds, 100u);
}

// ---- Rings, with a producer and a consumer on other threads ----

TEST_F(EngineTest, threads_post_and_poll_while_the_engine_runs) {
  PairOptions o;
  o.max_send_wr = o.max_recv_wr = 16;
  auto [qa, qb] = w.connect(o);
  Region* ra = w.a.region(1 << 12);
  Region* rb = w.b.region(1 << 12);
  constexpr uint64_t kCount = 5000;
  std::atomic<bool> stop{false};
  std::thread sender([&, q = qa] {
    for (uint64_t i = 0; i < kCount;) {
      if (q->post_send({i, WrOpcode::kSend, kWrSignaled, 0, 0}, std::vector{ra->sge(0, 16)}) == 0) {
        q->ring_send();
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::thread receiver([&, q = qb] {
    uint64_t posted = 0, got = 0;
    while (got < kCount) {
      while (posted < kCount && q->post_recv(posted, std::vector{rb->sge(0, 16)}) == 0) {
        q->ring_recv();
        ++posted;
      }
      std::array<Cqe, 16> cqes;
      const size_t n = w.b.recv_cq->poll(cqes);
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(got++, cqes[i].wr_id);
        EXPECT_EQ(kSuccess, cqes[i].status);
      }
      if (n == 0) std::this_thread::yield();
    }
    stop = true;
  });
  uint64_t sent = 0;
  while (!stop || sent < kCount) {
    w.tick();  // no leaps: virtual time must not outrun threads that wait for a processor
    for (const Cqe& c : w.a.poll(w.a.send_cq)) EXPECT_EQ(sent++, c.wr_id);
    if (w.clock.now % 16 == 0) std::this_thread::yield();
  }
  sender.join();
  receiver.join();
}

TEST_F(EngineTest, arm_misses_nothing) {
  // One thread sleeps on events as an application does; every completion must wake it.
  auto [qa, qb] = w.connect();
  (void)qb;
  Region* ra = w.a.region(64);
  Region* rb = w.b.region(64);
  for (uint64_t i = 0; i < 3000; ++i) {
    w.a.send_cq->arm(false);
    write(qa, ra->sge(0, 8), rb->addr(), rb->stag, i);
    ASSERT_TRUE(w.run([&] { return w.a.events.ready.size() == i + 1; }, 1 * kSec));
    ASSERT_EQ(1u, w.a.poll(w.a.send_cq).size());
  }
}

}  // namespace
}  // namespace usiw::sim
