// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of engine/lifecycle.h.
#include "engine/lifecycle.h"

#include <gtest/gtest.h>

namespace usiw {
namespace {

TEST(Lifecycle, end_acknowledged__behind_the_shutdown) {
  Lifecycle life;
  life.open();
  EXPECT_TRUE(life.connected());
  life.drain();
  EXPECT_TRUE(life.closing());
  life.shut(1000);
  EXPECT_EQ(life.deadline(), 1000u);
  EXPECT_FALSE(life.end_acknowledged(8)) << "it has not been sent";
  life.send_shutdown(7);
  EXPECT_FALSE(life.end_acknowledged(7));
  EXPECT_TRUE(life.end_acknowledged(8));
}

TEST(Lifecycle, send_terminate__the_first_in_the_order_of_psns_is_the_end) {
  Lifecycle life;
  life.open();
  life.terminate(AsyncEvent::kQpAccessErr);
  EXPECT_EQ(life.event(), AsyncEvent::kQpAccessErr);
  EXPECT_FALSE(life.closing());
  life.send_terminate(9);
  life.send_terminate(12);
  EXPECT_TRUE(life.end_acknowledged(10));
  life.send_terminate(7);  // the repetition of a READ response whose source is gone
  EXPECT_TRUE(life.end_acknowledged(8));
  EXPECT_FALSE(life.end_acknowledged(7));
}

TEST(Lifecycle, terminated_before__what_the_peer_gets_to_behind_the_first_terminate) {
  Lifecycle life;
  life.open();
  life.terminate(AsyncEvent::kQpAccessErr);
  EXPECT_FALSE(life.terminated_before(9));
  life.send_terminate(9);
  EXPECT_TRUE(life.terminated_before(10));
  EXPECT_FALSE(life.terminated_before(9));
  EXPECT_FALSE(life.terminated_before(8));
}

TEST(Lifecycle, send_shutdown__behind_a_terminate_is_not_the_end) {
  Lifecycle life;
  life.open();
  life.drain();
  life.shut(1000);
  life.send_shutdown(9);
  life.terminate(AsyncEvent::kNone);
  life.send_terminate(5);
  life.send_shutdown(9);
  EXPECT_TRUE(life.end_acknowledged(6));
}

TEST(Lifecycle, die__answers_only_if_the_peer_may_repeat_its_end) {
  Lifecycle life;
  life.open();
  life.answer(true);
  life.die();
  EXPECT_FALSE(life.connected());
  EXPECT_TRUE(life.answers());
  life.answer(false);
  EXPECT_FALSE(life.answers());
}

}  // namespace
}  // namespace usiw
