// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file next_hop.h
/// The next hop of a route: its interface and its MAC, which raw packets need besides addresses. rtnetlink shows both
/// to processes without any rights.
#ifndef USIW_RUN_NEXT_HOP_H
#define USIW_RUN_NEXT_HOP_H

#include <array>
#include <cstdint>

#include <linux/netlink.h>

#include "tools/run/host/host.h"

namespace usiw::run {

/// The next hop of a route.
struct NextHop {
  uint32_t ifindex = 0;
  bool local = false;  ///< the route leads to this host itself
  Endpoint address;    ///< the neighbour: a gateway, or the peer itself
  std::array<uint8_t, 6> mac{};
  bool operator==(const NextHop&) const = default;
};

/// Sets interface and neighbour of @p out to those of packets from @p from, an address of this host, to @p to. Does not
/// change the MAC. Returns 0, or -errno if raw packets cannot use the route:
/// - -EHOSTUNREACH: the route is not a unicast route. If @p out.local is true, the route leads to this host by lo, on
///   which the kernel accepts no raw packets.
/// - -EPROTONOSUPPORT: the route encapsulates the packet.
/// - Another -errno: the kernel has no route, or rtnetlink has failed.
int route_of(const Endpoint& from, const Endpoint& to, NextHop& out);
/// Sets the MAC of @p hop from the kernel's table of neighbours. Returns 0 or -errno: -EHOSTUNREACH while the kernel
/// does not know the MAC. The kernel resolves the MAC when this host sends to the neighbour by a socket.
int resolve(NextHop& hop);

/// Sets @p out to the neighbour in an rtnetlink message. Returns false if @p message is not about a neighbour whose MAC
/// is known.
bool neighbour_in(const nlmsghdr& message, NextHop& out);

}  // namespace usiw::run

#endif  // USIW_RUN_NEXT_HOP_H
