// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/encap.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "port/checksum.h"
#include "uapi/usiw_wire.h"

namespace usiw {
namespace {

using Bytes = std::vector<std::byte>;

Path path_v4() {
  Path p{};
  p.flow.local_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1};
  p.flow.remote_addr = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 2};
  p.flow.local_port = 0x3412;   // 0x1234 on the wire (little-endian host)
  p.flow.remote_port = 0x7856;  // 0x5678
  p.local_mac = {2, 0, 0, 0, 0, 1};
  p.remote_mac = {2, 0, 0, 0, 0, 2};
  p.hop_limit = 64;
  p.tos = 0x10;
  return p;
}

Path path_v6() {
  Path p = path_v4();
  p.flow.local_addr = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  p.flow.remote_addr = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  return p;
}

FlowKey reversed(const FlowKey& f) {
  return {f.remote_addr, f.local_addr, f.remote_port, f.local_port};
}

Bytes bytes(std::initializer_list<unsigned> list) {
  Bytes b;
  for (unsigned v : list) b.push_back(static_cast<std::byte>(v));
  return b;
}

/// A TRP datagram of @p len bytes with random contents and a data opcode.
Bytes payload_of(size_t len, unsigned seed = 1) {
  std::minstd_rand rng(seed);
  Bytes b(len);
  for (auto& v : b) v = static_cast<std::byte>(rng());
  if (len > 8) b[8] = std::byte{0};
  return b;
}

Bytes frame_of(const Path& path, const Bytes& payload) {
  Bytes room(kMaxEncapLen + payload.size());
  std::copy(payload.begin(), payload.end(), room.begin() + kMaxEncapLen);
  size_t n = encap(room.data() + kMaxEncapLen, static_cast<uint32_t>(payload.size()), path);
  return Bytes(room.begin() + static_cast<long>(kMaxEncapLen - n), room.end());
}

Decap parse(const Bytes& frame, RxBuf& out) {
  // A copy of exactly this size: AddressSanitizer sees a read beyond it.
  static std::vector<std::unique_ptr<std::byte[]>> keep;
  keep.push_back(std::make_unique<std::byte[]>(frame.size()));
  std::copy(frame.begin(), frame.end(), keep.back().get());
  return decap(keep.back().get(), frame.size(), out);
}

Decap parse(const Bytes& frame) {
  RxBuf out{};
  return parse(frame, out);
}

TEST(Encap, Ipv4ByHand) {
  // Headers written by hand; checksums computed by hand after RFC 1071.
  Path p = path_v4();
  Bytes frame = frame_of(p, bytes({0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 4}));
  Bytes want = bytes({2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00,                   // Ethernet
                      0x45, 0x10, 0, 42, 0, 0, 0x40, 0, 64, 17, 0x26, 0x9f,             // IPv4
                      10, 9, 0, 1, 10, 9, 0, 2,                                         //
                      0x12, 0x34, 0x56, 0x78, 0, 22, 0x82, 0xf7,                        // UDP
                      0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 4});
  EXPECT_EQ(frame, want);
}

class RoundTrip : public testing::TestWithParam<bool> {
 protected:
  Path path() const { return GetParam() ? path_v4() : path_v6(); }
};
INSTANTIATE_TEST_SUITE_P(BothFamilies, RoundTrip, testing::Bool(),
                         [](auto& i) { return i.param ? "v4" : "v6"; });

TEST_P(RoundTrip, EverySizeComesBack) {
  for (size_t len = 0; len < 80; len++) {
    Bytes payload = payload_of(len);
    Bytes frame = frame_of(path(), payload);
    ASSERT_EQ(frame.size(), encap_len(GetParam()) + len);
    RxBuf out{};
    ASSERT_EQ(parse(frame, out), Decap::kOk) << len;
    ASSERT_EQ(out.len, len);
    EXPECT_TRUE(std::equal(payload.begin(), payload.end(), out.data));
    EXPECT_EQ(out.flow, reversed(path().flow));
  }
  for (size_t len : {1458u, 1472u, 8972u, 9188u}) {
    RxBuf out{};
    EXPECT_EQ(parse(frame_of(path(), payload_of(len)), out), Decap::kOk);
    EXPECT_EQ(out.len, len);
  }
}

TEST_P(RoundTrip, CongestionMarks) {
  Path p = path();
  for (const uint8_t tos : {0x10, 0x11, 0x12, 0x13, 0xff}) {
    p.tos = tos;
    RxBuf out{};
    EXPECT_EQ(parse(frame_of(p, payload_of(20)), out), Decap::kOk);
    EXPECT_EQ(out.ce, (tos & 3) == 3) << int{tos};
  }
  p.tos = 0x10;
  p.ect = true;
  const Bytes frame = frame_of(p, payload_of(20));
  const auto at = [&](size_t i) { return std::to_integer<unsigned>(frame[kEthernetLen + i]); };
  EXPECT_EQ(GetParam() ? at(1) : (at(0) << 4 & 0xf0) | at(1) >> 4, 0x12u);
}

TEST_P(RoundTrip, EthernetPaddingIsIgnored) {
  Bytes frame = frame_of(path(), payload_of(14));
  frame.resize(frame.size() + 30, std::byte{0xee});
  RxBuf out{};
  EXPECT_EQ(parse(frame, out), Decap::kOk);
  EXPECT_EQ(out.len, 14u);
}

TEST_P(RoundTrip, EveryTruncationIsMalformed) {
  Bytes frame = frame_of(path(), payload_of(40));
  for (size_t len = 0; len < frame.size(); len++)
    EXPECT_EQ(parse(Bytes(frame.begin(), frame.begin() + static_cast<long>(len))), Decap::kMalformed)
        << len;
}

TEST_P(RoundTrip, EveryFlippedBitOfTheDatagramIsSeen) {
  Bytes frame = frame_of(path(), payload_of(37));
  for (size_t bit = kEthernetLen * 8; bit < frame.size() * 8; bit++) {
    Bytes bad = frame;
    bad[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    RxBuf out{};
    Decap got = parse(bad, out);
    // IPv6 has no header checksum: traffic class, flow label and hop limit are free.
    size_t at = bit / 8 - kEthernetLen;
    bool free_v6 = !GetParam() && (at < 4 || at == 7) && !(at == 0 && bit % 8 >= 4);
    if (free_v6)
      EXPECT_EQ(got, Decap::kOk) << at;
    else
      EXPECT_NE(got, Decap::kOk) << "byte " << at << " bit " << bit % 8;
  }
}

TEST_P(RoundTrip, RandomBytesNeverPass) {
  Bytes frame = frame_of(path(), payload_of(60));
  std::minstd_rand rng(7);
  for (int i = 0; i < 20000; i++) {
    Bytes bad = frame;
    bad.resize(rng() % (frame.size() + 1));
    for (auto& b : bad)
      if (rng() % 4 == 0) b = static_cast<std::byte>(rng());
    RxBuf out{};
    if (parse(bad, out) == Decap::kOk) {
      EXPECT_LE(out.len, bad.size());
    }
  }
}

TEST_P(RoundTrip, UdpLengthMustFillThePacket) {
  size_t at = encap_len(GetParam()) - 4;
  for (int delta : {-1, 1, -30, 100}) {
    Bytes frame = frame_of(path(), payload_of(40));
    int len = 48 + delta;
    frame[at] = static_cast<std::byte>(len >> 8);
    frame[at + 1] = static_cast<std::byte>(len);
    EXPECT_EQ(parse(frame), Decap::kMalformed);
  }
}

TEST_P(RoundTrip, NoUdpChecksumIsMalformed) {
  Bytes frame = frame_of(path(), payload_of(40));
  frame[encap_len(GetParam()) - 2] = frame[encap_len(GetParam()) - 1] = std::byte{0};
  EXPECT_EQ(parse(frame), Decap::kMalformed);
}

TEST_P(RoundTrip, ZeroSumIsSentAsOnes) {
  // Search a payload whose checksum comes out as 0: it must be sent as 0xffff and pass.
  Path p = path();
  size_t at = encap_len(GetParam()) - 2;
  for (unsigned v = 0; v < 0x10000; v++) {
    Bytes payload(14);
    payload[0] = static_cast<std::byte>(v >> 8);
    payload[1] = static_cast<std::byte>(v);
    Bytes frame = frame_of(p, payload);
    ASSERT_FALSE(frame[at] == std::byte{0} && frame[at + 1] == std::byte{0});
    if (frame[at] == std::byte{0xff} && frame[at + 1] == std::byte{0xff}) {
      EXPECT_EQ(parse(frame), Decap::kOk);
      return;
    }
  }
  FAIL() << "no such payload";
}

/// The frame as the kernel on this host shows it: only the pseudo header's sum is there.
Bytes with_partial_checksum(bool ipv4, Bytes frame) {
  size_t udp = encap_len(ipv4) - kUdpLen;
  uint64_t sum = ipv4 ? checksum_add(0, &frame[26], 8) : checksum_add(0, &frame[22], 32);
  uint8_t proto_and_len[4] = {0, 17, static_cast<uint8_t>(frame[udp + 4]),
                              static_cast<uint8_t>(frame[udp + 5])};
  uint16_t folded = checksum_fold(checksum_add(sum, proto_and_len, 4));
  std::memcpy(&frame[udp + 6], &folded, 2);
  return frame;
}

TEST_P(RoundTrip, PartialChecksumPasses) {
  for (unsigned opcode = 0; opcode < 8; opcode++) {
    Bytes payload = payload_of(14);
    payload[8] = static_cast<std::byte>(opcode << 4);
    Bytes frame = frame_of(path(), payload);
    bool handshake = (USIW_TRP_KERNEL_OPCODES >> opcode & 1) != 0;
    EXPECT_EQ(parse(frame), handshake ? Decap::kNotOurs : Decap::kOk) << opcode;
    EXPECT_EQ(parse(with_partial_checksum(GetParam(), frame)),
              handshake ? Decap::kNotOurs : Decap::kOk)
        << opcode;
  }
}

TEST(Decap, OtherProtocolsAreNotOurs) {
  Bytes frame = frame_of(path_v4(), payload_of(40));
  Bytes arp = frame;
  arp[13] = std::byte{6};
  EXPECT_EQ(parse(arp), Decap::kNotOurs);
  Bytes vlan = frame;
  vlan[12] = std::byte{0x81};
  EXPECT_EQ(parse(vlan), Decap::kNotOurs);
  Bytes tcp = frame;
  tcp[23] = std::byte{6};
  EXPECT_EQ(parse(tcp), Decap::kNotOurs);
  Bytes v6 = frame_of(path_v6(), payload_of(40));
  v6[20] = std::byte{44};  // fragment header
  EXPECT_EQ(parse(v6), Decap::kNotOurs);
}

/// Sets bytes of the IPv4 header and repairs its checksum.
Bytes ipv4_edited(size_t at, std::initializer_list<unsigned> values) {
  Bytes frame = frame_of(path_v4(), payload_of(40));
  for (unsigned v : values) frame[kEthernetLen + at++] = static_cast<std::byte>(v);
  frame[24] = frame[25] = std::byte{0};
  uint16_t sum = static_cast<uint16_t>(~checksum_fold(checksum_add(0, &frame[14], 20)));
  std::memcpy(&frame[24], &sum, 2);
  return frame;
}

TEST(Decap, Ipv4FragmentsAndOptionsAreMalformed) {
  EXPECT_EQ(parse(ipv4_edited(6, {0x20, 0})), Decap::kMalformed);  // MF
  EXPECT_EQ(parse(ipv4_edited(6, {0, 1})), Decap::kMalformed);     // an offset
  EXPECT_EQ(parse(ipv4_edited(6, {0, 0})), Decap::kOk);            // no DF: fine
  EXPECT_EQ(parse(ipv4_edited(0, {0x46})), Decap::kMalformed);
  EXPECT_EQ(parse(ipv4_edited(0, {0x44})), Decap::kMalformed);
  EXPECT_EQ(parse(ipv4_edited(0, {0x65})), Decap::kMalformed);
  EXPECT_EQ(parse(ipv4_edited(2, {0, 19})), Decap::kMalformed);
  EXPECT_EQ(parse(ipv4_edited(2, {0xff, 0xff})), Decap::kMalformed);
}

TEST(Checksum, MatchesThePlainDefinition) {
  for (size_t len = 0; len < 1600; len += len < 300 ? 1 : 37) {
    Bytes b = payload_of(len, static_cast<unsigned>(len));
    uint32_t plain = 0;
    for (size_t i = 0; i < len; i += 2) {
      uint16_t w = 0;
      std::memcpy(&w, &b[i], std::min<size_t>(2, len - i));
      plain += w;
      plain = (plain & 0xffff) + (plain >> 16);
    }
    EXPECT_EQ(checksum_fold(checksum_add(0, b.data(), len)), plain) << len;
  }
}

}  // namespace
}  // namespace usiw
