// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/ack_state.h.
#include "engine/ack_state.h"

#include <gtest/gtest.h>

#include "time_units.h"

namespace usiw {
namespace {

class RepliesTest : public testing::Test {
 protected:
  void exchange(uint64_t took) {
    now_ += 10 * kUs;
    ASSERT_TRUE(replies_.asked(now_));
    replies_.sent(now_ += took);
  }
  uint64_t now_ = 1'000'000;
  Replies replies_;
  RttEstimator rtt_;
};

TEST_F(RepliesTest, expected__after_two_that_came_soon) {
  EXPECT_FALSE(replies_.expected());
  EXPECT_EQ(replies_.delay(rtt_), 4 * kUs);
  exchange(20 * kUs);
  EXPECT_FALSE(replies_.expected());
  exchange(30 * kUs);
  EXPECT_TRUE(replies_.expected());
  EXPECT_EQ(replies_.delay(rtt_), 60 * kUs) << "twice the slowest of late";
}

/// The acknowledgement must not overtake the reply because that one comes somewhat later than the others.
TEST_F(RepliesTest, delay__longer_where_each_reply_has_come_soon) {
  for (int i = 0; i < 7; ++i) exchange(5 * kUs);
  EXPECT_EQ(replies_.delay(rtt_), 10 * kUs);
  exchange(5 * kUs);
  EXPECT_EQ(replies_.delay(rtt_), 100 * kUs);
  ASSERT_TRUE(replies_.asked(now_));
  replies_.missed();
  EXPECT_EQ(replies_.delay(rtt_), 10 * kUs) << "one that does not come ends it";
}

TEST_F(RepliesTest, expected__one_late_reply_changes_nothing) {
  for (int i = 0; i < 8; ++i) exchange(20 * kUs);
  exchange(600 * kUs);
  EXPECT_TRUE(replies_.expected());
  for (int i = 0; i < 3; ++i) exchange(600 * kUs);
  EXPECT_FALSE(replies_.expected());
}

TEST_F(RepliesTest, delay__ends_well_before_the_time_out_of_the_peer) {
  for (int i = 0; i < 8; ++i) exchange(490 * kUs);
  EXPECT_EQ(replies_.delay(rtt_), RttEstimator::kMinRtoNs / 2);
  rtt_.sample(1'000 * kUs, now_);
  EXPECT_EQ(replies_.delay(rtt_), 980 * kUs);
}

TEST_F(RepliesTest, asked__the_first_that_waits_counts) {
  ASSERT_TRUE(replies_.asked(now_));
  EXPECT_FALSE(replies_.asked(now_ + 5 * kUs));
  EXPECT_EQ(replies_.complete_by(rtt_), now_ + 200 * kUs);
  replies_.missed();
  EXPECT_FALSE(replies_.outstanding());
  replies_.sent(now_);  // a DATA that answers nothing
  EXPECT_FALSE(replies_.expected());
}

TEST(AckState, one_more__every_eighth) {
  AckState ack;
  for (int round = 0; round < 3; ++round) {
    for (unsigned i = 1; i < AckState::kEvery; ++i) EXPECT_FALSE(ack.one_more());
    EXPECT_TRUE(ack.one_more());
    ack.settled();
  }
}

TEST(AckState, by__until_it_is_at_once) {
  AckState ack;
  ack.by(300);
  EXPECT_EQ(ack.due_ns(), 300u);
  EXPECT_FALSE(ack.is_due(299));
  EXPECT_TRUE(ack.is_due(300));
  ack.put_off(200);
  EXPECT_EQ(ack.due_ns(), 300u);
  ack.put_off(900);
  EXPECT_FALSE(ack.is_due(899));
  ack.at_once();
  EXPECT_TRUE(ack.is_due(0));
  EXPECT_EQ(ack.due_ns(), 0u);
}

TEST(AckState, told__what_was_said_last_also_when_numbers_wrap) {
  AckState ack;
  ack.start(0xfffffff0u);
  EXPECT_EQ(ack.told(0xfffffff0u), 0xfffffff0u);
  EXPECT_EQ(ack.told(0x10u), 0xfffffff0u);
  ack.tell(0x10u);
  EXPECT_EQ(ack.told(0x20u), 0x10u);
}

TEST(AckState, heard__a_repetition_is_answered_by_a_sack_of_its_own) {
  AckState ack;
  ack.heard(7, true);
  EXPECT_FALSE(ack.repetition_at_once());
  ack.at_once();
  EXPECT_TRUE(ack.repetition_at_once());
  ack.heard(8, false);
  EXPECT_TRUE(ack.repetition_at_once());
  EXPECT_EQ(ack.echo(), 8);
  ack.sacked();
  ack.at_once();
  EXPECT_FALSE(ack.repetition_at_once());
}

}  // namespace
}  // namespace usiw
