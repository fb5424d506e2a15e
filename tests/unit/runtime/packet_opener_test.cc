// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packet_opener_test.cc
/// Tests of runtime/packet_opener.h: a port that takes long to open, and an owner that does not wait for it.
#include "runtime/packet_opener.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <thread>

#include "port/socket_port.h"

namespace usiw {
namespace {

std::unique_ptr<NetPort> make_port() {
  int error = 0;
  return SocketPort::create(1500, error);
}

TEST(PacketOpener, port_reaches_its_owner) {
  std::latch done(1);
  std::unique_ptr<NetPort> port;
  std::string reason;
  PacketOpener opener;
  ASSERT_EQ(opener.start(
                [](std::string& why) {
                  why = "because";
                  return make_port();
                },
                [&](std::unique_ptr<NetPort> made, const std::string& why) {
                  port = std::move(made);
                  reason = why;
                  done.count_down();
                }),
            0);
  done.wait();
  EXPECT_NE(port, nullptr);
  EXPECT_EQ(reason, "because");
}

TEST(PacketOpener, one_thread_at_a_time) {
  std::latch go(1), done(1);
  std::atomic<int> opened = 0;
  PacketOpener opener;
  const auto open = [&](std::string&) {
    opened++;
    go.wait();
    return std::unique_ptr<NetPort>();
  };
  ASSERT_EQ(opener.start(open, [&](auto, auto&) { done.count_down(); }), 0);
  ASSERT_EQ(opener.start(open, [](auto, auto&) { FAIL(); }), 0);
  go.count_down();
  done.wait();
  EXPECT_EQ(opened, 1);
}

/// The thread outlives the opener, and closes what it has opened.
TEST(PacketOpener, owner_is_gone_before_the_port_is_open) {
  static std::latch opening(1), go(1);
  static std::atomic<bool> over = false;
  struct Sign {
    ~Sign() { over = true; }
  };
  {
    PacketOpener opener;
    const auto sign = std::make_shared<Sign>();
    ASSERT_EQ(opener.start(
                  [sign](std::string&) {
                    opening.count_down();
                    go.wait();
                    return make_port();
                  },
                  [](auto, auto&) { FAIL() << "nobody is there"; }),
              0);
    opening.wait();
  }
  go.count_down();
  while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace
}  // namespace usiw
