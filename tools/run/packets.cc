// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "packets.h"

#include "port/permitted.h"
#include "settings.h"

namespace usiw::run {
namespace {

bool g_given_up = false;

}  // namespace

void packets_give_up() { g_given_up = true; }

/// The same rule as with the module; only what is possible differs. (Shared memory is the socket port's own matter here.)
bool packets_possible() {
  const usiw_link_info link = link_info();
  const bool ethernet = std::to_array(link.mac) != std::array<uint8_t, 6>{};
  const PortWish wish = settings().port == PortWish::kPacket ? PortWish::kAuto : settings().port;
  const PortFacts facts{.not_packet = ethernet ? USIW_NOT_PACKET_NONE : USIW_NOT_PACKET_NETDEV,
                        .permitted = packets_permitted(),
                        .broken = g_given_up,
                        .socket = true,
                        .same_host = false};
  return choose_port(wish, facts).kind == PortKind::kPacket;
}

bool packets_reach(const Tuple& tuple, NextHop& hop) {
  if (!packets_possible()) return false;
  return route_of(tuple.local, tuple.remote, hop) == 0 && hop.ifindex == link_info().ifindex;
}

}  // namespace usiw::run
