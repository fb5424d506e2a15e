// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/responder.h.
#include "engine/responder.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

class ResponderTest : public testing::Test {
 protected:
  ResponderTest() { EXPECT_TRUE(r_.start(2)); }
  void accept(uint32_t size) {
    r_.accept({.sink_stag = 0, .sink_to = 0, .size = size, .src_stag = 0, .src_to = 0});
  }
  /// Sends the next segment, whose PSN is the one before @p psn; its offset.
  uint32_t send(uint32_t psn) {
    TxPkt pkt{};
    EXPECT_TRUE(r_.next(100, pkt));
    EXPECT_EQ(pkt.kind, PktKind::kReadResponse);
    r_.sent(pkt.len, psn);
    EXPECT_TRUE(r_.consistent());
    return pkt.offset;
  }
  bool idle() {
    TxPkt pkt{};
    return !r_.next(100, pkt);
  }
  Responder r_;
};

TEST_F(ResponderTest, next__in_order_each_in_segments) {
  EXPECT_TRUE(idle());
  accept(250);
  accept(0);
  EXPECT_EQ(send(11), 0u);
  EXPECT_EQ(send(12), 100u);
  TxPkt last{};
  ASSERT_TRUE(r_.next(100, last));
  EXPECT_EQ(last.len, 50);
  EXPECT_FALSE(r_.goes_on(last));
  r_.sent(last.len, 13);
  ASSERT_TRUE(r_.next(100, last)) << "a READ of nothing has one segment";
  EXPECT_EQ(last.owner, 1u);
  EXPECT_EQ(last.len, 0);
  r_.sent(last.len, 14);
  EXPECT_TRUE(idle());
}

TEST_F(ResponderTest, full__until_the_oldest_response_is_acknowledged) {
  accept(100);
  EXPECT_FALSE(r_.full());
  accept(200);
  EXPECT_TRUE(r_.full());
  send(1);
  EXPECT_TRUE(r_.full());
  r_.acknowledged(0);
  EXPECT_TRUE(r_.full());
  r_.acknowledged(1);
  EXPECT_FALSE(r_.full());
  EXPECT_EQ(r_.msn(), 3u);
}

TEST_F(ResponderTest, acknowledged__not_a_response_of_which_part_is_to_be_sent) {
  accept(200);
  send(1);
  r_.acknowledged(1);
  EXPECT_TRUE(r_.consistent());
  r_.stop();
  EXPECT_FALSE(r_.served());
  send(2);
  r_.acknowledged(2);
  EXPECT_TRUE(r_.served());
}

TEST_F(ResponderTest, stop__what_comes_later_is_not_waited_for) {
  r_.stop();
  EXPECT_TRUE(r_.served());
  accept(100);
  EXPECT_TRUE(r_.served());
}

TEST_F(ResponderTest, cut__nothing_more_is_sent) {
  accept(200);
  accept(200);
  send(1);
  r_.cut();
  EXPECT_TRUE(idle());
  EXPECT_TRUE(r_.consistent());
}

}  // namespace
}  // namespace usiw
