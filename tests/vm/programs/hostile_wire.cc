// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <arpa/inet.h>
#include <endian.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <netpacket/packet.h>
#include <net/ethernet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "hostile.h"
#include "tap.h"

namespace hostile {
namespace {

uint32_t sum16(const void* data, size_t length, uint32_t sum) {
  const auto* at = static_cast<const uint8_t*>(data);
  for (size_t i = 0; i + 1 < length; i += 2) sum += static_cast<uint32_t>(at[i] << 8 | at[i + 1]);
  if (length & 1) sum += static_cast<uint32_t>(at[length - 1] << 8);
  return sum;
}

uint16_t fold(uint32_t sum) {
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

/// Bytes of UDP payload that fit into a packet at an MTU of 1500.
constexpr size_t kLongest = 1500 - sizeof(iphdr) - sizeof(udphdr);

template <typename T>
void append(Bytes& bytes, const T& value) {
  const auto* at = reinterpret_cast<const uint8_t*>(&value);
  bytes.insert(bytes.end(), at, at + sizeof value);
}

void learn(Flow& flow, const Bytes& payload) {
  usiw_trp_hdr header;
  if (payload.size() < sizeof header) return;
  std::memcpy(&header, payload.data(), sizeof header);
  const unsigned opcode = ntohs(header.opflags) >> USIW_TRP_OPCODE_SHIFT;
  // A merged one is as long as no datagram that can be sent.
  if (flow.datagrams.size() < 400 && payload.size() <= kLongest) flow.datagrams.push_back(payload);
  if (opcode != USIW_TRP_DATA && opcode != USIW_TRP_SACK) return;
  flow.ack_psn = ntohl(header.ack_psn);
  if (opcode != USIW_TRP_DATA) return;
  flow.next_psn = ntohl(header.psn) + 1;
  if (payload.size() < sizeof header + sizeof(usiw_ddp_tagged)) return;
  usiw_ddp_tagged ddp;
  std::memcpy(&ddp, payload.data() + sizeof header, sizeof ddp);
  if (ddp.ddp_ctrl & USIW_DDP_F_TAGGED) {
    flow.stag = ntohl(ddp.stag);
    flow.to_offset = be64toh(ddp.to);
  } else if (payload.size() >= sizeof header + sizeof(usiw_ddp_untagged)) {
    usiw_ddp_untagged u;
    std::memcpy(&u, payload.data() + sizeof header, sizeof u);
    if (ntohl(u.qn) == USIW_DDP_QN_SEND) flow.send_msn = ntohl(u.msn);
  }
}

}  // namespace

Forger::Forger() : fd_(socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_RAW)) {
  if (fd_ < 0) FAIL("raw socket: %s", std::strerror(errno));
}

Forger::~Forger() { close(fd_); }

Bytes packet(const Address& from, const Address& to, const Bytes& payload, bool spoil_checksum, uint16_t udp_length) {
  iphdr ip = {};
  udphdr udp = {};
  ip.version = 4;
  ip.ihl = 5;
  ip.ttl = 64;
  ip.protocol = IPPROTO_UDP;
  ip.frag_off = htons(IP_DF);
  ip.tot_len = htons(static_cast<uint16_t>(sizeof ip + sizeof udp + payload.size()));
  ip.saddr = from.ip.s_addr;
  ip.daddr = to.ip.s_addr;
  ip.check = htons(fold(sum16(&ip, sizeof ip, 0)));
  udp.source = htons(from.port);
  udp.dest = htons(to.port);
  udp.len = htons(udp_length ? udp_length : static_cast<uint16_t>(sizeof udp + payload.size()));
  uint32_t sum = sum16(&ip.saddr, 8, IPPROTO_UDP + ntohs(udp.len));
  sum = sum16(&udp, sizeof udp, sum);
  sum = sum16(payload.data(), payload.size(), sum);
  udp.check = htons(fold(sum));
  if (udp.check == 0) udp.check = 0xffff;
  if (spoil_checksum) udp.check = static_cast<uint16_t>(udp.check ^ 0x5555);
  Bytes bytes;
  bytes.reserve(sizeof ip + sizeof udp + payload.size());
  append(bytes, ip);
  append(bytes, udp);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

void Forger::send(const Address& from, const Address& to, const Bytes& payload, bool spoil_checksum,
                  uint16_t udp_length) {
  const Bytes bytes = packet(from, to, payload, spoil_checksum, udp_length);
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_addr = to.ip;
  if (sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&target), sizeof target) >= 0) ++sent_;
}

std::vector<Flow> sniff(const std::string& netdev, int ms) {
  const int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP));
  if (fd < 0) FAIL("packet socket: %s", std::strerror(errno));
  sockaddr_ll address = {};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_IP);
  address.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
  if (bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address))
    FAIL("%s: %s", netdev.c_str(), std::strerror(errno));
  std::map<std::pair<Address, Address>, Flow> flows;
  std::map<std::pair<Address, Address>, uint64_t> counts;
  uint64_t end = tap::now_ms() + 10000 * tap::patience();  // until there is something to watch
  bool watching = false;
  while (tap::now_ms() < end) {
    pollfd p = {fd, POLLIN, 0};
    if (poll(&p, 1, 50) <= 0) continue;
    Bytes bytes(65536);
    const ssize_t n = recv(fd, bytes.data(), bytes.size(), 0);
    if (n < static_cast<ssize_t>(sizeof(iphdr) + sizeof(udphdr))) continue;
    iphdr ip;
    udphdr udp;
    std::memcpy(&ip, bytes.data(), sizeof ip);
    if (ip.protocol != IPPROTO_UDP || ip.ihl != 5) continue;
    std::memcpy(&udp, bytes.data() + sizeof ip, sizeof udp);
    const Address from = {{ip.saddr}, ntohs(udp.source)}, to = {{ip.daddr}, ntohs(udp.dest)};
    Flow& flow = flows[{from, to}];
    flow.from = from;
    flow.to = to;
    ++counts[{from, to}];
    learn(flow, Bytes(bytes.begin() + sizeof ip + sizeof udp, bytes.begin() + n));
    if (flow.next_psn && !watching) {
      watching = true;
      end = tap::now_ms() + static_cast<uint64_t>(ms) * tap::patience();
    }
  }
  close(fd);
  std::vector<Flow> found;
  for (auto& [key, flow] : flows)
    if (flow.next_psn && !flow.datagrams.empty()) found.push_back(flow);
  std::sort(found.begin(), found.end(), [&](const Flow& x, const Flow& y) {
    return counts[{x.from, x.to}] > counts[{y.from, y.to}];
  });
  return found;
}

Bytes trp(uint32_t psn, uint32_t ack_psn, unsigned opcode, unsigned flags, uint16_t credit, uint16_t echo,
          const Bytes& payload) {
  usiw_trp_hdr header;
  header.psn = htonl(psn);
  header.ack_psn = htonl(ack_psn);
  header.opflags = htons(static_cast<uint16_t>(opcode << USIW_TRP_OPCODE_SHIFT | flags));
  header.credit = htons(credit);
  header.echo = htons(echo);
  Bytes bytes;
  append(bytes, header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Bytes tagged(uint8_t ddp, uint8_t rdmap, uint32_t stag, uint64_t offset, size_t length) {
  usiw_ddp_tagged header;
  header.ddp_ctrl = ddp;
  header.rdmap_ctrl = rdmap;
  header.stag = htonl(stag);
  header.to = htobe64(offset);
  Bytes bytes;
  append(bytes, header);
  bytes.resize(bytes.size() + length, 0xbd);
  return bytes;
}

Bytes untagged(uint8_t ddp, uint8_t rdmap, uint32_t queue, uint32_t msn, uint32_t offset, const Bytes& payload) {
  usiw_ddp_untagged header = {};
  header.ddp_ctrl = ddp;
  header.rdmap_ctrl = rdmap;
  header.qn = htonl(queue);
  header.msn = htonl(msn);
  header.mo = htonl(offset);
  Bytes bytes;
  append(bytes, header);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

Bytes read_request(uint32_t sink_stag, uint64_t sink, uint32_t size, uint32_t source_stag, uint64_t source) {
  usiw_read_req r;
  r.sink_stag = htonl(sink_stag);
  r.sink_to = htobe64(sink);
  r.size = htonl(size);
  r.src_stag = htonl(source_stag);
  r.src_to = htobe64(source);
  Bytes bytes;
  append(bytes, r);
  return bytes;
}

Bytes request(uint8_t version, uint32_t features, uint16_t ird, uint16_t ord, uint16_t mtu, uint16_t window,
              uint16_t claimed_private, const Bytes& private_data) {
  usiw_cm_params p = {};
  p.version = version;
  p.pd_len = htons(claimed_private);
  p.features = htonl(features);
  p.ird = htons(ird);
  p.ord = htons(ord);
  p.mtu = htons(mtu);
  p.window = htons(window);
  Bytes bytes;
  append(bytes, p);
  bytes.insert(bytes.end(), private_data.begin(), private_data.end());
  return bytes;
}

}  // namespace hostile
