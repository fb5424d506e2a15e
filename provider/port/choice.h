// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file choice.h
/// By which port a connection's data goes. One rule for both worlds: the provider asks it for each
/// connection, and so does usiw-run where it plays the kernel.
#ifndef USIW_PORT_CHOICE_H
#define USIW_PORT_CHOICE_H

#include <cstdint>
#include <string_view>

#include "uapi/usiw_abi.h"
#include "uapi/usiw_wire.h"

namespace usiw {

/// What the user says: USIW_PORT, or usiw-run's --port.
enum class PortWish : uint8_t {
  kAuto,    ///< memory, else raw packets, else a socket: each where it is possible
  kShm,     ///< memory, else a socket
  kSocket,
  kPacket,  ///< raw packets, or no connection
};

/// The numbers are those of USIW_GAUGE_PORT; 0 is "no port".
enum class PortKind : uint8_t {
  kNone,
  kPacket = 1 + USIW_PORT_PACKET,
  kSocket = 1 + USIW_PORT_SOCKET,
  kShm = 1 + USIW_PORT_SHM,
};

/// What is possible for one connection.
struct PortFacts {
  usiw_not_packet not_packet;  ///< control path: why raw packets do not get there, or not past the kernel's rules
  bool permitted;              ///< this process may open raw ports
  bool broken;                 ///< ... and has tried in vain
  bool socket;                 ///< there is a data socket
  bool same_host;              ///< the peer is on this host, and memory may be shared with it
};

struct PortChoice {
  PortKind kind;  ///< kNone: the connection cannot be
  usiw_port_why why;
  bool operator==(const PortChoice&) const = default;
};

/// What CONNECT or PATH says against raw packets; NONE: they get there. No reason given: another interface.
constexpr usiw_not_packet not_packet_of(const usiw_conn_info& conn) {
  if ((conn.flags & USIW_CONN_F_PACKET) != 0) return USIW_NOT_PACKET_NONE;
  return conn.not_packet != USIW_NOT_PACKET_NONE ? static_cast<usiw_not_packet>(conn.not_packet)
                                                 : USIW_NOT_PACKET_NETDEV;
}

/// The ends take merged datagrams for a while, when one of them says so; else never, or all the time (MERGED).
constexpr bool merges_at_times(const usiw_conn_info& conn) {
  return (conn.features & (USIW_FEATURE_MERGED | USIW_FEATURE_MERGES)) == USIW_FEATURE_MERGES;
}

/// What speaks against raw packets; NONE: nothing does.
constexpr usiw_port_why against_packets(const PortFacts& f) {
  switch (f.not_packet) {
    case USIW_NOT_PACKET_NONE:
    case USIW_NOT_PACKET_OWN:
    case USIW_NOT_PACKET_PEER:
      if (!f.permitted) return USIW_PORT_WHY_RIGHTS;
      if (f.broken) return USIW_PORT_WHY_BROKEN;
      return f.not_packet == USIW_NOT_PACKET_NONE ? USIW_PORT_WHY_NONE : USIW_PORT_WHY_ONLY;
    case USIW_NOT_PACKET_NETDEV:
      return USIW_PORT_WHY_NETDEV;
    case USIW_NOT_PACKET_IPSEC:
      return USIW_PORT_WHY_IPSEC;
    default:
      return USIW_PORT_WHY_ENCAP;
  }
}

constexpr PortChoice choose_port(PortWish wish, const PortFacts& f) {
  const usiw_port_why against = against_packets(f);
  const bool packets = against == USIW_PORT_WHY_NONE;
  if (wish == PortWish::kPacket)
    return packets ? PortChoice{PortKind::kPacket, USIW_PORT_WHY_WISH} : PortChoice{PortKind::kNone, against};
  const bool asked = wish != PortWish::kAuto;
  if (f.socket && f.same_host && wish != PortWish::kSocket)
    return {PortKind::kShm, asked ? USIW_PORT_WHY_WISH : USIW_PORT_WHY_SAME_HOST};
  if (!asked && packets) return {PortKind::kPacket, f.socket ? USIW_PORT_WHY_FASTEST : USIW_PORT_WHY_ONLY};
  if (f.socket) return {PortKind::kSocket, asked ? USIW_PORT_WHY_WISH : against};
  return {PortKind::kNone, USIW_PORT_WHY_NO_SOCKET};
}

/// False: there is no such name.
constexpr bool parse_port_wish(std::string_view name, PortWish& out) {
  if (name == "auto") out = PortWish::kAuto;
  else if (name == "shm") out = PortWish::kShm;
  else if (name == "socket") out = PortWish::kSocket;
  else if (name == "packet") out = PortWish::kPacket;
  else return false;
  return true;
}
inline constexpr char kPortVariable[] = "USIW_PORT";
inline constexpr char kPortNames[] = "auto, socket, packet or shm";

}  // namespace usiw

#endif  // USIW_PORT_CHOICE_H
