// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp_timers_test.cc
/// Tests of runtime/qp_timers.h: the attributes of a QP as limits of the engine.
#include "runtime/qp_timers.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000, kForEver = UINT64_MAX;

QpLimits limits_of(uint8_t timeout, uint8_t retry_cnt, uint8_t rnr_retry, uint8_t min_rnr_timer, uint64_t exact = 0) {
  ibv_qp_attr attr{};
  attr.timeout = timeout;
  attr.retry_cnt = retry_cnt;
  attr.rnr_retry = rnr_retry;
  attr.min_rnr_timer = min_rnr_timer;
  attr.max_rd_atomic = 3;
  QpTimers timers;
  timers.keep(attr, IBV_QP_MIN_RNR_TIMER);
  EXPECT_FALSE(timers.are_set());
  timers.keep(attr, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_TRUE(timers.are_set());
  return timers.limits(exact);
}

TEST(QpTimers, formula_and_floors) {
  EXPECT_EQ(limits_of(14, 7, 7, 12).retry_ns, 2 * kSec);
  EXPECT_EQ(limits_of(14, 7, 7, 12).first_ns, 10 * kSec);
  EXPECT_EQ(limits_of(20, 1, 7, 12).retry_ns, (uint64_t{4096} << 20) * 2);
  EXPECT_EQ(limits_of(31, 7, 7, 12).first_ns, (uint64_t{4096} << 31) * 8);
  EXPECT_EQ(limits_of(0, 7, 7, 12).retry_ns, kForEver);
  EXPECT_EQ(limits_of(0, 7, 7, 12).first_ns, kForEver);
  EXPECT_EQ(limits_of(14, 7, 7, 12).ord, 3);
}

TEST(QpTimers, variable_is_exact) {
  EXPECT_EQ(limits_of(14, 7, 7, 12, 100 * kMs).retry_ns, 100 * kMs);
  EXPECT_EQ(limits_of(14, 7, 7, 12, 100 * kMs).first_ns, 100 * kMs);
  EXPECT_EQ(limits_of(0, 7, 7, 12, 100 * kMs).retry_ns, kForEver);
  EXPECT_EQ(parse_retry_time("0.1"), 100 * kMs);
  EXPECT_EQ(parse_retry_time("3600"), 3600 * kSec);
  for (const char* wrong : {"", "0", "0.09", "3601", "-1", "1s", "x", "nan", "inf"})
    EXPECT_EQ(parse_retry_time(wrong), 0u) << wrong;
}

TEST(QpTimers, receiver_not_ready) {
  EXPECT_EQ(limits_of(14, 7, 7, 12).rnr_ns, kForEver);
  EXPECT_EQ(limits_of(14, 7, 0, 12).rnr_ns, 0u);
  EXPECT_EQ(limits_of(14, 7, 3, 12).rnr_ns, 3 * 640 * kUs);
  EXPECT_EQ(limits_of(14, 7, 1, 0).rnr_ns, 655'360 * kUs);
  EXPECT_EQ(limits_of(14, 7, 6, 31).rnr_ns, 6 * 491'520 * kUs);
}

}  // namespace
}  // namespace usiw
