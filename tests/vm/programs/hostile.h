// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file hostile.h
/// Forging of datagrams: a raw IP socket with any source, and a look at what passes on a netdev.
#ifndef USIW_TESTS_HOSTILE_H
#define USIW_TESTS_HOSTILE_H

#include <netinet/in.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "uapi/usiw_wire.h"

namespace hostile {

using Bytes = std::vector<uint8_t>;

/// xorshift: every run with the same seed sends the same.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ull | 1) {}
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ >> 8;
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(next() % limit); }
  void fill(Bytes& bytes) { for (uint8_t& b : bytes) b = static_cast<uint8_t>(next()); }

 private:
  uint64_t state_;
};

inline Bytes random_bytes(Random& random, size_t length) {
  Bytes bytes(length);
  random.fill(bytes);
  return bytes;
}

struct Address {
  in_addr ip;
  uint16_t port;  ///< host byte order
  bool operator<(const Address& o) const {
    return ip.s_addr != o.ip.s_addr ? ip.s_addr < o.ip.s_addr : port < o.port;
  }
};

/// One direction of a live connection, as learnt from the wire.
struct Flow {
  Address from, to;
  uint32_t next_psn = 0;            ///< behind the last DATA seen
  uint32_t ack_psn = 0;             ///< what it acknowledged last
  uint32_t stag = 0;                ///< of a tagged segment seen, 0 if none
  uint64_t to_offset = 0;
  uint32_t send_msn = 1;            ///< MSN of the last SEND seen
  std::vector<Bytes> datagrams;     ///< the first ones seen, whole UDP payloads, for replays
};

/// Sends UDP datagrams with any source address through the kernel's routing.
class Forger {
 public:
  Forger();
  ~Forger();
  /// @p spoil_checksum sends a wrong UDP checksum; @p udp_length, when not 0, is what the UDP header claims.
  void send(const Address& from, const Address& to, const Bytes& payload, bool spoil_checksum = false,
            uint16_t udp_length = 0);
  uint64_t sent() const { return sent_; }

 private:
  int fd_;
  uint64_t sent_ = 0;
};

/// An IPv4 packet with that UDP payload; see Forger::send() for the rest.
Bytes packet(const Address& from, const Address& to, const Bytes& payload, bool spoil_checksum = false,
             uint16_t udp_length = 0);

struct FloodArguments {
  std::string netdev, mac;  ///< where to send, and the Ethernet address of the next one
  std::string watched;      ///< where that arrives: there live connections are learnt
  std::string what;         ///< see flood()
  Address to;
  uint64_t seed;
};

/// Sends at full speed until SIGTERM, then prints how many datagrams of each kind and how many a second:
/// - requests: right REQs, each from another address and port of 198.18.0.0/15 and with another ISN
/// - repeated: the same of 500 sources, again and again
/// - garbage: well-formed datagrams of every opcode with bytes changed, cut off, added, from anywhere
/// - strangers: copies of live datagrams with another source
/// - guesses: right 4-tuple of live connections, random PSNs, right and malformed DDP and RDMAP headers
void flood(const FloodArguments& arguments);

/// Watches a netdev for @p ms from the first data on, and returns the flows of usiw datagrams that it saw, busiest
/// first. None when there is no data in 10 s.
std::vector<Flow> sniff(const std::string& netdev, int ms);

/// A TRP header followed by @p payload.
Bytes trp(uint32_t psn, uint32_t ack_psn, unsigned opcode, unsigned flags, uint16_t credit, uint16_t echo,
          const Bytes& payload = {});
Bytes tagged(uint8_t ddp, uint8_t rdmap, uint32_t stag, uint64_t offset, size_t length);
Bytes untagged(uint8_t ddp, uint8_t rdmap, uint32_t queue, uint32_t msn, uint32_t offset, const Bytes& payload);
Bytes read_request(uint32_t sink_stag, uint64_t sink, uint32_t size, uint32_t source_stag, uint64_t source);
Bytes request(uint8_t version, uint32_t features, uint16_t ird, uint16_t ord, uint16_t mtu, uint16_t window,
              uint16_t claimed_private, const Bytes& private_data);

}  // namespace hostile

#endif  // USIW_TESTS_HOSTILE_H
