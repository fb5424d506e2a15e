// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file next_hop.h
/// What raw packets need besides addresses: the interface and the next hop's MAC, as the kernel knows
/// them. By rtnetlink, which answers such questions without rights.
#ifndef USIW_RUN_NEXT_HOP_H
#define USIW_RUN_NEXT_HOP_H

#include <array>
#include <cstdint>

#include "host.h"

namespace usiw::run {

struct NextHop {
  uint32_t ifindex = 0;
  std::array<uint8_t, 6> mac{};
};

/// How a packet gets from one of this host's addresses to @p to. 0 or -errno: -EHOSTUNREACH where the
/// neighbour is not known (who has just heard from @p to knows it), or @p to is this host: the kernel
/// takes raw packets on lo from nobody.
int next_hop(const Endpoint& from, const Endpoint& to, NextHop& out);

}  // namespace usiw::run

#endif  // USIW_RUN_NEXT_HOP_H
