// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sack.cc
/// Acknowledgements: what the peer has, what is lost, and the bitmap that we send.
///
/// Losses are found by time, as RACK (RFC 8985) does it: a datagram is lost when one
/// sent later has been delivered and a round trip plus a reordering window has passed.
/// Until reordering has been seen on the path, three datagrams delivered beyond one are
/// enough. When a retransmission turns out to have been needless, which the echoed time
/// stamp tells (it is older than the retransmission), the stamp also says how late the
/// datagram was: the window becomes as long, and shrinks again while that does not recur.
#include <algorithm>
#include <bit>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

constexpr int32_t kDupThreshold = 3;
constexpr uint64_t kStampHalfNs = 32'000'000;  ///< within which two time stamps can be told apart
constexpr uint64_t kMinReorder = 20'000;  ///< ns; hosts that are microseconds apart reorder, too

}  // namespace

/// Takes the acknowledgement in @p h and, of a SACK, its bitmap (checked by the caller to
/// have the length that h.psn says). false: it acknowledges what has never been sent, or is
/// older than any window; nothing has been changed then. May end with the QP dead.
bool Engine::Impl::apply_ack(QpContext& qp, const TrpHeader& h, std::span<const std::byte> bitmap) {
  const int32_t step = psn_diff(h.ack_psn, qp.snd.una());
  if (step < 0) return step >= -static_cast<int32_t>(kWindow);  // late, but true when sent
  if (psn_lt(qp.snd.nxt(), h.ack_psn)) return false;
  if (!bitmap.empty() && psn_lt(qp.snd.nxt(), h.psn)) return false;

  AckSummary sum;
  sum.has_echo = h.opcode == USIW_TRP_SACK;
  sum.echo = h.echo;
  const auto news = [&](uint32_t psn, bool was_lost) { deliver(qp, psn, was_lost, sum); };
  qp.snd.acknowledge(h.ack_psn, news);
  qp.snd.report(bitmap, news);
  const bool opened = qp.snd.accept(h.credit);
  if (qp.snd.has_credit()) qp.window_blocked = false;

  if (sum.delivered == 0) {
    if (qp.reo_at <= now_) detect_losses(qp);
    if (opened) activate(qp);
    return true;
  }
  if (sum.rtt != 0) qp.rtt.sample(sum.rtt, now_);
  if (sum.spurious) {
    qp.cc.on_spurious();
    count(qp, USIW_CNT_SPURIOUS);
    note(TraceKind::kSpurious, qp, h.ack_psn);
  }
  qp.reo_late -= qp.reo_late / 256;  // a spike is forgotten, lasting reordering shows itself again
  if (sum.late != 0) {
    qp.reorder_seen = true;
    qp.reo_late = std::max(qp.reo_late, std::min(sum.late, qp.rtt.rto(0)));
  }
  qp.backoffs = 0;
  qp.nudge_at = kNever;
  qp.rto_base = qp.stall_since = now_;
  qp.cc.on_ack(sum.delivered, sum.rtt, qp.rtt.min_rtt(), qp.cwnd_limited, qp.snd.una(), qp.snd.nxt());
  qp.cwnd_limited = false;
  if (!qp.snd.empty()) touch_timer(qp, rto_at(qp));  // shorter now, if there was a back-off or no sample
  detect_losses(qp);
  activate(qp);
  if (step == 0) return true;

  if (qp.rnr_active && psn_lt(qp.rnr_psn, qp.snd.una())) {
    qp.rnr_active = false;
    qp.rnr_recover = qp.snd.nxt();
    touch_timer(qp, rto_at(qp));
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
      sum.rtt = std::max<uint64_t>(now_ - pkt.sent_ns, 1);
    }
    if (psn_lt(psn, qp.highest_delivered)) qp.reorder_seen = true;
  } else {
    // Without an echo (RFC 8985, 6.2) it may be either transmission.
    if (!sum.has_echo) return;
    // Time stamps wrap: of what was repeated for the first time long ago they say nothing.
    const bool tells = pkt.tx_count == 2 && now_ - pkt.sent_ns < kStampHalfNs;
    if (tells && static_cast<int16_t>(sum.echo - pkt.retrans_stamp) < 0) {
      sum.spurious = true;
      if (!pkt.timed_out) sum.late = std::max<uint64_t>(sum.late, uint16_t(stamp() - sum.echo) * 1000);
      return;  // the first one has arrived, which is no sign of when the last one does
    }
  }
  if (psn_lt(qp.highest_delivered, psn)) qp.highest_delivered = psn;
  if (pkt.sent_ns > qp.rack_sent || (pkt.sent_ns == qp.rack_sent && psn_lt(qp.rack_psn, psn))) {
    qp.rack_sent = pkt.sent_ns;
    qp.rack_psn = psn;
    qp.rack_rtt = now_ - pkt.sent_ns;
  }
}

/// Looks for datagrams that should have arrived by now.
void Engine::Impl::detect_losses(QpContext& qp) {
  qp.reo_at = kNever;
  if (qp.rack_sent == 0) return;
  const uint64_t reo = std::max({qp.rtt.srtt() / 4, kMinReorder, qp.reo_late});
  bool more = true;
  for (uint32_t base = qp.snd.una(); more && psn_lt(base, qp.snd.nxt()); base += 64) {
    for (uint64_t open = qp.snd.in_flight_from(base); open != 0; open &= open - 1) {
      const uint32_t psn = base + static_cast<uint32_t>(std::countr_zero(open));
      const TxPkt& pkt = qp.snd.pkt(psn);
      const bool before = pkt.sent_ns < qp.rack_sent ||
                          (pkt.sent_ns == qp.rack_sent && psn_lt(psn, qp.rack_psn));
      if (!before) {
        if (pkt.tx_count != 1) continue;
        more = false;  // nor are those behind it: first transmissions go in order
        break;
      }
      const uint64_t due = pkt.sent_ns + qp.rack_rtt + reo;
      const bool overtaken = !qp.reorder_seen && pkt.tx_count == 1 &&
                             psn_diff(qp.highest_delivered, psn) >= kDupThreshold;
      if (overtaken || due <= now_) {
        mark_lost(qp, psn);
      } else {
        qp.reo_at = std::min(qp.reo_at, due);
      }
    }
  }
  if (qp.reo_at != kNever) touch_timer(qp, qp.reo_at);
}

void Engine::Impl::mark_lost(QpContext& qp, uint32_t psn) {
  qp.snd.lose(psn);
  count(qp, USIW_CNT_RETRANS_FAST);
  note(TraceKind::kFast, qp, psn, now_ - qp.snd.pkt(psn).sent_ns, qp.rtt.srtt());
  const uint32_t out = qp.snd.nxt() - qp.snd.una();
  const bool while_not_ready = psn_in(qp.rnr_recover, qp.snd.una(), out + 1) && psn_lt(psn, qp.rnr_recover);
  if (!while_not_ready) qp.cc.on_loss(qp.snd.pkt(psn).sent_ns, now_);
  activate(qp);
}

/// A SACK with F_NOT_READY for the oldest datagram: back off. Further ones that answer
/// datagrams already under way change nothing.
void Engine::Impl::not_ready(QpContext& qp) {
  count(qp, USIW_CNT_NOT_READY_RX);
  note(TraceKind::kNotReady, qp, qp.snd.una());
  qp.rnr_unheard = 0;
  if (qp.snd.empty() || (qp.rnr_active && qp.rnr_psn == qp.snd.una())) return;
  qp.rnr_active = true;
  qp.rnr_psn = qp.snd.una();
  qp.rnr_since = now_;
  qp.rnr_backoffs = 1;
  qp.rnr_at = now_ + kRnrMinDelayNs;
  qp.backoffs = 0;
  touch_timer(qp, qp.rnr_at);
}

}  // namespace usiw
