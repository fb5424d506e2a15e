// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file skip.cc
/// Responses that wait behind a message for which no receive is posted. That message, which the peer refuses, is the
/// lower edge of the window, so a window of responses passes it at most. Then the peer is asked to count it as arrived
/// all the same (USIW_TRP_F_SKIP), and the window moves on. The peer throws away all that it gets of requests from there
/// on; here the send queue goes back to the message, and sends it and all behind it again, as new datagrams. Of what
/// was outstanding only responses keep their bytes: the other PSNs carry nothing from now on.
#include "engine/engine_impl.h"

namespace usiw {

namespace {

bool is_response(const DdpSegment& seg) {
  if (seg.tagged) return seg.rdmap_opcode == USIW_RDMAP_READ_RESP;
  return seg.qn == USIW_DDP_QN_ATOMIC_RESP;
}

}  // namespace

// ---- The end whose message waits ----

/// There is a response to send, and the window lets nothing out.
void Engine::Impl::ask_to_skip(QpContext& qp) {
  if (!qp.not_ready.knows(qp.snd.una()) || qp.snd.pkt(qp.snd.una()).kind != PktKind::kSend) return;
  if (qp.not_ready.ask_to_skip(now_)) touch_timer(qp, now_);
}

/// The datagram that the peer was asked to skip is about to be acknowledged. @p skipped: without its message.
void Engine::Impl::asked_to_skip(QpContext& qp, bool skipped) {
  const uint32_t psn = qp.not_ready.asked_psn();
  const TxPkt first = qp.snd.pkt(psn);
  qp.not_ready.skip_answered();
  if (!skipped) return;
  note(TraceKind::kSkip, qp, psn, 1);
  qp.sq.rewind(first.owner, first.offset);
  for (uint32_t at = psn; psn_lt(at, qp.snd.nxt()); ++at)
    if (TxPkt& pkt = qp.snd.pkt(at); pkt.kind == PktKind::kSend) pkt.kind = PktKind::kNothing;
  qp.not_ready.skipped(qp.snd.nxt(), now_);
  activate(qp);
}

/// A segment that changes nothing at the peer, whatever its state: the middle of a WRITE, without bytes.
size_t Engine::Impl::build_nothing(std::byte* out) {
  DdpSegment seg{};
  seg.tagged = true;
  seg.rdmap_opcode = USIW_RDMAP_WRITE;
  return encode_ddp(out, seg);
}

// ---- The end without a receive ----

/// The peer asks for it: the message at rcv.nxt() counts as arrived, and is the next one of queue 0 all the same. Of an
/// SRQ the QP keeps its place among those that wait, and takes a receive for the message before it comes again.
void Engine::Impl::skip(QpContext& qp) {
  qp.rq.skip();
  qp.marks.skipped(true);
  note(TraceKind::kSkip, qp, qp.rcv.nxt(), 0);
}

/// Behind a message that was skipped: @p seg, whose turn it is, comes again behind it.
bool Engine::Impl::comes_again(const QpContext& qp, const DdpSegment& seg) {
  if (is_response(seg)) return false;
  return seg.tagged || seg.qn != USIW_DDP_QN_SEND || seg.msn != qp.rq.msn() || seg.mo != 0;
}

/// The same ahead of its turn, where it is not known what is old. What is empty does no harm.
bool Engine::Impl::may_come_again(const DdpSegment& seg) {
  return !is_response(seg) && !(seg.tagged && !seg.last && seg.len == 0);
}

/// The message that was skipped has a receive.
void Engine::Impl::skipped_no_more(QpContext& qp) {
  qp.rq.skip_no_more();
  qp.marks.skipped(false);
}

}  // namespace usiw
