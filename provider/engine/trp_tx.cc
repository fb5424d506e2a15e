// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trp_tx.cc
/// Datagrams out: who may send, what is next, and the batch that goes to the port.
#include <algorithm>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

/// There may be something to send, now or as soon as a window lets it go. One that was asked in vain would cost more
/// than half of what a datagram does.
bool Engine::Impl::has_more(const QpContext& qp) const {
  if (qp.snd.lost() != 0 || !qp.responder.idle()) return true;
  switch (qp.life.phase()) {
    case Phase::kTerminating:
      return !qp.life.terminate_sent();
    case Phase::kShutdownSent:
      return !qp.life.shutdown_sent();
    default:
      return qp.sq.started() || qp.sq.posted() != nullptr;
  }
}

/// Sends up to @p quantum datagrams. true: there is more to send at once.
bool Engine::Impl::transmit(QpContext& qp, unsigned quantum) {
  for (unsigned n = 0; n < quantum; ++n) {
    if (!qp.connected()) return false;
    if (qp.not_ready.active() && !qp.force_send) return transmit_answers(qp, quantum - n);
    bool dry = false;
    if (qp.snd.lost() == 0) {
      n += qp.sq.fresh() && qp.responder.idle() ? send_short(qp, quantum - n, dry) : send_middle(qp, quantum - n);
      if (n == quantum) break;
    }
    Sent sent;
    if (qp.snd.in_flight() >= qp.cc.window() && !qp.force_send) {
      qp.cwnd_limited = true;
      return false;
    }
    if (dry || (n != 0 && !has_more(qp))) return false;
    if (qp.snd.lost() != 0) {
      sent = resend(qp, qp.snd.oldest_lost());
    } else {
      if (!qp.snd.has_room()) {
        qp.keepalive.window_closed(qp.snd.empty());
        if (qp.snd.empty()) touch_timer(qp, keepalive_at(qp));
        return false;
      }
      sent = send_new(qp);
    }
    if (sent == Sent::kNoBuffer) return true;
    if (sent == Sent::kNothing) return false;
    qp.force_send = false;
  }
  return true;
}

/// As transmit(), while the peer has no receive for a SEND, which the RNR timer tries again and again: responses to the
/// peer's READs and atomics do not wait for it. When they have filled the window, whose lower edge is that SEND, the
/// peer skips it (skip.cc).
bool Engine::Impl::transmit_answers(QpContext& qp, unsigned quantum) {
  if (!qp.life.is(Phase::kOpen) && !qp.life.is(Phase::kDraining)) return false;
  for (unsigned n = 0; n < quantum; ++n) {
    if (qp.snd.in_flight() >= qp.cc.window()) {
      qp.cwnd_limited = true;
      return false;
    }
    // Nothing else that is lost is sent: the peer would not take it.
    const uint32_t lost = qp.snd.oldest_lost_but(PktKind::kSend);
    Sent sent;
    if (lost != qp.snd.nxt()) {
      sent = resend(qp, lost);
    } else if (qp.snd.has_room() && (qp.not_ready.unsent() || !qp.responder.idle())) {
      sent = send_new(qp);
    } else {
      if (!qp.responder.idle()) ask_to_skip(qp);
      return false;
    }
    if (sent == Sent::kNoBuffer) return true;
    if (sent == Sent::kNothing || !qp.connected()) return false;
  }
  return true;
}

/// Sends the next datagram that has no PSN yet. The responder and the send queue take turns.
Engine::Impl::Sent Engine::Impl::send_new(QpContext& qp) {
  TxPkt pkt{};
  if (qp.life.is(Phase::kTerminating)) {
    if (qp.life.terminate_sent()) return Sent::kNothing;
    // READs accepted before the fault are served first: they succeed at the peer.
    if (!qp.responder.next(qp.seg_tagged, pkt)) pkt.kind = PktKind::kTerminate;
  } else if (qp.life.is(Phase::kShutdownSent)) {
    if (qp.life.shutdown_sent()) return Sent::kNothing;
    pkt.kind = PktKind::kShutdown;
  } else {
    const bool tries = qp.not_ready.unsent(), answers_only = qp.not_ready.active() && !tries;
    bool found = !tries && (qp.responder_turn || answers_only) && qp.responder.next(qp.seg_tagged, pkt);
    if (!found && !answers_only) found = next_work_packet(qp, pkt);
    if (!found) found = qp.connected() && !qp.responder_turn && qp.responder.next(qp.seg_tagged, pkt);
    if (!found) return Sent::kNothing;
  }

  const uint32_t psn = qp.snd.nxt();
  if (qp.snd.empty()) qp.timeout.start(now_);
  const Sent sent = emit(qp, psn, pkt);
  if (sent != Sent::kYes) return sent;

  qp.snd.sent(pkt, now_);
  touch_timer(qp, qp.timeout.at(qp.rtt));
  switch (pkt.kind) {
    case PktKind::kSend:
      qp.sq.sent(pkt.len, psn + 1);
      if (qp.not_ready.unsent()) {
        qp.not_ready.sent(psn, now_, qp.heard_ns);
        touch_timer(qp, qp.not_ready.at());
      }
      qp.responder_turn = true;
      if (qp.sq.started()) qp.longs.more(1);
      break;
    case PktKind::kReadResponse:
      qp.responder.sent(pkt.len, psn + 1);
      qp.responder_turn = false;
      if (qp.responder.goes_on(pkt)) qp.longs.more(1);
      break;
    case PktKind::kTerminate:
    case PktKind::kShutdown:
    case PktKind::kNothing:
      break;
  }
  return Sent::kYes;
}

/// Sends a lost datagram again.
Engine::Impl::Sent Engine::Impl::resend(QpContext& qp, uint32_t psn) {
  TxPkt& pkt = qp.snd.pkt(psn);
  const Sent sent = emit(qp, psn, pkt);
  if (sent == Sent::kNoBuffer) return sent;
  qp.snd.resent(psn);
  pkt.sent_ns = now_;
  count_up(pkt.tx_count);
  touch_timer(qp, qp.timeout.at(qp.rtt));
  return qp.connected() ? Sent::kYes : Sent::kNothing;
}

/// The datagram in tx_buffer() is complete; @p len: all of it.
inline void Engine::Impl::tx_commit(PortState& p, QpContext& qp, size_t len, bool has_psn, uint32_t psn) {
  TxBuf& buf = p.bufs[p.filled];
  buf.len = static_cast<uint32_t>(len) - buf.more_len;
  buf.path = &qp.path;
  p.tags[p.filled] = {&qp, has_psn, psn};
  ++p.filled;
  ++sent_;
  count(qp, USIW_CNT_TX_PKTS);
  count(qp, USIW_CNT_TX_BYTES, len);
  note_packet(TraceKind::kTx, qp, {buf.data, buf.len}, {buf.more, buf.more_len});
}

/// Builds the datagram of @p pkt. kNothing: its source is not accessible any more, which
/// has been dealt with (the work request has failed, or the QP is terminating).
Engine::Impl::Sent Engine::Impl::emit(QpContext& qp, uint32_t psn, TxPkt& pkt) {
  PortState& port = ports_[qp.port];
  TxBuf* const buf = tx_buffer(port);
  if (buf == nullptr) return Sent::kNoBuffer;
  size_t n = 0;
  switch (pkt.kind) {
    case PktKind::kSend:
      n = build_work_segment(qp, pkt, *buf);
      break;
    case PktKind::kReadResponse:
      n = build_response_segment(qp, psn, pkt, *buf);
      break;
    case PktKind::kTerminate:
      n = build_terminate(qp, buf->data + kTrpBytes);
      break;
    case PktKind::kNothing:
      n = build_nothing(buf->data + kTrpBytes);
      break;
    case PktKind::kShutdown:
      break;
  }
  if (n == 0 && pkt.kind != PktKind::kShutdown) return Sent::kNothing;
  // A response whose source is gone has become the Terminate by now.
  if (pkt.kind == PktKind::kTerminate) {
    if (!qp.life.terminate_sent()) {
      qp.life.end_by(now_ + kTerminateTimeNs);
      touch_timer(qp, qp.life.deadline());
      count(qp, USIW_CNT_TERM_TX);
    }
    qp.life.send_terminate(psn);
  } else if (pkt.kind == PktKind::kShutdown) {
    qp.life.send_shutdown(psn);
  }

  const bool again = pkt.tx_count != 0;
  uint16_t flags = again ? USIW_TRP_F_RETRANS : 0;
  if (again && qp.not_ready.asks_to_skip(psn)) flags |= USIW_TRP_F_SKIP;
  // The last one for now asks for an answer: only that lets more go.
  const bool last = again ? qp.snd.lost() == 1
                          : qp.snd.in_flight() + 1 >= qp.cc.window() || qp.snd.has_room_for_one();
  if (last || pkt.kind == PktKind::kShutdown || pkt.kind == PktKind::kTerminate)
    flags |= USIW_TRP_F_ACK_REQ;
  const bool tells = flags != 0 || !acknowledges_later(qp, pkt);
  if (tells)
    qp.ack.tell(qp.rcv.nxt());
  else if (qp.replies.outstanding())  // it has begun: its end may take as long as one is waited for
    acks_.put_off(qp, qp.replies.complete_by(qp.rtt));
  encode_trp(buf->data, {.psn = psn,
                         .ack_psn = qp.ack.told(qp.rcv.nxt()),
                         .flags = static_cast<uint16_t>(flags | qp.marks.flags()),
                         .opcode = pkt.kind == PktKind::kShutdown ? uint8_t{USIW_TRP_SHUTDOWN}
                                                                  : uint8_t{USIW_TRP_DATA},
                         .credit = qp.rcv.credit(),
                         .echo = stamp()});
  tx_commit(port, qp, kTrpBytes + n, true, psn);
  if (!again) qp.replies.sent(now_);
  if (tells) acknowledged_by_data(qp);
  return Sent::kYes;
}

/// Whether the acknowledgement that is owed can wait and goes with the end of the message of which @p pkt is a part.
/// It lets the peer's work request complete; a program that then waits for this message in memory polls no CQ any
/// more, and each segment that comes later costs it a wake-up.
bool Engine::Impl::acknowledges_later(QpContext& qp, const TxPkt& pkt) const {
  if (!acks_.owes(qp) || qp.ack.is_due(now_)) return false;
  switch (pkt.kind) {
    case PktKind::kSend:
      return qp.sq.goes_on(pkt);
    case PktKind::kReadResponse:
      return qp.responder.goes_on(pkt);
    default:
      return false;
  }
}

/// A SACK about the QP's present state; silently not sent when the port has no buffer.
void Engine::Impl::send_sack(QpContext& qp, uint16_t flags) {
  PortState& port = ports_[qp.port];
  const TxBuf* const buf = tx_buffer(port);
  if (buf == nullptr) return;
  if (qp.rq.told()) {
    flags |= USIW_TRP_F_NOT_READY;
    count(qp, USIW_CNT_NOT_READY_TX);
    // The responses that this end waits for come after all that it has refused, which is out of the port.
    if (qp.sq.reads_out() != 0) qp.rcv.pass(qp.refused_psn);
  }
  look_at_share(qp);
  const size_t n = qp.rcv.write_bitmap(buf->data + kTrpBytes);
  qp.ack.tell(qp.rcv.nxt());
  encode_trp(buf->data, {.psn = qp.rcv.max(),
                         .ack_psn = qp.rcv.nxt(),
                         .flags = static_cast<uint16_t>(flags | qp.marks.flags()),
                         .opcode = USIW_TRP_SACK,
                         .credit = qp.rcv.credit(),
                         .echo = qp.ack.echo()});
  tx_commit(port, qp, kTrpBytes + n, false, 0);
  if (n != 0) publish(qp);  // one that only receives has no timer that would do it
  count(qp, USIW_CNT_TX_SACKS);
  qp.ack.sacked();
  acks_.settle(qp);
}

void Engine::Impl::run_acks() {
  acks_.run(now_, [&](QpContext& qp) {
    if (!qp.ack.is_at_once() && qp.replies.outstanding() && qp.replies.expected()) qp.replies.missed();
    send_sack(qp, 0);
  });
}

// ---- The batch ----

/// A free buffer, the same one until tx_commit(); nullptr when the port has none.
TxBuf* Engine::Impl::tx_buffer(PortState& p) {
  if (p.blocked) return nullptr;
  if (p.filled - p.begin == kBurst || p.filled == p.bufs.size()) tx_flush(p);
  if (p.filled == p.allocated) {
    if (p.begin == p.filled) p.begin = p.filled = p.allocated = 0;
    const size_t room = std::min(kAllocation, p.bufs.size() - p.allocated);
    p.allocated += p.port->tx_alloc(std::span(p.bufs).subspan(p.allocated, room));
    if (p.filled == p.allocated) {
      p.blocked = true;
      return nullptr;
    }
  }
  TxBuf& buf = p.bufs[p.filled];
  buf.more_len = 0;
  return &buf;
}

void Engine::Impl::tx_flush(PortState& p) {
  const size_t n = p.filled - p.begin;
  if (n == 0) return;
  const std::span batch = std::span(p.bufs).subspan(p.begin, n);
  const std::span tags = std::span(p.tags).subspan(p.begin, n);
  const size_t taken = p.port->tx(batch);
  took_ |= taken != 0;
  if (taken < n) {
    count(USIW_CNT_TX_FULL);
    p.blocked = true;
    for (const PortState::Tag& tag : tags.subspan(taken))
      tag.has_psn ? not_sent(*tag.qp, tag.psn) : sack_not_sent(*tag.qp);
  }
  if (taken < n || port_full_)
    for (const PortState::Tag& tag : tags.first(taken)) tag.qp->had_room = true;
  p.begin = p.filled;
}

/// The port did not take a datagram: it is sent again in the next run, and congestion
/// control hears nothing of it, because the network has not seen it.
void Engine::Impl::not_sent(QpContext& qp, uint32_t psn) {
  if (!qp.connected() || !qp.snd.lose(psn)) return;
  count(qp, USIW_CNT_RETRANS_UNSENT);
  note(TraceKind::kUnsent, qp, psn);
  activate(qp);
}

/// What it said is said again.
void Engine::Impl::sack_not_sent(QpContext& qp) {
  if (qp.connected() || qp.life.answers()) ack_at_once(qp);
}

/// The active QPs in the order in which they send: while the port is full, those that it took nothing of first, or one
/// that alone fills it would do so for ever.
void Engine::Impl::take_turns(QpList& turn) {
  if (!port_full_) return turn.take(active_);
  QpList had_room;
  while (QpContext* qp = active_.front()) {
    qp->active_hook.unlink();
    (std::exchange(qp->had_room, false) ? had_room : turn).push_back(qp->active_hook);
  }
  turn.take(had_room);
}

}  // namespace usiw
