// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trp_rx.cc
/// Datagrams in: from the port to the QP, checks of PSN and acknowledgement, order.
#include <algorithm>
#include <cerrno>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

constexpr unsigned kTaggedEnd = USIW_DDP_F_TAGGED | USIW_DDP_F_LAST;

}  // namespace

/// @p port: the number of @p p.
unsigned Engine::Impl::receive_burst(PortState& p, int port) {
  std::array<RxBuf, kBurst> bufs;
  const size_t n = p.port->rx(bufs);
  if (n == 0) return 0;
  more_rx_ |= n == bufs.size();
  size_t to_free = 0;
  for (size_t i = 0; i < n; ++i) {
    if (i + 1 < n) __builtin_prefetch(bufs[i + 1].data);
    // What is not kept moves to the front, to be given back together.
    if (receive(port, bufs[i])) continue;
    if (to_free != i) bufs[to_free] = bufs[i];
    ++to_free;
  }
  p.port->rx_free(std::span(bufs).first(to_free));
  poll_drops(p);
  return static_cast<unsigned>(n);
}

/// A datagram that no QP can be named for. @p why: USIW_CNT_MAX when it is merely the kernel's.
bool Engine::Impl::drop_unmatched(const RxBuf& buf, usiw_counter why) {
  count(USIW_CNT_RX_PKTS);
  count(USIW_CNT_RX_BYTES, buf.len);
  if (why != USIW_CNT_MAX) count(why);
  return false;
}

/// apply_ack() of a datagram without a bitmap would change nothing.
bool Engine::Impl::says_nothing_new(const QpContext& qp, const TrpHeader& h) const {
  return h.ack_psn == qp.snd.una() && h.ack_psn + std::min<uint32_t>(h.credit, kWindow) == qp.snd.edge() &&
         qp.marks.known(h.flags) && qp.losses.at() > now_;
}

/// true: the buffer is kept.
bool Engine::Impl::receive(int port, RxBuf& buf) {
  const std::span datagram(buf.data, buf.len);
  TrpHeader h;
  if (!decode_trp(datagram, h)) return drop_unmatched(buf, USIW_CNT_DROP_MALFORMED);
  const bool data = h.opcode == USIW_TRP_DATA;
  if (!data) {
    if ((USIW_TRP_KERNEL_OPCODES >> h.opcode & 1) != 0) return drop_unmatched(buf, USIW_CNT_MAX);
    if (h.opcode == USIW_TRP_RESET && (h.flags & USIW_TRP_F_STRAY) == 0) return drop_unmatched(buf, USIW_CNT_MAX);
  }

  QpContext* qp = last_flow_;
  if (qp == nullptr || !(qp->path.flow == buf.flow)) {
    qp = flows_.find(buf.flow);
    if (qp == nullptr) return drop_unmatched(buf, USIW_CNT_DROP_NO_CONN);
    last_flow_ = qp;
  }
  if ((qp->port != port && qp->hears_also != port) || buf.len > qp->longest) [[unlikely]]
    return drop_unheard(*qp, port, buf);
  count(*qp, USIW_CNT_RX_PKTS);
  count(*qp, USIW_CNT_RX_BYTES, buf.len);
  note_packet(TraceKind::kRx, *qp, datagram);
  if (qp->life.is(Phase::kDead)) {
    receive_dead(*qp, h);
    return false;
  }
  switch (h.opcode) {
    case USIW_TRP_DATA:
    case USIW_TRP_SHUTDOWN:
      return receive_data(*qp, h, port, buf);
    case USIW_TRP_SACK:
      receive_sack(*qp, h, datagram.subspan(kTrpBytes));
      return false;
    case USIW_TRP_RESET:
      receive_reset(*qp, h);
      return false;
    default:
      drop(*qp, USIW_CNT_DROP_MALFORMED, h.psn);
      return false;
  }
}

/// A dead QP only acknowledges again what had ended the connection, so that the peer
/// need not wait for its time-out.
void Engine::Impl::receive_dead(QpContext& qp, const TrpHeader& h) {
  const bool repeated = (h.opcode == USIW_TRP_DATA || h.opcode == USIW_TRP_SHUTDOWN) &&
                        psn_in(h.psn, qp.rcv.nxt() - kWindow, kWindow);
  if (qp.life.answers() && repeated)
    ack_at_once(qp);
  else
    drop(qp, USIW_CNT_DROP_STATE, h.psn);
}

bool Engine::Impl::receive_data(QpContext& qp, const TrpHeader& h, int port, RxBuf& buf) {
  const int32_t ahead = psn_diff(h.psn, qp.rcv.nxt());
  if (ahead >= static_cast<int32_t>(kWindow) || ahead < -static_cast<int32_t>(kWindow) ||
      (!says_nothing_new(qp, h) && !apply_ack(qp, h, {}))) {
    drop(qp, USIW_CNT_DROP_WINDOW, h.psn);
    return false;
  }
  const uint64_t silence_ns = now_ - qp.heard_ns;
  qp.heard_ns = now_;
  if (!qp.connected()) return false;
  if (buf.ce) [[unlikely]] {
    qp.marks.came();
    count(qp, USIW_CNT_RX_CE);
  }
  if (ahead != 0 && (ahead < 0 || qp.rcv.has_arrived(h.psn))) [[unlikely]] {
    receive_again(qp, h);
    return false;
  }
  qp.ack.heard(h.echo, (h.flags & USIW_TRP_F_RETRANS) != 0);
  const std::span payload(buf.data + kTrpBytes, buf.len - kTrpBytes);
  if (ahead == 0 && h.opcode == USIW_TRP_DATA) {
    if (receive_short(qp, payload)) {
      if (qp.connected()) owe_ack(qp, h, true, silence_ns);
      return false;
    }
    if (payload.size() > kUntaggedBytes && (std::to_integer<unsigned>(payload[0]) & USIW_DDP_F_LAST) == 0 &&
        receive_middle(qp, payload)) {
      if (qp.longs.due()) [[unlikely]] look_for_long(qp);
      owe_ack(qp, h, false, silence_ns);
      return false;
    }
  }
  if (qp.life.is(Phase::kTerminating)) {
    drop(qp, USIW_CNT_DROP_STATE, h.psn);
    return false;
  }
  if (h.opcode == USIW_TRP_SHUTDOWN ? !payload.empty() : payload.size() < kTaggedBytes) {
    drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
    return false;
  }
  qp.rcv.saw(!payload.empty() && (std::to_integer<unsigned>(payload[0]) & kTaggedEnd) == kTaggedEnd);
  if (!payload.empty() && (std::to_integer<unsigned>(payload[0]) & USIW_DDP_F_LAST) == 0) {
    qp.longs.more(1);
    if (qp.longs.due()) [[unlikely]] look_for_long(qp);
  }

  if (ahead > 0) {
    RxPkt later{};
    Verdict verdict = Verdict::kHold;
    DdpSegment seg{};
    if (h.opcode == USIW_TRP_DATA) {
      // What cannot be decoded is judged when it comes in order.
      verdict = decode_ddp(payload, seg) == DdpDecode::kOk ? place_early(qp, seg, later) : Verdict::kDrop;
    }
    if (!qp.connected()) return false;
    ack_at_once(qp);
    if (verdict == Verdict::kDrop) {
      refused(qp, h.psn);
      drop(qp, USIW_CNT_DROP_EARLY, h.psn);
      return false;
    }
    const bool held = verdict == Verdict::kHold;
    if (held && !hold(qp, h.psn, port, buf, later)) return false;
    count(qp, USIW_CNT_RX_OOO);
    qp.rcv.accept_early(h.psn, later);
    if (qp.sq.reads_out() != 0) {
      if (held) answers_held(qp, h.psn, seg);
      finish_early_answers(qp);
    }
    return held;
  }

  Verdict verdict = in_order(qp, h, payload);
  if (verdict == Verdict::kNotReady && (h.flags & USIW_TRP_F_SKIP) != 0) [[unlikely]] {
    skip(qp);
    verdict = Verdict::kAccept;
  }
  switch (verdict) {
    case Verdict::kAccept:
    case Verdict::kHold:
      qp.rcv.accept();
      if (h.opcode == USIW_TRP_SHUTDOWN) {
        peer_shutdown(qp);
        return false;
      }
      if (!qp.connected()) return false;
      if (qp.rq.told()) {
        leave_waiting(qp);
        qp.rq.serve();
      }
      if (qp.rcv.has_gap()) {
        advance(qp);
        note(TraceKind::kRelease, qp, h.psn, qp.rcv.nxt());
        publish(qp);
        if (qp.connected() && qp.sq.reads_out() != 0) finish_early_answers(qp);
        if (!qp.connected()) return false;
        ack_at_once(qp);
      } else {
        owe_ack(qp, h, (std::to_integer<uint8_t>(payload[0]) & USIW_DDP_F_LAST) != 0, silence_ns);
      }
      break;
    case Verdict::kNotReady:
      refused(qp, h.psn);
      note(TraceKind::kNoReceive, qp, h.psn);
      pause_marks(qp);  // the peer tries again and again, answered or not
      ack_at_once(qp);
      break;
    case Verdict::kFault:
    case Verdict::kDrop:
    case Verdict::kGone:
      break;
  }
  return false;
}

/// The datagram is refused, and comes again. Of those that wait for a receive work request the highest is remembered.
void Engine::Impl::refused(QpContext& qp, uint32_t psn) {
  const bool current = psn_in(qp.refused_psn, qp.rcv.nxt(), kWindow);
  if (!current || psn_lt(qp.refused_psn, psn)) qp.refused_psn = psn;
}

/// It has come before. Where that has been acknowledged the peer learns from the echo that the way is open again; else
/// that this one was needless.
void Engine::Impl::receive_again(QpContext& qp, const TrpHeader& h) {
  count(qp, USIW_CNT_RX_DUP);
  const bool repeated = (h.flags & USIW_TRP_F_RETRANS) != 0;
  const bool past = psn_lt(h.psn, qp.rcv.nxt());
  const bool told = !past || psn_lt(h.psn, qp.ack.told(qp.rcv.nxt()));
  qp.ack.heard(told ? h.echo : qp.ack.echo(), repeated);
  ack_at_once(qp);
  if (past && repeated) peer_repeats(qp);
}

/// One more datagram has been accepted in order, and there is no gap. @p last: it ends a message; @p silence_ns: from
/// the one before it.
void Engine::Impl::owe_ack(QpContext& qp, const TrpHeader& h, bool last, uint64_t silence_ns) {
  if ((h.flags & (USIW_TRP_F_ACK_REQ | USIW_TRP_F_RETRANS)) != 0 || qp.ack.one_more()) return ack_at_once(qp);
  const bool asks = last && qp.replies.asked(now_);
  if (last && silence_ns > kLoneMessageNs && !qp.replies.expected()) return ack_at_once(qp);
  if (asks) acks_.settle(qp);  // what was due within the message
  acks_.by(qp, now_ + (last ? qp.replies.delay(qp.rtt) : kAckDelayNs));
}

/// Deals with a datagram whose turn it is.
Verdict Engine::Impl::in_order(QpContext& qp, const TrpHeader& h, std::span<const std::byte> payload) {
  if (h.opcode == USIW_TRP_SHUTDOWN) return Verdict::kAccept;
  DdpSegment seg;
  Verdict verdict = Verdict::kDrop;
  switch (decode_ddp(payload, seg)) {
    case DdpDecode::kShort:
      drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
      return Verdict::kDrop;
    case DdpDecode::kDdpVersion:
      drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
      verdict = fault(seg.tagged ? term::kDdpTaggedVersion : term::kDdpUntaggedVersion);
      break;
    case DdpDecode::kRdmapVersion:
      drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
      verdict = fault(term::kRdmapVersion);
      break;
    case DdpDecode::kOk:
      if (!seg.tagged && seg.qn == USIW_DDP_QN_TERMINATE) {
        receive_terminate(qp, seg, h.ack_psn);
        return Verdict::kGone;
      }
      if (!qp.rq.skipped()) [[likely]] {
        verdict = place(qp, seg);
      } else if (comes_again(qp, seg)) {
        return Verdict::kAccept;
      } else {
        verdict = place(qp, seg);
        if (verdict == Verdict::kAccept && !seg.tagged && seg.qn == USIW_DDP_QN_SEND) skipped_no_more(qp);
      }
      break;
  }
  if (verdict == Verdict::kFault) terminate(qp, &seg);
  return verdict;
}

/// The gap at rcv.nxt() has been filled: does what was waiting for it.
void Engine::Impl::advance(QpContext& qp) {
  for (RxPkt rx; qp.rcv.take(rx);) {
    Verdict verdict = Verdict::kAccept;
    bool shutdown = false;
    if (rx.kind == RxPkt::kHeld) {
      Held& held = held_[rx.held];
      TrpHeader h{};
      decode_trp({held.buf.data, held.buf.len}, h);
      shutdown = h.opcode == USIW_TRP_SHUTDOWN;
      verdict = in_order(qp, h, {held.buf.data + kTrpBytes, held.buf.len - kTrpBytes});
      give_back(qp, rx.held);
    } else if (rx.kind == RxPkt::kSendLast && !qp.rq.skipped()) {
      verdict = finish_message(qp, rx.msn, {.rdmap = rx.rdmap, .length = rx.length, .imm = rx.imm});
      if (verdict == Verdict::kFault) terminate(qp, nullptr);
    }
    if (verdict != Verdict::kAccept) return qp.rcv.refuse();
    qp.rcv.accept();
    if (shutdown) return peer_shutdown(qp);
    if (!qp.connected()) return;
  }
}

/// Keeps a datagram until its turn. false: no room. One QP keeps at most as many as are left for others, since its peer
/// need never fill the gap.
bool Engine::Impl::hold(QpContext& qp, uint32_t psn, int port, const RxBuf& buf, RxPkt& later) {
  static_assert(ReceiveWindow::kLeastCredit <= Port::kMaxHeld / 2, "what one QP may keep");
  if (qp.held >= held_free_count_) {
    drop(qp, USIW_CNT_DROP_NO_BUFFER, psn);
    return false;
  }
  const uint16_t index = held_free_[--held_free_count_];
  held_[index] = {buf, port};
  ++qp.held;
  later = {.kind = RxPkt::kHeld, .held = index};
  count(qp, USIW_CNT_RX_HELD);
  note(TraceKind::kHold, qp, psn, qp.rcv.nxt());
  return true;
}

/// What hold() has kept.
void Engine::Impl::give_back(QpContext& qp, uint16_t held) {
  ports_[held_[held].port].port->rx_free(std::span(&held_[held].buf, 1));
  held_free_[held_free_count_++] = held;
  --qp.held;
}

[[gnu::flatten]] void Engine::Impl::receive_sack(QpContext& qp, const TrpHeader& h, std::span<const std::byte> bitmap) {
  count(qp, USIW_CNT_RX_SACKS);
  const uint32_t bits = h.psn - h.ack_psn;
  if (bits > kWindow || bitmap.size() != (bits + 7) / 8) {
    drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
    return;
  }
  // Bits behind the last one must be 0, and the datagram expected cannot have arrived.
  if (bits != 0) {
    const auto last = std::to_integer<unsigned>(bitmap.back());
    const auto first = std::to_integer<unsigned>(bitmap.front());
    if ((first & 1) != 0 || last >> ((bits - 1) % 8) != 1) {
      drop(qp, USIW_CNT_DROP_MALFORMED, h.psn);
      return;
    }
  }
  const bool outage = qp.timeout.in_a_row() >= TimeOut::kOutage;
  if (!apply_ack(qp, h, bitmap)) {
    drop(qp, USIW_CNT_DROP_WINDOW, h.psn);
    return;
  }
  qp.heard_ns = now_;
  if (!qp.connected()) return;
  if ((h.flags & USIW_TRP_F_ACK_REQ) != 0) {
    // The one before this one may be what the peer lacks.
    if ((h.flags & USIW_TRP_F_RETRANS) != 0)
      peer_repeats(qp);
    else
      missed_answer(qp);
    ack_at_once(qp);
  }
  if (h.ack_psn != qp.snd.una()) return;
  if ((h.flags & USIW_TRP_F_NOT_READY) != 0) {
    peer_not_ready(qp);
  } else if ((qp.timeout.in_a_row() != 0 || (outage && !qp.snd.empty())) && !qp.not_ready.active()) {
    nudged(qp);
  } else if (qp.not_ready.knows(qp.snd.una())) {
    qp.not_ready.end(qp.snd.nxt());
    qp.timeout.start(now_);
    if (!qp.snd.empty() && qp.snd.lose(qp.snd.una())) count(qp, USIW_CNT_RETRANS_RNR);
    touch_timer(qp, qp.timeout.at(qp.rtt));
    activate(qp);
  }
}

/// A RESET in answer to a stray datagram: both numbers must be ones that this end has
/// sent within the last window (the second may come from a SACK, whose PSN is one of
/// the peer's), so who cannot see the traffic has to guess some 40 bits.
void Engine::Impl::receive_reset(QpContext& qp, const TrpHeader& h) {
  const bool acked = psn_in(h.psn, qp.rcv.nxt() - kWindow, kWindow + 1);
  const bool sent = psn_in(h.ack_psn, qp.snd.una() - kWindow, qp.snd.nxt() - qp.snd.una() + kWindow);
  const bool sacked = psn_in(h.ack_psn, qp.rcv.nxt() - kWindow, 2 * kWindow);
  if (!acked || !(sent || sacked) || qp.conn.silent) {
    drop(qp, USIW_CNT_DROP_RESET, h.psn);
    return;
  }
  fail(qp, qp.sq.head(), WcStatus::kWrFlushErr, -ECONNRESET, AsyncEvent::kNone);
}

}  // namespace usiw
