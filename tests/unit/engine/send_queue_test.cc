// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/send_queue.h.
#include "engine/send_queue.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

class SendQueueTest : public testing::Test {
 protected:
  static constexpr uint32_t kCapacity = 4;
  SendQueueTest() {
    EXPECT_TRUE(ring_.allocate(kCapacity, 64) && sq_.create(ring_) && sq_.start(2));
  }
  void post(unsigned n = 1) {
    for (; n != 0; --n, ++tail_) {
      ASSERT_EQ(ring_.at(tail_).valid.load(), 0u);
      ring_.at(tail_).valid.store(1);
    }
  }
  /// Takes the next one, of @p length bytes.
  void take(WrOpcode opcode, uint32_t length = 100) {
    ASSERT_NE(sq_.posted(), nullptr);
    sq_.take({.remote_addr = 0, .rkey = 0, .length = 0, .end_psn = 0, .msn = 0, .stage = SqWork::kTransfer,
              .opcode = opcode, .flags = 0, .num_sge = 0, .error = WcStatus::kSuccess});
    sq_.begin(length);
  }
  /// Takes and sends one; @p psn is behind it.
  void send(WrOpcode opcode, uint32_t psn) {
    take(opcode);
    sq_.sent(opcode == WrOpcode::kRdmaRead ? 0 : 100, psn);
    ASSERT_TRUE(sq_.consistent());
  }

  WqeRing<SendWqe> ring_;
  SendQueue sq_;
  uint32_t tail_ = 0;
};

TEST_F(SendQueueTest, posted__not_the_oldest_again_when_the_ring_has_wrapped) {
  EXPECT_EQ(sq_.posted(), nullptr);
  post(kCapacity);
  for (uint32_t i = 1; i <= kCapacity; ++i) send(WrOpcode::kSend, i);
  EXPECT_EQ(sq_.busy(), kCapacity);
  EXPECT_EQ(sq_.posted(), nullptr);
  EXPECT_FALSE(sq_.started());
}

TEST_F(SendQueueTest, sent__a_message_in_parts) {
  post(2);
  take(WrOpcode::kRdmaWrite, 250);
  sq_.sent(100, 11);
  EXPECT_TRUE(sq_.started());
  EXPECT_EQ(sq_.offset(), 100u);
  TxPkt pkt{};
  pkt.len = 100;
  EXPECT_TRUE(sq_.goes_on(pkt));
  pkt.offset = 150;
  EXPECT_FALSE(sq_.goes_on(pkt));
  sq_.sent(150, 12);
  EXPECT_EQ(sq_.next(), 1u);
  EXPECT_FALSE(sq_.done(11));
  EXPECT_TRUE(sq_.done(12));
}

TEST_F(SendQueueTest, begin__sends_and_reads_are_numbered_apart) {
  post(4);
  send(WrOpcode::kSend, 1);
  send(WrOpcode::kRdmaRead, 2);
  send(WrOpcode::kRdmaWrite, 3);
  send(WrOpcode::kSend, 4);
  EXPECT_EQ(sq_.work(0).msn, 1u);
  EXPECT_EQ(sq_.work(1).msn, 1u);
  EXPECT_EQ(sq_.work(3).msn, 2u);
  ASSERT_NE(sq_.read(1), nullptr);
  EXPECT_EQ(sq_.read(1)->sq_index, 1u);
  EXPECT_EQ(sq_.read(0), nullptr);
  EXPECT_EQ(sq_.read(2), nullptr);
}

TEST_F(SendQueueTest, answered__in_order_and_with_all_its_bytes) {
  post(2);
  send(WrOpcode::kRdmaRead, 1);
  EXPECT_TRUE(sq_.may_read());
  send(WrOpcode::kRdmaRead, 2);
  EXPECT_FALSE(sq_.may_read());
  sq_.read(1)->placed = 99;
  sq_.read(2)->placed = 100;
  EXPECT_FALSE(sq_.answered(2)) << "the one before it is outstanding";
  EXPECT_FALSE(sq_.answered(1)) << "a byte is missing";
  EXPECT_FALSE(sq_.done(2)) << "an acknowledgement is no answer";
  sq_.read(1)->placed = 100;
  EXPECT_TRUE(sq_.answered(1));
  EXPECT_TRUE(sq_.done(0));
  EXPECT_EQ(sq_.reads_out(), 1u);
}

TEST_F(SendQueueTest, fail__none_is_taken_any_more_and_those_before_it_complete) {
  post(3);
  send(WrOpcode::kSend, 1);
  take(WrOpcode::kSend);
  sq_.fail(1, WcStatus::kLocProtErr);
  sq_.fail(1, WcStatus::kLocLenErr);
  EXPECT_EQ(sq_.posted(), nullptr);
  EXPECT_EQ(sq_.error(), WcStatus::kSuccess) << "not the oldest";
  ASSERT_TRUE(sq_.done(1));
  sq_.pop();
  EXPECT_FALSE(sq_.done(1));
  EXPECT_EQ(sq_.error(), WcStatus::kLocProtErr) << "the first reason counts";
}

TEST_F(SendQueueTest, pop__gives_the_slot_back_also_of_one_never_taken) {
  post(kCapacity);
  send(WrOpcode::kSend, 1);
  sq_.pop();
  EXPECT_EQ(ring_.at(0).valid.load(), 0u);
  sq_.pop();
  EXPECT_EQ(sq_.head(), 2u);
  EXPECT_EQ(sq_.next(), 2u);
  EXPECT_TRUE(sq_.consistent());
  post(2);
}

TEST_F(SendQueueTest, stop__what_is_posted_later_is_not_taken) {
  post(2);
  send(WrOpcode::kSend, 1);
  sq_.stop();
  post();
  send(WrOpcode::kSend, 2);
  EXPECT_EQ(sq_.posted(), nullptr);
  sq_.pop();
  EXPECT_FALSE(sq_.drained());
  sq_.pop();
  EXPECT_TRUE(sq_.drained());
}

TEST_F(SendQueueTest, stop__a_full_ring_is_drained_once) {
  post(kCapacity);
  for (uint32_t i = 1; i <= kCapacity; ++i) send(WrOpcode::kSend, i);
  sq_.stop();
  for (uint32_t i = 1; i <= kCapacity; ++i) {
    EXPECT_FALSE(sq_.drained());
    sq_.pop();
  }
  EXPECT_TRUE(sq_.drained());
}

TEST_F(SendQueueTest, rewind__all_from_a_message_on_is_sent_again_with_its_numbers) {
  post(4);
  send(WrOpcode::kSend, 1);
  send(WrOpcode::kSend, 2);
  send(WrOpcode::kRdmaRead, 3);
  take(WrOpcode::kRdmaWrite, 250);
  sq_.sent(100, 4);
  sq_.rewind(1, 0);
  EXPECT_EQ(sq_.next(), 1u);
  EXPECT_EQ(sq_.offset(), 0u);
  EXPECT_TRUE(sq_.started());
  EXPECT_FALSE(sq_.fresh());
  EXPECT_TRUE(sq_.done(9)) << "what is in front of it";
  sq_.pop();
  EXPECT_FALSE(sq_.done(9)) << "its PSN of before counts no more";
  sq_.sent(100, 11);
  EXPECT_TRUE(sq_.done(11));
  EXPECT_EQ(sq_.work(1).msn, 2u);
  EXPECT_EQ(sq_.work(2).msn, 1u) << "of READs";
  EXPECT_EQ(sq_.reads_out(), 1u);
  sq_.sent(0, 12);
  EXPECT_EQ(sq_.next(), 3u);
  EXPECT_TRUE(sq_.started());
  EXPECT_EQ(sq_.offset(), 0u) << "from its beginning";
  sq_.sent(250, 14);
  EXPECT_FALSE(sq_.started());
  EXPECT_EQ(sq_.posted(), nullptr);
  post();
  EXPECT_TRUE(sq_.fresh());
  send(WrOpcode::kSend, 15);
  EXPECT_EQ(sq_.work(4).msn, 3u);
}

TEST_F(SendQueueTest, rewind__again_before_all_has_been_sent_again) {
  post(3);
  for (uint32_t i = 1; i <= 3; ++i) send(WrOpcode::kSend, i);
  sq_.rewind(0, 0);
  sq_.sent(100, 11);
  sq_.rewind(0, 0);
  EXPECT_FALSE(sq_.done(100));
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(sq_.next(), i);
    sq_.sent(100, 20 + i);
  }
  EXPECT_FALSE(sq_.started());
  EXPECT_TRUE(sq_.done(20));
}

TEST_F(SendQueueTest, rewind__what_is_of_this_end_alone_is_not_done_again) {
  post(3);
  send(WrOpcode::kSend, 1);
  take(WrOpcode::kLocalInv, 0);
  sq_.done_here();
  send(WrOpcode::kSend, 2);
  sq_.rewind(0, 0);
  sq_.sent(100, 11);
  EXPECT_EQ(sq_.next(), 2u);
  sq_.sent(100, 12);
  for (int n = 0; n < 3; ++n) {
    ASSERT_TRUE(sq_.done(12));
    sq_.pop();
  }
}

/// Those in front of one that has failed are sent again, so that they complete and it is its turn.
TEST_F(SendQueueTest, rewind__up_to_one_that_has_failed) {
  post(2);
  send(WrOpcode::kSend, 1);
  take(WrOpcode::kSend);
  sq_.fail(1, WcStatus::kLocProtErr);
  sq_.rewind(0, 0);
  EXPECT_TRUE(sq_.again());
  sq_.sent(100, 11);
  EXPECT_FALSE(sq_.again());
  ASSERT_TRUE(sq_.done(11));
  sq_.pop();
  EXPECT_EQ(sq_.error(), WcStatus::kLocProtErr);
}

/// The datagram with the immediate data takes the receive. The WRITE in front of it is not sent again.
TEST_F(SendQueueTest, rewind__to_the_second_datagram_of_a_message) {
  post();
  take(WrOpcode::kRdmaWriteImm, 100);
  sq_.sent(100, 1);
  sq_.sent(0, 2);
  sq_.rewind(0, 100);
  EXPECT_EQ(sq_.offset(), 100u);
  sq_.sent(0, 11);
  EXPECT_FALSE(sq_.started());
  EXPECT_FALSE(sq_.done(10));
  EXPECT_TRUE(sq_.done(11));
}

TEST_F(SendQueueTest, reset__as_new) {
  post(3);
  send(WrOpcode::kSend, 1);
  send(WrOpcode::kRdmaRead, 2);
  sq_.fail(2, WcStatus::kLocProtErr);
  ring_.clear();
  sq_.reset();
  ASSERT_TRUE(sq_.start(2));
  tail_ = 0;
  post();
  send(WrOpcode::kSend, 9);
  EXPECT_EQ(sq_.work(0).msn, 1u);
  EXPECT_EQ(sq_.reads_out(), 0u);
  EXPECT_TRUE(sq_.done(9));
}

}  // namespace
}  // namespace usiw
