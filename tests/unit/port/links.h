// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file links.h
/// A network namespace with two links, lo and another, where one link-local address is on both.
#ifndef USIW_TESTS_PORT_LINKS_H
#define USIW_TESTS_PORT_LINKS_H

#include <net/if.h>
#include <sched.h>

#include <cstdlib>

#include "base/link_local.h"
#include "loopback.h"

namespace usiw {

inline constexpr const char* kLinks[] = {"lo", "d0"};

/// False: it needs root.
inline bool make_two_links() {
  return unshare(CLONE_NEWNET) == 0 &&
         std::system("ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d1 up && "
                     "ip link set d0 up && "
                     "ip addr add fe80::1/64 dev lo nodad && ip addr add fe80::1/64 dev d0 nodad && "
                     "until [ $(ip -6 route show table local | grep -c '^local fe80::1 ') = 2 ]; do :; done") == 0;
}

/// A socket as the control path makes them, at fe80::1 of @p link or (0) at all addresses.
inline int link_local_socket(uint32_t link, uint16_t& port) {
  const int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on);
  sockaddr_in6 name{};
  name.sin6_family = AF_INET6;
  name.sin6_port = port;
  name.sin6_scope_id = link;
  if (link != 0) inet_pton(AF_INET6, "fe80::1", &name.sin6_addr);
  EXPECT_EQ(0, bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name));
  socklen_t len = sizeof name;
  getsockname(fd, reinterpret_cast<sockaddr*>(&name), &len);
  port = name.sin6_port;
  return fd;
}

/// From fe80::1 to fe80::1 by @p link, as the runtime makes it for a device of the link @p unmarked.
inline Path link_path(uint32_t link, uint32_t unmarked, uint16_t from, uint16_t to) {
  Path p{};
  inet_pton(AF_INET6, "fe80::1", p.flow.local_addr.data());
  p.flow.remote_addr = p.flow.local_addr;
  p.flow.local_port = from;
  p.flow.remote_port = to;
  p.hop_limit = 64;
  p.scope = link;
  p.marked = link != unmarked;
  if (p.marked) put_link(p.flow.local_addr.data(), link);
  return p;
}

}  // namespace usiw

#endif  // USIW_TESTS_PORT_LINKS_H
