// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/port_wish.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/say.h"
#include "runtime/glue.h"

namespace usiw {

PortWish port_wish() {
  PortWish wish = PortWish::kAuto;
  if (const char* name = getenv(kPortVariable); name != nullptr && *name != 0 && !parse_port_wish(name, wish))
    say_once(std::string(kPortVariable) + ": " + kPortNames + ", not '" + name + "'; auto is taken");
  return wish;
}

/// A raw IP socket takes the same right as a packet socket, whose closing takes milliseconds.
bool packets_permitted() {
  static const bool once = [] {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW);
    if (fd >= 0) close(fd);
    return fd >= 0;
  }();
  return once;
}

}  // namespace usiw

uint64_t usiw_own_caps(uint64_t all) { return usiw::caps_of(all, usiw::port_wish(), usiw::packets_permitted()); }
