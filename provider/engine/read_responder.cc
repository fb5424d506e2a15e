// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file read_responder.cc
/// Serving the peer's READs: up to IRD at a time, in order, each from its request until
/// its response is acknowledged.
#include <algorithm>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

constexpr unsigned kAsksBeforeTerminate = 2;

TermCode source_fault(MrFault why) {
  switch (why) {
    case MrFault::kPd: return term::kRdmapStagNotAssociated;
    case MrFault::kAccess: return term::kRdmapAccess;
    case MrFault::kBounds: return term::kRdmapBounds;
    case MrFault::kWrap: return term::kRdmapToWrap;
    case MrFault::kStag:
    case MrFault::kNone: break;
  }
  return term::kRdmapInvalidStag;
}

}  // namespace

Verdict Engine::Impl::accept_read_request(QpContext& qp, const DdpSegment& seg) {
  if (seg.msn != qp.responder.msn()) return fault(term::kDdpMsnRange);
  if (seg.mo != 0 || !seg.last) return fault(term::kDdpInvalidMo);
  if (seg.len != kReadReqBytes) return fault(term::kDdpTooLong);
  if (qp.responder.full()) return fault(term::kDdpNoBuffer, AsyncEvent::kQpReqErr);
  const ReadRequest request = decode_read_request(seg.payload);
  MrFault why;
  if (request.size > USIW_MAX_MSG_SIZE) return fault(term::kRdmapBounds, AsyncEvent::kQpAccessErr);
  if (request.size != 0 && mrs_.resolve(request.src_stag, qp.attr.pd, kAccessRemoteRead, request.src_to,
                                        request.size, why) == nullptr)
    return fault(source_fault(why), AsyncEvent::kQpAccessErr);
  qp.responder.accept(request);
  activate(qp);
  return Verdict::kAccept;
}

/// Writes DDP header and payload; returns their length, 0 for nothing to send now. When the source
/// is not accessible any more, @p pkt becomes the Terminate: its PSN, which the peer waits for, carries it. So
/// do all others that cannot be sent (again); the peer heeds the first in order.
size_t Engine::Impl::build_response_segment(QpContext& qp, TxPkt& pkt, std::byte* out) {
  const ReadJob& job = qp.responder.at(pkt.owner);
  const ReadRequest& r = job.request;
  const size_t n = encode_ddp(out, {.tagged = true,
                                    .last = pkt.offset + pkt.len == r.size,
                                    .rdmap_opcode = USIW_RDMAP_READ_RESP,
                                    .stag = r.sink_stag,
                                    .to = r.sink_to + pkt.offset,
                                    .qn = 0,
                                    .msn = 0,
                                    .mo = 0,
                                    .header = nullptr,
                                    .payload = nullptr,
                                    .len = pkt.len});
  if (pkt.len == 0) return n;
  MrFault why;
  const std::byte* from =
      mrs_.resolve(r.src_stag, qp.attr.pd, kAccessRemoteRead, r.src_to + pkt.offset, pkt.len, why);
  if (from == nullptr) {
    // A time-out does not say that the response was lost (the peer may have slept): the READ may be
    // complete, and the program have heard of it in another way before it deregistered the source.
    // So the peer is asked what it has.
    if (pkt.timed_out && pkt.tx_count <= kAsksBeforeTerminate) {
      send_sack(qp, USIW_TRP_F_ACK_REQ);
      return 0;
    }
    if (!qp.life.terminate_sent()) terminate_read_job(qp, job, source_fault(why));
    qp.responder.cut();
    pkt.kind = PktKind::kTerminate;
    return build_terminate(qp, out);
  }
  std::memcpy(out + n, from, pkt.len);
  return n + pkt.len;
}

}  // namespace usiw
