// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/ack_queue.h.
#include "engine/ack_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace usiw {
namespace {

class AckQueueTest : public testing::Test {
 protected:
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

  std::array<std::unique_ptr<QpContext>, 4> qps_{std::make_unique<QpContext>(), std::make_unique<QpContext>(),
                                                 std::make_unique<QpContext>(), std::make_unique<QpContext>()};
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
  qp(0).ack.put_off(800);
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

}  // namespace
}  // namespace usiw
