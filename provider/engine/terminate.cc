// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file terminate.cc
/// RDMAP Terminate (RFC 5040 section 4.8): refusing what the peer sent, and finding the
/// own work request that the peer has refused.
#include <cerrno>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// What the work request completes with (RFC 5040 section 4.8, docs/errors.md).
WcStatus status_of(const TermCode& code, WrOpcode opcode) {
  constexpr uint8_t kProtection = 1, kOperation = 2;
  if (code.layer == TermLayer::kRdmap) {
    if (code.etype == kProtection) return WcStatus::kRemAccessErr;
    if (code == term::kRdmapStream && is_atomic(opcode)) return WcStatus::kRemInvReqErr;  // misaligned
    // The responder does not know such a request; else it could not do what it was asked for.
    return code == term::kRdmapVersion || code == term::kRdmapOpcode ? WcStatus::kRemInvReqErr : WcStatus::kRemOpErr;
  }
  if (code.layer != TermLayer::kDdp) return WcStatus::kRemOpErr;
  if (code == term::kDdpTaggedVersion) return WcStatus::kRemInvReqErr;
  if (code.etype == kProtection) return WcStatus::kRemAccessErr;
  if (code == term::kDdpNoBuffer && takes_receive(opcode)) return WcStatus::kRnrRetryExcErr;
  return code.etype == kOperation ? WcStatus::kRemInvReqErr : WcStatus::kRemOpErr;
}

}  // namespace

/// Refuses the segment at rcv.nxt() for the reason in fault_. @p seg: its headers, if at hand.
void Engine::Impl::terminate(QpContext& qp, const DdpSegment* seg) {
  if (qp.life.is(Phase::kTerminating) || !qp.connected()) return;
  // The end of the stream is under way and has the last PSN. What is refused comes again, until the peer has read that.
  if (qp.life.shutdown_sent()) return;
  TermInfo& t = qp.refusal;
  t = {};
  t.code = fault_.code;
  if (seg != nullptr) {
    t.ddp_bytes = static_cast<uint8_t>(seg->header_bytes());
    t.seg_len = static_cast<uint16_t>(seg->header_bytes() + seg->len);
    std::memcpy(t.ddp, seg->header, seg->header_bytes());
    if (!seg->tagged && seg->qn == USIW_DDP_QN_READ_REQ && seg->len == kReadReqBytes) {
      t.has_read = true;
      std::memcpy(t.read, seg->payload, kReadReqBytes);
    }
  }
  const WcStatus recv = fault_.recv;
  start_terminating(qp, fault_.event);
  if (recv != WcStatus::kSuccess) fail_recv(qp, recv, vendor_err_of(t.code));
}

/// A READ that was accepted cannot be served any more.
void Engine::Impl::terminate_read_job(QpContext& qp, const Job& job, TermCode code) {
  TermInfo& t = qp.refusal;
  t = {};
  t.code = code;
  t.ddp_bytes = kUntaggedBytes;
  t.seg_len = kUntaggedBytes + kReadReqBytes;
  encode_ddp(t.ddp, {.tagged = false,
                     .last = true,
                     .rdmap_opcode = USIW_RDMAP_READ_REQ,
                     .stag = 0,
                     .to = 0,
                     .qn = USIW_DDP_QN_READ_REQ,
                     .msn = job.msn,
                     .mo = 0,
                     .header = nullptr,
                     .payload = nullptr,
                     .len = kReadReqBytes});
  t.has_read = true;
  encode_read_request(t.read, job.request);
  start_terminating(qp, AsyncEvent::kQpAccessErr);
}

/// From here on nothing is accepted; what has been sent is still repeated, so that the
/// Terminate gets its turn at the peer.
void Engine::Impl::start_terminating(QpContext& qp, AsyncEvent event) {
  note(TraceKind::kTermTx, qp, vendor_err_of(qp.refusal.code));
  qp.life.terminate(event);
  leave_waiting(qp);
  qp.rq.stop();
  qp.force_send = true;
  activate(qp);
}

size_t Engine::Impl::build_terminate(QpContext& qp, std::byte* out) {
  const size_t n = encode_ddp(out, {.tagged = false,
                                    .last = true,
                                    .rdmap_opcode = USIW_RDMAP_TERMINATE,
                                    .stag = 0,
                                    .to = 0,
                                    .qn = USIW_DDP_QN_TERMINATE,
                                    .msn = 1,
                                    .mo = 0,
                                    .header = nullptr,
                                    .payload = nullptr,
                                    .len = 0});
  return n + encode_terminate(out + n, qp.refusal);
}

/// A Terminate in its turn; its ack_psn is the PSN that the peer refuses, if it is about
/// one that was not accepted.
void Engine::Impl::receive_terminate(QpContext& qp, const DdpSegment& seg, uint32_t ack_psn) {
  count(qp, USIW_CNT_TERM_RX);
  TermInfo t;
  const bool sound = decode_terminate({seg.payload, seg.len}, t);
  if (sound) note(TraceKind::kTermRx, qp, vendor_err_of(t.code));
  const uint32_t none = qp.sq.head() - 1;
  uint32_t at = none;
  if (sound && t.has_read) {
    if (const ReadOp* op = qp.sq.read(decode_read_request(t.read).sink_stag)) at = op->sq_index;
  } else if (sound && t.ddp_bytes != 0 && psn_in(ack_psn, qp.snd.una(), qp.snd.nxt() - qp.snd.una())) {
    const TxPkt& pkt = qp.snd.pkt(ack_psn);
    if (pkt.kind == PktKind::kSend) at = pkt.owner;
  }
  const bool found = at != none;
  const WcStatus status = found ? status_of(t.code, qp.sq.work(at).opcode) : WcStatus::kWrFlushErr;
  qp.rcv.accept();
  qp.life.answer(true);
  fail(qp, at, status, -EREMOTEIO, found ? AsyncEvent::kNone : AsyncEvent::kQpFatal,
       found ? vendor_err_of(t.code) : uint16_t{0});
  ack_at_once(qp);
}

}  // namespace usiw
