// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file decode_segment.cc
/// The engine's decoders (TRP header, DDP segment, READ and Atomic Request, Terminate): any bytes; what
/// decodes is encoded again and must be the same.
#include "base/wire.h"
#include "input.h"

namespace {

using namespace usiw;

void check_trp(std::span<const std::byte> datagram) {
  TrpHeader h{};
  if (!decode_trp(datagram, h)) {
    FUZZ_CHECK(datagram.size() < kTrpBytes, "refused for nothing");
    return;
  }
  std::byte again[kTrpBytes];
  encode_trp(again, h);
  FUZZ_CHECK(std::memcmp(again, datagram.data(), kTrpBytes) == 0, "TRP header");
}

void check_terminate(std::span<const std::byte> bytes) {
  TermInfo t;
  if (!decode_terminate(bytes, t)) return;
  FUZZ_CHECK(t.ddp_bytes == 0 || t.ddp_bytes == kTaggedBytes || t.ddp_bytes == kUntaggedBytes, "length");
  std::unique_ptr<std::byte[]> buf(new std::byte[kTermMaxBytes]);
  const size_t n = encode_terminate(buf.get(), t);
  FUZZ_CHECK(n <= kTermMaxBytes, "too long");
  TermInfo u;
  FUZZ_CHECK(decode_terminate({buf.get(), n}, u), "encoded what does not decode");
  FUZZ_CHECK(u.code == t.code && u.ddp_bytes == t.ddp_bytes && u.has_read == t.has_read, "Terminate");
  FUZZ_CHECK(t.ddp_bytes == 0 || u.seg_len == t.seg_len, "segment length");
  FUZZ_CHECK(std::memcmp(u.ddp, t.ddp, t.ddp_bytes) == 0, "quoted header");
  FUZZ_CHECK(!t.has_read || std::memcmp(u.read, t.read, kReadReqBytes) == 0, "quoted READ request");
}

void check_read_request(const DdpSegment& seg) {
  std::byte again[kReadReqBytes];
  encode_read_request(again, decode_read_request(seg.payload));
  FUZZ_CHECK(std::memcmp(again, seg.payload, kReadReqBytes) == 0, "READ request");
}

void check_atomic_request(const DdpSegment& seg) {
  std::byte again[kAtomicReqBytes];
  encode_atomic_request(again, decode_atomic_request(seg.payload));
  FUZZ_CHECK((seg.payload[3] & std::byte{0xf}) == again[3], "atomic operation");
  FUZZ_CHECK(std::memcmp(again + 4, seg.payload + 4, kAtomicReqBytes - 4) == 0, "Atomic Request");
}

void check_ddp(std::span<const std::byte> bytes) {
  DdpSegment seg{};
  const DdpDecode result = decode_ddp(bytes, seg);
  if (result == DdpDecode::kShort) {
    FUZZ_CHECK(bytes.size() < kUntaggedBytes, "refused for nothing");
    return;
  }
  FUZZ_CHECK(seg.header == bytes.data() && seg.payload + seg.len == bytes.data() + bytes.size() &&
                 seg.payload == seg.header + seg.header_bytes(), "outside of the datagram");
  if (result != DdpDecode::kOk) return;
  std::byte again[kUntaggedBytes];
  FUZZ_CHECK(encode_ddp(again, seg) == seg.header_bytes(), "header length");
  again[0] |= seg.header[0] & std::byte{USIW_DDP_RSVD_MASK};
  again[1] |= seg.header[1] & std::byte{0x30};
  FUZZ_CHECK(std::memcmp(again, seg.header, seg.header_bytes()) == 0, "DDP header");
  if (!seg.tagged && seg.qn == USIW_DDP_QN_TERMINATE) check_terminate({seg.payload, seg.len});
  if (!seg.tagged && seg.qn == USIW_DDP_QN_READ_REQ && seg.len >= kReadReqBytes) check_read_request(seg);
  if (!seg.tagged && seg.qn == USIW_DDP_QN_READ_REQ && seg.len >= kAtomicReqBytes) check_atomic_request(seg);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::Exact in({data, size});
  check_trp(in.bytes());
  if (in.size() >= kTrpBytes) check_ddp(in.bytes().subspan(kTrpBytes));
  check_terminate(in.bytes());
  return 0;
}
