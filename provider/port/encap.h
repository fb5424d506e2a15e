// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file encap.h
/// Ethernet, IPv4 (RFC 791) or IPv6 (RFC 8200) and UDP (RFC 768) around a TRP
/// datagram. Pure functions: no port, no state.
#ifndef USIW_PORT_ENCAP_H
#define USIW_PORT_ENCAP_H

#include <cstddef>
#include <cstdint>

#include "engine/port.h"

namespace usiw {

inline constexpr size_t kEthernetLen = 14;
inline constexpr size_t kIpv4Len = 20;
inline constexpr size_t kIpv6Len = 40;
inline constexpr size_t kUdpLen = 8;
inline constexpr size_t kMaxEncapLen = kEthernetLen + kIpv6Len + kUdpLen;

/// Bytes of headers in front of the TRP header.
constexpr size_t encap_len(bool ipv4) {
  return kEthernetLen + (ipv4 ? kIpv4Len : kIpv6Len) + kUdpLen;
}

/// Writes the headers so that they end where @p payload begins (there must be
/// kMaxEncapLen bytes of room before it) and returns their length. IPv4: no options,
/// DF set and ID 0 (RFC 6864: an atomic datagram). The UDP checksum is always there.
/// @p len: UDP payload, at most 65507 - 20 bytes.
size_t encap(std::byte* payload, uint32_t len, const Path& path);

enum class Decap {
  kOk,
  kNotOurs,    ///< not UDP over IPv4 or IPv6, or a handshake (the kernel's)
  kMalformed,  ///< lengths that disagree, options, fragments, no UDP checksum, IPv6 with mapped addresses
  kChecksum,   ///< IPv4 header or UDP checksum wrong
};

/// Parses a frame of @p len bytes from the Ethernet header on. On kOk fills data, len
/// and flow of @p out (local is the destination); padding behind the IP packet is ignored.
///
/// What the kernel on this host has sent (a RESET; anything of a process under usiw-run) and
/// what comes over veth or lo has not got its checksum yet when it is seen here: the field
/// holds the folded sum of the pseudo header. That form is accepted. On a wire it says as
/// much as a right checksum: one corrupted datagram in 65536 passes either way.
Decap decap(const std::byte* frame, size_t len, RxBuf& out);

}  // namespace usiw

#endif  // USIW_PORT_ENCAP_H
