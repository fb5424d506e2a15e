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

#include "base/ip.h"

namespace usiw {

/// Of so many peers' ports a program is made.
inline constexpr size_t kBesideMost = 64;

/// From now on @p fd, a UDP socket, takes only what comes from @p ports, up to kBesideMost, network byte order, and
/// what the raw port of the interface @p ifindex has not heard or cannot use: what came by another interface, and what
/// was put together of fragments. These leave no trace in the header, but: of IPv4 they have no DF, which raw packets
/// have and whole ones of sockets. Of IPv6 they are longer than what every path takes, and have a flow label, as
/// sockets' have unless net.ipv6.auto_flowlabels is off, and raw packets have not; whole ones that look so come twice.
/// 0 or an errno value.
inline int attach_beside_filter(int fd, bool ipv4, uint32_t ifindex, std::span<const uint16_t> ports) {
  constexpr auto kAncillary = static_cast<uint32_t>(SKF_AD_OFF), kIpHeader = static_cast<uint32_t>(SKF_NET_OFF);
  constexpr uint32_t kDf = 0x40, kFlowLabel = 0xfffff, kWhole = UINT32_MAX;
  constexpr uint32_t kEveryPath = 1280 - kIpv6Len;  // bytes behind the header (RFC 8200, 5)
  sock_filter code[kBesideMost + 9];
  size_t n = 0;
  const size_t accept = (ipv4 ? 6 : 8) + ports.size();
  const auto load = [&](int size, uint32_t at) {
    code[n++] = BPF_STMT(static_cast<uint16_t>(BPF_LD | size | BPF_ABS), at);
  };
  // Jumps that are taken lead to the end, where all is accepted; the others go on.
  const auto accept_if = [&](int what, uint32_t value) {
    code[n] = BPF_JUMP(static_cast<uint16_t>(BPF_JMP | what | BPF_K), value, static_cast<uint8_t>(accept - n - 1), 0);
    n++;
  };
  const auto accept_unless = [&](int what, uint32_t value) {
    code[n] = BPF_JUMP(static_cast<uint16_t>(BPF_JMP | what | BPF_K), value, 0, static_cast<uint8_t>(accept - n - 1));
    n++;
  };
  load(BPF_W, kAncillary + SKF_AD_IFINDEX);
  accept_unless(BPF_JEQ, ifindex);
  if (ipv4) {
    load(BPF_B, kIpHeader + 6);
    accept_unless(BPF_JSET, kDf);
  } else {
    load(BPF_W, kIpHeader);
    code[n++] = BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kFlowLabel, 0, 2);
    load(BPF_H, kIpHeader + 4);
    accept_if(BPF_JGT, kEveryPath);
  }
  load(BPF_H, 0);  // the UDP header's source
  for (const uint16_t port : ports) accept_if(BPF_JEQ, ntohs(port));
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
