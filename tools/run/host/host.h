// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file host.h
/// The host as usiw-run sees it: its addresses, its routes, and an identity for the device. UDP sockets,
/// getifaddrs(3) and /proc show all of this without privileges.
#ifndef USIW_RUN_HOST_H
#define USIW_RUN_HOST_H

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cm/usiw_cm.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

/// An IPv6 address or a mapped IPv4 address (::ffff:a.b.c.d), and a UDP port.
struct Endpoint {
  in6_addr addr{};
  uint16_t port = 0;   ///< network byte order
  uint32_t scope = 0;  ///< interface index of a link-local address, else 0

  bool ipv4() const { return IN6_IS_ADDR_V4MAPPED(&addr); }
  int family() const { return ipv4() ? AF_INET : AF_INET6; }
  /// Returns the address in network byte order. It has length() bytes: 4 for IPv4, 16 for IPv6.
  void* bytes() { return ipv4() ? static_cast<void*>(&addr.s6_addr32[3]) : &addr; }
  const void* bytes() const { return const_cast<Endpoint*>(this)->bytes(); }
  size_t length() const { return ipv4() ? sizeof(in_addr) : sizeof(in6_addr); }
  bool any() const;
  bool unicast() const;
  bool loopback() const;
  bool operator==(const Endpoint& o) const {
    return port == o.port && scope == o.scope && IN6_ARE_ADDR_EQUAL(&addr, &o.addr);
  }
};

struct Tuple {
  Endpoint local, remote;
  bool operator==(const Tuple&) const = default;
};
/// Returns @p t in the form that cm/ uses.
usiw_cm_tuple cm_tuple(const Tuple& t);

/// Converts a socket address to an endpoint. Returns 0, or -EAFNOSUPPORT if it is neither IPv4 nor IPv6.
int endpoint_from(const sockaddr_storage& sa, Endpoint& out);
/// Converts an endpoint to a socket address. Returns the length of the socket address.
socklen_t endpoint_to(const Endpoint& e, sockaddr_storage& sa);
/// Returns the wildcard address of a family, with @p port in network byte order.
Endpoint endpoint_any(bool ipv4, uint16_t port = 0);
/// Parses an address without a port. Returns false if @p text is not an address.
bool parse_address(const std::string& text, Endpoint& out);

/// The source address and the MTU of datagrams to a peer.
struct Route {
  Endpoint local;     ///< source address (its port is 0)
  uint32_t mtu;       ///< IP MTU, bytes, at most USIW_MAX_MTU
};
/// Sets @p out to the route of datagrams from @p from to @p to. If @p from is a wildcard address, the kernel chooses
/// the source. Returns 0 or -errno, which is -EINVAL if @p to is a broadcast address of this host's networks.
int route_to(const Endpoint& from, const Endpoint& to, Route& out);

/// Returns the address of --address if it is of this family, else the wildcard address.
Endpoint preferred_source(bool ipv4);
/// Returns preferred_source(), or else an address of the device's interface that is no IPv6 link-local one. Returns the
/// wildcard address if the interface has no such address of this family.
Endpoint device_address(bool ipv4);

/// Sets @p found to the addresses of the device's interface in the order of the kernel, but that of --address first.
/// Returns false if they cannot be read, for example because the process has no descriptors left.
bool device_addresses(std::vector<Endpoint>& found);

/// Returns true if a UDP socket can be bound to the address. That is possible for an address of this host and for a
/// wildcard.
bool is_own_address(const Endpoint& e);

/// Returns the state of the device's interface. The device is on the interface with the address of --address, else on
/// that of the IPv4 default route, else on a running one, else on lo. The MAC is zero if the interface is not Ethernet.
usiw_link_info link_info();
/// Returns true if the administrator has set the interface up, with or without a carrier.
bool link_enabled();
/// Returns the speed of the interface in Mb/s, or 0 if it is not known.
uint32_t link_speed();
/// Returns the MAC in GID 0 and in the node GUID: that of the interface, or else a hash of the boot ID and the network
/// namespace.
std::array<uint8_t, 6> device_mac();
/// Returns the node GUID, an EUI-64 made from device_mac().
std::array<uint8_t, 8> node_guid();

}  // namespace usiw::run

#endif  // USIW_RUN_HOST_H
