// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/choice.h"

#include <gtest/gtest.h>

#include "runtime/port_wish.h"

namespace usiw {
namespace {

constexpr PortFacts kAll{USIW_NOT_PACKET_NONE, true, false, true, true};

PortFacts but(auto member, auto value) {
  PortFacts f = kAll;
  f.*member = value;
  return f;
}

void expect(PortWish wish, const PortFacts& facts, PortKind kind, usiw_port_why why) {
  const PortChoice c = choose_port(wish, facts);
  EXPECT_EQ(kind, c.kind);
  EXPECT_EQ(why, c.why);
}

TEST(PortChoice, memory_within_a_host_unless_the_user_says_otherwise) {
  expect(PortWish::kAuto, kAll, PortKind::kShm, USIW_PORT_WHY_SAME_HOST);
  expect(PortWish::kShm, kAll, PortKind::kShm, USIW_PORT_WHY_WISH);
  expect(PortWish::kSocket, kAll, PortKind::kSocket, USIW_PORT_WHY_WISH);
  expect(PortWish::kPacket, kAll, PortKind::kPacket, USIW_PORT_WHY_WISH);
}

TEST(PortChoice, raw_packets_to_other_hosts_where_they_are_possible_else_the_socket_and_why) {
  PortFacts f = but(&PortFacts::same_host, false);
  expect(PortWish::kAuto, f, PortKind::kPacket, USIW_PORT_WHY_FASTEST);
  expect(PortWish::kShm, f, PortKind::kSocket, USIW_PORT_WHY_WISH);
  f.broken = true;
  expect(PortWish::kAuto, f, PortKind::kSocket, USIW_PORT_WHY_BROKEN);
  f.permitted = false;
  expect(PortWish::kAuto, f, PortKind::kSocket, USIW_PORT_WHY_RIGHTS);
  f.not_packet = USIW_NOT_PACKET_IPSEC;
  expect(PortWish::kAuto, f, PortKind::kSocket, USIW_PORT_WHY_IPSEC);
}

TEST(PortChoice, without_a_socket_raw_packets_or_nothing) {
  PortFacts f = but(&PortFacts::socket, false);
  expect(PortWish::kAuto, f, PortKind::kPacket, USIW_PORT_WHY_ONLY);
  expect(PortWish::kSocket, f, PortKind::kNone, USIW_PORT_WHY_NO_SOCKET);
  f.permitted = false;
  expect(PortWish::kAuto, f, PortKind::kNone, USIW_PORT_WHY_NO_SOCKET);
}

// What is past a rule of the kernel stays refused when the user asks for raw packets by hand.
TEST(PortChoice, raw_packets_by_hand_do_not_pass_ipsec) {
  expect(PortWish::kPacket, but(&PortFacts::not_packet, USIW_NOT_PACKET_IPSEC), PortKind::kNone, USIW_PORT_WHY_IPSEC);
  expect(PortWish::kPacket, but(&PortFacts::permitted, false), PortKind::kNone, USIW_PORT_WHY_RIGHTS);
}

// The control path has the last word where one of the ends is without raw packets.
TEST(PortChoice, not_where_an_end_is_without_raw_packets) {
  for (const usiw_not_packet none : {USIW_NOT_PACKET_OWN, USIW_NOT_PACKET_PEER}) {
    PortFacts f = but(&PortFacts::not_packet, none);
    f.same_host = false;
    expect(PortWish::kAuto, f, PortKind::kSocket, USIW_PORT_WHY_ONLY);
    expect(PortWish::kPacket, f, PortKind::kNone, USIW_PORT_WHY_ONLY);
    f.permitted = false;
    expect(PortWish::kAuto, f, PortKind::kSocket, USIW_PORT_WHY_RIGHTS);
  }
}

// So that its connections can take datagrams that are merged below it. Whoever may come to have a raw port must not say
// it.
TEST(PortWish, sockets_only_is_what_a_process_says_that_will_never_have_a_raw_port) {
  constexpr uint64_t kAny = USIW_CAP_DATA_SOCKET | USIW_CAP_MERGES, kCaps = kAny | USIW_CAP_SOCKETS_ONLY;
  for (const bool permitted : {false, true}) {
    EXPECT_EQ(kCaps, caps_of(kCaps, PortWish::kSocket, permitted));
    EXPECT_EQ(kCaps, caps_of(kCaps, PortWish::kShm, permitted));
    EXPECT_EQ(0u, caps_of(kCaps, PortWish::kPacket, permitted));
  }
  EXPECT_EQ(kCaps, caps_of(kCaps, PortWish::kAuto, false));
  EXPECT_EQ(kAny, caps_of(kCaps, PortWish::kAuto, true));
}

TEST(PortChoice, names) {
  PortWish wish = PortWish::kAuto;
  EXPECT_TRUE(parse_port_wish("shm", wish));
  EXPECT_EQ(PortWish::kShm, wish);
  EXPECT_FALSE(parse_port_wish("Socket", wish));
  EXPECT_EQ(PortWish::kShm, wish);
}

}  // namespace
}  // namespace usiw
