// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trp_timers.cc
/// What happens when nothing happens: retransmission time-outs, receiver-not-ready
/// retries, keepalive probes. A QP has one node in the heap; it may fire early (deadlines
/// move back with every acknowledgement, and the node is left where it is), then it is
/// armed again for what is really next.
#include <algorithm>
#include <cerrno>

#include "engine/engine_impl.h"

namespace usiw {

uint64_t Engine::Impl::rto_at(const QpContext& qp) const {
  return qp.rto_base + qp.rtt.rto(qp.backoffs);
}

uint64_t Engine::Impl::keepalive_at(const QpContext& qp) const {
  if (qp.probes != 0) return qp.probe_ns + kProbeIntervalNs;
  if (qp.window_blocked) return std::max(qp.heard_ns, qp.probe_ns) + std::max<uint64_t>(qp.rtt.rto(3), 10'000'000);
  return qp.heard_ns + (qp.sq.reads_out() != 0 ? kKeepaliveReadNs : kKeepaliveNs);
}

uint64_t Engine::Impl::deadline_of(const QpContext& qp) const {
  uint64_t at = std::min({keepalive_at(qp), qp.life.deadline(), qp.review_at});
  if (qp.rnr_active) {
    at = std::min(at, qp.rnr_at);
  } else if (!qp.snd.empty()) {
    at = std::min({at, rto_at(qp), qp.reo_at, qp.nudge_at});
  }
  return at;
}

void Engine::Impl::on_timer(QpContext& qp) {
  if (!qp.connected()) return;
  publish(qp);
  poll_drops(ports_[qp.port]);  // where all is dropped no burst comes that would do it
  if (qp.life.deadline() <= now_) {
    // SHUTDOWN or Terminate was not acknowledged in time: the end comes all the same.
    qp.life.answer(true);
    fail(qp, qp.sq.head(), WcStatus::kWrFlushErr, -EPROTO, qp.life.event());
    return;
  }
  if (qp.rnr_active) {
    if (qp.rnr_at <= now_) on_rnr_timer(qp);
  } else if (!qp.snd.empty()) {
    if (qp.reo_at <= now_) detect_losses(qp);
    if (rto_at(qp) <= now_) on_rto(qp);
    if (qp.connected() && qp.nudge_at <= now_) nudge(qp);
  }
  if (qp.connected() && qp.review_at <= now_) ask_port(qp, false);
  if (qp.connected() && keepalive_at(qp) <= now_) on_keepalive(qp);
  if (qp.connected()) timers_.arm(qp, std::max(deadline_of(qp), now_ + 1));
}

/// Nothing acknowledged for one RTO. Only the oldest datagram goes out again: its
/// acknowledgement tells by the bitmap and by time (RACK) what else is missing, and if
/// the peer was merely asleep nothing else has been wasted.
void Engine::Impl::on_rto(QpContext& qp) {
  if (qp.backoffs >= kMinRetries && now_ - qp.stall_since >= patience_) return give_up(qp);
  count(qp, USIW_CNT_RTO);
  if (qp.backoffs != 0) qp.cc.on_timeout();
  if (qp.backoffs != UINT8_MAX) ++qp.backoffs;
  qp.rto_base = now_;
  if (qp.snd.lose(qp.snd.una())) {
    qp.snd.pkt(qp.snd.una()).timed_out = true;
    count(qp, USIW_CNT_RETRANS_RTO);
  }
  qp.nudge_at = now_ + std::max(RttEstimator::kMinRtoNs, (now_ - qp.stall_since) / 64);
  note(TraceKind::kRto, qp, qp.snd.una(), qp.backoffs, qp.rtt.rto(qp.backoffs));
  qp.force_send = true;
  activate(qp);
  if (qp.backoffs >= 2 && silent_since(qp, qp.stall_since)) ask_port(qp, true);
}

/// Between time-outs, which back off: is the wire there again? A datagram without payload asks, so that who waits for
/// the end of an outage hears of it within 1/64 of what it has lasted, and many who do so at once do not fill the
/// wire.
void Engine::Impl::nudge(QpContext& qp) {
  if (qp.backoffs == 0) {  // something has come since
    qp.nudge_at = kNever;
    return;
  }
  qp.nudge_at = now_ + std::max(RttEstimator::kMinRtoNs, (now_ - qp.stall_since) / 64);
  send_sack(qp, USIW_TRP_F_ACK_REQ);
}

/// Something has come while time-outs back off, but not what is waited for: the wire is there, this way at least, and
/// the oldest datagram has not arrived. The time-outs go on: they ask for another port, if it is the other way that
/// is not.
void Engine::Impl::nudged(QpContext& qp) {
  if (now_ - qp.snd.pkt(qp.snd.una()).sent_ns < RttEstimator::kMinRtoNs) return;
  if (qp.snd.lose(qp.snd.una())) {
    qp.snd.pkt(qp.snd.una()).timed_out = true;
    count(qp, USIW_CNT_RETRANS_RTO);
  }
  qp.force_send = true;
  activate(qp);
}

/// The peer is gone.
void Engine::Impl::give_up(QpContext& qp) {
  fail(qp, qp.sq.head(), WcStatus::kRetryExcErr, -ETIMEDOUT, AsyncEvent::kNone);
}

void Engine::Impl::on_rnr_timer(QpContext& qp) {
  const uint64_t limit = qp.life.closing() ? kRnrClosingNs : kRnrSenderNs;
  if (now_ - qp.rnr_since >= limit) {
    fail(qp, qp.sq.head(), WcStatus::kRnrRetryExcErr, -ETIMEDOUT, AsyncEvent::kNone);
    return;
  }
  // Repetitions count as well as time: it may have been this end that was stopped.
  if (qp.rnr_unheard >= kMinRetries && now_ - qp.heard_ns >= patience_ + kRnrMaxDelayNs) return give_up(qp);
  if (qp.rnr_unheard != UINT8_MAX) ++qp.rnr_unheard;
  qp.rnr_at = now_ + std::min(kRnrMaxDelayNs, kRnrMinDelayNs << std::min<unsigned>(qp.rnr_backoffs, 10));
  if (qp.rnr_backoffs != UINT8_MAX) ++qp.rnr_backoffs;
  if (qp.snd.lose(qp.snd.una())) count(qp, USIW_CNT_RETRANS_RNR);
  note(TraceKind::kRnrRetry, qp, qp.snd.una(), qp.rnr_backoffs, qp.rnr_at - now_);
  qp.force_send = true;
  activate(qp);
  if (qp.rnr_unheard >= 2 && silent_since(qp, qp.heard_ns)) ask_port(qp, true);
}

void Engine::Impl::on_keepalive(QpContext& qp) {
  if (qp.probes != 0 && qp.heard_ns > qp.probe_ns) {
    qp.probes = 0;  // answered
    return;
  }
  if (qp.probes >= kMaxProbes && now_ - qp.heard_ns >= patience_) return give_up(qp);
  if (qp.probes != UINT8_MAX) ++qp.probes;
  qp.probe_ns = now_;
  count(qp, USIW_CNT_PROBES);
  note(TraceKind::kProbe, qp, qp.probes);
  if (qp.probes > 2 && silent_since(qp, qp.heard_ns)) ask_port(qp, true);
  send_sack(qp, USIW_TRP_F_ACK_REQ);
}

}  // namespace usiw
