// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ip.h
/// Sizes of the headers below TRP, and IPv4 addresses inside IPv6 ones.
#ifndef USIW_BASE_IP_H
#define USIW_BASE_IP_H

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace usiw {

inline constexpr size_t kEthernetLen = 14;
inline constexpr size_t kIpv4Len = 20;  ///< RFC 791, without options
inline constexpr size_t kIpv6Len = 40;  ///< RFC 8200
inline constexpr size_t kUdpLen = 8;    ///< RFC 768
/// What an IP packet of IPv4 spends on headers before the UDP payload.
inline constexpr size_t kIpv4UdpLen = kIpv4Len + kUdpLen;

/// The two lowest bits of the traffic class (RFC 3168): can be marked, and has been.
inline constexpr uint8_t kEcnMask = 3, kEct0 = 2, kEcnCe = 3;

/// An IPv4-mapped IPv6 address (RFC 4291, 2.5.5.2) begins so, and ends with the IPv4 address.
inline constexpr uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/// @p address has 16 bytes.
inline bool is_mapped_ipv4(const void* address) {
  return std::memcmp(address, kMappedPrefix, sizeof kMappedPrefix) == 0;
}

/// Fills the 16 bytes at @p to from the 4 at @p ipv4.
inline void map_ipv4(void* to, const void* ipv4) {
  std::memcpy(to, kMappedPrefix, sizeof kMappedPrefix);
  std::memcpy(static_cast<uint8_t*>(to) + sizeof kMappedPrefix, ipv4, 4);
}

}  // namespace usiw

#endif  // USIW_BASE_IP_H
