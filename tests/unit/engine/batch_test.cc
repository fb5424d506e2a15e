// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file batch_test.cc
/// Work requests that are prepared and posted together, and rings in memory of the caller.
#include <algorithm>

#include "fixture.h"

namespace usiw::sim {
namespace {

class Batch : public EngineTest {
 protected:
  void SetUp() override {
    std::tie(qa_, qb_) = w.connect({.max_send_wr = 8});
    src_ = w.a.region(1000);
    dst_ = w.b.region(1000);
    fill(src_->bytes, 1);
  }
  int prepare(uint32_t n, uint64_t wr_id, uint32_t length = 100) {
    const Sge sge = src_->sge(0, length);
    return qa_->prepare(n,
                        {.wr_id = wr_id, .opcode = WrOpcode::kRdmaWrite, .flags = kWrSignaled,
                         .remote_addr = dst_->addr(), .rkey = dst_->stag},
                        {&sge, 1});
  }
  bool written() const { return std::equal(&dst_->bytes[0], &dst_->bytes[100], &src_->bytes[0]); }

  Qp *qa_ = nullptr, *qb_ = nullptr;
  Region *src_ = nullptr, *dst_ = nullptr;
};

TEST_F(Batch, nothing_is_taken_before_it_is_published) {
  for (uint32_t n = 0; n < 3; ++n) ASSERT_EQ(prepare(n, n), 0);
  qa_->ring_send();
  w.run_for(kSec);
  EXPECT_FALSE(written());
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  qa_->publish(3);
  qa_->ring_send();
  const auto got = wait(w.a, w.a.send_cq, 3);
  for (uint64_t n = 0; n < 3; ++n) EXPECT_EQ(got[n].wr_id, n);
  EXPECT_TRUE(written());
}

TEST_F(Batch, what_is_not_published_is_written_over) {
  for (uint32_t n = 0; n < 8; ++n) ASSERT_EQ(prepare(n, 100 + n), 0);
  ASSERT_EQ(prepare(0, 1), 0);
  qa_->publish(1);
  qa_->ring_send();
  EXPECT_EQ(wait(w.a, w.a.send_cq, 1)[0].wr_id, 1u);
  post(qa_, WrOpcode::kRdmaRead, {src_->sge(200, 100)}, 2, kWrSignaled, dst_->addr(), dst_->stag);
  EXPECT_EQ(wait(w.a, w.a.send_cq, 1)[0].wr_id, 2u);
  w.run_for(kSec);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
}

TEST_F(Batch, no_more_than_there_is_room_for) {
  for (uint64_t round = 0; round < 20; ++round) {  // at any position in the ring
    ASSERT_EQ(prepare(0, 0), 0);
    qa_->publish(1);  // and not rung yet: its slot is in use
    for (uint32_t n = 0; n < 7; ++n) ASSERT_EQ(prepare(n, n + 1), 0);
    ASSERT_EQ(prepare(7, 8), ENOMEM);
    ASSERT_EQ(prepare(8, 9), ENOMEM);
    ASSERT_EQ(prepare(UINT32_MAX, 9), ENOMEM);
    qa_->publish(7);
    qa_->ring_send();
    const auto got = wait(w.a, w.a.send_cq, 8);
    for (uint64_t n = 0; n < 8; ++n) ASSERT_EQ(got[n].wr_id, n);
    ASSERT_EQ(prepare(0, 0), 0);
    qa_->publish(1);
    qa_->ring_send();
    wait(w.a, w.a.send_cq, 1);
  }
}

TEST_F(Batch, a_qp_that_dies_meanwhile_flushes_what_is_published) {
  for (uint32_t n = 0; n < 3; ++n) ASSERT_EQ(prepare(n, n), 0);
  w.a.engine.qp_abort(qa_);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  qa_->publish(3);
  qa_->ring_send();
  const auto got = wait(w.a, w.a.send_cq, 3);
  for (uint64_t n = 0; n < 3; ++n) {
    EXPECT_EQ(got[n].wr_id, n);
    EXPECT_EQ(got[n].status, kWrFlushErr);
  }
}

TEST_F(Batch, rings_in_the_callers_memory) {
  QpAttr attr{};
  attr.max_send_wr = 5;  // 8
  attr.max_recv_wr = 3;
  attr.max_send_sge = 3;
  attr.max_recv_sge = 1;
  attr.max_inline = 200;
  const Engine::RingBytes bytes = Engine::ring_bytes(attr);
  ASSERT_GE(bytes.send, 8 * (sizeof(SendWqe) + 200));
  ASSERT_GE(bytes.recv, 4 * (sizeof(RecvWqe) + sizeof(Sge)));
  constexpr size_t kGuard = 64;
  ZeroedArray<std::byte> send, recv;
  ASSERT_TRUE(send.allocate(bytes.send + kGuard) && recv.allocate(bytes.recv + kGuard));
  attr.send_ring = send.data();
  attr.recv_ring = recv.data();
  Qp* mine = w.a.qp(attr);
  ASSERT_NE(mine, nullptr);
  attr.send_ring = attr.recv_ring = nullptr;
  Qp* other = w.b.qp(attr);
  w.connect(mine, other, {});
  for (unsigned round = 0; round < 20; ++round) {
    post_recv(mine, {src_->sge(0, 100)});
    post_recv(other, {dst_->sge(0, 500)});
    post(mine, WrOpcode::kSend, {src_->sge(0, 200)}, 1, kWrSignaled | kWrInline);
    post(other, WrOpcode::kSend, {dst_->sge(0, 100)});
    wait(w.a, w.a.recv_cq, 1);
    wait(w.b, w.b.recv_cq, 1);
    wait(w.a, w.a.send_cq, 1);
    wait(w.b, w.b.send_cq, 1);
  }
  EXPECT_TRUE(std::any_of(&send[0], &send[bytes.send], [](std::byte b) { return b != std::byte{0}; }));
  for (size_t i = 0; i < kGuard; ++i) EXPECT_EQ(send[bytes.send + i] | recv[bytes.recv + i], std::byte{0});
  w.a.engine.qp_destroy(mine);
}

}  // namespace
}  // namespace usiw::sim
