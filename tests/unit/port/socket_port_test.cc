// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/socket_port.h"

#include <linux/in6.h>
#include <net/if.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "loopback.h"
#include "port/fault_port.h"

namespace usiw {
namespace {

unsigned runs_until_one_comes(NetPort& at) {
  RxBuf buf{};
  unsigned runs = 1;
  while (at.rx({&buf, 1}) == 0 && runs < 1000) ++runs;
  if (runs < 1000) at.rx_free({&buf, 1});
  return runs;
}

void quiet(NetPort& at, unsigned runs) {
  RxBuf buf{};
  for (unsigned i = 0; i < runs; ++i) ASSERT_EQ(0u, at.rx({&buf, 1}));
}

/// Two ports with a socket each, and a path between them.
class SocketPorts : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    int error = 0;
    a = SocketPort::create(kMtu, error);
    b = SocketPort::create(kMtu, error);
    ASSERT_TRUE(a && b);
    int fa = data_socket(GetParam(), port_a), fb = data_socket(GetParam(), port_b);
    path = path_between(GetParam(), port_a, port_b);
    back = path_between(GetParam(), port_b, port_a);
    ASSERT_EQ(0, a->add_flow(path, fa));
    ASSERT_EQ(0, b->add_flow(back, fb));
  }

  bool merged() { return comes_merged(*a, path, *b); }

  std::unique_ptr<SocketPort> a, b;
  uint16_t port_a = 0, port_b = 0;
  Path path{}, back{};
};

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

/// Several connections of one local port, each with a socket that is connected to its peer, as the module hands them out.
class ConnectedPorts : public ::testing::TestWithParam<bool> {
 protected:
  struct Flow {
    uint16_t port;
    int fd;  ///< of the far end, which sends from it
    Path path;
  };
  void SetUp() override {
    int error = 0;
    at = SocketPort::create(kMtu, error);
    ASSERT_TRUE(at);
    for (Flow& f : flows) {
      f.fd = data_socket(GetParam(), f.port);
      const int own = shared_socket();
      f.path = path_between(GetParam(), local, f.port);
      ASSERT_EQ(0, connect_to(own, f.port));
      ASSERT_EQ(0, at->add_flow(f.path, own));
      ASSERT_EQ(0, connect_to(f.fd, local));
    }
  }
  void TearDown() override {
    for (Flow& f : flows) close(f.fd);
  }
  int shared_socket() {
    const int on = 1, fd = socket(GetParam() ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    sockaddr_storage sa;
    socklen_t len = name(sa, local);
    EXPECT_EQ(0, bind(fd, reinterpret_cast<sockaddr*>(&sa), len));
    getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len);
    local = GetParam() ? reinterpret_cast<sockaddr_in&>(sa).sin_port : reinterpret_cast<sockaddr_in6&>(sa).sin6_port;
    return fd;
  }
  socklen_t name(sockaddr_storage& sa, uint16_t port) {
    sa = {};
    if (GetParam()) {
      auto& sin = reinterpret_cast<sockaddr_in&>(sa);
      sin.sin_family = AF_INET;
      sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      sin.sin_port = port;
      return sizeof sin;
    }
    auto& sin6 = reinterpret_cast<sockaddr_in6&>(sa);
    sin6.sin6_family = AF_INET6;
    sin6.sin6_addr = in6addr_loopback;
    sin6.sin6_port = port;
    return sizeof sin6;
  }
  int connect_to(int fd, uint16_t port) {
    sockaddr_storage sa;
    const socklen_t len = name(sa, port);
    return connect(fd, reinterpret_cast<sockaddr*>(&sa), len);
  }

  std::unique_ptr<SocketPort> at;
  uint16_t local = 0;
  Flow flows[3];
};

/// Looking at a socket is a system call: while all connections send by another port it is not made in each run.
TEST_P(ConnectedPorts, sockets_that_only_receive_are_looked_at_now_and_then_and_after_arm_at_once) {
  for (Flow& f : flows) at->sends(f.path, false);
  quiet(*at, 10'000);
  for (const char* way : {"now and then", "after arm"}) {
    if (std::string(way) == "after arm") {
      EXPECT_TRUE(at->arm());
    }
    ASSERT_EQ(1, ::send(flows[1].fd, "x", 1, 0));
    const unsigned runs = runs_until_one_comes(*at);
    EXPECT_LE(runs, std::string(way) == "after arm" ? 1u : 64u) << way;
    ASSERT_EQ(1, ::send(flows[2].fd, "y", 1, 0));
    EXPECT_EQ(1u, runs_until_one_comes(*at)) << "something has come that way just now";
    quiet(*at, 10'000);
  }
  ASSERT_EQ(1, ::send(flows[0].fd, "z", 1, 0));
  at->sends(flows[0].path, true);
  EXPECT_EQ(1u, runs_until_one_comes(*at));
}

TEST_P(ConnectedPorts, each_connection_has_its_own_socket) {
  for (Flow& f : flows) {
    ASSERT_EQ(2u, send(*at, f.path, {100, 14}));
    char data[200];
    for (ssize_t len : {100, 14}) EXPECT_EQ(len, recv(f.fd, data, sizeof data, 0));
    EXPECT_EQ(-1, recv(f.fd, data, sizeof data, MSG_DONTWAIT));
    ASSERT_EQ(30, ::send(f.fd, data, 30, 0));
    std::vector<Got> got = receive(*at, 1);
    ASSERT_EQ(1u, got.size());
    EXPECT_EQ(30u, got[0].bytes.size());
    EXPECT_TRUE(got[0].flow == f.path.flow);
  }
}

TEST_P(ConnectedPorts, what_may_be_marked_goes_out_so) {
  const bool ipv4 = GetParam();
  const int on = 1;
  Flow& f = flows[0];
  setsockopt(f.fd, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_RECVTOS : IPV6_RECVTCLASS, &on, sizeof on);
  for (const bool ect : {false, true, true, false}) {
    f.path.ect = ect;
    ASSERT_EQ(1u, send(*at, f.path, {20}));
    char data[64];
    alignas(cmsghdr) char control[256];
    iovec vec{data, sizeof data};
    msghdr msg{};
    msg.msg_iov = &vec;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof control;
    ASSERT_EQ(20, recvmsg(f.fd, &msg, 0));
    int tclass = -1;
    for (cmsghdr* c = CMSG_FIRSTHDR(&msg); c != nullptr; c = CMSG_NXTHDR(&msg, c))
      if (c->cmsg_type == (ipv4 ? IP_TOS : IPV6_TCLASS)) tclass = *CMSG_DATA(c);
    EXPECT_EQ(ect ? kEct0 : 0, tclass);
  }
}

TEST_P(ConnectedPorts, a_burst_to_several_peers) {
  std::vector<TxBuf> bufs(60);
  ASSERT_EQ(bufs.size(), at->tx_alloc(bufs));
  for (size_t i = 0; i < bufs.size(); i++) {
    bufs[i].len = 20;
    bufs[i].path = &flows[i / 4 % 3].path;
    flows[i / 4 % 3].path.merge = i % 8 < 4;
  }
  EXPECT_EQ(bufs.size(), at->tx(bufs));
  for (Flow& f : flows) {
    char data[64];
    for (int i = 0; i < 20; i++) EXPECT_EQ(20, recv(f.fd, data, sizeof data, 0)) << i;
  }
}

TEST_P(ConnectedPorts, what_a_connection_that_has_ended_sends_is_lost_and_its_place_is_another_ones) {
  const Path old = flows[1].path;
  at->remove_flow(old);
  EXPECT_EQ(1u, send(*at, old, {50}));
  char data[64];
  EXPECT_EQ(-1, recv(flows[1].fd, data, sizeof data, MSG_DONTWAIT));
  // A new connection takes the slot.
  uint16_t port;
  const int far = data_socket(GetParam(), port), own = shared_socket();
  Path fresh = path_between(GetParam(), local, port);
  ASSERT_EQ(0, connect_to(own, port));
  ASSERT_EQ(0, at->add_flow(fresh, own));
  EXPECT_EQ(old.socket, fresh.socket);
  EXPECT_EQ(1u, send(*at, old, {50}));
  EXPECT_EQ(-1, recv(far, data, sizeof data, MSG_DONTWAIT));
  EXPECT_EQ(1u, send(*at, fresh, {51}));
  EXPECT_EQ(51, recv(far, data, sizeof data, 0));
  close(far);
}

INSTANTIATE_TEST_SUITE_P(Families, ConnectedPorts, ::testing::Bool());

/// Connections of one local port with one socket for all of them, as usiw-run hands it out; a raw port listens to lo.
class SharedSocket : public ::testing::TestWithParam<bool> {
 protected:
  struct Peer {
    uint16_t port;
    int fd;
    Path path;
  };
  void SetUp() override { start(if_nametoindex("lo")); }
  void TearDown() override {
    for (Peer& p : peers) close(p.fd);
    close(own);
  }
  /// @p netdev: that of the raw port.
  void start(uint32_t netdev) {
    int error = 0;
    at = SocketPort::create(kMtu, error, netdev);
    ASSERT_TRUE(at);
    if (own < 0) own = data_socket(GetParam(), local);
    for (Peer& p : peers) {
      if (p.fd < 0) p.fd = data_socket(GetParam(), p.port);
      add(p);
    }
  }
  void add(Peer& p) {
    p.path = path_between(GetParam(), local, p.port);
    ASSERT_EQ(0, at->add_flow(p.path, dup(own)));
  }
  /// Whether what the peer sends comes in here.
  bool hears(const Peer& p) {
    sockaddr_storage to{};
    socklen_t len = sizeof to;
    EXPECT_EQ(0, getsockname(own, reinterpret_cast<sockaddr*>(&to), &len));
    const std::vector<char> data(size);
    EXPECT_EQ(static_cast<ssize_t>(size), sendto(p.fd, data.data(), size, 0, reinterpret_cast<sockaddr*>(&to), len));
    pollfd ready{at->wait_fd(), POLLIN, 0};
    if (poll(&ready, 1, 0) == 0) return false;  // over lo it is there at once, or never
    at->arm();
    const std::vector<Got> got = receive(*at, 1);
    return got.size() == 1 && got[0].flow == p.path.flow;
  }
  std::vector<bool> heard() {
    std::vector<bool> all;
    for (const Peer& p : peers) all.push_back(hears(p));
    return all;
  }

  std::unique_ptr<SocketPort> at;
  int own = -1;
  uint16_t local = 0;
  size_t size = 1;
  Peer peers[3] = {{0, -1, {}}, {0, -1, {}}, {0, -1, {}}};
  using Heard = std::vector<bool>;
};

TEST_P(SharedSocket, it_takes_what_comes_for_those_that_send_by_it) {
  EXPECT_EQ((Heard{true, true, true}), heard());
  at->sends(peers[1].path, false);
  EXPECT_EQ((Heard{true, false, true}), heard());
  for (Peer& p : peers) at->sends(p.path, false);
  EXPECT_EQ((Heard{false, false, false}), heard());
  at->sends(peers[2].path, true);
  EXPECT_EQ((Heard{false, false, true}), heard());
  for (Peer& p : peers) at->sends(p.path, true);
  EXPECT_EQ((Heard{true, true, true}), heard());
}

TEST_P(SharedSocket, saying_it_twice_changes_nothing) {
  for (int twice = 0; twice < 2; twice++)
    for (Peer& p : peers) at->sends(p.path, false);
  for (int twice = 0; twice < 2; twice++) at->sends(peers[0].path, true);
  EXPECT_EQ((Heard{true, false, false}), heard());
  at->sends(peers[0].path, false);
  EXPECT_EQ((Heard{false, false, false}), heard());
}

/// One that sends by it goes: the rest goes by another port. One that does not: all that is left sends by it.
TEST_P(SharedSocket, who_goes_counts_no_more) {
  at->sends(peers[1].path, false);
  at->sends(peers[2].path, false);
  at->remove_flow(peers[0].path);
  EXPECT_EQ((Heard{false, false, false}), heard());
  add(peers[0]);
  at->remove_flow(peers[1].path);
  at->sends(peers[2].path, true);
  EXPECT_TRUE(hears(peers[0]));
  EXPECT_TRUE(hears(peers[2]));
}

/// The socket outlives the port's last connection, in the hands of who has made it.
TEST_P(SharedSocket, what_it_was_told_to_take_is_forgotten_with_the_last_connection) {
  for (Peer& p : peers) at->sends(p.path, false);
  for (Peer& p : peers) at->remove_flow(p.path);
  add(peers[0]);
  EXPECT_TRUE(hears(peers[0]));
}

TEST_P(SharedSocket, what_comes_by_another_interface_is_always_taken) {
  for (const uint32_t netdev : {0u, 0x7ffffffeu}) {
    for (Peer& p : peers) at->remove_flow(p.path);
    start(netdev);
    for (Peer& p : peers) at->sends(p.path, false);
    EXPECT_EQ((Heard{true, true, true}), heard());
  }
}

/// Fragments a raw port cannot use. What they are put together to has no DF, or of IPv6 is long and has a flow label.
TEST_P(SharedSocket, what_may_have_been_fragmented_is_taken) {
  for (Peer& p : peers) at->sends(p.path, false);
  const int dont = IP_PMTUDISC_DONT, off = 0;
  if (GetParam()) {
    ASSERT_EQ(0, setsockopt(peers[1].fd, IPPROTO_IP, IP_MTU_DISCOVER, &dont, sizeof dont));
    EXPECT_EQ((Heard{false, true, false}), heard());
  } else {
    ASSERT_EQ(0, setsockopt(peers[1].fd, IPPROTO_IPV6, IPV6_AUTOFLOWLABEL, &off, sizeof off));
    size = 1232;
    EXPECT_EQ((Heard{false, false, false}), heard());
    size = 1233;
    EXPECT_EQ((Heard{true, false, true}), heard());
  }
}

/// Of so many the filter does not tell.
TEST_P(SharedSocket, many_that_send_by_it) {
  std::vector<Path> others(100);
  for (size_t i = 0; i < others.size(); i++) {
    others[i] = path_between(GetParam(), local, htons(static_cast<uint16_t>(2000 + i)));
    ASSERT_EQ(0, at->add_flow(others[i], -1));
  }
  for (Peer& p : peers) at->sends(p.path, false);
  EXPECT_EQ((Heard{true, true, true}), heard());
  for (size_t i = 1; i < others.size(); i++) at->sends(others[i], false);
  EXPECT_EQ((Heard{false, false, false}), heard());
  at->sends(peers[0].path, true);
  EXPECT_EQ((Heard{true, false, false}), heard());
}

/// As of connected ones: no system call in each run.
TEST_P(SharedSocket, while_nobody_sends_by_it_it_is_looked_at_now_and_then) {
  sockaddr_storage to{};
  socklen_t len = sizeof to;
  ASSERT_EQ(0, getsockname(own, reinterpret_cast<sockaddr*>(&to), &len));
  const auto send_one = [&] {
    ASSERT_EQ(1, sendto(peers[0].fd, "x", 1, 0, reinterpret_cast<sockaddr*>(&to), len));
  };
  for (Peer& p : peers) at->remove_flow(p.path);
  start(0x7ffffffe);
  for (Peer& p : peers) at->sends(p.path, false);
  quiet(*at, 10'000);
  send_one();
  const unsigned runs = runs_until_one_comes(*at);
  EXPECT_GT(runs, 1u);
  EXPECT_LE(runs, 64u);
  at->sends(peers[1].path, true);
  quiet(*at, 10'000);
  send_one();
  EXPECT_EQ(1u, runs_until_one_comes(*at));
  at->sends(peers[1].path, false);
  at->remove_flow(peers[1].path);
  quiet(*at, 10'000);
  send_one();
  EXPECT_GT(runs_until_one_comes(*at), 1u);
}

INSTANTIATE_TEST_SUITE_P(, SharedSocket, ::testing::Bool(), [](auto& p) { return p.param ? "ipv4" : "ipv6"; });

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

/// Without checksums no message is taken apart. That a netdev or a path cannot do it now does not mean that it never can.
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

INSTANTIATE_TEST_SUITE_P(, MergedPorts, ::testing::Bool(), [](auto& p) { return p.param ? "ipv4" : "ipv6"; });
INSTANTIATE_TEST_SUITE_P(, MergingPorts, ::testing::Bool(), [](auto& p) { return p.param ? "ipv4" : "ipv6"; });

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
  EXPECT_EQ(0u, receive(*b, 1).size());
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
  EXPECT_EQ(1u, receive(*b, 2).size());
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

// ---- Faults -----------------------------------------------------------------------------------

TEST(FaultsParse, all_keys) {
  Faults f;
  ASSERT_TRUE(Faults::parse("loss=0.01,reorder=0.05,delay-us=50.5,seed=7,kill-after=65536,fail-wr=3", f));
  EXPECT_DOUBLE_EQ(0.01, f.loss);
  EXPECT_DOUBLE_EQ(0.05, f.reorder);
  EXPECT_EQ(50'500u, f.delay_ns);
  EXPECT_EQ(7u, f.seed);
  EXPECT_EQ(65536u, f.kill_after);
  EXPECT_EQ(3u, f.fail_wr);
  EXPECT_TRUE(f.on_wire());
  ASSERT_TRUE(Faults::parse("fail-wr=3,seed=1", f));
  EXPECT_FALSE(f.on_wire());
}

TEST(FaultsParse, nonsense) {
  Faults f;
  for (const char* text : {"loss", "loss=", "loss=2", "loss=-1", "loss=nan", "nonesuch=1", "seed=x", "loss=0.1=2"})
    EXPECT_FALSE(Faults::parse(text, f)) << text;
}

class FaultyPorts : public SocketPorts {
 protected:
  /// Which of @p count datagrams arrive, in order of arrival, by their first byte.
  std::vector<int> arriving(const Faults& faults, size_t count) {
    FaultPort faulty(std::move(a), faults);
    for (size_t i = 0; i < count; i++) {
      TxBuf buf;
      EXPECT_EQ(1u, faulty.tx_alloc({&buf, 1}));
      buf.len = 20;
      buf.path = &path;
      buf.data[0] = static_cast<std::byte>(i);
      faulty.tx({&buf, 1});
    }
    RxBuf none[1];
    for (int i = 0; i < 20; i++) {  // as the engine runs: what was held back goes out
      usleep(500);
      faulty.rx_free({none, faulty.rx(none)});
    }
    std::vector<int> got;
    for (Got& g : receive(*b, count)) got.push_back(static_cast<int>(g.bytes[0]));
    return got;
  }
};

TEST_P(FaultyPorts, the_same_seed_loses_the_same_datagrams) {
  std::vector<int> first = arriving({.loss = 0.3, .seed = 5}, 100);
  SetUp();
  std::vector<int> second = arriving({.loss = 0.3, .seed = 5}, 100);
  SetUp();
  std::vector<int> other = arriving({.loss = 0.3, .seed = 6}, 100);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
  EXPECT_LT(first.size(), 100u);
  EXPECT_GT(first.size(), 40u);
}

TEST_P(FaultyPorts, reordering_loses_nothing) {
  std::vector<int> got = arriving({.reorder = 0.3, .seed = 1}, 100);
  std::vector<int> sorted(100);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_NE(sorted, got);
  std::sort(got.begin(), got.end());
  EXPECT_EQ(sorted, got);
}

TEST_P(FaultyPorts, delay_keeps_the_order) {
  std::vector<int> got = arriving({.delay_ns = 1'000'000}, 50);
  std::vector<int> sorted(50);
  std::iota(sorted.begin(), sorted.end(), 0);
  EXPECT_EQ(sorted, got);
}

TEST_P(FaultyPorts, over_the_limit_a_reset_comes_back) {
  FaultPort faulty(std::move(a), {.kill_after = 100});
  ASSERT_EQ(1u, send(faulty, path, {60}));
  RxBuf buf[1];
  EXPECT_EQ(0u, faulty.rx(buf));
  ASSERT_EQ(1u, send(faulty, path, {60}));
  ASSERT_EQ(1u, faulty.rx(buf));
  EXPECT_EQ(14u, buf[0].len);
  EXPECT_EQ(std::byte{0x70}, buf[0].data[8]);  // RESET, stray
  EXPECT_EQ(std::byte{0x10}, buf[0].data[9]);
  EXPECT_TRUE(path.flow == buf[0].flow);
  faulty.rx_free(buf);
  EXPECT_EQ(1u, receive(*b, 2).size());
}

INSTANTIATE_TEST_SUITE_P(, SocketPorts, ::testing::Bool(), [](auto& p) { return p.param ? "ipv4" : "ipv6"; });
INSTANTIATE_TEST_SUITE_P(, FaultyPorts, ::testing::Bool(), [](auto& p) { return p.param ? "ipv4" : "ipv6"; });

}  // namespace
}  // namespace usiw
