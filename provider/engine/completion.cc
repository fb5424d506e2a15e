// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file completion.cc
/// Completions: in order per queue, each work request exactly once. The ring slot is free before the completion can be
/// seen; the producer may use it once the completion has been polled (allowance.h).
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// Of a completion that is not a success: out of the way of those that are.
[[gnu::cold, gnu::noinline]] usiw_counter error_counter(WcStatus status) {
  switch (status) {
    case WcStatus::kWrFlushErr: return USIW_CNT_COMP_FLUSH;
    case WcStatus::kLocLenErr: return USIW_CNT_COMP_LOC_LEN;
    case WcStatus::kLocQpOpErr: return USIW_CNT_COMP_LOC_OP;
    case WcStatus::kLocProtErr: return USIW_CNT_COMP_LOC_PROT;
    case WcStatus::kRemInvReqErr: return USIW_CNT_COMP_REM_INV;
    case WcStatus::kRemAccessErr: return USIW_CNT_COMP_REM_ACCESS;
    case WcStatus::kRemOpErr: return USIW_CNT_COMP_REM_OP;
    case WcStatus::kRetryExcErr: return USIW_CNT_COMP_RETRY;
    case WcStatus::kRnrRetryExcErr: return USIW_CNT_COMP_RNR;
    default: return USIW_CNT_COMP_ERR;
  }
}

}  // namespace

[[gnu::cold]] void Engine::Impl::note_completion(const QpContext& qp, const Cqe& cqe) {
  note(TraceKind::kComplete, qp, cqe.wr_id, cqe.byte_len,
       static_cast<unsigned>(cqe.opcode) << 8 | static_cast<unsigned>(cqe.status));
}

/// A completion is lost, and never polled. The queues of the QP, which ends with its CQ, stay full. An SRQ, which may
/// serve QPs of other CQs, does not.
void Engine::Impl::lost_by_dead_cq(const QpContext& qp, Completions& of) {
  if (&of != &qp.sends && &of != &qp.own_receives) of.end_silently();
}

void Engine::Impl::push(QpContext& qp, Cq* cq, const Cqe& cqe, Completions& of, bool solicited) {
  count(qp, cqe.status == WcStatus::kSuccess ? USIW_CNT_COMP_OK : error_counter(cqe.status));
  if (tracing_) [[unlikely]] note_completion(qp, cqe);
  switch (CqAccess::push(*cq, cqe, of, solicited, cq->timed() ? clock_.now_ns() : 0)) {
    case CqAccess::Push::kPlain:
      break;
    case CqAccess::Push::kDead:
      lost_by_dead_cq(qp, of);
      break;
    case CqAccess::Push::kLost:
      count(qp, USIW_CNT_CQ_OVERRUN);
      break;
    case CqAccess::Push::kNotify:
      events_.cq_ready(*cq);
      break;
    case CqAccess::Push::kOverrun:
      count(qp, USIW_CNT_CQ_OVERRUN);
      lost_by_dead_cq(qp, of);
      overrun_ = true;  // its QPs fail at the end of the run: the caller is at work on one
      events_.cq_overrun(*cq);
      break;
  }
}

/// Completes the oldest send work request; it may never have been started.
void Engine::Impl::complete_send(QpContext& qp, WcStatus status, uint16_t vendor_err) {
  const SqWork& w = qp.sq.work(qp.sq.head());
  const SendWqe& wqe = qp.sq.wqe(qp.sq.head());
  Cqe cqe{};
  cqe.wr_id = wqe.wr_id;
  uint8_t flags = w.flags;
  if (w.stage == SqWork::kInit) {
    const auto opcode = static_cast<WrOpcode>(wqe.opcode);
    if (is_known(opcode)) cqe.opcode = operation(opcode).completion;
    flags = wqe.flags;
  } else {
    cqe.opcode = is_known(w.opcode) ? operation(w.opcode).completion : WcOpcode::kSend;
    cqe.byte_len = w.length;
  }
  cqe.qpn = qp.qpn_;
  cqe.status = status;
  cqe.vendor_err = vendor_err;
  qp.sq.pop();
  if (status != WcStatus::kSuccess || (flags & kWrSignaled) != 0 || qp.attr.sq_sig_all)
    push(qp, qp.attr.send_cq, cqe, qp.sends, false);
  else
    qp.sends.end_silently();
}

/// The oldest receive work request, which has been taken, has succeeded.
void Engine::Impl::complete_recv(QpContext& qp, WcOpcode opcode, const MessageEnd& end) {
  const uint8_t flags = wc_flags_of(end.rdmap);
  uint32_t imm = 0;
  if (flags != 0) [[unlikely]] imm = (flags & kWcWithImm) != 0 ? to_be32(end.imm) : end.imm;
  const Cqe cqe{.wr_id = qp.rq.oldest().wqe->wr_id,
                .byte_len = end.length,
                .qpn = qp.qpn_,
                .imm = imm,
                .status = WcStatus::kSuccess,
                .opcode = opcode,
                .vendor_err = 0,
                .flags = flags};
  qp.rq.pop();
  push(qp, qp.attr.recv_cq, cqe, *qp.receives, is_solicited(end.rdmap));
}

/// The oldest receive work request, which has been taken, has failed.
void Engine::Impl::fail_recv(QpContext& qp, WcStatus status, uint16_t vendor_err) {
  const Cqe cqe{.wr_id = qp.rq.oldest().wqe->wr_id,
                .byte_len = 0,
                .qpn = qp.qpn_,
                .imm = 0,
                .status = status,
                .opcode = WcOpcode::kRecv,
                .vendor_err = vendor_err,
                .flags = 0};
  qp.rq.pop();
  push(qp, qp.attr.recv_cq, cqe, *qp.receives, false);
}

/// Completes what is done, from the oldest on. May end with the QP dead.
void Engine::Impl::reap(QpContext& qp) {
  while (qp.sq.done(qp.snd.una())) complete_send(qp, WcStatus::kSuccess);
  if (const WcStatus error = qp.sq.error(); error != WcStatus::kSuccess) {
    fail(qp, qp.sq.head(), error, -EFAULT, AsyncEvent::kNone);
    return;
  }
  if (qp.sq.stopped()) [[unlikely]] check_drained(qp);
}

/// Empties both queues of a dead QP. Bounded, whatever a producer does to the flags
/// meanwhile; what is posted after this comes with a doorbell of its own.
void Engine::Impl::flush(QpContext& qp, uint32_t at, WcStatus status, uint16_t vendor_err) {
  for (uint32_t n = qp.sq.capacity(); n != 0; --n) {
    if (qp.sq.wqe(qp.sq.head()).valid.load(std::memory_order_acquire) == 0) break;
    if (qp.sq.head() == at)
      complete_send(qp, status, vendor_err);
    else
      complete_send(qp, WcStatus::kWrFlushErr);
  }
  for (uint32_t n = qp.rq.capacity(); n != 0 && qp.rq.next_to_flush(); --n)
    fail_recv(qp, WcStatus::kWrFlushErr);
  if (qp.rq.srq() != nullptr && !std::exchange(qp.last_wqe_told, true)) events_.qp_last_wqe(qp);
}

}  // namespace usiw
