// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file rdmap_rx.cc
/// From DDP segments to memory. place() takes a segment whose turn it is (all PSNs
/// before it are done); place_early() one that is ahead of its turn, of which only
/// what cannot be noticed too early is done: the inside of messages is placed, ends of
/// tagged messages and everything that causes an action wait. Answers to READs and atomics
/// of this end wait for each other only.
#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

TermCode tagged_fault(MrFault why) {
  switch (why) {
    case MrFault::kPd: return term::kDdpStagNotAssociated;
    case MrFault::kAccess: return term::kRdmapAccess;
    case MrFault::kBounds: return term::kDdpBounds;
    case MrFault::kWrap: return term::kDdpToWrap;
    case MrFault::kStag:
    case MrFault::kNone: break;
  }
  return term::kDdpInvalidStag;
}

/// @p seg has kAtomicRespBytes of payload: the MSN of the request that it answers.
uint32_t answered_msn(const DdpSegment& seg) { return load_be32(seg.payload + offsetof(usiw_atomic_resp, id)); }

/// @p seg has kImmediateBytes of payload.
MessageEnd immediate_end(const DdpSegment& seg) {
  return {.rdmap = seg.rdmap_opcode,
          .length = load_be32(seg.payload + offsetof(usiw_immediate, length)),
          .imm = load_be32(seg.payload + offsetof(usiw_immediate, data))};
}

}  // namespace

Verdict Engine::Impl::place(QpContext& qp, const DdpSegment& seg) {
  if (seg.tagged) {
    if (seg.rdmap_opcode == USIW_RDMAP_WRITE) return place_write(qp, seg);
    if (seg.rdmap_opcode != USIW_RDMAP_READ_RESP) return fault(term::kRdmapOpcode);
    const Verdict v = place_read_response(qp, seg);
    return v == Verdict::kAccept && seg.last ? finish_read_response(qp, seg) : v;
  }
  if (seg.qn == USIW_DDP_QN_READ_REQ) {
    if (seg.rdmap_opcode == USIW_RDMAP_ATOMIC_REQ) return accept_atomic_request(qp, seg);
    if (seg.rdmap_opcode != USIW_RDMAP_READ_REQ) return fault(term::kRdmapOpcode);
    return accept_read_request(qp, seg);
  }
  if (seg.qn != USIW_DDP_QN_SEND) {
    if (seg.qn != USIW_DDP_QN_ATOMIC_RESP) return fault(term::kDdpInvalidQn);
    if (seg.rdmap_opcode != USIW_RDMAP_ATOMIC_RESP) return fault(term::kRdmapOpcode);
    return place_atomic_response(qp, seg);
  }
  if (!is_send(seg.rdmap_opcode) && !is_immediate(seg.rdmap_opcode)) return fault(term::kRdmapOpcode);
  if (seg.msn != qp.rq.msn()) return fault(term::kDdpMsnRange);
  RqWork* work = qp.rq.take(seg.msn);
  if (work == nullptr) {
    switch (await_receive(qp)) {
      case Awaited::kTaken: break;
      case Awaited::kNotReady: return Verdict::kNotReady;
      case Awaited::kTooLong: return fault(term::kDdpNoBuffer, AsyncEvent::kQpReqErr);
    }
    work = qp.rq.take(seg.msn);
  }
  if (is_immediate(seg.rdmap_opcode)) {
    const Verdict v = place_immediate(qp, seg);
    return v == Verdict::kAccept ? finish_message(qp, seg.msn, immediate_end(seg)) : v;
  }
  const Verdict v = place_send(qp, seg, *work);
  if (v != Verdict::kAccept || !seg.last) return v;
  return finish_message(qp, seg.msn, {.rdmap = seg.rdmap_opcode, .length = seg.mo + seg.len, .imm = seg.stag});
}

/// kAccept: placed, with @p later to be done in turn. kHold: kept whole. A segment at fault
/// is dropped: it comes again, and is refused in its turn (uapi/usiw_wire.h).
Verdict Engine::Impl::place_early(QpContext& qp, const DdpSegment& seg, RxPkt& later) {
  Verdict v = Verdict::kDrop;
  if (qp.rq.skipped() && may_come_again(seg)) [[unlikely]] return v;
  if (seg.tagged) {
    if (seg.last) return seg.rdmap_opcode == USIW_RDMAP_READ_RESP ? place_early_answer(qp, seg) : Verdict::kHold;
    if (seg.rdmap_opcode == USIW_RDMAP_WRITE) v = place_write(qp, seg);
    if (seg.rdmap_opcode == USIW_RDMAP_READ_RESP) v = place_read_response(qp, seg);
  } else if (seg.qn == USIW_DDP_QN_ATOMIC_RESP) {
    return place_early_answer(qp, seg);
  } else if (seg.qn != USIW_DDP_QN_SEND) {
    return seg.qn <= USIW_DDP_QN_ATOMIC_RESP ? Verdict::kHold : Verdict::kDrop;
  } else if (is_send(seg.rdmap_opcode)) {
    RqWork* work = qp.rq.take_early(seg.msn);
    if (work == nullptr) return Verdict::kDrop;
    // What it may not invalidate is refused by its headers.
    if (seg.last && invalidates(seg.rdmap_opcode)) return Verdict::kHold;
    v = place_send(qp, seg, *work);
    if (seg.last)
      later = {.kind = RxPkt::kSendLast,
               .rdmap = seg.rdmap_opcode,
               .msn = seg.msn,
               .length = seg.mo + seg.len,
               .imm = seg.stag};
  } else if (is_immediate(seg.rdmap_opcode)) {
    if (qp.rq.take_early(seg.msn) == nullptr) return Verdict::kDrop;
    v = place_immediate(qp, seg);
    if (v != Verdict::kAccept) return Verdict::kDrop;
    const MessageEnd end = immediate_end(seg);
    later = {.kind = RxPkt::kSendLast, .rdmap = end.rdmap, .msn = seg.msn, .length = end.length, .imm = end.imm};
  }
  return v == Verdict::kAccept ? v : Verdict::kDrop;
}

/// Places the end of an answer to a READ or an atomic of this end, ahead of its turn. It waits for the rest of the answer
/// and for earlier answers, but for nothing else that is missing: a SEND of the peer for which no receive is posted must
/// not hold up what this end has asked for. Returns kHold if it has to wait. A segment at fault is judged in its turn.
Verdict Engine::Impl::place_early_answer(QpContext& qp, const DdpSegment& seg) {
  const ReadOp* op = qp.sq.oldest_read();
  if (op == nullptr) return Verdict::kHold;
  const SqWork& w = qp.sq.work(op->sq_index);
  if (seg.tagged) {
    if (w.opcode != WrOpcode::kRdmaRead || seg.stag != qp.sq.oldest_read_msn() || seg.to > w.length ||
        seg.to + seg.len != w.length || op->placed + seg.len != w.length)
      return Verdict::kHold;
    Verdict v = place_read_response(qp, seg);
    if (v == Verdict::kAccept) v = finish_read_response(qp, seg);
    return v == Verdict::kAccept ? v : Verdict::kDrop;
  }
  if (!is_atomic(w.opcode) || seg.rdmap_opcode != USIW_RDMAP_ATOMIC_RESP || seg.msn != qp.sq.atomic_msn() ||
      seg.mo != 0 || !seg.last || seg.len != kAtomicRespBytes || answered_msn(seg) != qp.sq.oldest_read_msn())
    return Verdict::kHold;
  return place_atomic_response(qp, seg) == Verdict::kAccept ? Verdict::kAccept : Verdict::kDrop;
}

/// place_early() has had @p seg, which has that PSN, kept whole. If it is the end of an answer, the answer knows.
void Engine::Impl::answers_held(QpContext& qp, uint32_t psn, const DdpSegment& seg) {
  ReadOp* op = nullptr;
  if (seg.tagged && seg.last && seg.rdmap_opcode == USIW_RDMAP_READ_RESP) op = qp.sq.read(seg.stag);
  if (!seg.tagged && seg.qn == USIW_DDP_QN_ATOMIC_RESP && seg.len == kAtomicRespBytes)
    op = qp.sq.read(answered_msn(seg));
  if (op == nullptr || op->last_held) return;
  op->last_psn = psn;
  op->last_held = true;
}

/// More of an answer has come early: the end of the oldest one may have waited for just that, and those of others for
/// the oldest one.
void Engine::Impl::finish_early_answers(QpContext& qp) {
  for (ReadOp* op; (op = qp.sq.oldest_read()) != nullptr && op->last_held;) {
    const uint32_t psn = op->last_psn;
    if (!psn_lt(qp.rcv.nxt(), psn) || !qp.rcv.has_arrived(psn)) return;
    RxPkt& rx = qp.rcv.early(psn);
    if (rx.kind != RxPkt::kHeld) return;
    const RxPkt kept = std::exchange(rx, RxPkt{});  // the end of the QP, which may come of it, gives back all others
    const RxBuf& buf = held_[kept.held].buf;
    DdpSegment seg;
    decode_ddp({buf.data + kTrpBytes, buf.len - kTrpBytes}, seg);  // as when it came
    const Verdict v = place_early_answer(qp, seg);
    if (v != Verdict::kAccept && qp.connected()) {
      rx = kept;
      return;
    }
    give_back(qp, kept.held);
    if (!qp.connected()) return;
  }
}

Verdict Engine::Impl::place_write(QpContext& qp, const DdpSegment& seg) {
  if (seg.len == 0) return Verdict::kAccept;  // nothing to check for nothing
  MrFault why;
  const UserMemory to = mrs_.resolve_remote(seg.stag, qp.peer(), kAccessRemoteWrite, seg.to, seg.len, why);
  if (!to) return fault(tagged_fault(why), AsyncEvent::kQpAccessErr);
  if (!(seg.last ? to.write_end(seg.payload, seg.len) : to.write(seg.payload, seg.len)))
    return fault(tagged_fault(MrFault::kBounds), AsyncEvent::kQpAccessErr);
  return Verdict::kAccept;
}

Verdict Engine::Impl::place_read_response(QpContext& qp, const DdpSegment& seg) {
  ReadOp* op = qp.sq.read(seg.stag);
  if (op == nullptr) return fault(term::kDdpInvalidStag);
  const SqWork& w = qp.sq.work(op->sq_index);
  if (w.opcode != WrOpcode::kRdmaRead) return fault(term::kDdpInvalidStag);
  if (seg.to > w.length || seg.len > w.length - seg.to || op->placed + seg.len > w.length)
    return fault(term::kDdpBounds);
  if (seg.len != 0 && !scatter(qp.attr.pd, qp.sq.wqe(op->sq_index).sges(), w.num_sge, static_cast<uint32_t>(seg.to),
                               {seg.payload, seg.len})) {
    // The sink went away under the READ: a local error, the peer has done nothing wrong.
    qp.sq.fail(op->sq_index, WcStatus::kLocProtErr);
    reap(qp);
    return Verdict::kGone;
  }
  op->placed += seg.len;
  return Verdict::kAccept;
}

/// The last segment of a READ response is in place, and all before it.
Verdict Engine::Impl::finish_read_response(QpContext& qp, const DdpSegment& seg) {
  if (!qp.sq.answered(seg.stag)) return fault(term::kRdmapStream);
  activate(qp);  // ORD and fence may have held something back
  reap(qp);
  return Verdict::kAccept;
}

/// Places a segment of queue 0, whose message has taken @p work.
Verdict Engine::Impl::place_send(QpContext& qp, const DdpSegment& seg, RqWork& work) {
  WcStatus bad = WcStatus::kSuccess;
  if (work.broken()) {
    bad = WcStatus::kLocQpOpErr;
  } else if (seg.mo > work.capacity || seg.len > work.capacity - seg.mo) {
    bad = WcStatus::kLocLenErr;
  } else if (seg.len != 0 &&
             !scatter(qp.rq.pd(), work.wqe->sges(), work.num_sge, seg.mo, {seg.payload, seg.len})) {
    bad = WcStatus::kLocProtErr;
  } else {
    work.received += seg.len;
    return Verdict::kAccept;
  }
  return fault(bad == WcStatus::kLocLenErr ? term::kDdpTooLong : term::kLocalCatastrophic,
               AsyncEvent::kQpReqErr, bad);
}

/// Whether immediate data behind a WRITE is as it must be; there is nothing to place.
Verdict Engine::Impl::place_immediate(QpContext&, const DdpSegment& seg) {
  if (seg.mo != 0 || !seg.last) return fault(term::kDdpInvalidMo);
  if (seg.len != kImmediateBytes || immediate_end(seg).length > USIW_MAX_MSG_SIZE) return fault(term::kDdpTooLong);
  return Verdict::kAccept;
}

/// What an atomic has found, into the memory of its work request and in the byte order of this host.
Verdict Engine::Impl::place_atomic_response(QpContext& qp, const DdpSegment& seg) {
  if (seg.msn != qp.sq.atomic_msn()) return fault(term::kDdpMsnRange);
  if (seg.mo != 0 || !seg.last) return fault(term::kDdpInvalidMo);
  if (seg.len != kAtomicRespBytes) return fault(term::kDdpTooLong);
  const uint32_t id = answered_msn(seg);
  const uint64_t value = load_be64(seg.payload + offsetof(usiw_atomic_resp, value));
  ReadOp* op = qp.sq.read(id);
  if (op == nullptr || !is_atomic(qp.sq.work(op->sq_index).opcode)) return fault(term::kRdmapStream);
  if (!scatter(qp.attr.pd, qp.sq.wqe(op->sq_index).sges(), 1, 0, std::as_bytes(std::span(&value, 1)))) {
    qp.sq.fail(op->sq_index, WcStatus::kLocProtErr);
    reap(qp);
    return Verdict::kGone;
  }
  op->placed = kAtomicBytes;
  if (!qp.sq.answered(id)) return fault(term::kRdmapStream);
  qp.sq.atomic_answered();
  activate(qp);  // as behind a READ
  reap(qp);
  return Verdict::kAccept;
}

/// A message of queue 0 is complete: all of it is placed, and all PSNs before its end.
Verdict Engine::Impl::finish_message(QpContext& qp, uint32_t msn, const MessageEnd& end) {
  if (msn != qp.rq.msn()) return fault(term::kDdpMsnRange);
  if (is_immediate(end.rdmap)) {
    if (!qp.rq.untouched()) return fault(term::kDdpInvalidMo);
    complete_recv(qp, WcOpcode::kRecvRdmaWithImm, end);
    return Verdict::kAccept;
  }
  if (!qp.rq.filled(end.length)) return fault(term::kDdpInvalidMo);
  if (invalidates(end.rdmap) && !mrs_.invalidate(end.imm, qp.attr.pd, qp.stream)) [[unlikely]]
    return fault(term::kRdmapCannotInvalidate, AsyncEvent::kQpAccessErr);
  complete_recv(qp, WcOpcode::kRecv, end);
  return Verdict::kAccept;
}

/// Copies @p bytes to @p offset of the @p num_sge SGEs of a work request, which name memory of @p pd. false when some
/// of the memory is not there for local writing (part of the bytes may have been copied then).
bool Engine::Impl::scatter(uint32_t pd, const Sge* sges, uint32_t num_sge, uint32_t offset,
                           std::span<const std::byte> bytes) {
  for (unsigned i = 0; i < num_sge && !bytes.empty(); ++i) {
    Sge sge;
    snapshot(&sge, sges + i);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const auto n = static_cast<uint32_t>(std::min<size_t>(bytes.size(), sge.length - offset));
    MrFault why;
    const UserMemory to = mrs_.resolve(sge.lkey, pd, kAccessLocalWrite, sge.addr + offset, n, why);
    if (!to || !to.write(bytes.data(), n)) return false;
    bytes = bytes.subspan(n);
    offset = 0;
  }
  return bytes.empty();
}

}  // namespace usiw
