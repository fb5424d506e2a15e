// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_wish.h
/// What a process wants of ports and may have of them, before there is any connection.
#ifndef USIW_RUNTIME_PORT_WISH_H
#define USIW_RUNTIME_PORT_WISH_H

#include "port/choice.h"

namespace usiw {

/// USIW_PORT; auto, and a line on stderr, if it is none of the names.
PortWish port_wish();

/// Of the capabilities @p all (USIW_CAP_*) of this provider those that are its own for a process that wishes and may
/// so: one without raw packets says so, since its connections can do more if they never come; one that wants nothing
/// else takes no data sockets.
constexpr uint64_t caps_of(uint64_t all, PortWish wish, bool permitted) {
  constexpr uint64_t kOfSockets =
      USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_MOVE | USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES;
  if (wish == PortWish::kPacket) return all & ~kOfSockets;
  return wish == PortWish::kAuto && permitted ? all & ~uint64_t{USIW_CAP_SOCKETS_ONLY} : all;
}

}  // namespace usiw

#endif  // USIW_RUNTIME_PORT_WISH_H
