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

}  // namespace
}  // namespace usiw::sim
