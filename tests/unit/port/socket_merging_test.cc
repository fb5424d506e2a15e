// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_merging_test.cc
/// Datagrams that the kernel hands over many at a time.
#include <netinet/udp.h>
#include <unistd.h>

#include <cstdio>
#include <numeric>
#include <vector>

#include "socket_ports.h"

namespace usiw {
namespace {

/// The receiver's socket asks the kernel not to take merged datagrams apart.
class MergedPorts : public SocketPorts {
 protected:
  void SetUp() override {
    SocketPorts::SetUp();
    fd = data_socket(GetParam(), port_b);
    int on = 1;
    ASSERT_EQ(0, setsockopt(fd, SOL_UDP, UDP_GRO, &on, sizeof on));
    b->remove_flow(back);
    path = path_between(GetParam(), port_a, port_b);
    path.merge = true;
    back = path_between(GetParam(), port_b, port_a);
    ASSERT_EQ(0, b->add_flow(back, fd));
  }
  /// Sends these, receives them by at most @p most at a time, and compares.
  void exchange(const std::vector<uint32_t>& lengths, size_t most = 32) {
    ASSERT_EQ(lengths.size(), send(*a, path, lengths));
    std::vector<RxBuf> bufs(most);
    size_t got = 0;
    for (int tries = 0; got < lengths.size() && tries < 200; tries++) {
      const size_t n = b->rx(bufs);
      longest = std::max(longest, n);
      for (size_t i = 0; i < n; i++, got++) {
        ASSERT_EQ(lengths[got], bufs[i].len) << got;
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(bufs[i].data + 14) % 8);
        EXPECT_TRUE(bufs[i].flow == back.flow);
        for (uint32_t k = 0; k < bufs[i].len; k++) ASSERT_EQ(static_cast<std::byte>(got), bufs[i].data[k]) << got;
      }
      b->rx_free({bufs.data(), n});
      pollfd p{b->wait_fd(), POLLIN, 0};
      if (n == 0) poll(&p, 1, 10);
    }
    EXPECT_EQ(lengths.size(), got);
    EXPECT_TRUE(b->arm());
  }
  int fd = -1;
  size_t longest = 0;
};

TEST_P(MergedPorts, datagrams_of_any_length_in_any_order) {
  for (uint32_t length : {1472u, 1472u, 9000u, 100u, 1472u, 30u, 9188u})
    exchange(std::vector<uint32_t>(40, length));
  std::vector<uint32_t> mixed(20, 1000);
  mixed.insert(mixed.end(), {14, 2000, 2000, 500, 0, 9188, 9188, 9188, 14, 1000, 1000});
  for (int i = 0; i < 3; i++) exchange(mixed);
}

/// ... for the connections that take them so, and while all of a socket do.
class MergingPorts : public SocketPorts {
 protected:
  void SetUp() override {
    SocketPorts::SetUp();
    path.merge = true;
  }
};

TEST_P(MergingPorts, for_a_while) {
  EXPECT_FALSE(merged()) << "the kernel takes it apart";
  b->merges(back, true);
  EXPECT_TRUE(merged());
  b->merges(back, false);
  EXPECT_FALSE(merged());
}

TEST_P(MergingPorts, not_while_another_connection_of_the_socket_may_hear_raw_packets) {
  b->merges(back, true);
  Path other = path_between(GetParam(), port_b, 9);
  ASSERT_EQ(0, b->add_flow(other, -1));
  EXPECT_FALSE(merged());
  b->merges(other, true);
  EXPECT_TRUE(merged());
  b->merges(other, false);
  EXPECT_FALSE(merged());
  b->remove_flow(other);
  EXPECT_TRUE(merged());
  other.merge = true;  // all the time
  ASSERT_EQ(0, b->add_flow(other, -1));
  EXPECT_TRUE(merged());
  b->remove_flow(other);
  EXPECT_TRUE(merged());
}

/// What the peer might take for one datagram goes out as several.
TEST_P(MergingPorts, only_what_is_longer_than_any_datagram_of_the_connection) {
  b->merges(back, true);
  path.merge_above = 40'000;
  EXPECT_FALSE(merged());
  path.merge_above = 39'999;
  EXPECT_TRUE(merged());
}

/// Without checksums no message is taken apart. That a netdev or a path cannot do it now does not mean that it never
/// can.
TEST_P(MergedPorts, a_refusal_is_not_for_ever) {
  const int fa = data_socket(GetParam(), port_a);
  path = path_between(GetParam(), port_a, port_b);
  path.merge = true;
  back = path_between(GetParam(), port_b, port_a);
  ASSERT_EQ(0, a->add_flow(path, fa));
  const auto checksums = [&](int off) {
    const int rc = GetParam() ? setsockopt(fa, SOL_SOCKET, SO_NO_CHECK, &off, sizeof off)
                              : setsockopt(fa, SOL_UDP, UDP_NO_CHECK6_TX, &off, sizeof off);
    ASSERT_EQ(0, rc);
  };
  const int accept_none = 1;
  if (!GetParam()) setsockopt(fd, SOL_UDP, UDP_NO_CHECK6_RX, &accept_none, sizeof accept_none);
  ASSERT_TRUE(merged());
  checksums(1);
  ASSERT_FALSE(merged());
  checksums(0);
  ASSERT_FALSE(merged()) << "asked again at once";
  int bursts = 0;
  while (bursts < 40 && !merged()) bursts++;
  EXPECT_LT(bursts, 10);
}

TEST_P(MergedPorts, a_message_longer_than_a_burst_waits_in_the_port) {
  exchange(std::vector<uint32_t>(40, 1472), 8);
  ASSERT_EQ(40u, send(*a, path, std::vector<uint32_t>(40, 1472)));
  RxBuf bufs[8];
  ASSERT_EQ(8u, b->rx(bufs));
  pollfd p{b->wait_fd(), POLLIN, 0};
  EXPECT_EQ(0, poll(&p, 1, 0)) << "the socket is empty: one message held them all";
  EXPECT_FALSE(b->arm()) << "nothing but this tells of the rest";
  b->rx_free(bufs);
  EXPECT_EQ(32u, receive(*b, 32).size());
  EXPECT_TRUE(b->arm());
}

TEST_P(MergedPorts, shapes_change_back_for_single_datagrams) {
  exchange(std::vector<uint32_t>(40, 1472));
  for (int i = 0; i < 100; i++) exchange({9188});
  exchange(std::vector<uint32_t>(40, 1472));
}

/// What is received may be kept; no buffer is lost or handed out twice.
TEST_P(MergedPorts, buffers_are_kept_apart) {
  std::vector<RxBuf> kept;
  for (uint32_t round = 0; round < 8; round++) {
    ASSERT_EQ(60u, send(*a, path, std::vector<uint32_t>(60, 200 + 100 * round)));
    for (int tries = 0; kept.size() < 60 * (round + 1) && tries < 100; tries++) {
      RxBuf bufs[7];
      const size_t n = b->rx(bufs);
      kept.insert(kept.end(), bufs, bufs + n);
      if (n == 0) usleep(1000);
    }
    ASSERT_EQ(60 * (round + 1), kept.size());
  }
  for (size_t i = 0; i < kept.size(); i++) {
    ASSERT_EQ(200 + 100 * (i / 60), kept[i].len);
    for (uint32_t k = 0; k < kept[i].len; k++) ASSERT_EQ(static_cast<std::byte>(i % 60), kept[i].data[k]) << i;
  }
  b->rx_free(kept);
  for (int i = 0; i < 50; i++) exchange(std::vector<uint32_t>(40, 1472));
  EXPECT_EQ(0u, b->drops().no_buffer + b->drops().malformed);
}

/// All of them lost in one go, where datagrams are longer than the port takes.
TEST_P(MergedPorts, too_long_datagrams_are_counted) {
  const int from = socket(GetParam() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int segment = 10'000;
  ASSERT_EQ(0, setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment));
  sockaddr_storage to{};
  socklen_t len = sizeof to;
  ASSERT_EQ(0, getsockname(fd, reinterpret_cast<sockaddr*>(&to), &len));
  std::vector<char> big(30'000);
  ASSERT_EQ(30'000, sendto(from, big.data(), big.size(), 0, reinterpret_cast<sockaddr*>(&to), len));
  close(from);
  exchange({30});
  EXPECT_EQ(3u, b->drops().malformed);
}

INSTANTIATE_TEST_SUITE_P(, MergedPorts, ::testing::Bool(), family);
INSTANTIATE_TEST_SUITE_P(, MergingPorts, ::testing::Bool(), family);

}  // namespace
}  // namespace usiw
