// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file beside_filter.h
/// What a data socket takes that all connections of its port share, while some of them go by raw packets: a packet
/// socket hears the datagrams of these already, so from the data socket they would come a second time.
#ifndef USIW_PORT_BESIDE_FILTER_H
#define USIW_PORT_BESIDE_FILTER_H

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

namespace usiw {

/// Of so many peers' ports a program is made.
inline constexpr size_t kBesideMost = 64;

/// From now on @p fd, a UDP socket, takes only what the raw port of the interface @p ifindex has not heard or cannot use
/// (what came by another interface; of IPv4 also what was put together of fragments, which have no DF where a raw packet
/// has it), and what comes from @p ports, up to kBesideMost, network byte order. 0 or an errno value.
inline int attach_beside_filter(int fd, bool ipv4, uint32_t ifindex, std::span<const uint16_t> ports) {
  constexpr uint32_t kDf = 0x40, kWhole = UINT32_MAX;
  constexpr auto kAncillary = static_cast<uint32_t>(SKF_AD_OFF), kIpHeader = static_cast<uint32_t>(SKF_NET_OFF);
  sock_filter code[kBesideMost + 7];
  size_t n = 0;
  const size_t accept = (ipv4 ? 6 : 4) + ports.size();
  // From instruction n on to the last one.
  const auto to_accept = [&] { return static_cast<uint8_t>(accept - n - 1); };
  code[n++] = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kAncillary + SKF_AD_IFINDEX);
  code[n] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ifindex, 0, to_accept());
  n++;
  if (ipv4) {
    code[n++] = BPF_STMT(BPF_LD | BPF_B | BPF_ABS, kIpHeader + 6);
    code[n] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kDf, 0, to_accept());
    n++;
  }
  code[n++] = BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0);  // the UDP header's source
  for (const uint16_t port : ports) {
    code[n] = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ntohs(port), to_accept(), 0);
    n++;
  }
  code[n++] = BPF_STMT(BPF_RET | BPF_K, 0);
  code[n++] = BPF_STMT(BPF_RET | BPF_K, kWhole);
  const sock_fprog program{static_cast<unsigned short>(n), code};
  return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0 ? 0 : errno;
}

/// It takes everything. Also of a socket that has no filter.
inline void detach_filter(int fd) {
  const int ignored = 0;
  setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &ignored, sizeof ignored);
}

}  // namespace usiw

#endif  // USIW_PORT_BESIDE_FILTER_H
