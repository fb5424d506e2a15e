// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interface.h
/// Requests of netdevice(7): calls of ioctl(2) about a network interface. They need a socket, whose family does not
/// matter. This file uses an IPv6 socket if the kernel or a sandbox does not permit an IPv4 socket.
#ifndef USIW_RUN_INTERFACE_H
#define USIW_RUN_INTERFACE_H

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

#include "tools/run/host/fd.h"

namespace usiw::run {

/// Returns a UDP socket, of IPv4 if that is possible and else of IPv6.
inline Fd udp_socket_of_any_family() {
  Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return fd >= 0 ? std::move(fd) : Fd(socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
}

/// An interface, and `r`, the argument of the requests about it.
class Interface {
 public:
  explicit Interface(const std::string& name) { name.copy(r.ifr_name, sizeof r.ifr_name - 1); }
  /// Calls ioctl(2) with `r`. Returns false, with errno, if that fails.
  bool call(unsigned long request) {
    errno = error_;
    return socket_ >= 0 && ioctl(socket_, request, &r) == 0;
  }
  /// Returns IFF_*, or 0 if the request fails, for example because there is no such interface.
  unsigned flags() { return call(SIOCGIFFLAGS) ? static_cast<unsigned short>(r.ifr_flags) : 0; }

  ifreq r{};

 private:
  const Fd socket_ = udp_socket_of_any_family();
  const int error_ = socket_ >= 0 ? 0 : errno;
};

}  // namespace usiw::run

#endif  // USIW_RUN_INTERFACE_H
