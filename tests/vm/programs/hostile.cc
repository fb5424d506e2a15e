// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Forged and malformed datagrams, by root on the same host:
//
//   hostile listener --to IP --port P --from IP [--count N] [--seed S]
//       handshakes of every wrong kind, and floods of right ones, at a listening port
//   hostile offpath  --netdev X [--count N] [--seed S]
//       at live connections (learnt from the wire) with their 4-tuple, but without their sequence
//       numbers, and exact replays: nothing of it may harm them
//   hostile onpath   --netdev X [--count N] [--seed S]
//       the same with the right sequence numbers: connections may end, nothing else may happen
//   hostile flood    --netdev X --mac M --watch Y --to IP --port P --what KIND [--seed S]
//       at full speed until SIGTERM, from a packet socket (the netdev of another end); KIND: see hostile.h
//
// Prints one line per kind of datagram and how many were sent.
#include <arpa/inet.h>
#include <getopt.h>
#include <sched.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "hostile.h"
#include "tap.h"

namespace hostile {
namespace {

struct Arguments {
  std::string mode, from, to, netdev, mac, watched, what;
  uint16_t port = 0;
  uint32_t count = 200;
  uint64_t seed = 1;
};

Address address(const std::string& ip, uint16_t port) {
  Address a = {};
  if (inet_pton(AF_INET, ip.c_str(), &a.ip) != 1) FAIL("%s is no IPv4 address", ip.c_str());
  a.port = port;
  return a;
}

/// Calls @p send count times and says so. A pause now and then lets the victim's CPU have a share.
template <typename F>
void kind(const Forger& forger, const char* name, uint32_t count, F send) {
  const uint64_t before = forger.sent();
  for (uint32_t i = 0; i < count; ++i) {
    send(i);
    if (i % 16 == 15) sched_yield();
  }
  std::printf("%-40s %llu\n", name, static_cast<unsigned long long>(forger.sent() - before));
}

void attack_listener(const Arguments& a) {
  Forger forger;
  Random random(a.seed);
  const Address to = address(a.to, a.port);
  uint16_t port = 1025;
  auto from = [&] { return address(a.from, port = static_cast<uint16_t>(port < 1025 ? 1025 : port + 1)); };
  auto good = [&](const Bytes& pd = {}) {
    return request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, static_cast<uint16_t>(pd.size()), pd);
  };
  auto req = [&](const Bytes& payload) { return trp(random.below(~0u), 0, USIW_TRP_REQ, 0, 0, 0, payload); };

  kind(forger, "random bytes", a.count,
       [&](uint32_t) { forger.send(from(), to, random_bytes(random, random.below(1400))); });
  kind(forger, "every opcode and flag, no payload", 16 * 12, [&](uint32_t i) {
    forger.send(from(), to, trp(random.below(~0u), random.below(~0u), i % 16, 1u << (i / 16), 0xffff, 0)); });
  kind(forger, "truncated requests", 60, [&](uint32_t i) {
    Bytes b = req(good({1, 2, 3, 4}));
    b.resize(std::min<size_t>(i, b.size()));
    forger.send(from(), to, b);
  });
  kind(forger, "private data beyond the datagram", a.count, [&](uint32_t i) {
    forger.send(from(), to,
                req(request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, static_cast<uint16_t>(1 + i * 327),
                            random_bytes(random, i % 2))));
  });
  kind(forger, "private data of 513 to 1400 bytes", 20,
       [&](uint32_t i) { forger.send(from(), to, req(good(random_bytes(random, 513 + i * 46)))); });
  kind(forger, "other versions", 256, [&](uint32_t i) {
    forger.send(from(), to, req(request(static_cast<uint8_t>(i == 1 ? 0 : i), 0, 8, 8, 1500, 256, 0, {})));
  });
  kind(forger, "unknown features", 32,
       [&](uint32_t i) { forger.send(from(), to, req(request(USIW_WIRE_VERSION, 1u << i, 8, 8, 1500, 256, 0, {}))); });
  kind(forger, "impossible MTUs, windows and depths", 64, [&](uint32_t i) {
    static const uint16_t kOdd[] = {0, 1, 20, 575, 0xffff};
    forger.send(from(), to,
                req(request(USIW_WIRE_VERSION, 0, kOdd[i % 5], kOdd[i / 5 % 5], kOdd[i % 4], kOdd[i / 7 % 5], 0, {})));
  });
  kind(forger, "wrong UDP checksum", 50, [&](uint32_t) { forger.send(from(), to, req(good()), true); });
  kind(forger, "UDP length beyond and before the end", 50, [&](uint32_t i) {
    forger.send(from(), to, req(good()), false, static_cast<uint16_t>(i % 2 ? 8 + i : 2000 + i));
  });
  kind(forger, "answers to nothing", a.count, [&](uint32_t i) {
    static const unsigned kOpcodes[] = {USIW_TRP_ACCEPT,   USIW_TRP_REJECT, USIW_TRP_CONFIRM, USIW_TRP_RESET,
                                        USIW_TRP_SHUTDOWN, USIW_TRP_SACK,   USIW_TRP_DATA};
    forger.send(from(), to, trp(random.below(~0u), random.below(~0u), kOpcodes[i % 7], 0, 100, 0, good()));
  });
  kind(forger, "from the listener's own address", 20, [&](uint32_t) { forger.send(to, to, req(good())); });
  kind(forger, "from port 0 and from broadcast", 20,
       [&](uint32_t i) { forger.send(i % 2 ? address("255.255.255.255", 99) : address(a.from, 0), to, req(good())); });
  kind(forger, "flood of right requests", a.count * 10,
       [&](uint32_t i) { forger.send(from(), to, req(good(random_bytes(random, i % 200)))); });
  const Address one = from();
  kind(forger, "one request again and again", a.count,
       [&](uint32_t) { forger.send(one, to, trp(77, 0, USIW_TRP_REQ, 0, 0, 0, good())); });
  kind(forger, "one address with other PSNs", a.count, [&](uint32_t) { forger.send(one, to, req(good())); });
}

/// What only somebody who cannot see the traffic sends: the right 4-tuple, PSNs by guess, far from the window.
void attack_off_path(Forger& forger, Random& random, const Flow& f, uint32_t count) {
  auto far = [&](uint32_t near) { return near + 0x20000000u + random.below(0xc0000000u); };
  kind(forger, "random bytes", count, [&](uint32_t) {
    Bytes b = random_bytes(random, 14 + random.below(1400));
    const uint32_t psn = htonl(far(f.next_psn)), ack = htonl(far(f.ack_psn));
    std::memcpy(b.data(), &psn, 4);
    std::memcpy(b.data() + 4, &ack, 4);
    forger.send(f.from, f.to, b);
  });
  kind(forger, "shorter than a header", 28,
       [&](uint32_t i) { forger.send(f.from, f.to, random_bytes(random, i % 14)); });
  kind(forger, "wrong UDP checksum", 50, [&](uint32_t i) {
    forger.send(
        f.from, f.to,
        trp(f.next_psn + i % 8, f.ack_psn, USIW_TRP_DATA, 0, 100, 0, tagged(0xc1, 0x40, f.stag, f.to_offset, 100)),
        true);
  });
  kind(forger, "DATA outside of the window", count, [&](uint32_t i) {
    forger.send(
        f.from, f.to,
        trp(far(f.next_psn), f.ack_psn, USIW_TRP_DATA, i % 2, 100, 0, tagged(0xc1, 0x40, f.stag, f.to_offset, 100)));
  });
  kind(forger, "SACK of what was never sent", count, [&](uint32_t i) {
    const uint32_t psn = far(f.ack_psn);
    forger.send(
        f.from, f.to,
        trp(psn + i % 3, psn, USIW_TRP_SACK, i % 4, static_cast<uint16_t>(i * 331), 0, random_bytes(random, i % 90)));
  });
  kind(forger, "RESET with wrong PSNs", count, [&](uint32_t i) {
    forger.send(
        f.from, f.to,
        trp(i % 3 ? far(f.next_psn) : f.next_psn, far(f.ack_psn), USIW_TRP_RESET, i % 2 ? USIW_TRP_F_STRAY : 0, 0, 0));
  });
  kind(forger, "handshakes with wrong PSNs", count, [&](uint32_t i) {
    static const unsigned kOpcodes[] = {USIW_TRP_ACCEPT, USIW_TRP_REJECT, USIW_TRP_CONFIRM};
    forger.send(f.from, f.to,
                trp(far(f.next_psn), far(f.ack_psn), kOpcodes[i % 3], i % 2 ? USIW_TRP_F_PENDING : 0, 0, 0,
                    request(1, 0, 8, 8, 1500, 64, 0, {})));
  });
  kind(forger, "a new request for the live 4-tuple", 20, [&](uint32_t) {
    forger.send(f.from, f.to, trp(far(f.next_psn), 0, USIW_TRP_REQ, 0, 0, 0, request(1, 0, 8, 8, 1500, 64, 0, {}))); });
  kind(forger, "SHUTDOWN outside of the window", 50,
       [&](uint32_t) { forger.send(f.from, f.to, trp(far(f.next_psn), f.ack_psn, USIW_TRP_SHUTDOWN, 0, 0, 0)); });
  kind(forger, "opcodes that do not exist", 80, [&](uint32_t i) {
    forger.send(f.from, f.to, trp(f.next_psn, f.ack_psn, 8 + i % 8, 0, 0, 0, random_bytes(random, i)));
  });
  kind(forger, "replays", static_cast<uint32_t>(f.datagrams.size()) * 2,
       [&](uint32_t i) { forger.send(f.from, f.to, f.datagrams[i / 2]); });
  kind(forger, "from another port", count, [&](uint32_t i) {
    Address other = f.from;
    other.port = static_cast<uint16_t>(other.port + 1 + i % 500);
    forger.send(other, f.to, f.datagrams[i % f.datagrams.size()]);
  });
}

/// The right PSNs: what a host on the path, or a peer that is broken, may send.
Bytes evil_segment(Random& random, const Flow& f, uint32_t which) {
  switch (which % 16) {
    case 0: return tagged(0xc1, 0x40, f.stag ^ 0x00345600, f.to_offset, 200);          // unknown STag
    case 1: return tagged(0xc1, 0x40, f.stag, f.to_offset + (1u << 30), 200);           // beyond the region
    case 2: return tagged(0xc1, 0x40, f.stag, ~0ull - 20, 200);                         // wraps
    case 3: return tagged(0xc1, 0x42, f.stag, f.to_offset, 200);                        // READ response not asked for
    case 4: return tagged(0xc0, 0x40, f.stag, f.to_offset, 200);                        // DDP version 0
    case 5: return tagged(0xc1, 0xc0, f.stag, f.to_offset, 200);                        // RDMAP version 3
    case 6: return untagged(0x41, 0x43, 9, 1, 0, random_bytes(random, 50));             // queue 9
    case 7: return untagged(0x41, 0x43, 0, f.send_msn + 1000, 0, random_bytes(random, 50));  // MSN out of order
    case 8: return untagged(0x41, 0x43, 0, f.send_msn + 1, 0x7fffffff, random_bytes(random, 50));  // offset beyond
    case 9: return untagged(0x41, 0x41, 1, 1, 0, read_request(1, 0, 0xffffffff, f.stag, f.to_offset));
    case 10: return untagged(0x41, 0x41, 1, 1, 0, random_bytes(random, random.below(28)));  // READ request cut off
    case 11: return untagged(0x41, 0x47, 2, 1, 0, random_bytes(random, random.below(60)));  // Terminate of any content
    case 12: return untagged(0x41, 0x40 | static_cast<uint8_t>(8 + random.below(8)), 0, 1, 0, {});  // unknown opcodes
    case 13: return random_bytes(random, 1 + random.below(14));                          // shorter than DDP
    case 14: return untagged(0x41, 0x44, 0, f.send_msn + 1, 0, random_bytes(random, 20));   // invalidate
    default: return random_bytes(random, random.below(1400));
  }
}

void attack_on_path(Forger& forger, Random& random, const Flow& f, uint32_t count) {
  kind(forger, "bad segments at and ahead of the next PSN", count, [&](uint32_t i) {
    const uint32_t ahead = i < 16 ? random.below(30) : random.below(200);
    forger.send(f.from, f.to,
                trp(f.next_psn + ahead, f.ack_psn, USIW_TRP_DATA, random.below(8),
                    static_cast<uint16_t>(random.below(65536)), 0, evil_segment(random, f, i)));
  });
  kind(forger, "SACKs of ranges upside down and beyond", count, [&](uint32_t i) {
    Bytes ranges(4 + 8 * (i % 12));
    random.fill(ranges);
    forger.send(f.from, f.to,
                trp(f.ack_psn + random.below(300), f.ack_psn + i % 5, USIW_TRP_SACK, i % 8,
                    static_cast<uint16_t>(i % 4 ? 0xffff : 0), 0, ranges));
  });
}

void attack_live(const Arguments& a) {
  const std::vector<Flow> flows = sniff(a.netdev, 1500);
  if (flows.empty()) FAIL("no live connection was seen on %s", a.netdev.c_str());
  Forger forger;
  Random random(a.seed);
  for (const Flow& f : flows) {
    char from[INET_ADDRSTRLEN], to[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &f.from.ip, from, sizeof from);
    inet_ntop(AF_INET, &f.to.ip, to, sizeof to);
    std::printf("flow %s:%u -> %s:%u\n", from, f.from.port, to, f.to.port);
    if (a.mode == "offpath") attack_off_path(forger, random, f, a.count);
    else attack_on_path(forger, random, f, a.count);
  }
  std::printf("sent %llu datagrams to %zu flows\n", static_cast<unsigned long long>(forger.sent()), flows.size());
}

}  // namespace
}  // namespace hostile

int main(int argc, char** argv) {
  using namespace hostile;
  Arguments a;
  static const option kOptions[] = {{"from", 1, nullptr, 'f'}, {"to", 1, nullptr, 't'}, {"port", 1, nullptr, 'p'},
                                    {"netdev", 1, nullptr, 'n'}, {"count", 1, nullptr, 'c'}, {"seed", 1, nullptr, 's'},
                                    {"mac", 1, nullptr, 'm'}, {"what", 1, nullptr, 'w'}, {"watch", 1, nullptr, 'W'},
                                    {nullptr, 0, nullptr, 0}};
  if (argc > 1) a.mode = argv[1];
  optind = 2;
  for (int c; (c = getopt_long(argc, argv, "", kOptions, nullptr)) != -1;) {
    switch (c) {
      case 'f': a.from = optarg; break;
      case 't': a.to = optarg; break;
      case 'p': a.port = static_cast<uint16_t>(std::atoi(optarg)); break;
      case 'n': a.netdev = optarg; break;
      case 'm': a.mac = optarg; break;
      case 'w': a.what = optarg; break;
      case 'W': a.watched = optarg; break;
      case 'c': a.count = static_cast<uint32_t>(std::atoi(optarg)); break;
      case 's': a.seed = static_cast<uint64_t>(std::atoll(optarg)); break;
      default: return 64;
    }
  }
  try {
    if (a.mode == "listener") attack_listener(a);
    else if (a.mode == "flood") flood({a.netdev, a.mac, a.watched, a.what, address(a.to, a.port), a.seed});
    else if (a.mode == "offpath" || a.mode == "onpath") attack_live(a);
    else return 64;
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return 0;
}
