// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file next_hop.h
/// The interface and the MAC of the next hop, which raw packets need besides addresses. rtnetlink shows them without
/// any rights.
#ifndef USIW_RUN_NEXT_HOP_H
#define USIW_RUN_NEXT_HOP_H

#include <array>
#include <cstdint>

#include <linux/netlink.h>

#include "tools/run/host/host.h"

namespace usiw::run {

struct NextHop {
  uint32_t ifindex = 0;
  bool local = false;  ///< the route leads to this host itself
  Endpoint address;    ///< address of the neighbour, a gateway or the peer
  std::array<uint8_t, 6> mac{};
  bool operator==(const NextHop&) const = default;
};

/// Finds the interface and the neighbour by which a packet leaves from one of this host's addresses to @p to. The MAC
/// stays as it is. Returns 0, or -errno if a raw packet would not get there:
/// - -EHOSTUNREACH: there is no route, or it leads to this host. The kernel takes no raw packets on lo, and @p out
///   shows this case.
/// - -EPROTONOSUPPORT: the route encapsulates the packet.
int route_of(const Endpoint& from, const Endpoint& to, NextHop& out);
/// Finds the neighbour's MAC. Returns 0 or -errno: -EHOSTUNREACH while the kernel does not know it. The kernel knows it
/// if the neighbour has just sent something.
int resolve(NextHop& hop);

/// Reads an rtnetlink message about a neighbour whose MAC is known. Returns false if the message is another one.
bool neighbour_in(const nlmsghdr& message, NextHop& out);

}  // namespace usiw::run

#endif  // USIW_RUN_NEXT_HOP_H
