// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file loopback.h
/// Ports with sockets on 127.0.0.1 or ::1: what tests of such ports share.
#ifndef USIW_TESTS_PORT_LOOPBACK_H
#define USIW_TESTS_PORT_LOOPBACK_H

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>

#include <cstring>
#include <vector>

#include "port/net_port.h"

namespace usiw {

inline constexpr uint32_t kMtu = 9216;

/// A socket as the control path makes them, on 127.0.0.1 or ::1; its port in network byte order (@p wanted, or any).
inline int data_socket(bool ipv4, uint16_t& port, uint16_t wanted = 0) {
  int fd = socket(ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  sockaddr_storage sa{};
  socklen_t len;
  if (ipv4) {
    auto& sin = reinterpret_cast<sockaddr_in&>(sa);
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sin.sin_port = wanted;
    len = sizeof sin;
    setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &on, sizeof on);
  } else {
    auto& sin6 = reinterpret_cast<sockaddr_in6&>(sa);
    sin6.sin6_family = AF_INET6;
    sin6.sin6_addr = in6addr_loopback;
    sin6.sin6_port = wanted;
    len = sizeof sin6;
    setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  }
  EXPECT_EQ(0, bind(fd, reinterpret_cast<sockaddr*>(&sa), len));
  getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len);
  port = ipv4 ? reinterpret_cast<sockaddr_in&>(sa).sin_port : reinterpret_cast<sockaddr_in6&>(sa).sin6_port;
  return fd;
}

inline Path path_between(bool ipv4, uint16_t from, uint16_t to) {
  Path p{};
  if (ipv4) {
    p.flow.local_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  } else {
    p.flow.local_addr[15] = 1;
  }
  p.flow.remote_addr = p.flow.local_addr;
  p.flow.local_port = from;
  p.flow.remote_port = to;
  p.hop_limit = 64;
  return p;
}

/// Sends datagrams of these lengths; the i-th is filled with i. Of every other one half is given by reference, where
/// the port takes that.
inline size_t send(NetPort& from, const Path& path, const std::vector<uint32_t>& lengths) {
  std::vector<TxBuf> bufs(lengths.size());
  bufs.resize(from.tx_alloc(bufs));
  std::vector<std::vector<std::byte>> elsewhere(bufs.size());
  for (size_t i = 0; i < bufs.size(); i++) {
    if (from.takes_references() && i % 2 == 1) elsewhere[i].assign(lengths[i] / 2, static_cast<std::byte>(i));
    bufs[i].more = elsewhere[i].data();
    bufs[i].more_len = static_cast<uint32_t>(elsewhere[i].size());
    bufs[i].len = lengths[i] - bufs[i].more_len;
    bufs[i].path = &path;
    memset(bufs[i].data, static_cast<int>(i), bufs[i].len);
  }
  return from.tx(bufs);
}

/// While it lives this process gets no more descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none{3, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

struct Got {
  std::vector<std::byte> bytes;
  FlowKey flow;
  bool ce;
};
/// For receive(), where fewer datagrams than asked for are expected: loopback has delivered before the sender returns.
constexpr int kShortly = 100;

/// What arrives until @p count datagrams have, or nothing has for @p patience ms.
inline std::vector<Got> receive(NetPort& at, size_t count, int patience = 2000) {
  std::vector<Got> all;
  for (int quiet = 0; all.size() < count && quiet < patience;) {
    RxBuf bufs[8];
    size_t n = at.rx(bufs);
    quiet = n == 0 ? quiet + 10 : 0;
    for (size_t i = 0; i < n; i++)
      all.push_back({{bufs[i].data, bufs[i].data + bufs[i].len}, bufs[i].flow, bufs[i].ce});
    at.rx_free({bufs, n});
    pollfd p{at.wait_fd(), POLLIN, 0};
    if (n == 0) poll(&p, 1, 10);
  }
  return all;
}

/// Whether 40 datagrams come as one message: nothing is left in the socket then when the first has been taken.
inline bool comes_merged(NetPort& from, const Path& path, NetPort& at) {
  EXPECT_EQ(40u, send(from, path, std::vector<uint32_t>(40, 1000)));
  RxBuf first;
  EXPECT_EQ(1u, at.rx(std::span(&first, 1)));
  pollfd p{at.wait_fd(), POLLIN, 0};
  const bool rest_waits = poll(&p, 1, 0) == 1;
  at.rx_free(std::span(&first, 1));
  EXPECT_EQ(39u, receive(at, 39).size());
  return !rest_waits;
}

}  // namespace usiw

#endif  // USIW_TESTS_PORT_LOOPBACK_H
