// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/port_watch.h.
#include "engine/port_watch.h"

#include <gtest/gtest.h>

#include "time_units.h"

namespace usiw {
namespace {

TEST(PortWatch, silent__each_time_twice_as_long_until_something_gets_through) {
  PortWatch w;
  uint64_t now = 1'000 * kMs;
  const uint64_t since = now;
  for (const uint64_t wait : {200, 400, 800, 800}) {
    EXPECT_FALSE(w.silent(since, now + wait * kMs - 1)) << wait;
    EXPECT_TRUE(w.silent(since, now += wait * kMs)) << wait;
    w.asked(now);
  }
  EXPECT_EQ(w.asks(), 4u);
  EXPECT_TRUE(w.silent(now + kMs, now + 201 * kMs)) << "something has got through";
  EXPECT_EQ(w.asks(), 1u);
}

TEST(PortWatch, repeated__three_times_of_the_same) {
  PortWatch w;
  EXPECT_FALSE(w.repeated(7, 100));
  EXPECT_FALSE(w.repeated(7, 200));
  EXPECT_TRUE(w.repeated(7, 300));
  EXPECT_EQ(w.repeats_since(), 100u);
  EXPECT_FALSE(w.repeated(8, 400)) << "something new has come";
  EXPECT_EQ(w.repeats_since(), 400u);
  w.repeats_told();
  EXPECT_FALSE(w.repeated(8, 500));
  EXPECT_TRUE(w.repeated(8, 600));
}

}  // namespace
}  // namespace usiw
