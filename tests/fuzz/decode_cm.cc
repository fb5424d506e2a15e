// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file decode_cm.cc
/// Handshake datagrams: any bytes through decode; what decodes is built again and must
/// decode to the same; what the kernel answers to it must decode too.
#include <cerrno>

#include "cm/usiw_cm.h"
#include "input.h"
#include "tests/support/cm_packet.h"
#include "uapi/usiw_abi.h"

using usiw::fuzz::Exact;

namespace {

/// Builds into memory of exactly the promised size.
struct Built {
  std::unique_ptr<uint8_t[]> buf{new uint8_t[USIW_CM_MAX_DATAGRAM]};
  uint32_t len = 0;
  usiw_cm_packet pkt{};

  void decode() {
    FUZZ_CHECK(len <= USIW_CM_MAX_DATAGRAM, "too long");
    FUZZ_CHECK(usiw_cm_decode(&pkt, buf.get(), len) == 0, "built what does not decode");
  }
};

bool same_private_data(const usiw_cm_packet& a, const usiw_cm_packet& b) {
  return a.pd_len == b.pd_len && (a.pd_len == 0 || std::memcmp(a.pd, b.pd, a.pd_len) == 0);
}

/// The datagram of a connection that has everything as in @p pkt.
void build_again(const usiw_cm_packet& pkt) {
  const usiw_cm_conn c = sender_of(pkt);
  Built b;
  b.len = usiw_cm_build(&c, b.buf.get());
  b.decode();
  FUZZ_CHECK(b.pkt.opcode == pkt.opcode && b.pkt.flags == pkt.flags && b.pkt.psn == pkt.psn, "header");
  FUZZ_CHECK(b.pkt.ack_psn == pkt.ack_psn, "ack_psn");
  FUZZ_CHECK(b.pkt.ird == pkt.ird && b.pkt.ord == pkt.ord && b.pkt.mtu == pkt.mtu &&
                 b.pkt.window == pkt.window && b.pkt.features == pkt.features, "parameters");
  FUZZ_CHECK(b.pkt.reason == pkt.reason && same_private_data(b.pkt, pkt), "private data");
}

/// A responder made from the REQ, up to its ACCEPT.
void respond(const usiw_cm_packet& req) {
  usiw_cm_conn c;
  int err = 0;
  const int refusal = usiw_cm_init_passive(&c, &req, 7, USIW_MAX_MTU, 64, 1);
  FUZZ_CHECK(refusal >= 0, "a refusal is a reason");
  if (refusal != 0) return;
  FUZZ_CHECK(c.peer_pd_len == req.pd_len && c.mtu >= USIW_MIN_MTU && c.mtu <= USIW_MAX_MTU &&
                 c.peer_ird <= USIW_MAX_IRD && c.peer_ord <= USIW_MAX_ORD, "limits");
  usiw_cm_accept(&c, req.ird, req.ord, req.pd, req.pd_len, 2, &err);
  FUZZ_CHECK(err == 0, "accept");
  FUZZ_CHECK((usiw_cm_ready(&c, 3) & USIW_CM_A_TX) != 0, "no ACCEPT");
  Built b;
  b.len = usiw_cm_build(&c, b.buf.get());
  b.decode();
  FUZZ_CHECK(b.pkt.opcode == USIW_TRP_ACCEPT && b.pkt.ord <= req.ird && b.pkt.mtu <= req.mtu &&
                 b.pkt.ack_psn == req.psn && same_private_data(b.pkt, req), "ACCEPT");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Exact in({data, size});
  const auto len = static_cast<uint32_t>(size);
  usiw_cm_packet pkt;
  const int rc = usiw_cm_decode(&pkt, in.data(), len);
  FUZZ_CHECK(rc == 0 || rc == -EINVAL || rc == -EPROTONOSUPPORT, "result");
  if (rc == 0) {
    FUZZ_CHECK(pkt.pd_len <= USIW_MAX_PRIVATE_DATA, "private data length");
    FUZZ_CHECK(pkt.pd_len == 0 || (pkt.pd >= in.data() && pkt.pd + pkt.pd_len == in.data() + size),
               "private data outside of the datagram");
    if (pkt.opcode != USIW_TRP_REJECT || pkt.version == USIW_WIRE_VERSION) build_again(pkt);
    if (pkt.opcode == USIW_TRP_REQ) respond(pkt);
  }
  if (rc == -EPROTONOSUPPORT || (rc == 0 && pkt.opcode == USIW_TRP_REQ)) {
    Built b;
    b.len = usiw_cm_build_refusal(&pkt, data[0], b.buf.get());
    b.decode();
    FUZZ_CHECK(b.pkt.opcode == USIW_TRP_REJECT && b.pkt.ack_psn == pkt.psn, "refusal");
  }
  Built b;
  b.len = usiw_cm_build_stray_reset(in.data(), len, b.buf.get());
  if (b.len != 0) {
    b.decode();
    FUZZ_CHECK(b.pkt.opcode == USIW_TRP_RESET, "stray reset");
    // Never an answer to an answer: two ends without a connection would go on for ever.
    Built again;
    FUZZ_CHECK(usiw_cm_build_stray_reset(b.buf.get(), b.len, again.buf.get()) == 0, "reset to a reset");
  }
  return 0;
}
