// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_port_test.cc
/// Sockets, one or several, and the datagrams that go by them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <vector>

#include "socket_ports.h"

namespace usiw {
namespace {

TEST_P(SocketPorts, datagrams_arrive_with_both_ends_named) {
  ASSERT_EQ(3u, send(*a, path, {14, 1000, kMtu - 28 - 20}));
  std::vector<Got> got = receive(*b, 3);
  ASSERT_EQ(3u, got.size());
  for (size_t i = 0; i < 3; i++) {
    EXPECT_EQ(path.flow.local_addr, got[i].flow.remote_addr);
    EXPECT_EQ(path.flow.remote_addr, got[i].flow.local_addr);
    EXPECT_EQ(port_a, got[i].flow.remote_port);
    EXPECT_EQ(port_b, got[i].flow.local_port);
    for (std::byte x : got[i].bytes) ASSERT_EQ(static_cast<std::byte>(i), x);
  }
  EXPECT_EQ(kMtu - 28 - 20, got[2].bytes.size());
}

TEST_P(SocketPorts, marks_are_seen_datagram_by_datagram) {
  EXPECT_TRUE(back.sees_ce);
  path.merge = true;
  const uint8_t kinds[] = {0, kEcnCe, kEcnCe | 0x28, kEct0, 0x28};
  for (const uint8_t tos : kinds) {
    path.tos = tos;
    ASSERT_EQ(3u, send(*a, path, {100, 100, 50}));
  }
  const std::vector<Got> got = receive(*b, 15);
  ASSERT_EQ(15u, got.size());
  for (size_t i = 0; i < 15; i++) EXPECT_EQ((kinds[i / 3] & kEcnMask) == kEcnCe, got[i].ce) << i;
}

TEST_P(SocketPorts, bursts_longer_than_a_batch) {
  std::vector<uint32_t> lengths(150, 100);
  ASSERT_EQ(150u, send(*a, path, lengths));
  EXPECT_EQ(150u, receive(*b, 150).size());
}

/// Flows that share a socket share what it holds; a socket of one's own is not divided.
TEST_P(SocketPorts, what_a_socket_holds_is_divided_by_those_that_receive) {
  const uint32_t all = b->share(back, 1500, 1);
  EXPECT_GE(all, 212'992u / truesize(1500) / 2);
  EXPECT_EQ(all, b->share(back, 1500, 2));
  EXPECT_GT(all, b->share(back, 9000, 3));
  Path second = path_between(GetParam(), port_b, htons(9));
  ASSERT_EQ(0, b->add_flow(second, -EBADF)) << "by the socket of the first";
  EXPECT_EQ(all, b->share(back, 1500, 4)) << "idle so far";
  EXPECT_EQ(all / 2, b->share(second, 1500, 5));
  EXPECT_EQ(all / 2, b->share(back, 1500, 6));
  EXPECT_EQ(all, a->share(path, 1500, 7));
  b->remove_flow(second);
  EXPECT_EQ(all, b->share(back, 1500, uint64_t{100} << Shares::kPeriodShift));
}

TEST_P(SocketPorts, datagrams_that_a_socket_has_no_room_for_are_counted) {
  int error = 0;
  auto small = SocketPort::create(kMtu, error);
  uint16_t port = 0;
  const int fd = data_socket(GetParam(), port), least = 1;
  Path there = path_between(GetParam(), port_a, port), here = path_between(GetParam(), port, port_a);
  ASSERT_EQ(0, small->add_flow(here, fd));
  ASSERT_EQ(0, setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least));
  ASSERT_EQ(50u, send(*a, there, std::vector<uint32_t>(50, 1000)));
  const size_t came = receive(*small, 50, kShortly).size();
  ASSERT_LT(came, 50u);
  ASSERT_EQ(1u, send(*a, there, {1000}));
  ASSERT_EQ(1u, receive(*small, 1).size());
  EXPECT_EQ(50 - came, small->drops().no_buffer);
}

TEST_P(SocketPorts, merged_datagrams_arrive_one_by_one) {
  path.merge = true;
  std::vector<uint32_t> lengths(40, 100);
  lengths.insert(lengths.end(), {60, 60, 100});
  lengths.insert(lengths.end(), 20, 9000);
  lengths.insert(lengths.end(), {14, 9000, 0, 30});
  ASSERT_EQ(lengths.size(), send(*a, path, lengths));
  std::vector<Got> got = receive(*b, lengths.size());
  ASSERT_EQ(lengths.size(), got.size());
  for (size_t i = 0; i < lengths.size(); i++) {
    ASSERT_EQ(lengths[i], got[i].bytes.size()) << i;
    for (std::byte x : got[i].bytes) ASSERT_EQ(static_cast<std::byte>(i), x) << i;
    EXPECT_TRUE(got[i].flow == back.flow);
  }
}

/// A program may unmap what it has registered: its datagrams are lost then, and nobody else's.
TEST_P(SocketPorts, memory_that_is_gone_is_as_if_lost) {
  for (const bool merge : {false, true}) {
    path.merge = merge;
    TxBuf bufs[3] = {};
    ASSERT_EQ(3u, a->tx_alloc(bufs));
    std::byte there[100] = {};
    void* const gone = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(MAP_FAILED, gone);
    for (TxBuf& one : bufs) {
      memset(one.data, 1, 100);
      one.len = one.more_len = 100;
      one.path = &path;
      one.more = there;
    }
    bufs[1].more = static_cast<std::byte*>(gone);
    bufs[2].len = 200;  // not to be merged with that
    EXPECT_EQ(3u, a->tx(bufs));
    const size_t arrive = merge ? 1 : 2;
    EXPECT_EQ(arrive, receive(*b, arrive).size());
    quiet(*b, 1);
    munmap(gone, 4096);
  }
}

TEST_P(SocketPorts, wait_fd_is_readable_while_something_waits) {
  pollfd p{b->wait_fd(), POLLIN, 0};
  EXPECT_EQ(0, poll(&p, 1, 0));
  ASSERT_EQ(1u, send(*a, path, {20}));
  EXPECT_EQ(1, poll(&p, 1, 1000));
  EXPECT_EQ(1u, receive(*b, 1).size());
  EXPECT_EQ(0, poll(&p, 1, 0));
}

TEST_P(SocketPorts, too_long_a_datagram_from_outside_is_counted) {
  int fd = socket(GetParam() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  std::vector<char> big(20000);
  sockaddr_in sin{};
  sin.sin_family = AF_INET;
  sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sin.sin_port = port_b;
  sockaddr_in6 sin6{};
  sin6.sin6_family = AF_INET6;
  sin6.sin6_addr = in6addr_loopback;
  sin6.sin6_port = port_b;
  auto* to = GetParam() ? reinterpret_cast<sockaddr*>(&sin) : reinterpret_cast<sockaddr*>(&sin6);
  socklen_t len = GetParam() ? sizeof sin : sizeof sin6;
  ASSERT_EQ(static_cast<ssize_t>(big.size()), sendto(fd, big.data(), big.size(), 0, to, len));
  close(fd);
  ASSERT_EQ(1u, send(*a, path, {30}));
  EXPECT_EQ(1u, receive(*b, 1).size());
  EXPECT_EQ(1u, b->drops().malformed);
}

TEST_P(SocketPorts, port_is_let_go_by_its_last_user) {
  Path second = back;
  second.flow.remote_port++;
  ASSERT_EQ(0, b->add_flow(second, -1));  // no descriptor needed
  b->remove_flow(second);
  ASSERT_EQ(1u, send(*a, path, {30}));
  EXPECT_EQ(1u, receive(*b, 1).size());
  b->remove_flow(back);
  ASSERT_EQ(1u, send(*a, path, {30}));  // nobody has the port: as if lost
  EXPECT_EQ(0u, receive(*b, 1, kShortly).size());
}

TEST_P(SocketPorts, several_local_ports) {
  uint16_t other = 0;
  int fd = data_socket(GetParam(), other);
  Path other_back = path_between(GetParam(), other, port_a);
  ASSERT_EQ(0, b->add_flow(other_back, fd));
  Path second = path_between(GetParam(), port_a, other);
  ASSERT_EQ(1u, send(*a, path, {30}));
  ASSERT_EQ(1u, send(*a, second, {40}));
  std::vector<Got> got = receive(*b, 2);
  ASSERT_EQ(2u, got.size());
  EXPECT_NE(got[0].flow.local_port, got[1].flow.local_port);
}

/// The sockets of one port do not stand in for one another.
TEST_P(SocketPorts, one_port_of_both_families) {
  const bool other = !GetParam();
  int from = data_socket(other, port_a, port_a), to = data_socket(other, port_b, port_b);
  Path there = path_between(other, port_a, port_b), back_there = path_between(other, port_b, port_a);
  ASSERT_EQ(0, a->add_flow(there, from));
  ASSERT_EQ(0, b->add_flow(back_there, to));
  ASSERT_EQ(1u, send(*a, path, {30}));
  ASSERT_EQ(1u, send(*a, there, {40}));
  std::vector<Got> got = receive(*b, 2);
  ASSERT_EQ(2u, got.size());
  EXPECT_NE(got[0].flow.is_ipv4(), got[1].flow.is_ipv4());
  a->remove_flow(there);
  ASSERT_EQ(1u, send(*a, there, {40}));  // as if lost
  ASSERT_EQ(1u, send(*a, path, {30}));
  EXPECT_EQ(1u, receive(*b, 2, kShortly).size());
}

/// Two sockets of the receiver are always full: each burst is one socket's.
TEST_P(SocketPorts, every_socket_has_its_turn) {
  uint16_t ports[3] = {port_b};
  for (int i = 1; i < 3; i++) {
    int fd = data_socket(GetParam(), ports[i]);
    Path other_back = path_between(GetParam(), ports[i], port_a);
    ASSERT_EQ(0, b->add_flow(other_back, fd));
  }
  size_t got[3] = {};
  for (int round = 0; round < 12; round++) {
    for (uint16_t port : ports) {
      Path to = path_between(GetParam(), port_a, port);
      ASSERT_EQ(32u, send(*a, to, std::vector<uint32_t>(32, 100)));
    }
    RxBuf bufs[32];
    const size_t n = b->rx(bufs);
    for (size_t i = 0; i < n; i++)
      for (int k = 0; k < 3; k++) got[k] += bufs[i].flow.local_port == ports[k];
    b->rx_free({bufs, n});
  }
  for (size_t n : got) EXPECT_EQ(4 * 32u, n);
  // One is let go while its turn is still to come.
  b->remove_flow(path_between(GetParam(), ports[1], port_a));
  b->remove_flow(path_between(GetParam(), ports[2], port_a));
  EXPECT_EQ(8 * 32u, receive(*b, 8 * 32).size());
}

/// The one that alone has something, time after time, is looked at without asking for the others. They have their turn.
TEST_P(SocketPorts, one_busy_socket_does_not_starve_the_others) {
  uint16_t quiet_port = 0;
  const int fd = data_socket(GetParam(), quiet_port);
  Path quiet_back = path_between(GetParam(), quiet_port, port_a);
  const Path to_quiet = path_between(GetParam(), port_a, quiet_port);
  ASSERT_EQ(0, b->add_flow(quiet_back, fd));
  RxBuf bufs[2];
  const auto look = [&] {
    const size_t n = b->rx(bufs);
    const bool quiet_one = std::any_of(bufs, bufs + n, [&](auto& buf) { return buf.flow.local_port == quiet_port; });
    b->rx_free({bufs, n});
    return quiet_one;
  };
  for (int i = 0; i < 20; i++) {
    ASSERT_EQ(1u, send(*a, path, {100}));
    look();
  }
  ASSERT_EQ(1u, send(*a, to_quiet, {100}));
  int looks = 1;
  for (; looks < 100; looks++) {
    ASSERT_EQ(1u, send(*a, path, {100}));
    if (look()) break;
  }
  EXPECT_LE(looks, 20) << "of the busy one's";
  for (size_t n; (n = b->rx(bufs)) != 0;) b->rx_free({bufs, n});
  // Nor while nothing comes; behind arm() the first look is at all.
  ASSERT_EQ(1u, send(*a, to_quiet, {100}));
  for (looks = 1; looks < 100 && !look(); looks++) {}
  EXPECT_LE(looks, 20) << "in vain";
  for (int i = 0; i < 3; i++) {
    ASSERT_EQ(1u, send(*a, path, {100}));
    look();
  }
  ASSERT_EQ(1u, send(*a, to_quiet, {100}));
  b->arm();
  EXPECT_TRUE(look());
}

/// After a look in vain one is asked for, which is alone as a rule; others that came with it are not left waiting.
TEST_P(SocketPorts, a_burst_after_nothing_takes_two_looks) {
  for (int round = 0; round < 3; round++) {
    RxBuf bufs[32];
    ASSERT_EQ(0u, b->rx(bufs));
    ASSERT_EQ(32u, send(*a, path, std::vector<uint32_t>(32, 100)));
    size_t n = b->rx(bufs);
    EXPECT_NE(0u, n);
    n += b->rx(std::span(bufs).subspan(n));
    EXPECT_EQ(32u, n);
    b->rx_free({bufs, n});
  }
}

TEST_P(SocketPorts, a_descriptor_that_could_not_be_made_is_an_error) {
  Path other = path_between(GetParam(), htons(9), port_a);
  EXPECT_EQ(EMFILE, b->add_flow(other, -EMFILE));
}

#ifndef __SANITIZE_ADDRESS__  // what UBSan asks about an object's memory takes a pipe
TEST(SocketPortCreate, without_descriptors_it_keeps_no_memory) {
  auto pages = [] {
    long total = 0;
    FILE* f = fopen("/proc/self/statm", "re");
    EXPECT_EQ(1, fscanf(f, "%ld", &total));
    fclose(f);
    return total;
  };
  const long before = pages();
  for (int i = 0; i < 8; i++) {
    NoDescriptors none;
    int error = 0;
    EXPECT_EQ(nullptr, SocketPort::create(kMtu, error));
    EXPECT_EQ(EMFILE, error);
  }
  EXPECT_LT(pages() - before, 4096);
}
#endif

INSTANTIATE_TEST_SUITE_P(, SocketPorts, ::testing::Bool(), family);

}  // namespace
}  // namespace usiw
