// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file terminate_test.cc
/// What a work request completes with by the code of the Terminate that refuses it: docs/errors.md.
#include "played_peer.h"

namespace usiw::sim {
namespace {

class TerminateStatus : public Protocol {
 protected:
  /// Posts @p op, and has the peer refuse its segment by @p code; the completion.
  Cqe refuse(WrOpcode op, const TermCode& code) {
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = 8;
    attr.max_send_sge = 1;
    Qp* p = w.a.qp(attr);
    flow = w.next_flow(false);
    EXPECT_EQ(0, w.a.engine.qp_connect(p, 0, {flow, {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    post(p, op, {mem->sge(0, 8)}, 1, 0, 0x1000, 0x700);
    const std::vector<Datagram> out = settle(50'000);
    EXPECT_FALSE(out.empty());
    TermInfo t{};
    t.code = code;
    const DdpSegment refused = segment(out.at(0));
    t.ddp_bytes = static_cast<uint8_t>(refused.header_bytes());
    t.seg_len = static_cast<uint16_t>(refused.header_bytes() + refused.len);
    std::memcpy(t.ddp, refused.header, t.ddp_bytes);
    std::byte quoted[kTermMaxBytes];
    const size_t n = encode_terminate(quoted, t);
    DdpSegment s{};
    s.last = true;
    s.rdmap_opcode = USIW_RDMAP_TERMINATE;
    s.qn = USIW_DDP_QN_TERMINATE;
    s.msn = 1;
    inject(data(kRcv, s, std::span(quoted).first(n), kSnd));
    settle(50'000);
    const std::vector<Cqe> got = w.a.poll(w.a.send_cq);
    EXPECT_EQ(1u, got.size());
    EXPECT_EQ(QpState::kError, p->state());
    w.a.engine.qp_destroy(p);
    return got.empty() ? Cqe{} : got[0];
  }
};

TEST_F(TerminateStatus, by_code) {
  const struct {
    TermCode code;
    WcStatus send, write;
  } cases[] = {{term::kLocalCatastrophic, kRemOpErr, kRemOpErr},
               {term::kRdmapInvalidStag, kRemAccessErr, kRemAccessErr},
               {term::kRdmapBounds, kRemAccessErr, kRemAccessErr},
               {term::kRdmapAccess, kRemAccessErr, kRemAccessErr},
               {term::kRdmapStagNotAssociated, kRemAccessErr, kRemAccessErr},
               {term::kRdmapToWrap, kRemAccessErr, kRemAccessErr},
               {{TermLayer::kRdmap, 1, 0xff}, kRemAccessErr, kRemAccessErr},
               {term::kRdmapVersion, kRemInvReqErr, kRemInvReqErr},
               {term::kRdmapOpcode, kRemInvReqErr, kRemInvReqErr},
               {term::kRdmapStream, kRemOpErr, kRemOpErr},
               {{TermLayer::kRdmap, 2, 0xff}, kRemOpErr, kRemOpErr},
               {{TermLayer::kDdp, 0, 0}, kRemOpErr, kRemOpErr},
               {term::kDdpInvalidStag, kRemAccessErr, kRemAccessErr},
               {term::kDdpBounds, kRemAccessErr, kRemAccessErr},
               {term::kDdpStagNotAssociated, kRemAccessErr, kRemAccessErr},
               {term::kDdpToWrap, kRemAccessErr, kRemAccessErr},
               {term::kDdpTaggedVersion, kRemInvReqErr, kRemInvReqErr},
               {term::kDdpInvalidQn, kRemInvReqErr, kRemInvReqErr},
               {term::kDdpNoBuffer, kRnrRetryExcErr, kRemInvReqErr},
               {term::kDdpMsnRange, kRemInvReqErr, kRemInvReqErr},
               {term::kDdpInvalidMo, kRemInvReqErr, kRemInvReqErr},
               {term::kDdpTooLong, kRemInvReqErr, kRemInvReqErr},
               {term::kDdpUntaggedVersion, kRemInvReqErr, kRemInvReqErr},
               {{TermLayer::kLlp, 0, 0}, kRemOpErr, kRemOpErr}};
  for (const auto& c : cases) {
    SCOPED_TRACE(vendor_err_of(c.code));
    for (const auto& [op, wanted] : {std::pair{WrOpcode::kSend, c.send}, std::pair{WrOpcode::kRdmaWrite, c.write}}) {
      const Cqe cqe = refuse(op, c.code);
      EXPECT_EQ(wanted, cqe.status);
      EXPECT_EQ(vendor_err_of(c.code), cqe.vendor_err);
    }
  }
}

}  // namespace
}  // namespace usiw::sim
