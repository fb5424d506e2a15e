// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/recv_queue.h.
#include "engine/recv_queue.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

class RecvQueueTest : public testing::Test {
 protected:
  static constexpr uint32_t kCapacity = 4, kSges = 2;
  RecvQueueTest() {
    EXPECT_TRUE(ring_.allocate(kCapacity, kSges * sizeof(Sge)) && rq_.create(ring_, kSges, 7, wanted_));
  }
  void post(uint32_t length = 100, unsigned sges = 1) {
    RecvWqe& wqe = ring_.at(tail_++);
    ASSERT_EQ(wqe.valid.load(), 0u);
    wqe.num_sge = static_cast<uint8_t>(sges);
    for (unsigned i = 0; i < std::min(sges, kSges); ++i) wqe.sges()[i] = {.addr = 0, .length = length, .lkey = 0};
    wqe.valid.store(1);
  }
  std::atomic<bool> wanted_{false};
  WqeRing<RecvWqe> ring_;
  RecvQueue rq_;
  uint32_t tail_ = 0;
};

TEST_F(RecvQueueTest, take__a_message_ahead_only_as_far_as_the_ring_reaches) {
  EXPECT_EQ(rq_.take(1), nullptr);
  for (uint32_t i = 0; i < kCapacity; ++i) post();
  for (uint32_t msn = 1; msn <= kCapacity; ++msn) EXPECT_NE(rq_.take(msn), nullptr);
  EXPECT_EQ(rq_.take(kCapacity + 1), nullptr) << "the slot is that of message 1";
  EXPECT_EQ(rq_.take(0), nullptr) << "done, or never sent";
  rq_.pop();
  EXPECT_EQ(rq_.take(1), nullptr);
  EXPECT_NE(rq_.take(2), nullptr);
  EXPECT_EQ(rq_.take(kCapacity + 1), nullptr);
  post();
  EXPECT_NE(rq_.take_early(kCapacity + 1), nullptr);
}

TEST_F(RecvQueueTest, take__the_sum_of_what_the_slot_says_once) {
  post(100, 2);
  post(USIW_MAX_MSG_SIZE, 2);
  post(100, 3);
  ASSERT_NE(rq_.take(1), nullptr);
  EXPECT_EQ(rq_.take(1)->capacity, 200u);
  ring_.at(0).sges()[0].length = 5000;  // a producer that changes it meanwhile
  EXPECT_EQ(rq_.take(1)->capacity, 200u);
  EXPECT_EQ(rq_.take(2)->capacity, uint32_t{USIW_MAX_MSG_SIZE});
  EXPECT_FALSE(rq_.take(2)->broken());
  EXPECT_TRUE(rq_.take(3)->broken());
}

TEST_F(RecvQueueTest, filled__all_bytes_of_the_oldest) {
  post();
  post();
  EXPECT_FALSE(rq_.filled(0)) << "no segment has come";
  rq_.take(1)->received = 60;
  rq_.take(2)->received = 70;
  EXPECT_FALSE(rq_.filled(70));
  EXPECT_TRUE(rq_.filled(60));
  rq_.pop();
  EXPECT_TRUE(rq_.filled(70));
  EXPECT_EQ(ring_.at(0).valid.load(), 0u);
}

TEST_F(RecvQueueTest, pop__a_slot_used_again_knows_nothing_of_the_message_before) {
  for (uint32_t i = 0; i < kCapacity; ++i) post();
  rq_.take(1)->received = 60;
  rq_.pop();
  post(300);
  EXPECT_EQ(rq_.take(kCapacity + 1)->capacity, 300u);
  EXPECT_EQ(rq_.take(kCapacity + 1)->received, 0u);
}

TEST_F(RecvQueueTest, tell__the_producer_rings_until_one_is_posted) {
  rq_.tell(77);
  EXPECT_TRUE(rq_.told() && wanted_);
  EXPECT_EQ(rq_.told_ns(), 77u);
  rq_.serve();
  EXPECT_FALSE(rq_.told() || wanted_);
  rq_.tell(99);
  rq_.stop();
  EXPECT_FALSE(rq_.told());
  rq_.want();
  rq_.reset();
  EXPECT_FALSE(wanted_);
  EXPECT_EQ(rq_.msn(), 1u);
}

TEST_F(RecvQueueTest, skip__until_the_message_is_there) {
  EXPECT_TRUE(rq_.ready());
  rq_.tell(77);
  EXPECT_FALSE(rq_.ready());
  rq_.skip();
  EXPECT_TRUE(rq_.skipped());
  EXPECT_FALSE(rq_.told() || wanted_ || rq_.ready());
  rq_.tell(99);
  EXPECT_EQ(rq_.told_ns(), 77u) << "it has waited since then";
  rq_.serve();
  EXPECT_TRUE(rq_.skipped());
  rq_.skip_no_more();
  EXPECT_TRUE(rq_.ready());
  rq_.tell(111);
  EXPECT_EQ(rq_.told_ns(), 111u);
}

/// As those of an SRQ may be that begin ahead of one that finds no receive.
TEST_F(RecvQueueTest, skip__messages_behind_it_begin_anew) {
  post();
  post();
  rq_.take(2)->received = 70;
  rq_.skip();
  EXPECT_EQ(rq_.take(2)->received, 0u);
  EXPECT_EQ(rq_.take(2)->capacity, 100u);
}

}  // namespace
}  // namespace usiw
