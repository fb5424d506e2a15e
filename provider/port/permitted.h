// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file permitted.h
/// May this process send raw packets?
#ifndef USIW_PORT_PERMITTED_H
#define USIW_PORT_PERMITTED_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace usiw {

/// Asked once. A raw IP socket takes the same right as a packet socket, whose closing takes milliseconds.
inline bool packets_permitted() {
  static const bool once = [] {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }();
  return once;
}

}  // namespace usiw

#endif  // USIW_PORT_PERMITTED_H
