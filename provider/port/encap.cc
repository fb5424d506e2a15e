// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/encap.h"

#include <arpa/inet.h>

#include "port/checksum.h"
#include "uapi/usiw_wire.h"

namespace usiw {
namespace {

constexpr uint16_t kEtherIpv4 = 0x0800;
constexpr uint16_t kEtherIpv6 = 0x86dd;
constexpr uint8_t kProtoUdp = 17;

struct Ethernet {
  uint8_t dst[6];
  uint8_t src[6];
  uint16_t type;
} __attribute__((packed));

struct Ipv4 {
  uint8_t version_ihl;
  uint8_t tos;
  uint16_t total_len;
  uint16_t id;
  uint16_t frag;
  uint8_t ttl;
  uint8_t proto;
  uint16_t checksum;
  uint8_t src[4];
  uint8_t dst[4];
} __attribute__((packed));

struct Ipv6 {
  uint32_t version_class_flow;
  uint16_t payload_len;
  uint8_t next;
  uint8_t hop_limit;
  uint8_t src[16];
  uint8_t dst[16];
} __attribute__((packed));

struct Udp {
  uint16_t src_port;
  uint16_t dst_port;
  uint16_t len;
  uint16_t checksum;
} __attribute__((packed));

static_assert(sizeof(Ethernet) == kEthernetLen && sizeof(Ipv4) == kIpv4Len);
static_assert(sizeof(Ipv6) == kIpv6Len && sizeof(Udp) == kUdpLen);


/// Sum of the pseudo header; @p addrs: source and destination, adjacent.
uint64_t pseudo_sum(const void* addrs, size_t addrs_len, uint32_t udp_len) {
  return checksum_add(0, addrs, addrs_len) + htons(kProtoUdp) +
         htons(static_cast<uint16_t>(udp_len));
}

/// Fills the UDP header in front of @p payload; its checksum covers @p pseudo as well.
void put_udp(std::byte* payload, uint32_t len, const FlowKey& flow, uint64_t pseudo) {
  Udp udp{flow.local_port, flow.remote_port, htons(static_cast<uint16_t>(len + kUdpLen)), 0};
  uint64_t sum = checksum_add(pseudo, &udp, sizeof udp);
  uint16_t csum = static_cast<uint16_t>(~checksum_fold(checksum_add(sum, payload, len)));
  udp.checksum = csum == 0 ? 0xffff : csum;  // 0 would say "no checksum"
  std::memcpy(payload - sizeof udp, &udp, sizeof udp);
}

/// Verifies the UDP part of @p ip_payload_len bytes at @p p.
Decap take_udp(const std::byte* p, size_t ip_payload_len, uint64_t pseudo, RxBuf& out) {
  Udp udp;
  if (ip_payload_len < sizeof udp) return Decap::kMalformed;
  std::memcpy(&udp, p, sizeof udp);
  if (ntohs(udp.len) != ip_payload_len) return Decap::kMalformed;
  bool whole = ip_payload_len >= sizeof udp + sizeof(usiw_trp_hdr);
  unsigned opcode = whole ? std::to_integer<unsigned>(p[sizeof udp + 8]) >> (USIW_TRP_OPCODE_SHIFT - 8) : 0;
  if (whole && (USIW_TRP_KERNEL_OPCODES >> opcode & 1) != 0) return Decap::kNotOurs;
  if (udp.checksum == 0) return Decap::kMalformed;
  if (checksum_fold(checksum_add(pseudo, p, ip_payload_len)) != 0xffff &&
      udp.checksum != checksum_fold(pseudo))
    return Decap::kChecksum;
  out.data = p + sizeof udp;
  out.len = static_cast<uint32_t>(ip_payload_len - sizeof udp);
  out.flow.local_port = udp.dst_port;
  out.flow.remote_port = udp.src_port;
  return Decap::kOk;
}

Decap take_ipv4(const std::byte* p, size_t len, RxBuf& out) {
  Ipv4 ip;
  if (len < sizeof ip) return Decap::kMalformed;
  std::memcpy(&ip, p, sizeof ip);
  if (ip.version_ihl >> 4 != 4) return Decap::kMalformed;
  if (ip.proto != kProtoUdp) return Decap::kNotOurs;
  size_t total = ntohs(ip.total_len);
  if (ip.version_ihl != 0x45 || total < sizeof ip || total > len) return Decap::kMalformed;
  if ((ntohs(ip.frag) & 0x3fff) != 0) return Decap::kMalformed;  // MF or an offset
  if (checksum_fold(checksum_add(0, &ip, sizeof ip)) != 0xffff) return Decap::kChecksum;
  map_ipv4(out.flow.local_addr.data(), ip.dst);
  map_ipv4(out.flow.remote_addr.data(), ip.src);
  out.ce = (ip.tos & kEcnMask) == kEcnCe;
  size_t udp_len = total - sizeof ip;
  return take_udp(p + sizeof ip, udp_len, pseudo_sum(ip.src, 8, udp_len), out);
}

Decap take_ipv6(const std::byte* p, size_t len, RxBuf& out) {
  Ipv6 ip;
  if (len < sizeof ip) return Decap::kMalformed;
  std::memcpy(&ip, p, sizeof ip);
  if (ntohl(ip.version_class_flow) >> 28 != 6) return Decap::kMalformed;
  if (ip.next != kProtoUdp) return Decap::kNotOurs;
  size_t udp_len = ntohs(ip.payload_len);
  if (udp_len > len - sizeof ip) return Decap::kMalformed;
  // Mapped addresses name IPv4 connections, and have no business on the wire.
  if (is_mapped_ipv4(ip.src) || is_mapped_ipv4(ip.dst))
    return Decap::kMalformed;
  std::memcpy(out.flow.local_addr.data(), ip.dst, 16);
  std::memcpy(out.flow.remote_addr.data(), ip.src, 16);
  out.ce = (ntohl(ip.version_class_flow) >> 20 & kEcnMask) == kEcnCe;
  return take_udp(p + sizeof ip, udp_len, pseudo_sum(ip.src, 32, udp_len), out);
}

}  // namespace

size_t encap(std::byte* payload, uint32_t len, const Path& path) {
  const FlowKey& flow = path.flow;
  bool ipv4 = flow.is_ipv4();
  uint32_t udp_len = len + kUdpLen;
  std::byte* ip_at = payload - kUdpLen - (ipv4 ? kIpv4Len : kIpv6Len);
  if (ipv4) {
    Ipv4 ip{};
    ip.version_ihl = 0x45;
    ip.tos = path.traffic_class();
    ip.total_len = htons(static_cast<uint16_t>(udp_len + kIpv4Len));
    ip.frag = htons(0x4000);  // DF
    ip.ttl = path.hop_limit;
    ip.proto = kProtoUdp;
    std::memcpy(ip.src, flow.local_addr.data() + 12, 4);
    std::memcpy(ip.dst, flow.remote_addr.data() + 12, 4);
    ip.checksum = static_cast<uint16_t>(~checksum_fold(checksum_add(0, &ip, sizeof ip)));
    std::memcpy(ip_at, &ip, sizeof ip);
    put_udp(payload, len, flow, pseudo_sum(ip.src, 8, udp_len));
  } else {
    Ipv6 ip{};
    ip.version_class_flow = htonl(6u << 28 | static_cast<uint32_t>(path.traffic_class()) << 20);
    ip.payload_len = htons(static_cast<uint16_t>(udp_len));
    ip.next = kProtoUdp;
    ip.hop_limit = path.hop_limit;
    std::memcpy(ip.src, flow.local_addr.data(), 16);
    std::memcpy(ip.dst, flow.remote_addr.data(), 16);
    std::memcpy(ip_at, &ip, sizeof ip);
    put_udp(payload, len, flow, pseudo_sum(ip.src, 32, udp_len));
  }
  Ethernet eth;
  std::memcpy(eth.dst, path.remote_mac.data(), 6);
  std::memcpy(eth.src, path.local_mac.data(), 6);
  eth.type = htons(ipv4 ? kEtherIpv4 : kEtherIpv6);
  std::memcpy(ip_at - sizeof eth, &eth, sizeof eth);
  return encap_len(ipv4);
}

Decap decap(const std::byte* frame, size_t len, RxBuf& out) {
  if (len < kEthernetLen) return Decap::kMalformed;
  uint16_t type;
  std::memcpy(&type, frame + 12, 2);
  switch (ntohs(type)) {
    case kEtherIpv4:
      return take_ipv4(frame + kEthernetLen, len - kEthernetLen, out);
    case kEtherIpv6:
      return take_ipv6(frame + kEthernetLen, len - kEthernetLen, out);
    default:
      return Decap::kNotOurs;
  }
}

}  // namespace usiw
