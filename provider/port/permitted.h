// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file permitted.h
/// May this process send raw packets?
#ifndef USIW_PORT_PERMITTED_H
#define USIW_PORT_PERMITTED_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/machine.h"

namespace usiw {

/// DPDK's af_packet port (seen in 24.11 and 25.11) reads the state of a frame in the kernel's ring, and gives the frame
/// back, without memory barriers. On a weakly ordered processor it could read a frame that the kernel is still writing.
inline constexpr bool kPacketPortIsOrdered = kTotalStoreOrder;

/// Asked once. A raw IP socket takes the same right as a packet socket, whose closing takes milliseconds.
inline bool packets_permitted() {
  if constexpr (!kPacketPortIsOrdered) return false;
  static const bool once = [] {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }();
  return once;
}

}  // namespace usiw

#endif  // USIW_PORT_PERMITTED_H
