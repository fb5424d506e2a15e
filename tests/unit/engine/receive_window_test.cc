// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/receive_window.h: positions and bitmap agree, whatever arrives in whatever order.
#include "engine/receive_window.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>
#include <vector>

namespace usiw {
namespace {

class ReceiveWindowTest : public testing::Test {
 protected:
  static constexpr uint32_t kFirst = 0xfffffff0u;  // wraps soon
  ReceiveWindowTest() { w_.start(kFirst, pkts_.data()); }

  void early(uint32_t n) {
    w_.accept_early(kFirst + n, {.kind = RxPkt::kSendLast, .msn = n});
    EXPECT_TRUE(w_.consistent());
  }
  void next() {
    w_.accept();
    RxPkt rx;
    while (w_.take(rx)) {
      taken_.push_back(rx.msn);
      w_.accept();
    }
    EXPECT_TRUE(w_.consistent());
  }
  std::vector<unsigned> bitmap() {
    std::array<std::byte, kWindow / 8> bytes{};
    std::vector<unsigned> out;
    const size_t n = w_.write_bitmap(bytes.data());
    for (size_t i = 0; i < n; ++i) out.push_back(std::to_integer<unsigned>(bytes[i]));
    return out;
  }

  std::array<RxPkt, kWindow> pkts_{};
  ReceiveWindow w_;
  std::vector<uint32_t> taken_;
};

TEST_F(ReceiveWindowTest, accept__in_order_leaves_no_gap) {
  for (unsigned i = 0; i < 3 * kWindow; ++i) {
    next();
    EXPECT_FALSE(w_.has_gap());
  }
  EXPECT_EQ(w_.nxt(), kFirst + 3 * kWindow);
  EXPECT_TRUE(bitmap().empty());
}

TEST_F(ReceiveWindowTest, take__each_in_its_turn) {
  early(3);
  early(1);
  early(2);
  early(9);
  EXPECT_EQ(w_.max(), kFirst + 10);
  EXPECT_EQ(w_.early_count(), 4u);
  EXPECT_EQ(bitmap(), (std::vector<unsigned>{0b00001110, 0b10}));
  next();
  EXPECT_EQ(taken_, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(w_.nxt(), kFirst + 4);
  EXPECT_EQ(bitmap(), (std::vector<unsigned>{0b00100000}));
}

TEST_F(ReceiveWindowTest, refuse__as_if_it_had_never_arrived) {
  early(1);
  RxPkt rx;
  w_.accept();
  ASSERT_TRUE(w_.take(rx));
  w_.refuse();
  EXPECT_TRUE(w_.consistent());
  EXPECT_FALSE(w_.has_gap()) << "a bitmap ends with one that has arrived";
  EXPECT_EQ(w_.nxt(), kFirst + 1);

  early(2);
  early(5);
  w_.accept();
  ASSERT_TRUE(w_.take(rx));
  w_.refuse();
  EXPECT_TRUE(w_.consistent());
  EXPECT_EQ(w_.max(), kFirst + 6);
}

TEST_F(ReceiveWindowTest, clear__tells_each_one_once) {
  for (const uint32_t n : {2u, 4u, 700u}) early(n);
  std::vector<uint32_t> told;
  w_.clear([&](const RxPkt& rx) { told.push_back(rx.msn); });
  EXPECT_EQ(told, (std::vector<uint32_t>{2, 4, 700}));
  EXPECT_TRUE(w_.consistent());
  EXPECT_FALSE(w_.has_gap());
  w_.clear([](const RxPkt&) { FAIL(); });
}

TEST_F(ReceiveWindowTest, saw__credit_leaves_room_for_what_is_kept) {
  w_.limit(UINT32_MAX);
  EXPECT_EQ(w_.credit(), kWindow);
  for (unsigned i = 0; i < 100; ++i) w_.saw(true);
  w_.limit(UINT32_MAX);
  for (unsigned i = 0; i < kWindow; ++i) next();
  EXPECT_EQ(w_.credit(), ReceiveWindow::kLeastCredit);
  for (unsigned i = 0; i < 200; ++i) w_.saw(i % 2 == 0);
  w_.limit(UINT32_MAX);
  EXPECT_EQ(w_.credit(), kWindow / 2);
  for (unsigned i = 0; i < 400; ++i) w_.saw(i % 6 == 0);
  w_.limit(UINT32_MAX);
  EXPECT_EQ(w_.credit(), kWindow) << "messages of six segments";
}

/// Credit that has been advertised is never taken back: the peer may have used it already.
TEST_F(ReceiveWindowTest, limit__the_edge_never_moves_back) {
  w_.limit(kWindow);
  EXPECT_EQ(w_.credit(), kWindow);
  w_.limit(8);
  for (unsigned left = kWindow; left > 8; --left) {
    ASSERT_EQ(w_.credit(), left);
    next();
  }
  for (unsigned i = 0; i < 20; ++i) {
    EXPECT_EQ(w_.credit(), 8u);
    next();
  }
  w_.limit(100);
  EXPECT_EQ(w_.credit(), 100u);
}

TEST_F(ReceiveWindowTest, limit__leaves_enough_to_go_on) {
  w_.limit(0);
  for (unsigned i = 0; i < kWindow; ++i) next();
  EXPECT_EQ(w_.credit(), ReceiveWindow::kLeastLimit);
  w_.limit(UINT32_MAX);
  EXPECT_EQ(w_.credit(), kWindow);
}

TEST_F(ReceiveWindowTest, credit__begins_with_what_the_handshake_has_advertised) {
  w_.limit(2);
  EXPECT_EQ(w_.credit(), ReceiveWindow::kFirstCredit);
}

TEST_F(ReceiveWindowTest, consistent__at_random) {
  std::mt19937 rng(1);
  std::set<uint32_t> out;  // what has arrived early, from kFirst on
  uint32_t nxt = 0;
  for (unsigned i = 0; i < 20000; ++i) {
    const uint32_t n = nxt + rng() % 60;
    if (n == nxt) {
      next();
      for (++nxt; out.erase(nxt) != 0;) ++nxt;
    } else if (out.insert(n).second) {
      early(n);
    }
    ASSERT_EQ(w_.nxt(), kFirst + nxt);
    ASSERT_EQ(w_.early_count(), out.size());
    ASSERT_EQ(w_.has_gap(), !out.empty());
    for (const uint32_t at : out) ASSERT_TRUE(w_.has_arrived(kFirst + at));
  }
  EXPECT_GT(nxt, 1000u);
}

}  // namespace
}  // namespace usiw
