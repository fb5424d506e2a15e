// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mutate.h
/// Datagrams of the engine, changed by field rather than by bit: most of what a fuzzer does
/// blindly to a datagram ends at its first check.
#ifndef USIW_TESTS_FUZZ_MUTATE_H
#define USIW_TESTS_FUZZ_MUTATE_H

#include "engine_world.h"

namespace usiw::fuzz {

/// Steps that cross a limit: a neighbour, a window, half of the number space.
inline uint32_t step_from(Input& in) {
  static constexpr uint32_t kSteps[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1022, 1023, 1024, 1025, 0x7fffffff, 0x80000000};
  const uint8_t what = in.get();
  const uint32_t step = what < 0xc0 ? kSteps[what % 15] : in.get<uint16_t>();
  return (what & 0x20) != 0 ? 0 - step : step;
}

inline TrpHeader header_of(const Datagram& d) {
  TrpHeader h{};
  decode_trp(d, h);
  return h;
}

inline void mutate_header(Input& in, Datagram& d) {
  TrpHeader h = header_of(d);
  switch (in.get() % 7) {
    case 0: h.psn += step_from(in); break;
    case 1: h.ack_psn += step_from(in); break;
    case 2: h.flags ^= static_cast<uint16_t>(1u << in.get() % 12); break;
    case 3: h.opcode = in.get() % 16; break;
    case 4: h.credit = static_cast<uint16_t>(step_from(in)); break;
    case 5: h.echo = static_cast<uint16_t>(h.echo + step_from(in)); break;
    default: {
      const uint32_t both = step_from(in);
      h.psn += both;
      h.ack_psn += both;
    }
  }
  encode_trp(d.data(), h);
}

/// A TO or an offset: a step from what it was, or a place in some region.
inline uint64_t to_from(Input& in, uint64_t was) {
  const uint8_t what = in.get();
  if (what % 4 == 0) return was + static_cast<int32_t>(step_from(in));
  if (what % 4 == 1) return to_of(what / 4 % kRegions) + in.get<uint16_t>() % kRegionBytes;
  if (what % 4 == 2) return in.get<uint16_t>();
  return UINT64_MAX - in.get();
}

inline uint32_t stag_from(Input& in, uint32_t was) {
  const uint8_t what = in.get();
  if (what % 4 == 0) return was + step_from(in);
  if (what % 4 == 1) return what / 4;  // a READ's sink is named by its MSN
  return stag_of(what / 4 % kRegions);
}

inline void mutate_segment(Input& in, Datagram& d) {
  DdpSegment s{};
  const auto rest = std::span<const std::byte>(d).subspan(kTrpBytes);
  if (decode_ddp(rest, s) == DdpDecode::kShort) return;
  std::vector<std::byte> payload(s.payload, s.payload + s.len);
  switch (in.get() % 10) {
    case 0: s.tagged = !s.tagged; break;
    case 1: s.last = !s.last; break;
    case 2: s.rdmap_opcode = in.get() % 16; break;
    case 3: s.stag = stag_from(in, s.stag); break;
    case 4: s.to = to_from(in, s.to); break;
    case 5: s.qn += step_from(in); break;
    case 6: s.msn += step_from(in); break;
    case 7: s.mo += step_from(in); break;
    case 8: payload.resize(in.get<uint16_t>() % 1500, std::byte{0x5e}); break;
    default: {  // inside of a READ request or a Terminate
      const size_t at = in.get();
      if (at < payload.size()) payload[at] = in.get<std::byte>();
    }
  }
  d.resize(kTrpBytes + kUntaggedBytes);
  d.resize(kTrpBytes + encode_ddp(d.data() + kTrpBytes, s));
  d.insert(d.end(), payload.begin(), payload.end());
}

inline void mutate_bitmap(Input& in, Datagram& d) {
  TrpHeader h = header_of(d);
  const auto bytes = in.take(1 + in.get() % 130);
  d.resize(kTrpBytes);
  for (const uint8_t b : bytes) d.push_back(std::byte{b});
  // As a rule in a form that is not dropped at once.
  if (!bytes.empty() && in.get() % 8 != 0) {
    d[kTrpBytes] &= std::byte{0xfe};
    if (d.back() == std::byte{0}) d.back() = std::byte{2};
    h.psn = h.ack_psn + static_cast<uint32_t>((bytes.size() - 1) * 8) +
            static_cast<uint32_t>(std::bit_width(std::to_integer<unsigned>(d.back())));
    h.opcode = USIW_TRP_SACK;
    encode_trp(d.data(), h);
  }
}

inline void mutate(Input& in, Datagram& d) {
  if (d.size() < kTrpBytes) return;
  switch (in.get() % 8) {
    case 0:
    case 1: mutate_header(in, d); break;
    case 2:
    case 3:
    case 4: mutate_segment(in, d); break;
    case 5: mutate_bitmap(in, d); break;
    case 6: d.resize(in.get<uint16_t>() % (d.size() + 1)); break;
    default: d[in.get<uint16_t>() % d.size()] = in.get<std::byte>();
  }
}

/// A datagram that the peer has not sent, in the place of its next one.
inline Datagram craft(Input& in, uint32_t psn, uint32_t ack_psn) {
  const uint8_t what = in.get();
  TrpHeader h{psn, ack_psn, static_cast<uint16_t>(in.get() & 0x1f), USIW_TRP_DATA, 64, 0};
  Datagram d(kTrpBytes);
  DdpSegment s{};
  s.last = (what & 0x80) != 0;
  switch (what % 8) {
    case 0:
    case 1:
      s.tagged = true;
      s.rdmap_opcode = what % 8 == 0 ? USIW_RDMAP_WRITE : USIW_RDMAP_READ_RESP;
      s.stag = stag_from(in, 1);
      s.to = to_from(in, 0);
      break;
    case 2:
      s.rdmap_opcode = (what & 0x40) != 0 ? USIW_RDMAP_SEND : USIW_RDMAP_SEND_SE;
      s.msn = 1 + in.get() % 16;
      s.mo = in.get() * 8u;
      if ((h.flags & 0x18) == 0x18) {
        s.rdmap_opcode = USIW_RDMAP_SEND_INV;
        s.stag = (s.mo & 8) != 0 ? window_of(true, s.msn % 4) : stag_from(in, 1);
      }
      break;
    case 3: {
      s.last = true;
      s.rdmap_opcode = USIW_RDMAP_READ_REQ;
      s.qn = USIW_DDP_QN_READ_REQ;
      s.msn = 1 + in.get() % 16;
      std::byte p[kReadReqBytes];
      const uint32_t src = stag_from(in, stag_of(kSource));
      encode_read_request(p, {.sink_stag = in.get(), .sink_to = 0, .size = step_from(in), .src_stag = src,
                              .src_to = to_from(in, to_of(kSource))});
      encode_trp(d.data(), h);
      d.resize(kTrpBytes + kUntaggedBytes);
      encode_ddp(d.data() + kTrpBytes, s);
      d.insert(d.end(), p, p + sizeof p);
      return d;
    }
    case 4: {
      s.last = true;
      s.rdmap_opcode = USIW_RDMAP_TERMINATE;
      s.qn = USIW_DDP_QN_TERMINATE;
      s.msn = 1;
      break;
    }
    case 5: h.opcode = USIW_TRP_SHUTDOWN; break;
    case 6:
      h.opcode = USIW_TRP_SACK;
      h.psn = h.ack_psn;
      encode_trp(d.data(), h);
      mutate_bitmap(in, d);
      return d;
    default:
      h.opcode = USIW_TRP_RESET;
      h.flags = USIW_TRP_F_STRAY;
  }
  encode_trp(d.data(), h);
  if (h.opcode != USIW_TRP_DATA) return d;
  d.resize(kTrpBytes + kUntaggedBytes);
  d.resize(kTrpBytes + encode_ddp(d.data() + kTrpBytes, s));
  d.resize(d.size() + in.get() * 6u, std::byte{0xcc});
  return d;
}

}  // namespace usiw::fuzz

#endif  // USIW_TESTS_FUZZ_MUTATE_H
