// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "hostile.h"
#include "tap.h"

namespace hostile {
namespace {

constexpr uint32_t kBatch = 64;
constexpr uint32_t kRepeated = 500;  ///< sources of `repeated`

volatile sig_atomic_t stopping;

/// Ethernet frames out of one netdev, a batch per call, past its queueing discipline.
class FrameSocket {
 public:
  FrameSocket(const std::string& netdev, const std::string& mac)
      : fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    if (fd_ < 0) FAIL("packet socket: %s", std::strerror(errno));
    to_.sll_family = AF_PACKET;
    to_.sll_protocol = htons(ETH_P_IP);
    to_.sll_ifindex = static_cast<int>(if_nametoindex(netdev.c_str()));
    to_.sll_halen = ETH_ALEN;
    unsigned byte[ETH_ALEN];
    if (std::sscanf(mac.c_str(), "%x:%x:%x:%x:%x:%x", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4], &byte[5]) !=
        ETH_ALEN)
      FAIL("%s is no MAC address", mac.c_str());
    std::copy(byte, byte + ETH_ALEN, to_.sll_addr);
    const int on = 1;
    setsockopt(fd_, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
  }
  ~FrameSocket() { close(fd_); }
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  /// Returns how many of the packets went out.
  uint32_t send(std::vector<Bytes>& packets) {
    mmsghdr messages[kBatch] = {};
    iovec data[kBatch];
    for (size_t i = 0; i < packets.size(); ++i) {
      data[i] = {packets[i].data(), packets[i].size()};
      messages[i].msg_hdr = {&to_, sizeof to_, &data[i], 1, nullptr, 0, 0};
    }
    const int n = sendmmsg(fd_, messages, static_cast<unsigned>(packets.size()), 0);
    if (n < 0 && errno != ENOBUFS && errno != EAGAIN) FAIL("sendmmsg: %s", std::strerror(errno));
    return static_cast<uint32_t>(std::max(n, 0));
  }

 private:
  int fd_;
  sockaddr_ll to_ = {};
};

Address stranger(Random& random) {
  return {{htonl(0xc6120000u + random.below(1u << 17))}, static_cast<uint16_t>(1024 + random.below(64000))};
}

Bytes right_request(Random& random, uint32_t isn) {
  const Bytes private_data = random_bytes(random, random.below(32));
  return trp(isn, 0, USIW_TRP_REQ, 0, 0, 0,
             request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, static_cast<uint16_t>(private_data.size()), private_data));
}

/// A DDP segment, right or not, with no knowledge of the connection's STags and numbers.
Bytes segment(Random& random) {
  const auto any = static_cast<uint32_t>(random.next());
  switch (random.below(8)) {
    case 0: return tagged(0xc1, 0x40, any, random.next(), random.below(200));
    case 1: return tagged(0xc1, 0x42, any, random.next(), random.below(200));
    case 2: return untagged(0x41, 0x43, 0, random.below(1000), 0, random_bytes(random, random.below(200)));
    case 3:
      return untagged(0x41, 0x41, 1, random.below(100), 0, read_request(any, random.next(), any, any, random.next()));
    case 4: return untagged(0x41, 0x47, 2, 1, 0, random_bytes(random, random.below(60)));
    case 5:
      return untagged(static_cast<uint8_t>(any), static_cast<uint8_t>(any >> 8), any >> 16, any, any,
                      random_bytes(random, random.below(50)));
    case 6: return tagged(static_cast<uint8_t>(any & 0x3f), static_cast<uint8_t>(any >> 8), any, random.next(), 10);
    default: return random_bytes(random, random.below(1400));
  }
}

/// A well-formed datagram of any opcode that there is, and of some that are not.
Bytes any_datagram(Random& random) {
  const auto psn = static_cast<uint32_t>(random.next()), ack = static_cast<uint32_t>(random.next());
  const unsigned opcode = random.below(9);
  switch (opcode) {
    case USIW_TRP_REQ: return right_request(random, psn);
    case USIW_TRP_ACCEPT: return trp(psn, ack, opcode, 0, 0, 0, request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, 0, {}));
    case USIW_TRP_REJECT:
      return trp(psn, ack, opcode, 0, 0, 0, {USIW_WIRE_VERSION, static_cast<uint8_t>(random.below(8)), 0, 0});
    case USIW_TRP_DATA:
      return trp(psn, ack, opcode, random.below(8), static_cast<uint16_t>(random.next()),
                 static_cast<uint16_t>(random.next()), segment(random));
    case USIW_TRP_SACK:
      return trp(ack + random.below(1100), ack, opcode, random.below(4), static_cast<uint16_t>(random.next()), 0,
                 random_bytes(random, random.below(140)));
    case USIW_TRP_RESET: return trp(psn, ack, opcode, random.below(2) ? USIW_TRP_F_STRAY : 0, 0, 0);
    default: return trp(psn, ack, opcode, 0, 0, 0);
  }
}

/// Changes bytes, cuts off or adds some.
void mutate(Random& random, Bytes& bytes) {
  for (uint32_t i = random.below(4); i && !bytes.empty(); --i)
    bytes[random.below(static_cast<uint32_t>(std::min<size_t>(bytes.size(), 40)))] =
        static_cast<uint8_t>(random.next());
  if (random.below(4) == 0) bytes.resize(random.below(static_cast<uint32_t>(bytes.size() + 30)), 0x77);
}

using Make = std::function<Bytes()>;

Make maker(const FloodArguments& a, Random& random, std::vector<Flow>& flows) {
  if (a.what == "requests")
    return [&] { return packet(stranger(random), a.to, right_request(random, static_cast<uint32_t>(random.next()))); };
  if (a.what == "repeated") {
    return [&, n = 0u]() mutable {
      Random same(a.seed + n++ % kRepeated);
      const Address from = stranger(same);
      return packet(from, a.to, right_request(same, static_cast<uint32_t>(same.next())));
    };
  }
  if (a.what == "garbage")
    return [&] {
      Bytes bytes = any_datagram(random);
      mutate(random, bytes);
      const bool spoil = random.below(16) == 0;
      return packet(stranger(random), a.to, bytes, spoil);
    };
  for (Flow& flow : sniff(a.watched, 1500))
    if (flow.to.ip.s_addr == a.to.ip.s_addr) flows.push_back(std::move(flow));
  if (flows.empty()) FAIL("no live connection was seen on %s", a.watched.c_str());
  if (a.what == "strangers")
    return [&] {
      const Flow& flow = flows[random.below(static_cast<uint32_t>(flows.size()))];
      Address from = random.below(2) ? stranger(random) : flow.from;
      from.port = static_cast<uint16_t>(flow.from.port + 1 + random.below(60000));
      for (const Flow& other : flows)
        if (from.port == other.from.port) from = stranger(random);
      return packet(from, flow.to, flow.datagrams[random.below(static_cast<uint32_t>(flow.datagrams.size()))]);
    };
  if (a.what == "guesses")
    return [&] {
      const Flow& flow = flows[random.below(static_cast<uint32_t>(flows.size()))];
      Bytes bytes = any_datagram(random);
      if (random.below(4) == 0) mutate(random, bytes);
      return packet(flow.from, flow.to, bytes);
    };
  FAIL("no flood of %s", a.what.c_str());
}

}  // namespace

void flood(const FloodArguments& a) {
  struct sigaction action = {};
  action.sa_handler = [](int) { stopping = 1; };
  sigaction(SIGTERM, &action, nullptr);
  Random random(a.seed);
  std::vector<Flow> flows;
  const Make make = maker(a, random, flows);
  FrameSocket out(a.netdev, a.mac);
  std::printf("flooding\n");
  std::fflush(stdout);
  uint64_t sent = 0;
  const uint64_t start = tap::now_ms();
  std::vector<Bytes> batch(kBatch);
  while (!stopping) {
    for (Bytes& bytes : batch) bytes = make();
    sent += out.send(batch);
  }
  const uint64_t ms = std::max<uint64_t>(tap::now_ms() - start, 1);
  std::printf("%-40s %llu\n", a.what.c_str(), static_cast<unsigned long long>(sent));
  std::printf("%llu datagrams a second\n", static_cast<unsigned long long>(sent * 1000 / ms));
}

}  // namespace hostile
