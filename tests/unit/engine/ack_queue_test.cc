// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/ack_queue.h.
#include "engine/ack_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace usiw {
namespace {

class AckQueueTest : public testing::Test {
 protected:
  AckQueueTest() { make(4); }
  ~AckQueueTest() override {
    for (auto& qp : qps_) q_.settle(*qp);
  }
  QpContext& qp(size_t i) { return *qps_[i]; }
  /// Those that run() offers at @p now; each is settled by that, unless the port has no room.
  std::vector<size_t> run(uint64_t now, bool room = true) {
    std::vector<size_t> out;
    q_.run(now, [&](QpContext& due) {
      for (size_t i = 0; i < qps_.size(); ++i)
        if (&due == qps_[i].get()) out.push_back(i);
      if (!room) return;
      due.ack.sacked();
      q_.settle(due);
    });
    return out;
  }
  using List = std::vector<size_t>;

  void make(size_t n) {
    while (qps_.size() < n) qps_.push_back(std::make_unique<QpContext>());
  }

  std::vector<std::unique_ptr<QpContext>> qps_;
  AckQueue q_;
};

TEST_F(AckQueueTest, by__each_at_its_time) {
  EXPECT_EQ(q_.next(), kNever);
  q_.by(qp(0), 500);
  q_.by(qp(1), 300);
  q_.by(qp(2), 900);
  EXPECT_EQ(q_.next(), 300u);
  EXPECT_FALSE(q_.due(299));
  EXPECT_EQ(run(299), List{});
  EXPECT_TRUE(q_.due(300));
  EXPECT_EQ(run(300), List{1});
  EXPECT_EQ(q_.next(), 500u);
  EXPECT_EQ(run(1000), (List{0, 2}));
  EXPECT_EQ(q_.next(), kNever);
}

TEST_F(AckQueueTest, by__the_earlier_time_of_one_counts) {
  q_.by(qp(0), 500);
  q_.by(qp(0), 900);
  EXPECT_EQ(q_.next(), 500u);
  q_.by(qp(0), 200);
  EXPECT_EQ(run(200), List{0});
}

TEST_F(AckQueueTest, at_once__overtakes_its_own_time) {
  q_.by(qp(0), 500);
  q_.by(qp(1), 400);
  q_.at_once(qp(0));
  q_.at_once(qp(0));
  EXPECT_EQ(q_.next(), 0u);
  EXPECT_EQ(run(100), List{0}) << "once";
  EXPECT_EQ(q_.next(), 400u);
  q_.at_once(qp(2));
  q_.by(qp(2), 900);
  EXPECT_EQ(run(100), List{2}) << "at once it stays";
}

TEST_F(AckQueueTest, settle__no_time_is_missed_and_none_is_left) {
  q_.by(qp(0), 300);
  q_.by(qp(1), 500);
  q_.settle(qp(0));
  EXPECT_FALSE(q_.owes(qp(0)));
  EXPECT_LE(q_.next(), 500u) << "early, perhaps, but not late";
  EXPECT_EQ(run(300), List{});
  EXPECT_EQ(q_.next(), 500u);
  q_.settle(qp(1));
  EXPECT_EQ(q_.next(), kNever);
  q_.settle(qp(1));
}

TEST_F(AckQueueTest, run__what_is_put_off_comes_later) {
  q_.by(qp(0), 300);
  q_.put_off(qp(0), 800);
  q_.put_off(qp(0), 700);
  EXPECT_EQ(run(300), List{});
  EXPECT_EQ(q_.next(), 800u);
  EXPECT_EQ(run(800), List{0});
}

TEST_F(AckQueueTest, run__without_room_all_stay_due) {
  q_.at_once(qp(0));
  q_.by(qp(1), 300);
  EXPECT_EQ(run(300, false), (List{0, 1}));
  EXPECT_TRUE(q_.due(300));
  EXPECT_EQ(run(300), (List{0, 1}));
  EXPECT_FALSE(q_.due(UINT64_MAX - 1));
}

/// A port that fails has the QPs of a batch owe again at once, amid the run.
TEST_F(AckQueueTest, run__others_may_be_moved_meanwhile) {
  for (size_t i = 0; i < 4; ++i) q_.by(qp(i), 300 + i);
  std::vector<size_t> out;
  q_.run(301, [&](QpContext& due) {
    out.push_back(&due == &qp(0) ? 0 : 1);
    due.ack.sacked();
    q_.settle(due);
    if (out.size() == 1) q_.at_once(qp(2));
  });
  EXPECT_EQ(out, (List{0, 1}));
  EXPECT_EQ(run(302), List{2});
  EXPECT_EQ(q_.next(), 303u);
  EXPECT_EQ(run(303), List{3});
}

/// Beside a list that is sorted: each is offered when its time has come and not before, from nanoseconds to beyond all
/// slots, with steps of the clock of every size.
TEST_F(AckQueueTest, run__many) {
  std::mt19937_64 random(1);
  const auto below = [&](uint64_t n) { return random() % n; };
  make(60);
  std::map<size_t, uint64_t> due;  // 0: at once
  uint64_t now = 1'000'000'000;
  for (unsigned step = 0; step < 100'000; ++step) {
    const size_t i = below(qps_.size());
    const uint64_t at = now + below(uint64_t{1} << (4 + below(21)));
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        q_.by(qp(i), at);
        due[i] = due.contains(i) ? std::min(due[i], at) : at;
        break;
      case 3:
        q_.settle(qp(i));
        qp(i).ack.settled();
        due.erase(i);
        break;
      case 4:
        q_.at_once(qp(i));
        due[i] = 0;
        break;
      case 5:
        if (!due.contains(i)) break;
        q_.put_off(qp(i), at);
        if (due[i] != 0) due[i] = std::max(due[i], at);
        break;
      default:
        now += below(uint64_t{1} << below(21));
        const bool room = below(4) != 0;
        std::set<size_t> expected;
        for (const auto& [owing, when] : due)
          if (when <= now) expected.insert(owing);
        ASSERT_TRUE(expected.empty() || q_.due(now)) << step;
        const List got = run(now, room);
        ASSERT_EQ(expected, std::set<size_t>(got.begin(), got.end())) << step;
        ASSERT_EQ(expected.size(), got.size()) << "once each, " << step;
        if (room) std::erase_if(due, [&](const auto& one) { return one.second <= now; });
    }
    uint64_t first = kNever;
    for (const auto& [owing, when] : due) first = std::min(first, when);
    ASSERT_LE(q_.next(), first) << step;
    ASSERT_EQ(due.empty(), q_.next() == kNever) << step;
  }
}

}  // namespace
}  // namespace usiw
