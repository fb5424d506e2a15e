// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packet_filter.h
/// A classic BPF program on an AF_PACKET socket that lets only our datagrams pass,
/// so that several processes on one netdev do not wake up for each other.
#ifndef USIW_PORT_PACKET_FILTER_H
#define USIW_PORT_PACKET_FILTER_H

#include <cstddef>
#include <cstdint>
#include <map>

namespace usiw {

/// The set of local UDP ports (with a count of users each) behind the filter of one
/// socket. Takes UDP over IPv4 (no options, no fragments) and IPv6, addressed to this
/// host, without VLAN tag, with an opcode that the engine handles, to one of the
/// ports, as long as one packet may be: what is longer is several datagrams that the
/// kernel has yet to take apart, which a UDP socket gets. Above kMaxPorts ports every UDP
/// port passes. Not thread-safe.
class PacketFilter {
 public:
  static constexpr size_t kMaxPorts = 64;

  /// Attaches the filter that rejects everything. @p longest: frame, bytes. 0 or an errno value.
  int attach(int fd, uint32_t longest);
  /// @p port in network byte order. 0 or an errno value.
  int add(uint16_t port);
  void remove(uint16_t port);

 private:
  int install();

  int fd_ = -1;
  uint32_t longest_ = 0;
  std::map<uint16_t, unsigned> ports_;  ///< host byte order -> users
};

}  // namespace usiw

#endif  // USIW_PORT_PACKET_FILTER_H
