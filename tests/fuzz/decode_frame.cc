// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file decode_frame.cc
/// Ethernet frames: any bytes through decap; what passes is wrapped again and must pass
/// again, the same. The first byte says which checksums are put right beforehand, because
/// no fuzzer guesses them, and whether the datagram is one of the engine.
#include <arpa/inet.h>

#include "input.h"
#include "port/checksum.h"
#include "port/encap.h"
#include "uapi/usiw_wire.h"

namespace {

using namespace usiw;

enum Repair : uint8_t { kIpSum = 1, kUdpSum = 2, kUdpLen = 4, kIpLen = 8, kBareSum = 16 };

void put16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }

/// Puts lengths and checksums right where the frame has room for them.
void repair(uint8_t* frame, size_t size, uint8_t how) {
  constexpr size_t kIp = kEthernetLen;
  if (size < kIp + kIpv4Len + usiw::kUdpLen) return;
  uint8_t* ip = frame + kIp;
  const bool v4 = frame[12] == 0x08;
  const size_t ip_len = v4 ? kIpv4Len : kIpv6Len;
  if (size < kIp + ip_len + usiw::kUdpLen) return;
  uint8_t* udp = ip + ip_len;
  const auto udp_len = static_cast<uint16_t>(size - kIp - ip_len);
  if ((how & kIpLen) != 0) put16(ip + (v4 ? 2 : 4), htons(static_cast<uint16_t>(v4 ? udp_len + ip_len : udp_len)));
  if ((how & Repair::kUdpLen) != 0) put16(udp + 4, htons(udp_len));
  if (v4 && (how & kIpSum) != 0) {
    put16(ip + 10, 0);
    put16(ip + 10, static_cast<uint16_t>(~checksum_fold(checksum_add(0, ip, kIpv4Len))));
  }
  const uint64_t pseudo =
      checksum_add(0, v4 ? ip + 12 : ip + 8, v4 ? 8 : 32) + htons(17) + htons(udp_len);
  if ((how & kBareSum) != 0) {
    put16(udp + 6, checksum_fold(pseudo));
  } else if ((how & kUdpSum) != 0) {
    put16(udp + 6, 0);
    const auto sum = static_cast<uint16_t>(~checksum_fold(checksum_add(pseudo, udp, udp_len)));
    put16(udp + 6, sum == 0 ? 0xffff : sum);
  }
}

void wrap_again(const RxBuf& in) {
  // What the frame's sender would have sent.
  Path path{};
  path.flow = {in.flow.remote_addr, in.flow.local_addr, in.flow.remote_port, in.flow.local_port};
  path.hop_limit = 64;
  const size_t head = encap_len(path.flow.is_ipv4());  // the sender's family is the receiver's
  std::unique_ptr<std::byte[]> room(new std::byte[kMaxEncapLen + in.len]);
  std::byte* payload = room.get() + kMaxEncapLen;
  if (in.len != 0) std::memcpy(payload, in.data, in.len);
  FUZZ_CHECK(encap(payload, in.len, path) == head, "length of the headers");
  RxBuf out{};
  FUZZ_CHECK(decap(payload - head, head + in.len, out) == Decap::kOk, "wrapped what is refused");
  FUZZ_CHECK(out.flow == in.flow && out.len == in.len && std::memcmp(out.data, in.data, in.len) == 0,
             "changed on the way");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  fuzz::Exact frame({data + 1, size - 1});
  repair(frame.data(), frame.size(), data[0]);
  RxBuf out{};
  if (decap(frame.bytes().data(), frame.size(), out) != Decap::kOk) return 0;
  FUZZ_CHECK(out.data >= frame.bytes().data() && out.data + out.len <= frame.bytes().data() + frame.size(),
             "datagram outside of the frame");
  if (out.len >= 14) {
    const unsigned opcode = std::to_integer<unsigned>(out.data[8]) >> 4;
    FUZZ_CHECK((USIW_TRP_KERNEL_OPCODES >> opcode & 1) == 0, "a handshake passed");
  }
  FUZZ_CHECK(out.flow.is_ipv4() == (frame.data()[12] == 0x08), "a flow of the other address family");
  wrap_again(out);
  return 0;
}
