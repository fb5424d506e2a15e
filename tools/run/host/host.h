// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file host.h
/// What the kernel-less control path has to know about the host: its addresses, routes, and an
/// identity for the device. All by plain UDP sockets and getifaddrs(3): no rights needed.
#ifndef USIW_RUN_HOST_H
#define USIW_RUN_HOST_H

#include <netinet/in.h>

#include <array>
#include <cstdint>
#include <string>

#include "cm/usiw_cm.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

/// An IPv6 address, or an IPv4 one mapped (::ffff:a.b.c.d), and a UDP port.
struct Endpoint {
  in6_addr addr{};
  uint16_t port = 0;   ///< network byte order
  uint32_t scope = 0;  ///< interface of a link-local address

  bool ipv4() const { return IN6_IS_ADDR_V4MAPPED(&addr); }
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
/// The same addresses and ports as cm/ has them.
usiw_cm_tuple cm_tuple(const Tuple& t);

/// 0 or -EINVAL (@p len), -EAFNOSUPPORT.
int endpoint_from(const sockaddr_storage& sa, Endpoint& out);
/// The length of the address.
socklen_t endpoint_to(const Endpoint& e, sockaddr_storage& sa);
Endpoint endpoint_any(bool ipv4);
/// An address without a port. False: @p text is none.
bool parse_address(const std::string& text, Endpoint& out);

struct Route {
  Endpoint local;     ///< source address (its port is 0)
  uint32_t mtu;       ///< IP MTU, bytes, at most USIW_MAX_MTU
};
/// How this host would send to @p to, from @p from unless that is any. 0 or -errno.
int route_to(const Endpoint& from, const Endpoint& to, Route& out);

/// The address of --address, if it is of this family; else any.
Endpoint preferred_source(bool ipv4);
/// That one, or an address of the interface that the device stands for; any if it has none of this family.
Endpoint device_address(bool ipv4);

/// True if the address is one of this host's.
bool is_own_address(const Endpoint& e);

/// The interface that the device stands for: that of --address, else that of the default route,
/// else one that is running, else lo. Its MAC is zeros where it is not an Ethernet.
usiw_link_info link_info();
/// Is it to be up, whether there is a carrier or not?
bool link_enabled();
/// Mb/s, 0 if it is not known.
uint32_t link_speed();
/// GID 0 and node GUID: the interface's MAC, or for one without a random one per host.
std::array<uint8_t, 6> device_mac();
std::array<uint8_t, 8> node_guid();

}  // namespace usiw::run

#endif  // USIW_RUN_HOST_H
