// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file messages_test.cc
/// Every operation end to end over a good wire: sizes, SGE shapes, inline, many in flight.
#include <random>

#include "fixture.h"

namespace usiw::sim {
namespace {

using Messages = EngineTest;

constexpr size_t kSizes[] = {0, 1, 7, 8, 64, 1439, 1440, 1441, 2880, 4096, 65536, 65537, 1 << 20, 8 << 20};

TEST_F(Messages, send_of_every_size) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(8 << 20);
  Region* dst = w.b.region(8 << 20);
  for (size_t size : kSizes) {
    fill(src->bytes, size);
    std::fill(dst->bytes.begin(), dst->bytes.end(), std::byte{0xee});
    post_recv(qb, {dst->sge(0, size)}, size + 1);
    post(qa, WrOpcode::kSend, {src->sge(0, size)}, size);
    const auto r = wait(w.b, w.b.recv_cq, 1);
    EXPECT_EQ(WcStatus::kSuccess, r[0].status);
    EXPECT_EQ(WcOpcode::kRecv, r[0].opcode);
    EXPECT_EQ(size, r[0].byte_len);
    EXPECT_EQ(size + 1, r[0].wr_id);
    EXPECT_EQ(qb->qpn(), r[0].qpn);
    const auto s = wait(w.a, w.a.send_cq, 1);
    EXPECT_EQ(WcStatus::kSuccess, s[0].status);
    EXPECT_EQ(size, s[0].wr_id);
    EXPECT_EQ(0, std::memcmp(src->bytes.data(), dst->bytes.data(), size));
    if (size < dst->bytes.size()) {
      EXPECT_EQ(std::byte{0xee}, dst->bytes[size]);
    }
  }
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RETRANS_FAST));
}

/// The acknowledgement of all that there was is one unit of work: the QP is not asked for what it has not.
TEST_F(Messages, nobody_is_asked_in_vain) {
  auto [qa, qb] = w.connect();
  (void)qb;
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  w.run_for(1 * kMs);
  write(qa, src->sge(0, 8), dst->addr(), dst->stag);
  EXPECT_EQ(2u, w.a.engine.progress()) << "a doorbell, a QP";
  EXPECT_EQ(0u, w.a.engine.progress());
  w.clock.now += 10'000;
  w.b.engine.progress();
  w.clock.now += 10'000;
  EXPECT_EQ(1u, w.a.engine.progress());
  EXPECT_EQ(1u, w.a.poll(w.a.send_cq).size());
}

TEST_F(Messages, write_of_every_size) {
  auto [qa, qb] = w.connect();
  (void)qb;
  Region* src = w.a.region(8 << 20);
  Region* dst = w.b.region((8 << 20) + 16);
  for (size_t size : kSizes) {
    fill(src->bytes, size);
    std::fill(dst->bytes.begin(), dst->bytes.end(), std::byte{0xee});
    post(qa, WrOpcode::kRdmaWrite, {src->sge(0, size)}, size, kWrSignaled, dst->addr() + 8, dst->stag);
    const auto s = wait(w.a, w.a.send_cq, 1);
    EXPECT_EQ(WcStatus::kSuccess, s[0].status);
    EXPECT_EQ(WcOpcode::kRdmaWrite, s[0].opcode);
    EXPECT_EQ(0, std::memcmp(src->bytes.data(), dst->bytes.data() + 8, size));
    EXPECT_EQ(std::byte{0xee}, dst->bytes[7]);
    EXPECT_EQ(std::byte{0xee}, dst->bytes[8 + size]);
  }
}

TEST_F(Messages, read_of_every_size) {
  auto [qa, qb] = w.connect();
  (void)qb;
  Region* sink = w.a.region((8 << 20) + 16);
  Region* src = w.b.region(8 << 20);
  for (size_t size : kSizes) {
    fill(src->bytes, size);
    std::fill(sink->bytes.begin(), sink->bytes.end(), std::byte{0xee});
    post(qa, WrOpcode::kRdmaRead, {sink->sge(8, size)}, size, kWrSignaled, src->addr(), src->stag);
    const auto s = wait(w.a, w.a.send_cq, 1);
    EXPECT_EQ(WcStatus::kSuccess, s[0].status);
    EXPECT_EQ(WcOpcode::kRdmaRead, s[0].opcode);
    EXPECT_EQ(size, s[0].byte_len);
    EXPECT_EQ(0, std::memcmp(src->bytes.data(), sink->bytes.data() + 8, size));
    EXPECT_EQ(std::byte{0xee}, sink->bytes[7]);
    EXPECT_EQ(std::byte{0xee}, sink->bytes[8 + size]);
  }
}

TEST_F(Messages, scatter_gather_on_all) {
  PairOptions o;
  o.max_sge = 32;
  auto [qa, qb] = w.connect(o);
  Region* ra = w.a.region(100'000);
  Region* rb = w.b.region(100'000);
  std::mt19937 rng(3);
  for (int round = 0; round < 30; ++round) {
    // Random cuts of the same total, zero-length elements among them.
    const auto cuts = [&](Region* r, size_t total, unsigned n, bool overlap_free) {
      std::vector<Sge> out;
      size_t at = overlap_free ? rng() % 64 : 0;
      for (unsigned i = 0; i < n; ++i) {
        const size_t len = i + 1 == n ? total : std::min<size_t>(total, rng() % (2 * total / n + 1));
        out.push_back(r->sge(at, len));
        at += len + rng() % 9;
        total -= len;
      }
      return out;
    };
    const auto content = [](const std::vector<Sge>& sges) {
      std::vector<std::byte> out;
      for (const Sge& s : sges) {
        const auto* p = reinterpret_cast<const std::byte*>(s.addr);
        out.insert(out.end(), p, p + s.length);
      }
      return out;
    };
    const size_t total = 1 + rng() % 60'000;
    fill(ra->bytes, round);
    auto from = cuts(ra, total, 1 + rng() % 32, true);
    auto to = cuts(rb, total, 1 + rng() % 32, true);
    post_recv(qb, to);
    post(qa, WrOpcode::kSend, from);
    wait(w.a, w.a.send_cq, 1);
    ASSERT_EQ(WcStatus::kSuccess, wait(w.b, w.b.recv_cq, 1)[0].status);
    ASSERT_EQ(content(from), content(to));

    fill(rb->bytes, round + 1000);
    auto sink = cuts(ra, total, 1 + rng() % 32, true);
    post(qa, WrOpcode::kRdmaRead, sink, 2, kWrSignaled, rb->addr() + 5, rb->stag);
    ASSERT_EQ(WcStatus::kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
    ASSERT_EQ(content({rb->sge(5, total)}), content(sink));

    auto src = cuts(ra, total, 1 + rng() % 32, true);
    const auto want = content(src);
    post(qa, WrOpcode::kRdmaWrite, src, 3, kWrSignaled, rb->addr() + 11, rb->stag);
    ASSERT_EQ(WcStatus::kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
    ASSERT_EQ(want, content({rb->sge(11, total)}));
  }
}

TEST_F(Messages, inline_data_is_copied_at_post) {
  auto [qa, qb] = w.connect();
  Region* dst = w.b.region(256);
  std::array<std::byte, 200> data;
  fill(data, 1);
  const auto want = data;
  post_recv(qb, {dst->sge(0, 256)});
  // lkeys are ignored, and several SGEs are joined.
  ASSERT_EQ(0, qa->post_send({5, WrOpcode::kSend, kWrSignaled | kWrInline, 0, 0},
                             std::vector<Sge>{{reinterpret_cast<uint64_t>(data.data()), 150, 0},
                                              {reinterpret_cast<uint64_t>(data.data() + 150), 50, 99}}));
  data.fill(std::byte{0});
  qa->ring_send();
  EXPECT_EQ(200u, wait(w.b, w.b.recv_cq, 1)[0].byte_len);
  EXPECT_EQ(0, std::memcmp(want.data(), dst->bytes.data(), want.size()));
  EXPECT_EQ(EINVAL, qa->post_send({5, WrOpcode::kSend, kWrInline, 0, 0},
                                  std::vector<Sge>{{reinterpret_cast<uint64_t>(data.data()), 257, 0}}));
}

TEST_F(Messages, queue_takes_what_was_asked_for) {
  PairOptions o;
  o.max_send_wr = 100;
  auto [qa, qb] = w.connect(o);
  (void)qb;
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  for (int round = 0; round < 5; ++round) {
    for (uint32_t i = 0; i < qa->send_capacity(); ++i)
      ASSERT_EQ(0, qa->post_send({i, WrOpcode::kRdmaWrite, kWrSignaled, dst->addr(), dst->stag},
                                 std::vector{src->sge(0, 8)}));
    EXPECT_GE(qa->send_capacity(), 100u);
    EXPECT_EQ(ENOMEM, qa->post_send({0, WrOpcode::kRdmaWrite, 0, dst->addr(), dst->stag}, {}));
    qa->ring_send();
    const auto got = wait(w.a, w.a.send_cq, qa->send_capacity());
    for (uint32_t i = 0; i < got.size(); ++i) EXPECT_EQ(i, got[i].wr_id);
  }
}

TEST_F(Messages, unsignalled_work_completes_silently) {
  auto* qa = w.connect().first;
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(w.run([&] {
      return qa->post_send({static_cast<uint64_t>(i), WrOpcode::kRdmaWrite,
                            static_cast<uint8_t>(i == 999 ? kWrSignaled : 0), dst->addr(), dst->stag},
                           std::vector{src->sge(0, 8)}) == 0;
    }));
    qa->ring_send();
  }
  EXPECT_EQ(999u, wait(w.a, w.a.send_cq, 1)[0].wr_id);
}

TEST_F(Messages, many_reads_beyond_ord_and_sends_behind_them) {
  PairOptions o;
  o.ord = o.ird = 4;
  auto [qa, qb] = w.connect(o);
  Region* sink = w.a.region(64 * 3000);
  Region* src = w.b.region(64 * 3000);
  Region* inbox = w.b.region(64);
  fill(src->bytes, 9);
  unsigned most = 0, now_out = 0;
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h;
    DdpSegment s;
    if (decode_trp(d, h) && h.opcode == USIW_TRP_DATA &&
        decode_ddp(std::span(d).subspan(kTrpBytes), s) == DdpDecode::kOk) {
      if (side == 0 && !s.tagged && s.qn == USIW_DDP_QN_READ_REQ) most = std::max(most, ++now_out);
      if (side == 1 && s.tagged && s.last) --now_out;
    }
    return true;
  };
  for (unsigned i = 0; i < 60; ++i)
    ASSERT_EQ(0, qa->post_send({i, WrOpcode::kRdmaRead, kWrSignaled, src->addr() + i * 3000, src->stag},
                               std::vector{sink->sge(i * 3000, 3000)}));
  post_recv(qb, {inbox->sge(0, 64)});
  post(qa, WrOpcode::kSend, {sink->sge(0, 0)}, 60);
  const auto got = wait(w.a, w.a.send_cq, 61);
  for (unsigned i = 0; i < got.size(); ++i) EXPECT_EQ(i, got[i].wr_id);
  EXPECT_EQ(0, std::memcmp(sink->bytes.data(), src->bytes.data(), 60 * 3000));
  EXPECT_EQ(4u, most);
}

TEST_F(Messages, fence_waits_for_reads) {
  auto [qa, qb] = w.connect();
  (void)qb;
  Region* mem = w.a.region(64);
  Region* rem = w.b.region(64);
  // READ 8 bytes, then WRITE them elsewhere, fenced: the WRITE must carry what was read.
  for (int i = 0; i < 8; ++i) rem->bytes[i] = std::byte(i + 1);
  post(qa, WrOpcode::kRdmaRead, {mem->sge(0, 8)}, 1, 0, rem->addr(), rem->stag);
  post(qa, WrOpcode::kRdmaWrite, {mem->sge(0, 8)}, 2, kWrSignaled | kWrFence, rem->addr() + 32, rem->stag);
  wait(w.a, w.a.send_cq, 1);
  EXPECT_EQ(0, std::memcmp(rem->bytes.data(), rem->bytes.data() + 32, 8));
}

TEST_F(Messages, both_directions_at_once_with_small_and_large_mtu) {
  for (uint16_t mtu : {576, 1280, 1500, 9000}) {
    for (bool ipv6 : {false, true}) {
      PairOptions o;
      o.mtu = mtu;
      o.ipv6 = ipv6;
      auto [qa, qb] = w.connect(o);
      Region* ra = w.a.region(600'000);
      Region* rb = w.b.region(600'000);
      fill(std::span(ra->bytes).first(300'000), mtu);
      fill(std::span(rb->bytes).first(300'000), mtu + 1);
      post(qa, WrOpcode::kRdmaWrite, {ra->sge(0, 300'000)}, 1, kWrSignaled, rb->addr() + 300'000, rb->stag);
      post(qb, WrOpcode::kRdmaWrite, {rb->sge(0, 300'000)}, 1, kWrSignaled, ra->addr() + 300'000, ra->stag);
      wait(w.a, w.a.send_cq, 1);
      wait(w.b, w.b.send_cq, 1);
      EXPECT_EQ(0, std::memcmp(&ra->bytes[0], &rb->bytes[300'000], 300'000));
      EXPECT_EQ(0, std::memcmp(&rb->bytes[0], &ra->bytes[300'000], 300'000));
    }
  }
}

/// What is known of the path after the first acknowledgement counts for what is still under way: its time-out is not
/// the one of a new connection, 20 ms, any more.
TEST_F(Messages, lost_tail_of_the_first_flight) {
  Qp* qa = w.connect().first;
  const Region *ra = w.a.region(20'000), *rb = w.b.region(20'000);
  int n = 0;
  w.wire.filter = [&](int side, Datagram&) { return side != 0 || (++n != 9 && n != 10); };
  const uint64_t t = w.clock.now;
  write(qa, ra->sge(0, 10 * 1400), rb->addr(), rb->stag);
  EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_GT(n, 10);
  EXPECT_LT(w.clock.now - t, 2 * kMs);
}

TEST_F(Messages, idle_engine_has_nothing_to_do) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  (void)qb;
  post(qa, WrOpcode::kRdmaWrite, {src->sge(0, 8)}, 1, kWrSignaled, dst->addr(), dst->stag);
  wait(w.a, w.a.send_cq, 1);
  w.run_for(100'000'000);
  for (Host* h : {&w.a, &w.b}) {
    EXPECT_EQ(0u, h->engine.progress());
    EXPECT_GE(h->engine.next_deadline_ns(), w.clock.now + 5'000'000'000);
  }
}

TEST_F(Messages, solicited_and_armed_completions) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  for (int i = 0; i < 4; ++i) post_recv(qb, {dst->sge(0, 64)}, i);
  w.b.recv_cq->arm(true);
  post(qa, WrOpcode::kSend, {src->sge(0, 8)});
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_TRUE(w.b.events.ready.empty());
  post(qa, WrOpcode::kSend, {src->sge(0, 8)}, 2, kWrSolicited);
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_EQ(1u, w.b.events.ready.size());
  post(qa, WrOpcode::kSend, {src->sge(0, 8)}, 2, kWrSolicited);
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_EQ(1u, w.b.events.ready.size()) << "one event per arming";
  w.b.recv_cq->arm(false);
  post(qa, WrOpcode::kSend, {src->sge(0, 8)});
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_EQ(2u, w.b.events.ready.size());
}

}  // namespace
}  // namespace usiw::sim
