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
  EXPECT_EQ(UINT64_MAX, m.review_at(kSec + 100 * kMs));
  m.decide(true, 0, kSec + 300 * kMs);
  EXPECT_EQ(PortKind::kSocket, m.decide(true, 1501, kSec + 600 * kMs).kind) << "too long for raw packets";
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

}  // namespace
}  // namespace usiw
