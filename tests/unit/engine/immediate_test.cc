// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file immediate_test.cc
/// Immediate data: what the receiver's completion says, on good wires and bad ones, and the bytes on the wire.
#include <algorithm>

#include "fixture.h"
#include "played_peer.h"

namespace usiw::sim {
namespace {

using Immediate = EngineTest;

void post_imm(Qp* qp, WrOpcode op, const std::vector<Sge>& sges, uint32_t imm, uint8_t flags = kWrSignaled,
              uint64_t remote = 0, uint32_t rkey = 0) {
  ASSERT_EQ(0, qp->post_send({.wr_id = imm, .opcode = op, .flags = flags, .remote_addr = remote, .rkey = rkey,
                              .imm = imm},
                             sges));
  qp->ring_send();
}

TEST_F(Immediate, send_is_one_message_with_its_data) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(10'000);
  Region* dst = w.b.region(10'000);
  fill(src->bytes, 3);
  uint32_t imm = 0xa1b2c3d4;
  for (const uint32_t size : {0u, 8u, 1400u, 10'000u}) {
    post_recv(qb, {dst->sge(0, 10'000)}, size);
    post_recv(qb, {dst->sge(0, 10'000)}, size + 1);
    post_imm(qa, WrOpcode::kSendImm, {src->sge(0, size)}, ++imm);
    post(qa, WrOpcode::kSend, {src->sge(0, 4)});
    const auto got = wait(w.b, w.b.recv_cq, 2);
    EXPECT_EQ(size, got[0].wr_id);
    EXPECT_EQ(WcOpcode::kRecv, got[0].opcode);
    EXPECT_EQ(kWcWithImm, got[0].flags);
    EXPECT_EQ(imm, got[0].imm);
    EXPECT_EQ(size, got[0].byte_len);
    EXPECT_EQ(0, got[1].flags) << "the one behind it has none";
    EXPECT_EQ(0u, got[1].imm);
    const auto sends = wait(w.a, w.a.send_cq, 2);
    EXPECT_EQ(WcOpcode::kSend, sends[0].opcode);
    EXPECT_EQ(0, sends[0].flags);
    if (size > 4) {
      EXPECT_TRUE(std::equal(&src->bytes[4], src->bytes.data() + size, &dst->bytes[4]));
    }
  }
}

TEST_F(Immediate, comes_once_and_in_order_on_a_bad_wire) {
  w.wire.faults.loss = 0.1;
  w.wire.faults.duplicate = 0.1;
  w.wire.faults.jitter = 20'000;
  PairOptions o;
  o.max_send_wr = o.max_recv_wr = 256;
  auto [qa, qb] = w.connect(o);
  Region* src = w.a.region(5000);
  Region* dst = w.b.region(5000);
  for (uint32_t i = 0; i < 200; ++i) post_recv(qb, {dst->sge(0, 5000)}, i);
  for (uint32_t i = 0; i < 200; ++i) {
    if (i % 3 != 2)
      post_imm(qa, WrOpcode::kSendImm, {src->sge(0, i % 5 * 1200)}, i);
    else
      post(qa, WrOpcode::kSend, {src->sge(0, i % 5 * 1200)}, i);
  }
  const auto got = wait(w.b, w.b.recv_cq, 200);
  for (uint32_t i = 0; i < 200; ++i) {
    EXPECT_EQ(i, got[i].wr_id);
    EXPECT_EQ(i % 5 * 1200, got[i].byte_len);
    EXPECT_EQ(i % 3 != 2 ? kWcWithImm : 0, got[i].flags);
    EXPECT_EQ(i % 3 != 2 ? i : 0, got[i].imm);
  }
}

TEST_F(Immediate, solicited_wakes_who_sleeps) {
  auto [qa, qb] = w.connect();
  Region* dst = w.b.region(64);
  for (int i = 0; i < 2; ++i) post_recv(qb, {dst->sge(0, 64)}, i);
  w.b.recv_cq->arm(true);
  post_imm(qa, WrOpcode::kSendImm, {}, 1);
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_TRUE(w.b.events.ready.empty());
  post_imm(qa, WrOpcode::kSendImm, {}, 2, kWrSignaled | kWrSolicited);
  wait(w.b, w.b.recv_cq, 1);
  EXPECT_EQ(1u, w.b.events.ready.size());
}

TEST_F(Immediate, waits_for_a_receive) {
  auto [qa, qb] = w.connect();
  Region* dst = w.b.region(64);
  post_imm(qa, WrOpcode::kSendImm, {}, 77);
  w.run_for(20 * kMs);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  post_recv(qb, {dst->sge(0, 64)}, 5);
  EXPECT_EQ(77u, wait(w.b, w.b.recv_cq, 1)[0].imm);
  EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
}

// ---- WRITE ----

TEST_F(Immediate, write_completes_a_receive_behind_its_data) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(10'000);
  Region* dst = w.b.region(10'000);
  fill(src->bytes, 4);
  for (const uint32_t size : {0u, 1u, 8u, 1400u, 10'000u}) {
    std::fill(dst->bytes.begin(), dst->bytes.end(), std::byte{0});
    post_recv(qb, {}, size);
    post_imm(qa, WrOpcode::kRdmaWriteImm, {src->sge(0, size)}, 0x01020304 + size, kWrSignaled, dst->addr(), dst->stag);
    const Cqe got = wait(w.b, w.b.recv_cq, 1)[0];
    EXPECT_EQ(WcOpcode::kRecvRdmaWithImm, got.opcode);
    EXPECT_EQ(kSuccess, got.status);
    EXPECT_EQ(size, got.wr_id);
    EXPECT_EQ(size, got.byte_len);
    EXPECT_EQ(kWcWithImm, got.flags);
    EXPECT_EQ(0x01020304 + size, got.imm);
    EXPECT_TRUE(std::equal(src->bytes.begin(), src->bytes.begin() + size, dst->bytes.begin()));
    EXPECT_EQ(WcOpcode::kRdmaWrite, wait(w.a, w.a.send_cq, 1)[0].opcode);
  }
}

TEST_F(Immediate, writes_and_sends_take_receives_in_order_on_a_bad_wire) {
  w.wire.faults.loss = 0.1;
  w.wire.faults.duplicate = 0.1;
  w.wire.faults.jitter = 20'000;
  PairOptions o;
  o.max_send_wr = o.max_recv_wr = 256;
  auto [qa, qb] = w.connect(o);
  constexpr uint32_t kSize = 4000;
  Region* src = w.a.region(kSize);
  Region* dst = w.b.region(200 * kSize);
  Region* in = w.b.region(kSize);
  fill(src->bytes, 5);
  for (uint32_t i = 0; i < 200; ++i) post_recv(qb, {in->sge(0, kSize)}, i);
  for (uint32_t i = 0; i < 200; ++i) {
    const uint32_t size = i % 4 * 1333;
    if (i % 3 != 2)
      post_imm(qa, WrOpcode::kRdmaWriteImm, {src->sge(0, size)}, i, kWrSignaled, dst->addr() + i * kSize, dst->stag);
    else
      post_imm(qa, WrOpcode::kSendImm, {src->sge(0, size)}, i);
  }
  uint32_t n = 0;
  w.run([&, qb = qb] {
    for (const Cqe& c : w.b.poll(w.b.recv_cq)) {
      const uint32_t size = n % 4 * 1333;
      EXPECT_EQ(n, c.wr_id);
      EXPECT_EQ(n, c.imm);
      EXPECT_EQ(size, c.byte_len);
      EXPECT_EQ(n % 3 != 2 ? WcOpcode::kRecvRdmaWithImm : WcOpcode::kRecv, c.opcode);
      if (n % 3 != 2) {
        EXPECT_TRUE(std::equal(&src->bytes[0], &src->bytes[0] + size, &dst->bytes[n * kSize])) << "seen too early";
      }
      ++n;
    }
    return n == 200;
  });
  EXPECT_EQ(200u, n);
}

TEST_F(Immediate, write_waits_for_a_receive_with_its_data_in_place) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64);
  fill(src->bytes, 6);
  post_imm(qa, WrOpcode::kRdmaWriteImm, {src->sge(0, 64)}, 9, kWrSignaled | kWrSolicited, dst->addr(), dst->stag);
  w.run_for(20 * kMs);
  EXPECT_EQ(src->bytes, dst->bytes);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  w.b.recv_cq->arm(true);
  post_recv(qb, {}, 5);
  EXPECT_EQ(9u, wait(w.b, w.b.recv_cq, 1)[0].imm);
  EXPECT_EQ(1u, w.b.events.ready.size()) << "solicited";
  EXPECT_EQ(kSuccess, wait(w.a, w.a.send_cq, 1)[0].status);
}

TEST_F(Immediate, no_receive_ever_is_an_error_of_its_own) {
  auto [qa, qb] = w.connect();
  Region* dst = w.b.region(64);
  post_imm(qa, WrOpcode::kRdmaWriteImm, {}, 9, kWrSignaled, dst->addr(), dst->stag);
  EXPECT_EQ(kRnrRetryExcErr, wait(w.a, w.a.send_cq, 1)[0].status);
}

TEST_F(Immediate, write_that_is_refused_completes_no_receive) {
  auto [qa, qb] = w.connect();
  Region* src = w.a.region(64);
  Region* dst = w.b.region(64, kAccessLocalWrite | kAccessRemoteRead);
  post_recv(qb, {}, 5);
  post_imm(qa, WrOpcode::kRdmaWriteImm, {src->sge(0, 64)}, 9, kWrSignaled, dst->addr(), dst->stag);
  EXPECT_EQ(kRemAccessErr, wait(w.a, w.a.send_cq, 1)[0].status);
  EXPECT_EQ(kWrFlushErr, wait(w.b, w.b.recv_cq, 1)[0].status);
}

// ---- On the wire ----

TEST_F(Protocol, send_with_immediate_has_it_in_the_header) {
  post_imm(q, WrOpcode::kSendImm, {mem->sge(0, 3)}, to_be32(0x01020304), kWrSignaled | kWrSolicited);
  const auto out = settle(2'000);
  ASSERT_EQ(1u, out.size());
  DdpSegment seg;
  ASSERT_EQ(DdpDecode::kOk, decode_ddp(std::span(out[0]).subspan(kTrpBytes), seg));
  EXPECT_EQ(USIW_RDMAP_SEND_SE_IMM, seg.rdmap_opcode);
  EXPECT_EQ(0x01020304u, seg.stag) << "the bytes of the number as the program has them in memory";
  EXPECT_EQ(std::byte{1}, seg.header[2]);
  EXPECT_EQ(std::byte{4}, seg.header[5]);
  EXPECT_EQ(0u, seg.qn);
  EXPECT_EQ(1u, seg.msn);
  EXPECT_EQ(3u, seg.len);
}

TEST_F(Protocol, immediate_data_of_a_send_that_comes_early) {
  post_recv(q, {mem->sge(0, 100)}, 1);
  post_recv(q, {mem->sge(0, 100)}, 2);
  DdpSegment second = send_seg(2, 0, true);
  second.rdmap_opcode = USIW_RDMAP_SEND_IMM;
  second.stag = 0x11223344;
  inject(data(kRcv + 1, second, bytes("two")));
  settle();
  EXPECT_TRUE(w.a.poll(w.a.recv_cq).empty());
  DdpSegment first = send_seg(1, 0, true);
  first.stag = 0x55667788;  // reserved there: not looked at, and not shown
  inject(data(kRcv, first, bytes("one")));
  const auto got = wait(w.a, w.a.recv_cq, 2);
  EXPECT_EQ(0, got[0].flags);
  EXPECT_EQ(0u, got[0].imm);
  EXPECT_EQ(kWcWithImm, got[1].flags);
  EXPECT_EQ(to_be32(0x11223344), got[1].imm);
}

TEST_F(Protocol, write_with_immediate_is_two_messages) {
  post_imm(q, WrOpcode::kRdmaWriteImm, {mem->sge(0, 1500)}, to_be32(0x01020304), kWrSignaled | kWrSolicited, 0x1000, 7);
  const auto out = settle(2'000);
  ASSERT_EQ(3u, out.size());
  EXPECT_FALSE(segment(out[0]).last);
  EXPECT_TRUE(segment(out[1]).tagged);
  EXPECT_TRUE(segment(out[1]).last);
  const DdpSegment imm = segment(out[2]);
  EXPECT_EQ(USIW_RDMAP_IMM_SE, imm.rdmap_opcode);
  EXPECT_TRUE(imm.last);
  EXPECT_EQ(0u, imm.qn);
  EXPECT_EQ(1u, imm.msn);
  EXPECT_EQ(0u, imm.mo);
  EXPECT_EQ(0u, imm.stag);
  ASSERT_EQ(kImmediateBytes, imm.len);
  EXPECT_EQ(0x01020304u, load_be32(imm.payload));
  EXPECT_EQ(1500u, load_be32(imm.payload + 4));
  post_imm(q, WrOpcode::kRdmaWriteImm, {}, 0, kWrSignaled, 0x1000, 7);
  const auto empty = settle(2'000);
  ASSERT_EQ(1u, empty.size()) << "an empty WRITE is its immediate data";
  EXPECT_EQ(USIW_RDMAP_IMM, segment(empty[0]).rdmap_opcode);
  EXPECT_EQ(2u, segment(empty[0]).msn);
}

class Immediates : public Protocol {
 protected:
  DdpSegment imm_seg(uint32_t msn) {
    DdpSegment s = send_seg(msn, 0, true);
    s.rdmap_opcode = USIW_RDMAP_IMM;
    return s;
  }
  std::vector<std::byte> words(uint32_t data, uint32_t length) {
    std::vector<std::byte> out(kImmediateBytes);
    encode_immediate(out.data(), data, length);
    return out;
  }
};

TEST_F(Immediates, early_ones_wait_for_the_write) {
  post_recv(q, {}, 1);
  post_recv(q, {}, 2);
  inject(data(kRcv + 1, imm_seg(1), words(5, 3)));
  inject(data(kRcv + 2, imm_seg(2), words(6, 0)));
  settle();
  EXPECT_TRUE(w.a.poll(w.a.recv_cq).empty());
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RX_HELD)) << "no buffer is kept for it";
  inject(data(kRcv, write_seg(0, true), bytes("abc")));
  const auto got = wait(w.a, w.a.recv_cq, 2);
  EXPECT_EQ("abc", memory(0, 3));
  EXPECT_EQ(to_be32(5), got[0].imm);
  EXPECT_EQ(3u, got[0].byte_len);
  EXPECT_EQ(to_be32(6), got[1].imm);
}

TEST_F(Immediates, malformed_ones_are_refused) {
  post_recv(q, {}, 1);
  const struct {
    DdpSegment seg;
    std::vector<std::byte> payload;
    TermCode code;
  } bad[] = {{[&] { auto s = imm_seg(1); s.mo = 8; return s; }(), words(1, 1), term::kDdpInvalidMo},
             {[&] { auto s = imm_seg(1); s.last = false; return s; }(), words(1, 1), term::kDdpInvalidMo},
             {imm_seg(1), bytes("seven b"), term::kDdpTooLong},
             {imm_seg(1), words(1, 0x80000001), term::kDdpTooLong},
             {imm_seg(2), words(1, 1), term::kDdpMsnRange}};
  for (const auto& b : bad) {
    w.a.engine.qp_reset(q);
    post_recv(q, {}, 1);
    flow = w.next_flow(false);
    ASSERT_EQ(0, w.a.engine.qp_connect(q, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    w.a.poll(w.a.recv_cq);
    inject(data(kRcv, b.seg, b.payload));
    EXPECT_EQ(b.code, terminate_in(settle()).code);
  }
}

TEST_F(Immediates, not_for_a_message_that_has_begun) {
  post_recv(q, {mem->sge(0, 100)}, 1);
  inject(data(kRcv, send_seg(1, 0, false), bytes("half")));
  inject(data(kRcv + 1, imm_seg(1), words(1, 0)));
  EXPECT_EQ(term::kDdpInvalidMo, terminate_in(settle()).code);
}

}  // namespace
}  // namespace usiw::sim
