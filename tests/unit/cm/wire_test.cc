// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_wire.c, in the order of its functions.
#include <random>

#include "fixture.h"

namespace {

/// A REQ, byte by byte as in docs/protocol.md.
const uint8_t kReq[] = {
    0x11, 0x22, 0x33, 0x44, 0, 0, 0, 0, 0x10, 0x00, 0, 0, 0, 0,  // TRP
    1, 0, 0, 3, 0, 0, 0, 0, 0, 16, 0, 8, 0x05, 0xdc, 1, 0,       // parameters
    'a', 'b', 'c'};

/// Decodes a copy in a heap block of exactly @p len bytes, so that ASan notices a read beyond the end.
int decode_exact(const uint8_t* data, uint32_t len, usiw_cm_packet* pkt) {
  std::vector<uint8_t> copy(data, data + len);
  copy.shrink_to_fit();
  const int rc = usiw_cm_decode(pkt, copy.data(), len);
  if (rc == 0 && pkt->pd_len) {
    EXPECT_GE(pkt->pd, copy.data());
    EXPECT_EQ(pkt->pd + pkt->pd_len, copy.data() + len);
  }
  pkt->pd = nullptr;
  return rc;
}

int decode_with(std::vector<uint8_t> bytes, size_t at, uint8_t value) {
  usiw_cm_packet pkt;
  bytes.at(at) = value;
  return decode_exact(bytes.data(), static_cast<uint32_t>(bytes.size()), &pkt);
}

const std::vector<uint8_t> kReqBytes(kReq, kReq + sizeof kReq);

TEST(Decode, req__every_field) {
  usiw_cm_packet p;
  ASSERT_EQ(usiw_cm_decode(&p, kReq, sizeof kReq), 0);
  EXPECT_EQ(p.opcode, USIW_TRP_REQ);
  EXPECT_EQ(p.flags, 0);
  EXPECT_EQ(p.version, 1);
  EXPECT_EQ(p.psn, 0x11223344u);
  EXPECT_EQ(p.ack_psn, 0u);
  EXPECT_EQ(p.ird, 16);
  EXPECT_EQ(p.ord, 8);
  EXPECT_EQ(p.mtu, 1500);
  EXPECT_EQ(p.window, 256);
  EXPECT_EQ(p.features, 0u);
  ASSERT_EQ(p.pd_len, 3);
  EXPECT_EQ(std::memcmp(p.pd, "abc", 3), 0);
}

TEST(Decode, req__every_truncation_and_extension) {
  usiw_cm_packet p;
  for (uint32_t len = 0; len < sizeof kReq; len++)
    EXPECT_EQ(decode_exact(kReq, len, &p), -EINVAL) << len;
  std::vector<uint8_t> longer = kReqBytes;
  longer.push_back(0);
  EXPECT_EQ(decode_exact(longer.data(), sizeof kReq + 1, &p), -EINVAL);
}

TEST(Decode, req__private_data_bounds) {
  usiw_cm_packet p;
  std::vector<uint8_t> bytes(kReq, kReq + 30);
  bytes.resize(30 + 513);
  bytes[16] = 2, bytes[17] = 0;
  EXPECT_EQ(decode_exact(bytes.data(), 30 + 512, &p), 0);
  EXPECT_EQ(p.pd_len, 512);
  bytes[17] = 1;
  EXPECT_EQ(decode_exact(bytes.data(), 30 + 513, &p), -EINVAL);
}

TEST(Decode, req__reserved_byte_and_credit_are_not_looked_at) {
  EXPECT_EQ(decode_with(kReqBytes, 15, 0xff), 0);
  EXPECT_EQ(decode_with(kReqBytes, 10, 0xff), 0);
  EXPECT_EQ(decode_with(kReqBytes, 13, 0xff), 0);
}

TEST(Decode, req__flags_and_zero_window_are_malformed) {
  EXPECT_EQ(decode_with(kReqBytes, 9, USIW_TRP_F_PENDING), -EINVAL);
  EXPECT_EQ(decode_with(kReqBytes, 8, 0x18), -EINVAL);
  EXPECT_EQ(decode_with(kReqBytes, 28, 0), -EINVAL);
}

TEST(Decode, req__other_version_leaves_what_a_refusal_needs) {
  usiw_cm_packet p;
  std::vector<uint8_t> bytes(kReq, kReq + 15);  // a REQ of a later version may be shorter
  bytes[14] = 2;
  EXPECT_EQ(decode_exact(bytes.data(), 15, &p), -EPROTONOSUPPORT);
  EXPECT_EQ(p.opcode, USIW_TRP_REQ);
  EXPECT_EQ(p.psn, 0x11223344u);
  EXPECT_EQ(p.version, 2);
}

TEST(Decode, accept__pending_has_no_payload) {
  usiw_cm_packet p;
  std::vector<uint8_t> bytes(14);
  bytes[8] = 0x20, bytes[9] = USIW_TRP_F_PENDING;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), 0);
  EXPECT_EQ(p.flags, USIW_TRP_F_PENDING);
  bytes.push_back(1);
  EXPECT_EQ(decode_exact(bytes.data(), 15, &p), -EINVAL);
  bytes[9] = 0;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), -EINVAL);  // an ACCEPT without PENDING needs its parameters
}

TEST(Decode, reject__every_truncation_and_version) {
  usiw_cm_packet p;
  std::vector<uint8_t> bytes(14);
  bytes[8] = 0x30;
  bytes.insert(bytes.end(), {1, USIW_REJECT_MTU, 0, 2, 'n', 'o'});
  for (uint32_t len = 0; len < bytes.size(); len++)
    EXPECT_EQ(decode_exact(bytes.data(), len, &p), -EINVAL) << len;
  ASSERT_EQ(decode_exact(bytes.data(), 20, &p), 0);
  EXPECT_EQ(p.reason, USIW_REJECT_MTU);
  EXPECT_EQ(p.pd_len, 2);
  bytes[14] = 9;  // the reason is valid in every version, the private data is not
  ASSERT_EQ(decode_exact(bytes.data(), 20, &p), 0);
  EXPECT_EQ(p.reason, USIW_REJECT_MTU);
  EXPECT_EQ(p.pd_len, 0);
}

TEST(Decode, confirm_and_reset__header_only) {
  usiw_cm_packet p;
  std::vector<uint8_t> bytes(14);
  bytes[8] = 0x60;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), 0);
  EXPECT_EQ(decode_exact(bytes.data(), 13, &p), -EINVAL);
  bytes[8] = 0x70;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), 0);
  bytes[9] = USIW_TRP_F_STRAY;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), 0);
  bytes[9] = USIW_TRP_F_PENDING;
  EXPECT_EQ(decode_exact(bytes.data(), 14, &p), -EINVAL);
  bytes[9] = 0;
  bytes.push_back(0);
  EXPECT_EQ(decode_exact(bytes.data(), 15, &p), -EINVAL);
}

TEST(Decode, other_opcodes__are_not_handshake) {
  for (int opcode : {0, 4, 5, 8, 15}) {
    usiw_cm_packet p;
    std::vector<uint8_t> bytes(40);
    bytes[8] = static_cast<uint8_t>(opcode << 4);
    EXPECT_EQ(decode_exact(bytes.data(), 40, &p), -EINVAL) << opcode;
  }
}

TEST(Decode, random_bytes__never_read_too_far) {
  std::mt19937 rng(1);
  unsigned good = 0;
  for (int i = 0; i < 300000; i++) {
    uint8_t bytes[64];
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
    const uint32_t len = rng() % (sizeof bytes + 1);
    if (rng() % 2) bytes[8] = static_cast<uint8_t>((1 + rng() % 7) << 4), bytes[9] &= 0x18;
    if (rng() % 2) bytes[14] = 1, bytes[16] = 0, bytes[17] %= 64;
    usiw_cm_packet p;
    const int rc = decode_exact(bytes, len, &p);
    ASSERT_TRUE(rc == 0 || rc == -EINVAL || rc == -EPROTONOSUPPORT);
    good += rc == 0;
  }
  EXPECT_GT(good, 100u);
}

TEST(Build, req__bytes) {
  usiw_cm_conn c;
  ASSERT_EQ(usiw_cm_init_active(&c, 0x11223344, 16, 8, 1500, 256, "abc", 3), 0);
  usiw_cm_connect(&c, 1);
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  std::memset(buf, 0xaa, sizeof buf);
  ASSERT_EQ(usiw_cm_build(&c, buf), sizeof kReq);
  EXPECT_EQ(std::memcmp(buf, kReq, sizeof kReq), 0);
}

TEST(Build, req__brings_back_what_pending_has_told_and_is_the_same_else) {
  Conn i = Conn::in(Role::kInitiator, State::kReqSent);
  const Datagram first = built(i.c);
  i.receive(packet(USIW_TRP_ACCEPT, USIW_TRP_F_PENDING));
  i.next_timer();
  Datagram second = built(i.c);
  EXPECT_EQ(first.pkt.ack_psn, 0u);
  EXPECT_EQ(second.pkt.ack_psn, kPeerIsn);
  std::memset(second.bytes + 4, 0, 4);
  ASSERT_EQ(first.len, second.len);
  EXPECT_EQ(std::memcmp(first.bytes, second.bytes, first.len), 0);
}

TEST(Build, every_opcode__round_trip) {
  Conn r(Role::kResponder);
  r.receive(packet(USIW_TRP_REQ));
  Datagram d = built(r.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_ACCEPT);
  EXPECT_EQ(d.pkt.flags, USIW_TRP_F_PENDING);
  EXPECT_EQ(d.pkt.psn, kOwnIsn);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);

  r.accept();
  r.ready();
  d = built(r.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_ACCEPT);
  EXPECT_EQ(d.pkt.flags, 0);
  EXPECT_EQ(d.pkt.ird, 12);
  EXPECT_EQ(d.pkt.ord, 6);
  EXPECT_EQ(d.pkt.mtu, 1500);
  EXPECT_EQ(d.pkt.window, 512);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(d.pkt.pd), d.pkt.pd_len), "own");

  r.abort();
  d = built(r.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_RESET);
  EXPECT_EQ(d.pkt.flags, 0);
  EXPECT_EQ(d.pkt.psn, kOwnIsn);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);

  Conn i = Conn::in(Role::kInitiator, State::kEstablished);
  d = built(i.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_CONFIRM);
  EXPECT_EQ(d.pkt.psn, kOwnIsn);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);

  Conn n = Conn::in(Role::kResponder, State::kLingerRejected);
  d = built(n.c);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_REJECT);
  EXPECT_EQ(d.pkt.reason, USIW_REJECT_USER);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(d.pkt.pd), d.pkt.pd_len), "no");
}

TEST(BuildRefusal, req__names_its_isn) {
  usiw_cm_packet req = packet(USIW_TRP_REQ);
  Datagram d;
  d.len = usiw_cm_build_refusal(&req, USIW_REJECT_NO_LISTENER, d.bytes);
  d.decode();
  ASSERT_EQ(d.rc, 0);
  EXPECT_EQ(d.len, 18u);
  EXPECT_EQ(d.pkt.opcode, USIW_TRP_REJECT);
  EXPECT_EQ(d.pkt.reason, USIW_REJECT_NO_LISTENER);
  EXPECT_EQ(d.pkt.ack_psn, kPeerIsn);
}

TEST(BuildStrayReset, by_opcode) {
  for (int opcode = 0; opcode < 16; opcode++) {
    uint8_t in[14] = {1, 2, 3, 4, 5, 6, 7, 8};
    in[8] = static_cast<uint8_t>(opcode << 4);
    Datagram d;
    d.len = usiw_cm_build_stray_reset(in, sizeof in, d.bytes);
    const bool data = opcode == USIW_TRP_DATA || opcode == USIW_TRP_SHUTDOWN ||
                      opcode == USIW_TRP_SACK;
    const bool handshake = opcode == USIW_TRP_ACCEPT || opcode == USIW_TRP_CONFIRM;
    if (!data && !handshake) {
      EXPECT_EQ(d.len, 0u) << opcode;
      continue;
    }
    d.decode();
    ASSERT_EQ(d.rc, 0) << opcode;
    EXPECT_EQ(d.pkt.opcode, USIW_TRP_RESET);
    EXPECT_EQ(d.pkt.flags, data ? USIW_TRP_F_STRAY : 0);
    EXPECT_EQ(d.pkt.psn, 0x05060708u);
    EXPECT_EQ(d.pkt.ack_psn, 0x01020304u);
  }
}

TEST(BuildStrayReset, short_datagram__nothing) {
  uint8_t in[14] = {}, out[USIW_CM_MAX_DATAGRAM];
  for (uint32_t len = 0; len < 14; len++) {
    std::vector<uint8_t> copy(in, in + len);
    EXPECT_EQ(usiw_cm_build_stray_reset(copy.data(), len, out), 0u);
  }
}

}  // namespace
