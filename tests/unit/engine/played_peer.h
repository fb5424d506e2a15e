// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file played_peer.h
/// One engine with a connection, and a peer played by the test, which builds every datagram.
#ifndef USIW_TESTS_ENGINE_PLAYED_PEER_H
#define USIW_TESTS_ENGINE_PLAYED_PEER_H

#include <string_view>
#include <utility>

#include "engine/psn.h"
#include "fixture.h"

namespace usiw::sim {

constexpr uint32_t kRcv = 0xfffffff8;  ///< first PSN of the played peer: wraps at once
constexpr uint32_t kSnd = 0x1000;      ///< first PSN of the engine

class Protocol : public EngineTest {
 protected:
  Protocol() {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 64;
    attr.max_send_sge = attr.max_recv_sge = 4;
    q = w.a.qp(attr);
    flow = w.next_flow(false);
    EXPECT_EQ(0, w.a.engine.qp_connect(q, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    w.b_frozen = true;
    w.wire.filter = [this](int, Datagram& d) {
      sent.push_back(d);
      return false;
    };
    mem = w.a.region(64 * 1024);
  }

  void inject(Datagram d) { w.wire.inject(0, std::move(d), flow); }
  Datagram trp(uint8_t opcode, uint32_t psn, uint32_t ack, uint16_t flags = 0, uint16_t credit = 64) {
    Datagram d(kTrpBytes);
    encode_trp(d.data(), {psn, ack, flags, opcode, credit, 0});
    return d;
  }
  Datagram data(uint32_t psn, const DdpSegment& seg, std::span<const std::byte> payload = {},
                uint32_t ack = kSnd, uint16_t flags = 0) {
    Datagram d = trp(USIW_TRP_DATA, psn, ack, flags);
    d.resize(kTrpBytes + kUntaggedBytes);
    d.resize(kTrpBytes + encode_ddp(d.data() + kTrpBytes, seg));
    d.insert(d.end(), payload.begin(), payload.end());
    return d;
  }
  DdpSegment write_seg(size_t offset, bool last) {
    DdpSegment s{};
    s.tagged = true;
    s.last = last;
    s.rdmap_opcode = USIW_RDMAP_WRITE;
    s.stag = mem->stag;
    s.to = mem->addr() + offset;
    return s;
  }
  DdpSegment send_seg(uint32_t msn, uint32_t mo, bool last) {
    DdpSegment s{};
    s.last = last;
    s.rdmap_opcode = USIW_RDMAP_SEND;
    s.msn = msn;
    s.mo = mo;
    return s;
  }
  Datagram read_request(uint32_t psn, uint32_t msn, uint32_t size, uint32_t ack = kSnd) {
    return read_request(psn, msn, size, *mem, ack);
  }
  Datagram read_request(uint32_t psn, uint32_t msn, uint32_t size, const Region& source, uint32_t ack = kSnd) {
    DdpSegment s{};
    s.last = true;
    s.rdmap_opcode = USIW_RDMAP_READ_REQ;
    s.qn = USIW_DDP_QN_READ_REQ;
    s.msn = msn;
    std::byte p[kReadReqBytes];
    encode_read_request(p, {0x77, 0x1000, size, source.stag, source.addr()});
    return data(psn, s, p, ack);
  }
  static std::vector<std::byte> bytes(std::string_view s) {
    const auto* p = reinterpret_cast<const std::byte*>(s.data());
    return {p, p + s.size()};
  }
  std::string_view memory(size_t offset, size_t n) {
    return {reinterpret_cast<const char*>(mem->bytes.data()) + offset, n};
  }
  /// Lets the engine work; returns what it has sent since the last call.
  std::vector<Datagram> settle(uint64_t ns = 100'000) {
    w.run_for(ns);
    return std::exchange(sent, {});
  }
  static TrpHeader header(const Datagram& d) {
    TrpHeader h{};
    EXPECT_TRUE(decode_trp(d, h));
    return h;
  }
  static DdpSegment segment(const Datagram& d) {
    DdpSegment s{};
    EXPECT_EQ(DdpDecode::kOk, decode_ddp(std::span(d).subspan(kTrpBytes), s));
    return s;
  }
  /// The last datagram must be a SACK; returns what it acknowledges.
  static uint32_t sacked(const std::vector<Datagram>& ds) {
    EXPECT_FALSE(ds.empty());
    if (ds.empty()) return 0;
    const TrpHeader h = header(ds.back());
    EXPECT_EQ(USIW_TRP_SACK, h.opcode);
    return h.ack_psn;
  }
  TermInfo terminate_in(const std::vector<Datagram>& ds) {
    for (const Datagram& d : ds) {
      if (header(d).opcode != USIW_TRP_DATA) continue;
      const DdpSegment s = segment(d);
      TermInfo t{};
      if (s.rdmap_opcode == USIW_RDMAP_TERMINATE) {
        EXPECT_FALSE(s.tagged);
        EXPECT_EQ(uint32_t{USIW_DDP_QN_TERMINATE}, s.qn);
        EXPECT_EQ(1u, s.msn);
        EXPECT_TRUE(decode_terminate({s.payload, s.len}, t));
        return t;
      }
    }
    ADD_FAILURE() << "no Terminate";
    return {};
  }

  Qp* q;
  FlowKey flow;
  Region* mem;
  std::vector<Datagram> sent;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_ENGINE_PLAYED_PEER_H
