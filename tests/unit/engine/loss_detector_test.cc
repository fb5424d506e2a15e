// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/loss_detector.h.
#include "engine/loss_detector.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "time_units.h"

namespace usiw {
namespace {

class LossDetectorTest : public testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0xfffffffcu;  // wraps soon
  LossDetectorTest() {
    w_.start(kFirst, kWindow, pkts_.data());
    d_.start(kFirst);
    rtt_.sample(40 * kUs, now_);
  }
  void send(unsigned n = 1) {
    for (; n != 0; --n) w_.sent({}, now_);
  }
  /// The acknowledgement of these alone comes now.
  void deliver(std::initializer_list<uint32_t> psns) {
    for (const uint32_t n : psns) {
      const TxPkt& pkt = w_.pkt(kFirst + n);
      d_.delivered(kFirst + n, pkt.sent_ns, now_ - pkt.sent_ns, pkt.tx_count == 1);
    }
    std::array<std::byte, 8> bitmap{};
    for (uint32_t n = 0; n < 64; ++n)
      for (const uint32_t psn : psns)
        if (psn == n) bitmap[n / 8] |= std::byte{1} << (n % 8);
    w_.report(bitmap, [](uint32_t, bool) {});
  }
  std::vector<uint32_t> lost() {
    std::vector<uint32_t> out;
    d_.detect(w_, rtt_, now_, [&](uint32_t psn) {
      EXPECT_TRUE(w_.lose(psn));
      out.push_back(psn - kFirst);
    });
    return out;
  }
  using List = std::vector<uint32_t>;

  std::array<TxPkt, kWindow> pkts_{};
  SendWindow w_;
  LossDetector d_;
  RttEstimator rtt_;
  uint64_t now_ = 1'000 * kUs;
};

TEST_F(LossDetectorTest, detect__three_beyond_it_are_enough) {
  send(6);
  now_ += 40 * kUs;
  deliver({1, 2});
  EXPECT_EQ(lost(), List{});
  deliver({3});
  EXPECT_EQ(lost(), List{0});
  EXPECT_EQ(lost(), List{}) << "once";
  EXPECT_EQ(w_.in_flight(), 2u);
}

TEST_F(LossDetectorTest, detect__one_sent_later_and_the_reordering_window) {
  send();
  now_ += 5 * kUs;
  send();
  now_ += 40 * kUs;
  deliver({1});
  EXPECT_EQ(lost(), List{});
  // Sent at 1000 us, a round trip of 40 and a window of 20 (the least).
  EXPECT_EQ(d_.at(), 1'060 * kUs);
  now_ = d_.at() - 1;
  EXPECT_EQ(lost(), List{});
  ++now_;
  EXPECT_EQ(lost(), List{0});
  EXPECT_EQ(d_.at(), kNever);
}

TEST_F(LossDetectorTest, detect__nothing_that_was_sent_after_the_latest_delivered) {
  send(2);
  now_ += 40 * kUs;
  deliver({1});
  send(5);
  now_ += 10'000 * kUs;
  EXPECT_EQ(lost(), List{0});
}

TEST_F(LossDetectorTest, delivered__reordering_takes_the_three_back) {
  send(8);
  now_ += 40 * kUs;
  deliver({2});
  deliver({1});
  deliver({3, 4, 5});
  EXPECT_EQ(lost(), List{}) << "the path reorders";
  now_ = d_.at();
  EXPECT_EQ(lost(), List{0});
}

TEST_F(LossDetectorTest, acknowledged__what_was_late_widens_the_window_for_a_while) {
  d_.acknowledged(300 * kUs, rtt_);
  send(5);
  now_ += 40 * kUs;
  deliver({1, 2, 3, 4});
  EXPECT_EQ(lost(), List{});
  EXPECT_EQ(d_.at(), now_ + 300 * kUs);
  for (int i = 0; i < 2000; ++i) d_.acknowledged(0, rtt_);
  lost();
  EXPECT_EQ(d_.at(), now_ + 20 * kUs);
}

TEST_F(LossDetectorTest, acknowledged__never_wider_than_a_time_out) {
  d_.acknowledged(90'000 * kUs, rtt_);
  send(2);
  now_ += 40 * kUs;
  deliver({1});
  lost();
  EXPECT_EQ(d_.at(), now_ + rtt_.rto(0));
}

}  // namespace
}  // namespace usiw
