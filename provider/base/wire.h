// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file wire.h
/// Encoding and decoding of everything the engine puts into a datagram, for it and for tools/: the TRP
/// header (uapi/usiw_wire.h), DDP (RFC 5041 section 4) and RDMAP (RFC 5040 section 4).
/// Decoders take any bytes; they look at nothing beyond the length given.
#ifndef USIW_BASE_WIRE_H
#define USIW_BASE_WIRE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "uapi/usiw_wire.h"

namespace usiw {

inline uint16_t load_be16(const std::byte* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap16(v);
}
inline uint32_t load_be32(const std::byte* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap32(v);
}
inline uint64_t load_be64(const std::byte* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_bswap64(v);
}
/// Between a number and what it is as the bytes of a big endian one.
constexpr uint32_t to_be32(uint32_t v) { return __builtin_bswap32(v); }
inline void store_be16(std::byte* p, uint16_t v) {
  v = __builtin_bswap16(v);
  std::memcpy(p, &v, sizeof v);
}
inline void store_be32(std::byte* p, uint32_t v) {
  v = __builtin_bswap32(v);
  std::memcpy(p, &v, sizeof v);
}
inline void store_be64(std::byte* p, uint64_t v) {
  v = __builtin_bswap64(v);
  std::memcpy(p, &v, sizeof v);
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "loads and stores above swap");

inline constexpr size_t kTrpBytes = sizeof(usiw_trp_hdr);
inline constexpr size_t kTaggedBytes = sizeof(usiw_ddp_tagged);
inline constexpr size_t kUntaggedBytes = sizeof(usiw_ddp_untagged);
inline constexpr size_t kReadReqBytes = sizeof(usiw_read_req);
inline constexpr size_t kImmediateBytes = sizeof(usiw_immediate);
inline constexpr size_t kAtomicReqBytes = sizeof(usiw_atomic_req);
inline constexpr size_t kAtomicRespBytes = sizeof(usiw_atomic_resp);

// ---- TRP ----

struct TrpHeader {
  uint32_t psn;
  uint32_t ack_psn;
  uint16_t flags;  ///< USIW_TRP_F_*
  uint8_t opcode;  ///< enum usiw_trp_opcode
  uint16_t credit;
  uint16_t echo;
};

inline void encode_trp(std::byte* p, const TrpHeader& h) {
  store_be32(p + offsetof(usiw_trp_hdr, psn), h.psn);
  store_be32(p + offsetof(usiw_trp_hdr, ack_psn), h.ack_psn);
  store_be16(p + offsetof(usiw_trp_hdr, opflags),
             static_cast<uint16_t>(h.opcode << USIW_TRP_OPCODE_SHIFT | (h.flags & USIW_TRP_FLAGS_MASK)));
  store_be16(p + offsetof(usiw_trp_hdr, credit), h.credit);
  store_be16(p + offsetof(usiw_trp_hdr, echo), h.echo);
}

/// false when @p datagram is too short for a header.
inline bool decode_trp(std::span<const std::byte> datagram, TrpHeader& h) {
  if (datagram.size() < kTrpBytes) return false;
  const std::byte* p = datagram.data();
  const uint16_t opflags = load_be16(p + offsetof(usiw_trp_hdr, opflags));
  h.psn = load_be32(p + offsetof(usiw_trp_hdr, psn));
  h.ack_psn = load_be32(p + offsetof(usiw_trp_hdr, ack_psn));
  h.opcode = static_cast<uint8_t>(opflags >> USIW_TRP_OPCODE_SHIFT);
  h.flags = opflags & USIW_TRP_FLAGS_MASK;
  h.credit = load_be16(p + offsetof(usiw_trp_hdr, credit));
  h.echo = load_be16(p + offsetof(usiw_trp_hdr, echo));
  return true;
}

// ---- DDP and RDMAP ----

/// A DDP segment, as it is sent and as it was received.
struct DdpSegment {
  bool tagged;
  bool last;
  uint8_t rdmap_opcode;        ///< enum usiw_rdmap_opcode
  uint32_t stag;               ///< tagged; untagged: STag to invalidate, or immediate data
  uint64_t to;                 ///< tagged
  uint32_t qn;                 ///< untagged
  uint32_t msn;                ///< untagged
  uint32_t mo;                 ///< untagged, bytes
  const std::byte* header;     ///< decoded only: the DDP header, for Terminate
  const std::byte* payload;    ///< decoded only
  uint32_t len;                ///< payload, bytes

  size_t header_bytes() const { return tagged ? kTaggedBytes : kUntaggedBytes; }
};

/// Writes the header; returns its length.
inline size_t encode_ddp(std::byte* p, const DdpSegment& s) {
  p[0] = static_cast<std::byte>((s.tagged ? USIW_DDP_F_TAGGED : 0) |
                                (s.last ? USIW_DDP_F_LAST : 0) | USIW_DDP_VERSION);
  p[1] = static_cast<std::byte>(USIW_RDMAP_VERSION << USIW_RDMAP_VERSION_SHIFT | s.rdmap_opcode);
  store_be32(p + 2, s.stag);
  if (s.tagged) {
    store_be64(p + offsetof(usiw_ddp_tagged, to), s.to);
    return kTaggedBytes;
  }
  store_be32(p + offsetof(usiw_ddp_untagged, qn), s.qn);
  store_be32(p + offsetof(usiw_ddp_untagged, msn), s.msn);
  store_be32(p + offsetof(usiw_ddp_untagged, mo), s.mo);
  return kUntaggedBytes;
}

/// The first two bytes of a segment's header as one number. @p ddp: USIW_DDP_F_*; @p rdmap: enum usiw_rdmap_opcode.
constexpr uint16_t segment_kind(unsigned ddp, unsigned rdmap) {
  return static_cast<uint16_t>(ddp | USIW_DDP_VERSION | (USIW_RDMAP_VERSION << USIW_RDMAP_VERSION_SHIFT | rdmap) << 8);
}

enum class DdpDecode { kOk, kShort, kDdpVersion, kRdmapVersion };

/// Reserved bits are not checked on receipt, as both RFCs demand. @p s is complete
/// for every result but kShort, so that a Terminate can quote the header.
inline DdpDecode decode_ddp(std::span<const std::byte> bytes, DdpSegment& s) {
  if (bytes.size() < kTaggedBytes) return DdpDecode::kShort;
  const std::byte* p = bytes.data();
  const auto ddp = std::to_integer<uint8_t>(p[0]);
  const auto rdmap = std::to_integer<uint8_t>(p[1]);
  s.tagged = (ddp & USIW_DDP_F_TAGGED) != 0;
  s.last = (ddp & USIW_DDP_F_LAST) != 0;
  if (bytes.size() < s.header_bytes()) return DdpDecode::kShort;
  s.rdmap_opcode = rdmap & USIW_RDMAP_OPCODE_MASK;
  s.stag = load_be32(p + 2);
  s.to = s.qn = s.msn = s.mo = 0;
  if (s.tagged) {
    s.to = load_be64(p + offsetof(usiw_ddp_tagged, to));
  } else {
    s.qn = load_be32(p + offsetof(usiw_ddp_untagged, qn));
    s.msn = load_be32(p + offsetof(usiw_ddp_untagged, msn));
    s.mo = load_be32(p + offsetof(usiw_ddp_untagged, mo));
  }
  s.header = p;
  s.payload = p + s.header_bytes();
  s.len = static_cast<uint32_t>(bytes.size() - s.header_bytes());
  if ((ddp & USIW_DDP_VERSION_MASK) != USIW_DDP_VERSION) return DdpDecode::kDdpVersion;
  if (rdmap >> USIW_RDMAP_VERSION_SHIFT != USIW_RDMAP_VERSION) return DdpDecode::kRdmapVersion;
  return DdpDecode::kOk;
}

struct ReadRequest {
  uint32_t sink_stag;
  uint64_t sink_to;
  uint32_t size;
  uint32_t src_stag;
  uint64_t src_to;
};

inline void encode_read_request(std::byte* p, const ReadRequest& r) {
  store_be32(p + offsetof(usiw_read_req, sink_stag), r.sink_stag);
  store_be64(p + offsetof(usiw_read_req, sink_to), r.sink_to);
  store_be32(p + offsetof(usiw_read_req, size), r.size);
  store_be32(p + offsetof(usiw_read_req, src_stag), r.src_stag);
  store_be64(p + offsetof(usiw_read_req, src_to), r.src_to);
}

/// @p p holds kReadReqBytes.
inline ReadRequest decode_read_request(const std::byte* p) {
  return {load_be32(p + offsetof(usiw_read_req, sink_stag)),
          load_be64(p + offsetof(usiw_read_req, sink_to)),
          load_be32(p + offsetof(usiw_read_req, size)),
          load_be32(p + offsetof(usiw_read_req, src_stag)),
          load_be64(p + offsetof(usiw_read_req, src_to))};
}

// ---- Immediate data and atomics (RFC 7306) ----

/// @p p has room for kImmediateBytes; @p data is the number that its big endian bytes are.
inline void encode_immediate(std::byte* p, uint32_t data, uint32_t length) {
  store_be32(p + offsetof(usiw_immediate, data), data);
  store_be32(p + offsetof(usiw_immediate, length), length);
}

struct AtomicRequest {
  uint32_t opcode;  ///< usiw_atomic_opcode, or any other
  uint32_t id;
  uint32_t stag;
  uint64_t to;
  uint64_t add_swap;
  uint64_t add_swap_mask;
  uint64_t compare;
  uint64_t compare_mask;
};

inline void encode_atomic_request(std::byte* p, const AtomicRequest& r) {
  store_be32(p + offsetof(usiw_atomic_req, opcode), r.opcode);
  store_be32(p + offsetof(usiw_atomic_req, id), r.id);
  store_be32(p + offsetof(usiw_atomic_req, stag), r.stag);
  store_be64(p + offsetof(usiw_atomic_req, to), r.to);
  store_be64(p + offsetof(usiw_atomic_req, add_swap), r.add_swap);
  store_be64(p + offsetof(usiw_atomic_req, add_swap_mask), r.add_swap_mask);
  store_be64(p + offsetof(usiw_atomic_req, compare), r.compare);
  store_be64(p + offsetof(usiw_atomic_req, compare_mask), r.compare_mask);
}

/// @p p holds kAtomicReqBytes.
inline AtomicRequest decode_atomic_request(const std::byte* p) {
  return {load_be32(p + offsetof(usiw_atomic_req, opcode)) & 0xf,
          load_be32(p + offsetof(usiw_atomic_req, id)),
          load_be32(p + offsetof(usiw_atomic_req, stag)),
          load_be64(p + offsetof(usiw_atomic_req, to)),
          load_be64(p + offsetof(usiw_atomic_req, add_swap)),
          load_be64(p + offsetof(usiw_atomic_req, add_swap_mask)),
          load_be64(p + offsetof(usiw_atomic_req, compare)),
          load_be64(p + offsetof(usiw_atomic_req, compare_mask))};
}

inline void encode_atomic_response(std::byte* p, uint32_t id, uint64_t value) {
  store_be32(p + offsetof(usiw_atomic_resp, id), id);
  store_be64(p + offsetof(usiw_atomic_resp, value), value);
}

// ---- Terminate (RFC 5040 section 4.8) ----

enum class TermLayer : uint8_t { kRdmap = 0, kDdp = 1, kLlp = 2 };

/// Layer, error type and error code of a Terminate (RFC 5040 figure 11).
struct TermCode {
  TermLayer layer;
  uint8_t etype;
  uint8_t ecode;
  bool operator==(const TermCode&) const = default;
};

/// As completions tell it: 0x8000, the layer in bits 12 to 14, the error type in 8 to 11, the code in 0 to 7.
constexpr uint16_t vendor_err_of(const TermCode& code) {
  const unsigned layer = static_cast<unsigned>(code.layer);
  return static_cast<uint16_t>(0x8000u | layer << 12 | (code.etype & 15u) << 8 | code.ecode);
}

namespace term {
inline constexpr TermCode kLocalCatastrophic{TermLayer::kRdmap, 0, 0x00};
inline constexpr TermCode kRdmapInvalidStag{TermLayer::kRdmap, 1, 0x00};
inline constexpr TermCode kRdmapBounds{TermLayer::kRdmap, 1, 0x01};
inline constexpr TermCode kRdmapAccess{TermLayer::kRdmap, 1, 0x02};
inline constexpr TermCode kRdmapStagNotAssociated{TermLayer::kRdmap, 1, 0x03};
inline constexpr TermCode kRdmapToWrap{TermLayer::kRdmap, 1, 0x04};
inline constexpr TermCode kRdmapCannotInvalidate{TermLayer::kRdmap, 1, 0x09};
inline constexpr TermCode kRdmapVersion{TermLayer::kRdmap, 2, 0x05};
inline constexpr TermCode kRdmapOpcode{TermLayer::kRdmap, 2, 0x06};
inline constexpr TermCode kRdmapStream{TermLayer::kRdmap, 2, 0x07};
inline constexpr TermCode kDdpInvalidStag{TermLayer::kDdp, 1, 0x00};
inline constexpr TermCode kDdpBounds{TermLayer::kDdp, 1, 0x01};
inline constexpr TermCode kDdpStagNotAssociated{TermLayer::kDdp, 1, 0x02};
inline constexpr TermCode kDdpToWrap{TermLayer::kDdp, 1, 0x03};
inline constexpr TermCode kDdpTaggedVersion{TermLayer::kDdp, 1, 0x04};
inline constexpr TermCode kDdpInvalidQn{TermLayer::kDdp, 2, 0x01};
inline constexpr TermCode kDdpNoBuffer{TermLayer::kDdp, 2, 0x02};
inline constexpr TermCode kDdpMsnRange{TermLayer::kDdp, 2, 0x03};
inline constexpr TermCode kDdpInvalidMo{TermLayer::kDdp, 2, 0x04};
inline constexpr TermCode kDdpTooLong{TermLayer::kDdp, 2, 0x05};
inline constexpr TermCode kDdpUntaggedVersion{TermLayer::kDdp, 2, 0x06};
}  // namespace term

/// Largest payload of a Terminate: control, segment length, untagged header, READ request.
inline constexpr size_t kTermMaxBytes = 4 + 2 + kUntaggedBytes + kReadReqBytes;

/// A Terminate and what it quotes.
struct TermInfo {
  TermCode code;
  uint8_t ddp_bytes;    ///< of the DDP header quoted: 0, 14 or 18
  bool has_read;        ///< the READ request is quoted
  uint16_t seg_len;     ///< DDP segment length, with ddp_bytes != 0
  std::byte ddp[kUntaggedBytes];
  std::byte read[kReadReqBytes];
};

/// Writes the payload of a Terminate, kTermMaxBytes at most; returns its length.
inline size_t encode_terminate(std::byte* p, const TermInfo& t) {
  uint32_t ctrl = static_cast<uint32_t>(t.code.layer) << USIW_TERM_LAYER_SHIFT |
                  static_cast<uint32_t>(t.code.etype) << USIW_TERM_ETYPE_SHIFT |
                  static_cast<uint32_t>(t.code.ecode) << USIW_TERM_ECODE_SHIFT;
  if (t.ddp_bytes != 0) ctrl |= USIW_TERM_F_M | USIW_TERM_F_D;
  if (t.has_read) ctrl |= USIW_TERM_F_R;
  store_be32(p, ctrl);
  size_t n = 4;
  if (t.ddp_bytes != 0) {
    store_be16(p + n, t.seg_len);
    n += 2;
    std::memcpy(p + n, t.ddp, t.ddp_bytes);
    n += t.ddp_bytes;
  }
  if (t.has_read) {
    std::memcpy(p + n, t.read, kReadReqBytes);
    n += kReadReqBytes;
  }
  return n;
}

/// false when lengths and HDRCT bits do not fit together.
inline bool decode_terminate(std::span<const std::byte> bytes, TermInfo& t) {
  if (bytes.size() < 4) return false;
  const uint32_t ctrl = load_be32(bytes.data());
  t = {};
  t.code.layer = static_cast<TermLayer>(ctrl >> USIW_TERM_LAYER_SHIFT & 0xf);
  t.code.etype = ctrl >> USIW_TERM_ETYPE_SHIFT & 0xf;
  t.code.ecode = ctrl >> USIW_TERM_ECODE_SHIFT & 0xff;
  size_t n = 4;
  if (ctrl & USIW_TERM_F_M) {
    if (bytes.size() < n + 2) return false;
    t.seg_len = load_be16(bytes.data() + n);
    n += 2;
  }
  if (ctrl & USIW_TERM_F_D) {
    if (bytes.size() < n + 1) return false;
    const bool tagged = (std::to_integer<uint8_t>(bytes[n]) & USIW_DDP_F_TAGGED) != 0;
    t.ddp_bytes = tagged ? kTaggedBytes : kUntaggedBytes;
    if (bytes.size() < n + t.ddp_bytes) return false;
    std::memcpy(t.ddp, bytes.data() + n, t.ddp_bytes);
    n += t.ddp_bytes;
  }
  if (ctrl & USIW_TERM_F_R) {
    if (bytes.size() < n + kReadReqBytes) return false;
    std::memcpy(t.read, bytes.data() + n, kReadReqBytes);
    t.has_read = true;
  }
  return true;
}

}  // namespace usiw

#endif  // USIW_BASE_WIRE_H
