// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file rdmap_tx.cc
/// From send work requests to DDP segments. The bytes of a segment are read from the
/// work request's memory when it is sent, and again each time that it is sent again.
#include <algorithm>

#include "engine/engine_impl.h"

namespace usiw {

/// Takes the next work request from the ring: INIT -> TRANSFER. false: there is none, it has to wait, or it is bad (and
/// then the QP may be dead).
bool Engine::Impl::start_work(QpContext& qp) {
  SendWqe* const posted = qp.sq.posted();
  if (posted == nullptr) return false;
  SendWqe& wqe = *posted;

  const struct {
    uint8_t opcode, flags;
    uint16_t count;
    uint64_t remote_addr;
    uint32_t rkey;
  } in{.opcode = read_once(wqe.opcode),
       .flags = read_once(wqe.flags),
       .count = read_once(wqe.count),
       .remote_addr = read_once(wqe.remote_addr),
       .rkey = read_once(wqe.rkey)};

  const auto opcode = static_cast<WrOpcode>(in.opcode);
  const bool known = is_known(opcode), answered = known && is_answered(opcode);
  if ((in.flags & kWrFence) != 0 && qp.sq.reads_out() != 0) return false;
  if (answered && qp.sq.ord() != 0 && !qp.sq.may_read()) return false;

  qp.sq.take({.remote_addr = in.remote_addr,
              .rkey = in.rkey,
              .length = 0,
              .end_psn = 0,
              .msn = 0,
              .stage = SqWork::kTransfer,
              .opcode = opcode,
              .flags = in.flags,
              .num_sge = static_cast<uint8_t>(in.count),  // what is more than can be is refused below
              .error = WcStatus::kSuccess});

  if (known && is_local(opcode)) [[unlikely]] {
    do_local_work(qp, wqe);
    return false;
  }

  WcStatus bad = WcStatus::kSuccess;
  uint64_t length = 0;
  if (!known || (answered && (qp.sq.ord() == 0 || (in.flags & kWrInline) != 0))) {
    bad = WcStatus::kLocQpOpErr;
  } else if ((in.flags & kWrInline) != 0) {
    if (in.count > qp.max_inline_) bad = WcStatus::kLocLenErr;
    length = in.count;
  } else if (in.count > qp.max_send_sge_) {
    bad = WcStatus::kLocQpOpErr;
  } else {
    const uint32_t access = operation(opcode).local_access;
    const uint32_t full = is_tagged(opcode) ? qp.seg_tagged : qp.seg_untagged;
    for (unsigned i = 0; i < in.count && bad == WcStatus::kSuccess; ++i) {
      Sge sge;
      snapshot(&sge, wqe.sges() + i);
      length += sge.length;
      // What one datagram takes from one place is looked up when that is filled. Of all else nothing is sent unless
      // all of its memory is there.
      if (!answered && in.count == 1 && sge.length <= full) break;
      MrFault why;
      if (sge.length != 0 && !mrs_.resolve(sge.lkey, qp.attr.pd, access, sge.addr, sge.length, why))
        bad = WcStatus::kLocProtErr;
    }
    if (bad == WcStatus::kSuccess && length > USIW_MAX_MSG_SIZE) bad = WcStatus::kLocLenErr;
    if (answered && is_atomic(opcode)) {
      if (in.count != 1) bad = WcStatus::kLocQpOpErr;  // the operands would not be where they are
      if (bad == WcStatus::kSuccess && length < kAtomicBytes) bad = WcStatus::kLocLenErr;
      length = kAtomicBytes;
    }
  }
  if (bad != WcStatus::kSuccess) {
    qp.sq.fail(qp.sq.next(), bad);
    reap(qp);
    return false;
  }
  qp.sq.begin(static_cast<uint32_t>(length));
  if (answered) touch_timer(qp, keepalive_at(qp));
  return true;
}

/// The work request at next(), which is of this end alone, takes effect: behind all that were posted before it have
/// been sent, and before any that come behind it.
void Engine::Impl::do_local_work(QpContext& qp, SendWqe& wqe) {
  const SqWork& w = qp.sq.work(qp.sq.next());
  uint32_t imm;
  snapshot(&imm, &wqe.imm);
  bool done;
  if (w.opcode == WrOpcode::kLocalInv) {
    done = mrs_.invalidate(imm, qp.attr.pd, qp.stream);
  } else {
    BindDetails bind;
    snapshot(&bind, wqe.bind());
    done = mrs_.bind({.stag = w.rkey,
                      .type2 = imm != 0,
                      .region = bind.region,
                      .access = bind.access,
                      .addr = w.remote_addr,
                      .length = bind.length},
                     qp.attr.pd, qp.stream);
  }
  if (done)
    qp.sq.done_here();
  else
    qp.sq.fail(qp.sq.next(), WcStatus::kMwBindErr);
  reap(qp);
}

/// Fills @p pkt with the next segment of the send queue. false: nothing can be sent.
bool Engine::Impl::next_work_packet(QpContext& qp, TxPkt& pkt) {
  if (!qp.connected()) return false;
  if (qp.sq.started()) {
    if (qp.sq.failed() && !qp.sq.again()) return false;
  } else {
    for (unsigned left = kQuantum;; --left) {
      const uint32_t at = qp.sq.next();
      if (start_work(qp)) break;
      if (qp.sq.next() == at || !qp.connected()) return false;
      // That was one of this end alone. A producer that adds others as fast gets no more than its share of the run.
      if (left == 0) {
        activate(qp);
        return false;
      }
    }
  }
  const SqWork& w = qp.sq.work(qp.sq.next());
  pkt.kind = PktKind::kSend;
  pkt.owner = qp.sq.next();
  pkt.offset = qp.sq.offset();
  pkt.len = 0;
  if (is_answered(w.opcode)) return true;
  uint32_t full = is_tagged(w.opcode) ? qp.seg_tagged : qp.seg_untagged;
  const uint32_t left = w.length - pkt.offset;
  // The trailing word of a WRITE has to be in its last segment. So segments end where the peer's address is a multiple
  // of 8.
  if (is_tagged(w.opcode) && left > full) full -= misaligned(w, pkt.offset);
  pkt.len = static_cast<uint16_t>(std::min(left, full));
  return true;
}

/// The header of the segment at @p offset of a message, but for whether it is the last.
DdpSegment Engine::Impl::work_header(const QpContext& qp, uint32_t index, uint32_t offset) const {
  const SqWork& w = qp.sq.work(index);
  const Operation& op = operation(w.opcode);
  DdpSegment seg{};
  seg.rdmap_opcode = (w.flags & kWrSolicited) != 0 ? op.rdmap_solicited : op.rdmap;
  if (op.tagged) {
    seg.tagged = true;
    seg.stag = w.rkey;
    seg.to = w.remote_addr + offset;
  } else {
    if (op.immediate) seg.stag = to_be32(qp.sq.wqe(index).imm);
    if (op.invalidates) seg.stag = qp.sq.wqe(index).imm;
    seg.qn = op.qn;
    seg.msn = w.msn;
    seg.mo = offset;
  }
  return seg;
}

/// DDP header and payload, in the buffer and where they are; returns their length, 0 when the memory is not accessible
/// any more (the work request has failed then, and the QP may be dead).
size_t Engine::Impl::build_work_segment(QpContext& qp, const TxPkt& pkt, TxBuf& buf) {
  std::byte* const out = buf.data + kTrpBytes;
  const SqWork& w = qp.sq.work(pkt.owner);
  const Operation& op = operation(w.opcode);
  if (pkt.len == 0 && op.tagged && op.trailed) return build_immediate(qp, pkt, out);
  DdpSegment seg = work_header(qp, pkt.owner, pkt.offset);
  if (op.answered) {
    seg.last = true;
    if (op.atomic) return build_atomic_request(qp, pkt, seg, out);
    // The sink is named by the READ's MSN, and its bytes count from 0: the response is
    // spread over the SGEs here, and no STag of the application is shown to the peer.
    encode_read_request(out + kUntaggedBytes, {.sink_stag = w.msn,
                                               .sink_to = 0,
                                               .size = w.length,
                                               .src_stag = w.rkey,
                                               .src_to = w.remote_addr});
    return encode_ddp(out, seg) + kReadReqBytes;
  }
  seg.last = pkt.offset + pkt.len == w.length;
  const size_t n = encode_ddp(out, seg);
  if (pkt.len != 0 && !gather(qp, pkt.owner, pkt.offset, pkt.len, out + n, buf)) {
    qp.sq.fail(pkt.owner, WcStatus::kLocProtErr);
    reap(qp);
    return 0;
  }
  return n + pkt.len;
}

/// The message behind a WRITE with immediate data.
size_t Engine::Impl::build_immediate(QpContext& qp, const TxPkt& pkt, std::byte* out) {
  const SqWork& w = qp.sq.work(pkt.owner);
  DdpSegment seg{};
  seg.last = true;
  seg.rdmap_opcode = (w.flags & kWrSolicited) != 0 ? USIW_RDMAP_IMM_SE : USIW_RDMAP_IMM;
  seg.qn = USIW_DDP_QN_SEND;
  seg.msn = w.msn;
  encode_immediate(out + kUntaggedBytes, to_be32(qp.sq.wqe(pkt.owner).imm), w.length);
  return encode_ddp(out, seg) + kImmediateBytes;
}

/// Whatever the slot says by the time that it is sent again: the peer does the first that comes.
size_t Engine::Impl::build_atomic_request(QpContext& qp, const TxPkt& pkt, DdpSegment& seg, std::byte* out) {
  const SqWork& w = qp.sq.work(pkt.owner);
  AtomicOperands operands;
  snapshot(&operands, qp.sq.wqe(pkt.owner).operands());
  AtomicRequest request{.opcode = USIW_ATOMIC_FETCH_ADD,
                        .id = w.msn,
                        .stag = w.rkey,
                        .to = w.remote_addr,
                        .add_swap = operands.compare_add,
                        .add_swap_mask = 0,
                        .compare = 0,
                        .compare_mask = 0};
  if (w.opcode == WrOpcode::kCompareSwap) {
    request.opcode = USIW_ATOMIC_CMP_SWAP;
    request.add_swap = operands.swap;
    request.compare = operands.compare_add;
    request.add_swap_mask = request.compare_mask = ~uint64_t{0};
  }
  encode_atomic_request(out + kUntaggedBytes, request);
  return encode_ddp(out, seg) + kAtomicReqBytes;
}

/// The @p len bytes at @p offset of a message, which end the datagram in @p buf: copied to @p out from the work
/// request's memory, the last piece if it can be by reference. false when some of it is not there any more.
bool Engine::Impl::gather(QpContext& qp, uint32_t index, uint32_t offset, uint32_t len, std::byte* out, TxBuf& buf) {
  const SqWork& w = qp.sq.work(index);
  SendWqe& wqe = qp.sq.wqe(index);
  if ((w.flags & kWrInline) != 0) {
    std::memcpy(out, wqe.inline_data() + offset, len);
    return true;
  }
  for (unsigned i = 0; i < w.num_sge && len != 0; ++i) {
    Sge sge;
    snapshot(&sge, wqe.sges() + i);
    if (offset >= sge.length) {
      offset -= sge.length;
      continue;
    }
    const uint32_t n = std::min(len, sge.length - offset);
    MrFault why;
    const UserMemory from = mrs_.resolve(sge.lkey, qp.attr.pd, 0, sge.addr + offset, n, why);
    if (n == len && refer(ports_[qp.port], buf, from.direct(), n)) return true;
    if (!from || !from.read(out, n)) return false;
    out += n;
    len -= n;
    offset = 0;
  }
  return len == 0;
}

}  // namespace usiw
