// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sack.cc
/// Acknowledgements: what the peer has, what is lost, and the bitmap that we send.
///
/// When a retransmission turns out to have been needless, which the echoed time stamp tells (it is older than the
/// retransmission), the stamp also says how late the datagram was: so late is what the next one may be.
#include <algorithm>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

constexpr uint64_t kStampHalfNs = 32'000'000;  ///< within which two time stamps can be told apart

}  // namespace

/// Takes the acknowledgement in @p h and, of a SACK, its bitmap (checked by the caller to
/// have the length that h.psn says). false: it acknowledges what has never been sent, or is
/// older than any window; nothing has been changed then. May end with the QP dead.
bool Engine::Impl::apply_ack(QpContext& qp, const TrpHeader& h, std::span<const std::byte> bitmap) {
  const int32_t step = psn_diff(h.ack_psn, qp.snd.una());
  if (step < 0) return step >= -static_cast<int32_t>(kWindow);  // late, but true when sent
  if (psn_lt(qp.snd.nxt(), h.ack_psn)) return false;
  if (!bitmap.empty() && psn_lt(qp.snd.nxt(), h.psn)) return false;
  if (qp.not_ready.answers_skip(h.ack_psn)) [[unlikely]] asked_to_skip(qp, (h.flags & USIW_TRP_F_SKIPPED) != 0);

  AckSummary sum;
  sum.has_echo = h.opcode == USIW_TRP_SACK;
  sum.echo = h.echo;
  const TxPkt* last = step != 0 && bitmap.empty() ? qp.snd.acknowledge_in_order(h.ack_psn) : nullptr;
  if (last != nullptr) {
    sum.delivered = static_cast<uint32_t>(step);
    sum.rtt = std::max(now_ - last->sent_ns, RttEstimator::kTooShort);
    qp.losses.delivered_in_order(h.ack_psn - sum.delivered, h.ack_psn - 1, last->sent_ns, now_ - last->sent_ns);
  } else {
    const auto news = [&](uint32_t psn, bool was_lost) { deliver(qp, psn, was_lost, sum); };
    qp.snd.acknowledge(h.ack_psn, news);
    qp.snd.report(bitmap, news);
  }
  const bool opened = qp.snd.accept(h.credit);
  if (!qp.marks.known(h.flags)) hear_marks(qp, h.flags, sum.delivered);
  if (qp.snd.has_credit()) qp.keepalive.window_closed(false);

  if (sum.delivered == 0) {
    if (qp.losses.at() <= now_) detect_losses(qp);
    if (opened) activate(qp);
    return true;
  }
  if (sum.rtt != 0 && qp.rtt.is_outage(sum.rtt, qp.timeout.in_a_row(), now_)) sum.rtt = 0;
  if (sum.rtt != 0) qp.rtt.sample(sum.rtt, now_);
  if (sum.spurious) {
    qp.cc.on_spurious();
    if (sum.early != 0) qp.rtt.needless_time_out(sum.early);
    count(qp, USIW_CNT_SPURIOUS);
    note(TraceKind::kSpurious, qp, h.ack_psn);
  }
  qp.losses.acknowledged(sum.late, qp.rtt);
  if (qp.timeout.in_a_row() != 0) [[unlikely]] {
    wire_is_back(qp);
    if (qp.timeout.in_a_row() > TimeOut::kOutage) qp.cc.on_outage_over();
  }
  if (sum.rtt != 0 && !qp.marks.settled()) [[unlikely]] ask_for_marks(qp);
  qp.timeout.progress(now_);
  qp.cc.on_ack(sum.delivered, qp.rtt.or_minimum(sum.rtt), qp.rtt.min_rtt(), qp.cwnd_limited, qp.snd.una(),
               qp.snd.nxt());
  qp.cwnd_limited = false;
  if (!qp.snd.empty()) touch_timer(qp, qp.timeout.at(qp.rtt));  // shorter now, if there was a back-off or no sample
  detect_losses(qp);
  if (has_more(qp)) activate(qp);
  if (step == 0) return true;

  if (qp.not_ready.over(qp.snd.una())) {
    qp.not_ready.end(qp.snd.nxt());
    touch_timer(qp, qp.timeout.at(qp.rtt));
  }
  qp.responder.acknowledged(qp.snd.una());
  if (qp.life.end_acknowledged(qp.snd.una())) {
    const bool orderly = qp.life.is(Phase::kShutdownSent);
    qp.life.answer(true);
    fail(qp, qp.sq.head(), WcStatus::kWrFlushErr, orderly ? 0 : -EPROTO, qp.life.event());
    return true;
  }
  reap(qp);
  return true;
}

/// The peer tells something else of congestion marks than before, with an acknowledgement of so many datagrams.
void Engine::Impl::hear_marks(QpContext& qp, uint16_t flags, uint32_t delivered) {
  if (qp.marks.hear(flags)) {
    count(qp, USIW_CNT_TX_CE, delivered);
    qp.cc.on_mark(qp.snd.una(), qp.snd.nxt());
  }
  qp.marks.begin(qp.snd.nxt());
  refresh_path(qp);
}

/// Something that was sent once has arrived: may what is sent be marked?
void Engine::Impl::ask_for_marks(QpContext& qp) {
  qp.marks.arrived(qp.snd.una(), qp.snd.nxt());
  refresh_path(qp);
}

/// What is sent next must get through, and says nothing of what was lost.
void Engine::Impl::pause_marks(QpContext& qp) {
  qp.marks.pause();
  refresh_path(qp);
}

/// PSN @p psn is known to have arrived, for the first time. @p was_lost: it had been given up on, and not sent again
/// yet.
void Engine::Impl::deliver(QpContext& qp, uint32_t psn, bool was_lost, AckSummary& sum) {
  const TxPkt& pkt = qp.snd.pkt(psn);
  ++sum.delivered;
  const bool first = pkt.tx_count == 1;
  if (was_lost) {
    sum.spurious = true;
    if (!pkt.timed_out) sum.late = std::max(sum.late, now_ - pkt.sent_ns);
  }
  if (first) {
    if (pkt.sent_ns >= sum.newest_sent) {
      sum.newest_sent = pkt.sent_ns;
      sum.rtt = std::max(now_ - pkt.sent_ns, RttEstimator::kTooShort);
    }
  } else {
    // Without an echo (RFC 8985, 6.2) it may be either transmission.
    if (!sum.has_echo) return;
    // What came is older than the last transmission: one before that has arrived, which is no sign of when the last one
    // does. (Time stamps wrap: of what was repeated long ago they say nothing.)
    if (now_ - pkt.sent_ns < kStampHalfNs && static_cast<int16_t>(sum.echo - stamp_at(pkt.sent_ns)) < 0) {
      if (pkt.tx_count != 2) return;
      sum.spurious = true;
      // Behind a queue of its own one is late for other reasons.
      const bool few = qp.snd.nxt() - psn <= AckState::kEvery;
      const uint64_t took = uint16_t(stamp() - sum.echo) * 1000;
      if (!pkt.timed_out) sum.late = std::max(sum.late, took);
      else if (few) sum.early = std::max(sum.early, took);
      return;
    }
  }
  qp.losses.delivered(psn, pkt.sent_ns, now_ - pkt.sent_ns, first);
}

/// Looks for datagrams that should have arrived by now.
void Engine::Impl::detect_losses(QpContext& qp) {
  qp.losses.detect(qp.snd, qp.rtt, now_, [&](uint32_t psn) { mark_lost(qp, psn); });
  if (qp.losses.at() != kNever) touch_timer(qp, qp.losses.at());
}

void Engine::Impl::mark_lost(QpContext& qp, uint32_t psn) {
  qp.snd.lose(psn);
  count(qp, USIW_CNT_RETRANS_FAST);
  note(TraceKind::kFast, qp, psn, now_ - qp.snd.pkt(psn).sent_ns, qp.rtt.srtt());
  const bool refused = qp.not_ready.active() && qp.snd.pkt(psn).kind == PktKind::kSend;
  if (!refused && !qp.not_ready.excuses(psn, qp.snd.una(), qp.snd.nxt()))
    qp.cc.on_loss(qp.snd.pkt(psn).sent_ns, now_);
  activate(qp);
}

/// A SACK with F_NOT_READY for the oldest datagram: back off. Further ones that answer
/// datagrams already under way change nothing.
void Engine::Impl::peer_not_ready(QpContext& qp) {
  count(qp, USIW_CNT_NOT_READY_RX);
  note(TraceKind::kNotReady, qp, qp.snd.una());
  qp.not_ready.heard(now_);
  if (qp.snd.empty() || qp.not_ready.knows(qp.snd.una())) return;
  qp.not_ready.told(qp.snd.una(), now_);
  qp.timeout.forgive();
  touch_timer(qp, qp.not_ready.at());
}

}  // namespace usiw
