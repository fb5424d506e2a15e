// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "packets.h"

#include <sys/socket.h>
#include <unistd.h>

#include "settings.h"

namespace usiw::run {
namespace {

bool g_given_up = false;

bool open_one() {
  int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd >= 0) close(fd);
  return fd >= 0;
}

bool wanted() {
  const Ports ports = settings().ports;
  return (ports == Ports::kAuto || ports == Ports::kPacket) && !g_given_up;
}

bool possible_by(const usiw_link_info& link) {
  return std::to_array(link.mac) != std::array<uint8_t, 6>{} && packets_permitted();
}

}  // namespace

bool packets_permitted() {
  static const bool once = open_one();
  return once;
}

void packets_give_up() { g_given_up = true; }

bool packets_possible() { return wanted() && possible_by(link_info()); }

bool packets_reach(const Tuple& tuple, NextHop& hop) {
  if (!wanted()) return false;
  const usiw_link_info link = link_info();
  return possible_by(link) && route_of(tuple.local, tuple.remote, hop) == 0 && hop.ifindex == link.ifindex;
}

}  // namespace usiw::run
