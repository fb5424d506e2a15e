// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/waits.h.
#include "engine/waits.h"

#include <gtest/gtest.h>

#include "time_units.h"

namespace usiw {
namespace {

TEST(TimeOut, expired__backs_off_until_there_is_progress) {
  RttEstimator rtt;
  rtt.sample(100 * kUs, 0);
  TimeOut t;
  t.start(0);
  EXPECT_EQ(t.at(rtt), 400 * kUs);
  t.expired(400 * kUs, 0);
  EXPECT_EQ(t.at(rtt), 1'200 * kUs);
  t.expired(1'200 * kUs, 0);
  EXPECT_EQ(t.in_a_row(), 2u);
  EXPECT_EQ(t.since_ns(), 0u);
  t.progress(2 * kMs);
  EXPECT_EQ(t.in_a_row(), 0u);
  EXPECT_EQ(t.at(rtt), 2'400 * kUs);
  EXPECT_EQ(t.ask_at(), kNever);
}

TEST(TimeOut, in_a_row__does_not_begin_anew_after_255) {
  TimeOut t;
  for (int i = 0; i < 1000; ++i) t.expired(0, 0);
  EXPECT_EQ(t.in_a_row(), 255u);
}

TEST(TimeOut, asked__when_its_turn_comes_but_not_more_often_than_a_time_out) {
  TimeOut t;
  t.start(0);
  EXPECT_EQ(t.ask_at(), kNever);
  t.expired(kMs, kMs + 100 * kUs);
  EXPECT_EQ(t.ask_at(), kMs + 400 * kUs);
  t.asked(kSec, kSec + 5 * kMs);
  EXPECT_EQ(t.ask_at(), kSec + 5 * kMs);
}

TEST(TimeOut, ask_by__another_has_heard) {
  TimeOut t;
  t.start(0);
  t.asked(6'400 * kMs, 6'900 * kMs);  // many wait, too
  t.ask_by(7'000 * kMs);
  EXPECT_EQ(t.ask_at(), 6'900 * kMs);
  t.ask_by(6'500 * kMs);
  EXPECT_EQ(t.ask_at(), 6'500 * kMs);
}

TEST(TimeOut, asked__64th_of_what_it_has_lasted_is_soon_enough) {
  TimeOut t;
  t.start(0);
  t.asked(32 * kSec, 32 * kSec + kMs);  // it may last for ever
  EXPECT_EQ(t.ask_at(), 32 * kSec + 500 * kMs);
}

TEST(TimeOut, asked__on_a_silent_connection_an_eighth_from_the_beginning) {
  TimeOut t;
  t.expect_no_farewell();
  t.start(0);
  t.expired(400 * kUs, 0);
  EXPECT_EQ(t.ask_at(), 800 * kUs);
  t.asked(80 * kMs, 0);
  EXPECT_EQ(t.ask_at(), 90 * kMs);
  t.asked(80 * kMs, 95 * kMs);
  EXPECT_EQ(t.ask_at(), 95 * kMs) << "many wait, too";
}

TEST(NotReady, silent__counts_tries_since_the_peer_said_anything) {
  NotReady n;
  n.told(7, 1'000);
  n.tried(2'000, 1'000);
  EXPECT_EQ(1u, n.silent());
  n.tried(3'000, 1'000);
  n.tried(4'000, 2'500);
  EXPECT_EQ(3u, n.silent());
  n.tried(5'000, 4'000);
  EXPECT_EQ(1u, n.silent()) << "it has answered the try before";
}

TEST(NotReady, tried__backs_off_to_ten_milliseconds) {
  NotReady n;
  n.told(7, 0);
  EXPECT_EQ(n.at(), 50 * kUs);
  n.tried(n.at(), 0);
  EXPECT_EQ(n.at(), 150 * kUs);
  for (int i = 0; i < 300; ++i) n.tried(kSec, 0);
  EXPECT_EQ(n.at(), kSec + 10 * kMs);
  EXPECT_EQ(n.unheard(), 255u);
  n.heard(2 * kSec);
  EXPECT_EQ(n.unheard(), 0u);
  EXPECT_EQ(n.heard_ns(), 2 * kSec);
}

TEST(NotReady, tried__a_silent_connection_backs_off_further_while_nothing_is_heard) {
  NotReady n;
  n.expect_no_farewell();
  n.told(7, 0);
  for (int i = 0; i < 300; ++i) n.tried(kSec, 0);
  EXPECT_EQ(n.at(), kSec + 320 * kMs);
  n.tried(2 * kSec, 1'500 * kMs);
  EXPECT_EQ(n.at(), 2 * kSec + 10 * kMs) << "the peer has said something";
}

TEST(NotReady, over__when_that_datagram_is_acknowledged) {
  NotReady n;
  EXPECT_FALSE(n.over(7));
  n.told(7, 0);
  EXPECT_TRUE(n.knows(7));
  EXPECT_FALSE(n.knows(8));
  EXPECT_FALSE(n.over(7));
  EXPECT_TRUE(n.over(8));
}

TEST(NotReady, ask_to_skip__once_and_at_once) {
  NotReady n;
  n.told(7, 0);
  EXPECT_FALSE(n.asks_to_skip(7));
  EXPECT_TRUE(n.ask_to_skip(1 * kUs));
  EXPECT_EQ(n.at(), 1 * kUs);
  n.tried(2 * kUs, 0);
  EXPECT_FALSE(n.ask_to_skip(3 * kUs)) << "the tries go on as they do";
  EXPECT_TRUE(n.asks_to_skip(7));
  EXPECT_FALSE(n.asks_to_skip(8));
  EXPECT_FALSE(n.answers_skip(7));
  EXPECT_TRUE(n.answers_skip(8));
  n.skip_answered();
  EXPECT_FALSE(n.answers_skip(8) || n.asks_to_skip(7));
}

TEST(NotReady, skipped__the_next_datagram_tries_anew) {
  NotReady n;
  n.told(7, 5);
  n.ask_to_skip(6);
  n.skip_answered();
  n.skipped(20, 10);
  EXPECT_TRUE(n.active() && n.unsent());
  EXPECT_FALSE(n.over(20));
  EXPECT_EQ(n.since_ns(), 5u) << "it waits as long as it has waited in all";
  n.sent(20, 30, 0);
  EXPECT_TRUE(n.knows(20));
  EXPECT_FALSE(n.unsent());
  EXPECT_TRUE(n.over(21));
  n.end(40);
  n.skipped(50, 60);  // the peer was ready for a moment
  EXPECT_TRUE(n.active() && n.unsent());
  EXPECT_EQ(n.since_ns(), 60u);
}

TEST(NotReady, excuses__what_was_under_way_then_and_nothing_else) {
  for (const uint32_t first : {100u, 0x80000000u, 0xfffffffeu}) {  // wherever the PSNs begin
    NotReady n;
    EXPECT_FALSE(n.excuses(first, first, first + 50)) << "it was never so";
    n.told(first + 7, 0);
    n.end(first + 20);
    EXPECT_TRUE(n.excuses(first + 19, first + 8, first + 30));
    EXPECT_FALSE(n.excuses(first + 20, first + 8, first + 30));
    EXPECT_FALSE(n.excuses(first + 40, first + 35, first + 60)) << "all of it is acknowledged";
  }
}

TEST(Keepalive, at__sooner_while_something_is_waited_for) {
  const RttEstimator rtt;
  Keepalive k;
  EXPECT_EQ(k.at(kSec, false, rtt), 11 * kSec);
  EXPECT_EQ(k.at(kSec, true, rtt), 1'500 * kMs);
  k.window_closed(true);
  EXPECT_EQ(k.at(kSec, false, rtt), kSec + rtt.rto(3));
  k.probed(2 * kSec);
  EXPECT_EQ(k.at(kSec, false, rtt), 2'400 * kMs);
}

TEST(Keepalive, rest__unless_the_window_is_closed) {
  Keepalive k;
  EXPECT_TRUE(k.rests());
  k.probe_first(30);
  EXPECT_FALSE(k.rests());
  EXPECT_TRUE(k.may_rest(2));
  k.window_closed(true);
  EXPECT_FALSE(k.may_rest(2));
  k.probed(40);
  EXPECT_TRUE(k.may_rest(2));
  k.rest();
  EXPECT_TRUE(k.rests());
}

TEST(Keepalive, answered__by_what_was_heard_behind_the_probe) {
  Keepalive k;
  EXPECT_FALSE(k.answered(5));
  k.probed(10);
  k.probed(20);
  EXPECT_EQ(k.unanswered(), 2u);
  EXPECT_TRUE(k.waits(20));
  EXPECT_FALSE(k.waits(21)) << "though answered() is not called before the next one is due";
  EXPECT_FALSE(k.answered(20));
  EXPECT_TRUE(k.answered(21));
  EXPECT_EQ(k.unanswered(), 0u);
  k.probe_first(30);
  EXPECT_EQ(k.unanswered(), 1u);
}

}  // namespace
}  // namespace usiw
