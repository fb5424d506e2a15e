// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of port/shares.h: who counts among those that share a buffer.
#include "port/shares.h"

#include <gtest/gtest.h>

#include <array>

namespace usiw {
namespace {

constexpr uint64_t kPeriod = uint64_t{1} << Shares::kPeriodShift;

TEST(Shares, each_flow_counts_once) {
  Shares s;
  std::array<uint64_t, 3> flows{};
  EXPECT_EQ(1u, s.users(flows[0], 100 * kPeriod));
  EXPECT_EQ(1u, s.users(flows[0], 100 * kPeriod + 1));
  EXPECT_EQ(2u, s.users(flows[1], 100 * kPeriod + 2));
  EXPECT_EQ(3u, s.users(flows[2], 100 * kPeriod + 3));
  EXPECT_EQ(3u, s.users(flows[0], 100 * kPeriod + 4));
}

/// At the beginning of a period those count that were there in the one before.
TEST(Shares, count_lasts_into_the_next_period) {
  Shares s;
  std::array<uint64_t, 3> flows{};
  for (uint64_t& f : flows) s.users(f, 100 * kPeriod);
  EXPECT_EQ(3u, s.users(flows[0], 101 * kPeriod));
  EXPECT_EQ(1u, s.users(flows[0], 102 * kPeriod)) << "the others have been silent since";
}

/// The process had no processor for a while: those who go on first are not alone.
TEST(Shares, pause_of_all_is_not_their_end) {
  Shares s;
  std::array<uint64_t, 3> flows{};
  for (uint64_t& f : flows) s.users(f, 100 * kPeriod);
  EXPECT_EQ(3u, s.users(flows[0], 101 * kPeriod));
  EXPECT_EQ(3u, s.users(flows[0], 105 * kPeriod));
  EXPECT_EQ(1u, s.users(flows[0], 106 * kPeriod)) << "the others have not gone on";
}

TEST(Shares, idle_time_is_forgotten) {
  Shares s;
  std::array<uint64_t, 2> flows{};
  for (uint64_t& f : flows) s.users(f, 100 * kPeriod);
  EXPECT_EQ(1u, s.users(flows[0], 200 * kPeriod));
}

/// A connection begins by a socket and goes on in memory within the same period.
TEST(Shares, flow_that_moves_counts_where_it_goes) {
  Shares socket, ring;
  uint64_t flow = 0, other = 0;
  EXPECT_EQ(1u, socket.users(flow, 100 * kPeriod));
  EXPECT_EQ(1u, ring.users(flow, 100 * kPeriod + 1));
  EXPECT_EQ(1u, ring.users(flow, 100 * kPeriod + 2));
  EXPECT_EQ(2u, ring.users(other, 100 * kPeriod + 3));
  EXPECT_EQ(2u, ring.users(flow, 101 * kPeriod));
}

TEST(Shares, truesize_is_what_the_kernel_counts) {
  EXPECT_EQ(2304u, truesize(1500));
  EXPECT_EQ(768u, truesize(92));
  EXPECT_EQ(16640u, truesize(9000));
}

}  // namespace
}  // namespace usiw
