// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/moves.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

constexpr uint64_t kMs = 1'000'000, kSec = 1'000'000'000;
constexpr PortFacts kBoth{USIW_NOT_PACKET_NONE, true, false, true, false};
constexpr PortChoice kByPacket{PortKind::kPacket, USIW_PORT_WHY_FASTEST};

PortMoves begun(PortWish wish = PortWish::kAuto, PortChoice first = kByPacket, PortFacts facts = kBoth) {
  PortMoves m;
  m.begin(wish, facts, first, 1500);
  return m;
}

TEST(PortMoves, stays_while_nothing_happens) {
  PortMoves m = begun();
  EXPECT_EQ(kByPacket, m.decide(false, 1500, kSec));
  EXPECT_EQ(UINT64_MAX, m.review_at(kSec));
}

TEST(PortMoves, to_the_socket_when_the_kernel_forbids_raw_packets_and_back_when_it_allows_them) {
  PortMoves m = begun();
  m.path(USIW_NOT_PACKET_IPSEC, 1438);
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_IPSEC}), m.decide(false, 0, kSec));
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_IPSEC}), m.decide(true, 0, 2 * kSec))
      << "silence is no reason to pass a rule of the kernel";
  m.path(USIW_NOT_PACKET_NETDEV, 1500);
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_NETDEV}), m.decide(false, 0, 3 * kSec));
  m.path(USIW_NOT_PACKET_NONE, 1500);
  EXPECT_EQ(kByPacket, m.decide(false, 0, 4 * kSec));
}

TEST(PortMoves, what_is_longer_than_the_path_takes_goes_by_the_socket_until_it_is_acknowledged) {
  PortMoves m = begun();
  m.path(USIW_NOT_PACKET_NONE, 1400);
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_MTU}), m.decide(false, 1496, kSec));
  EXPECT_EQ(kSec + PortMoves::kDrainLookNs, m.review_at(kSec));
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_MTU}), m.decide(false, 1401, kSec + kMs));
  EXPECT_EQ(kByPacket, m.decide(false, 1400, 2 * kSec));
}

TEST(PortMoves, to_the_socket_while_the_netdev_is_down) {
  PortMoves m = begun();
  m.link(false);
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_DOWN}), m.decide(false, 0, kSec));
  EXPECT_EQ(PortKind::kSocket, m.decide(true, 0, 2 * kSec).kind);
  m.link(true);
  EXPECT_EQ(kByPacket, m.decide(false, 0, 3 * kSec));
}

TEST(PortMoves, silence_tries_the_other_port_and_comes_back_later_and_later) {
  PortMoves m = begun();
  uint64_t now = kSec, held = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_SILENT}), m.decide(true, 0, now));
    const uint64_t at = m.review_at(now);
    EXPECT_GE(at - now, held);
    EXPECT_LE(at - now, PortMoves::kFirstHoldNs << PortMoves::kMostHolds);
    held = at - now;
    EXPECT_EQ(PortKind::kSocket, m.decide(false, 0, at - 1).kind);
    EXPECT_EQ(kByPacket, m.decide(false, 0, at));
    now = at + kMs;
  }
  EXPECT_EQ(held, PortMoves::kFirstHoldNs << PortMoves::kMostHolds);
  now += 3 * held;
  m.decide(true, 0, now);
  EXPECT_EQ(now + PortMoves::kFirstHoldNs, m.review_at(now)) << "that was long ago";
}

TEST(PortMoves, silence_by_the_socket_tries_raw_packets_where_they_are_possible) {
  PortMoves m = begun();
  m.decide(true, 0, kSec);
  EXPECT_EQ((PortChoice{PortKind::kPacket, USIW_PORT_WHY_SILENT}), m.decide(true, 0, kSec + 100 * kMs));
  m.decide(true, 0, kSec + 300 * kMs);
  EXPECT_EQ(PortKind::kSocket, m.decide(true, 1501, kSec + 600 * kMs).kind) << "too long for raw packets";
}

TEST(PortMoves, silence_by_the_socket_is_no_reason_for_ever) {
  PortMoves m = begun();
  m.decide(true, 0, kSec);
  const uint64_t now = kSec + 100 * kMs;
  EXPECT_EQ(USIW_PORT_WHY_SILENT, m.decide(true, 0, now).why);
  const uint64_t at = m.review_at(now);
  EXPECT_EQ(now + PortMoves::kSilenceIsOverNs, at);
  EXPECT_EQ(kByPacket, m.decide(false, 0, at));
  EXPECT_EQ(UINT64_MAX, m.review_at(at));
}

TEST(PortMoves, a_new_path_gives_raw_packets_another_chance_at_once) {
  PortMoves m = begun();
  m.decide(true, 0, kSec);
  EXPECT_EQ(PortKind::kSocket, m.decide(false, 0, kSec + kMs).kind);
  m.path(USIW_NOT_PACKET_NONE, 1500);
  EXPECT_EQ(kByPacket, m.decide(false, 0, kSec + 2 * kMs));
}

TEST(PortMoves, only_where_the_user_leaves_the_choice) {
  const PortChoice wished{PortKind::kPacket, USIW_PORT_WHY_WISH}, socket{PortKind::kSocket, USIW_PORT_WHY_WISH};
  PortMoves by_hand = begun(PortWish::kPacket, wished);
  by_hand.path(USIW_NOT_PACKET_IPSEC, 1400);
  by_hand.link(false);
  EXPECT_EQ(wished, by_hand.decide(true, 1500, kSec));
  PortMoves by_socket = begun(PortWish::kSocket, socket);
  EXPECT_EQ(socket, by_socket.decide(true, 0, kSec));
  EXPECT_FALSE(by_socket.leaves_choice());
}

TEST(PortMoves, memory_and_connections_without_a_socket_stay) {
  const PortChoice memory{PortKind::kShm, USIW_PORT_WHY_SAME_HOST}, only{PortKind::kPacket, USIW_PORT_WHY_ONLY};
  PortFacts facts = kBoth;
  facts.same_host = true;
  PortMoves m = begun(PortWish::kAuto, memory, facts);
  m.path(USIW_NOT_PACKET_NETDEV, 1500);
  EXPECT_EQ(memory, m.decide(true, 0, kSec));
  facts = kBoth;
  facts.socket = false;
  PortMoves alone = begun(PortWish::kAuto, only, facts);
  EXPECT_EQ(only, alone.decide(true, 0, kSec));
}

TEST(PortMoves, without_the_right_to_raw_packets_it_stays_by_the_socket) {
  PortFacts facts = kBoth;
  facts.permitted = false;
  PortMoves m = begun(PortWish::kAuto, {PortKind::kSocket, USIW_PORT_WHY_RIGHTS}, facts);
  EXPECT_EQ((PortChoice{PortKind::kSocket, USIW_PORT_WHY_RIGHTS}), m.decide(true, 0, kSec));
}

// ---- Long messages ----

constexpr PortChoice kForLong{PortKind::kSocket, USIW_PORT_WHY_LONG};

class LongMoves : public ::testing::Test {
 protected:
  LongMoves() { m.begin(PortWish::kAuto, kBoth, kByPacket, 1500, true); }
  PortChoice decide(bool is_long, bool silent = false) { return m.decide(silent, 0, now, is_long); }
  /// To where it takes merged datagrams.
  void merge() {
    EXPECT_EQ(kForLong, decide(true));
    told();
    EXPECT_EQ(kForLong, decide(true));
    ASSERT_TRUE(m.merging());
  }
  /// The kernel is; to when it is time to merge.
  void told() {
    m.kernel_knows(true);
    now = m.review_at(now);
    decide(true);
    now = m.review_at(now);
  }
  PortMoves m;
  uint64_t now = kSec;
};

TEST_F(LongMoves, go_by_the_socket_and_hear_nothing_else_once_the_kernel_knows) {
  EXPECT_EQ(kForLong, decide(true));
  EXPECT_FALSE(m.merging());
  EXPECT_FALSE(m.hears_socket_only());
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(now + PortMoves::kTellLookNs, m.review_at(now));
    now = m.review_at(now);
    EXPECT_EQ(kForLong, decide(true));
    EXPECT_FALSE(m.merging()) << "the kernel has not been told";
  }
  m.kernel_knows(true);
  decide(true);
  EXPECT_EQ(now + PortMoves::kBeforeMergingNs, m.review_at(now));
  now += PortMoves::kBeforeMergingNs - 1;
  decide(true);
  EXPECT_FALSE(m.merging());
  ++now;
  decide(true);
  EXPECT_TRUE(m.merging());
  EXPECT_TRUE(m.hears_socket_only());
  EXPECT_EQ(now + PortMoves::kLongReviewNs, m.review_at(now));
}

TEST_F(LongMoves, wait_anew_where_the_kernel_is_told_something_else_meanwhile) {
  decide(true);
  m.kernel_knows(true);
  decide(true);
  now = m.review_at(now);
  m.kernel_knows(false);
  decide(true);
  EXPECT_FALSE(m.merging());
  m.kernel_knows(true);
  decide(true);
  EXPECT_FALSE(m.merging());
  EXPECT_EQ(now + PortMoves::kBeforeMergingNs, m.review_at(now));
}

TEST_F(LongMoves, return_when_what_was_merged_is_through) {
  merge();
  now += kSec;
  EXPECT_EQ(kForLong, decide(false));
  EXPECT_FALSE(m.merging());
  EXPECT_TRUE(m.hears_socket_only());
  EXPECT_EQ(now + PortMoves::kAfterMergingNs, m.review_at(now));
  now += PortMoves::kAfterMergingNs;
  EXPECT_EQ(kByPacket, decide(false));
  EXPECT_FALSE(m.hears_socket_only());
}

TEST_F(LongMoves, that_end_before_anything_was_merged_return_at_once) {
  EXPECT_EQ(kForLong, decide(true));
  EXPECT_EQ(kByPacket, decide(false));
}

TEST_F(LongMoves, that_come_again_soon_are_merged_at_once) {
  merge();
  decide(false);
  decide(true);
  EXPECT_TRUE(m.merging());
}

TEST_F(LongMoves, by_a_silent_socket_return_and_stay_away_for_a_while) {
  merge();
  now += kSec;
  decide(true, true);
  EXPECT_FALSE(m.merging());
  now = m.review_at(now);
  EXPECT_EQ(kByPacket, decide(true));
  now += kSec / 2;
  EXPECT_EQ(kByPacket, decide(true));
  now += kSec / 2;
  merge();
  decide(true, true);
  now = m.review_at(now);
  EXPECT_EQ(kByPacket, decide(true));
  now += kSec;
  EXPECT_EQ(kByPacket, decide(true)) << "longer the second time";
  now += kSec;
  EXPECT_EQ(kForLong, decide(true));
}

TEST_F(LongMoves, are_merged_by_a_socket_that_is_taken_for_another_reason) {
  m.path(USIW_NOT_PACKET_IPSEC, 1438);
  EXPECT_EQ(USIW_PORT_WHY_IPSEC, decide(true).why);
  told();
  EXPECT_EQ(USIW_PORT_WHY_IPSEC, decide(true).why);
  EXPECT_TRUE(m.merging());
  m.path(USIW_NOT_PACKET_NONE, 1500);
  EXPECT_EQ(kForLong, decide(false)) << "what is on its way may be merged";
  now = m.review_at(now);
  EXPECT_EQ(kByPacket, decide(false));
}

TEST_F(LongMoves, of_an_end_without_raw_packets_are_merged) {
  m.begin(PortWish::kAuto, {}, {PortKind::kSocket, USIW_PORT_WHY_RIGHTS}, 1500, true);
  EXPECT_EQ(USIW_PORT_WHY_RIGHTS, decide(true).why);
  told();
  decide(true);
  EXPECT_TRUE(m.merging());
}

TEST_F(LongMoves, mean_nothing_to_a_peer_that_does_not_know_of_it) {
  m.begin(PortWish::kAuto, kBoth, kByPacket, 1500, false);
  EXPECT_EQ(kByPacket, decide(true));
}

}  // namespace
}  // namespace usiw
