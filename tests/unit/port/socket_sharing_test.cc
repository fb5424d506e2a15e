// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file socket_sharing_test.cc
/// Connections of one local port: each with a socket of its own, or one for all.
#include <netinet/in.h>
#include <linux/in6.h>
#include <net/if.h>
#include <unistd.h>

#include <numeric>
#include <vector>

#include "socket_ports.h"

namespace usiw {
namespace {

/// Several connections of one local port, each with a socket that is connected to its peer, as the module hands them
/// out.
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
    EXPECT_LE(runs_until_one_comes(*at), 2u) << "something has come that way just now, by another socket";
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

INSTANTIATE_TEST_SUITE_P(, ConnectedPorts, ::testing::Bool(), family);

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

/// The kernel counts what the filter drops as it counts what found no space, for as long as the socket lives.
TEST_P(SharedSocket, what_it_does_not_take_is_not_lost) {
  at->sends(peers[1].path, false);
  EXPECT_EQ((Heard{true, false, true}), heard());
  EXPECT_EQ(0u, at->drops().no_buffer);
  EXPECT_FALSE(hears(peers[1]));
  at->sends(peers[1].path, true);
  EXPECT_EQ((Heard{true, true, true}), heard());
  for (Peer& p : peers) at->remove_flow(p.path);
  for (Peer& p : peers) add(p);
  EXPECT_EQ((Heard{true, true, true}), heard());
  EXPECT_EQ(0u, at->drops().no_buffer);
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

INSTANTIATE_TEST_SUITE_P(, SharedSocket, ::testing::Bool(), family);

}  // namespace
}  // namespace usiw
