// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trp_timers.cc
/// What happens when nothing happens: retransmission time-outs, receiver-not-ready
/// retries, keepalive probes. A QP has one node in the heap; it may fire early (deadlines
/// move back with every acknowledgement, and the node is left where it is), then it is
/// armed again for what is really next.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

/// The answers to this many tries may still be on their way.
constexpr unsigned kTriesUnderWay = 2;

}  // namespace

uint64_t Engine::Impl::keepalive_at(const QpContext& qp) const {
  return qp.keepalive.at(qp.heard_ns, qp.sq.reads_out() != 0, qp.rtt);
}

/// As keepalive_at(). But the peer of a silent connection may be gone for good without a word. So nobody asks while no
/// work request waits for it, nor while repetitions of a datagram ask already.
uint64_t Engine::Impl::probe_at(const QpContext& qp) const {
  const bool rests = qp.conn.silent && (!qp.snd.empty() || (wants_nothing(qp) && qp.keepalive.rests()));
  return rests ? kNever : keepalive_at(qp);
}

/// The time at which a QP with limits has waited in vain. It may have been this end that was stopped, and the answer is
/// still on its way. So the peer has been asked a few times, unless the program or its user wants a very short limit.
/// If only responses to READs wait, the program does not wait, and a peer that is gone is not noticed.
uint64_t Engine::Impl::limit_of(const QpContext& qp) const {
  const auto end = [&qp](uint64_t since, uint64_t ns) {
    since = std::max(since, qp.wanted_nothing_at);
    return since > kNever - ns ? kNever : since + ns;
  };
  if (wants_nothing(qp)) return kNever;
  const unsigned asked = qp.limits.retry_ns < kShortLimitNs ? 2 : kMinRetries;
  if (qp.not_ready.active()) {
    const uint64_t ready = end(qp.not_ready.since_ns(), qp.limits.rnr_ns);
    return qp.not_ready.unheard() < asked ? ready : std::min(ready, end(qp.heard_ns, qp.limits.retry_ns));
  }
  if (!qp.snd.empty()) return qp.timeout.in_a_row() < asked ? kNever : end(qp.timeout.since_ns(), qp.limits.retry_ns);
  return qp.keepalive.waits(qp.heard_ns) ? end(qp.keepalive.since_ns(), qp.limits.retry_ns) : kNever;
}

/// It is over, of a QP with limits, if these have passed.
bool Engine::Impl::waited_in_vain(QpContext& qp) {
  if (wants_nothing(qp)) qp.wanted_nothing_at = now_;
  if (limit_of(qp) > now_) return false;
  if (qp.not_ready.active() && now_ - qp.not_ready.since_ns() >= qp.limits.rnr_ns)
    rnr_exceeded(qp);
  else
    give_up(qp);
  return true;
}

void Engine::Impl::qp_limit(QpContext& qp, const QpLimits& limits) {
  now_ = clock_.now_ns();
  qp.limits = limits;
  if (wants_nothing(qp)) qp.wanted_nothing_at = now_;
  if (qp.limited()) qp.sq.limit_reads(std::min(limits.ord, qp.conn.ord));
  if (qp.connected()) return touch_timer(qp, deadline_of(qp));
  if (qp.life.is(Phase::kIdle)) expect_connection(qp);
}

/// Work that waits for a connection waits no longer than the QP's limit.
void Engine::Impl::expect_connection(QpContext& qp) {
  const bool waits = qp.limits.retry_ns != 0 && qp.limits.first_ns != kNever && qp.first_at == kNever &&
                     qp.sq.posted() != nullptr;
  if (!waits) return;
  qp.first_at = clock_.now_ns() + qp.limits.first_ns;
  touch_timer(qp, qp.first_at);
}

void Engine::Impl::on_first_contact(QpContext& qp) {
  if (!qp.life.is(Phase::kIdle) || qp.first_at == kNever) return;
  if (qp.first_at > now_) return timers_.arm(qp, qp.first_at);
  give_up(qp);
}

uint64_t Engine::Impl::deadline_of(const QpContext& qp) const {
  uint64_t at = std::min(qp.life.deadline(), qp.review_at);
  if (!qp.conn.silent) [[likely]]
    at = std::min(at, keepalive_at(qp));
  else
    at = std::min({at, probe_at(qp), qp.limited() ? limit_of(qp) : kNever});
  if (qp.not_ready.active()) {
    at = std::min({at, qp.not_ready.at(), qp.losses.at()});
  } else if (!qp.snd.empty()) {
    at = std::min({at, qp.timeout.at(qp.rtt), qp.losses.at(), qp.timeout.ask_at()});
  }
  return at;
}

void Engine::Impl::on_timer(QpContext& qp) {
  if (!qp.connected()) return on_first_contact(qp);
  publish(qp);
  poll_drops(ports_[qp.port]);  // where all is dropped no burst comes that would do it
  if (const uint64_t at = deadline_of(qp); at > now_) return timers_.arm(qp, at);  // all has been answered in time
  if (qp.life.deadline() <= now_) {
    end_unanswered(qp);
    return;
  }
  if (qp.limited() && waited_in_vain(qp)) return;
  if (qp.not_ready.active()) {
    if (qp.losses.at() <= now_) detect_losses(qp);
    if (qp.not_ready.at() <= now_) on_rnr_timer(qp);
  } else if (!qp.snd.empty()) {
    if (qp.losses.at() <= now_) detect_losses(qp);
    if (qp.timeout.at(qp.rtt) <= now_) on_rto(qp);
    if (qp.connected() && qp.timeout.ask_at() <= now_) nudge(qp);
  }
  if (qp.connected() && qp.review_at <= now_) ask_port(qp, false);
  if (qp.connected() && probe_at(qp) <= now_) on_keepalive(qp);
  if (qp.connected()) timers_.arm(qp, std::max(deadline_of(qp), now_ + 1));
}

/// SHUTDOWN or Terminate was not acknowledged in time: the end comes all the same.
void Engine::Impl::end_unanswered(QpContext& qp) {
  qp.life.answer(true);
  fail(qp, qp.sq.head(), WcStatus::kWrFlushErr, -EPROTO, qp.life.event());
}

/// What asks for an answer got none in time, or the peer asks for what it has been told. Where the one or the other
/// could be marked, it may be what the way drops.
void Engine::Impl::missed_answer(QpContext& qp) {
  qp.marks.timed_out();
  refresh_path(qp);
}

/// The oldest datagram that is not acknowledged goes out again, because of the time.
void Engine::Impl::lose_oldest(QpContext& qp) {
  if (!qp.snd.lose(qp.snd.una())) return;
  qp.snd.pkt(qp.snd.una()).timed_out = true;
  count(qp, USIW_CNT_RETRANS_RTO);
}

/// Nothing acknowledged for one RTO. Only the oldest datagram goes out again: its
/// acknowledgement tells by the bitmap and by time (RACK) what else is missing, and if
/// the peer was merely asleep nothing else has been wasted.
void Engine::Impl::on_rto(QpContext& qp) {
  if (qp.timeout.in_a_row() >= kMinRetries && !qp.limited() && now_ - qp.timeout.since_ns() >= patience_ &&
      !wants_nothing(qp))
    return give_up(qp);
  // The peer has read, and may be gone. Nobody here waits for it, and if it is there, it asks for the response itself.
  if (wants_nothing(qp) && now_ - qp.snd.pkt(qp.snd.una()).sent_ns < qp.timeout.soon(now_))
    return qp.timeout.prolong(now_);
  count(qp, USIW_CNT_RTO);
  if (qp.timeout.in_a_row() != 0) qp.cc.on_timeout();
  if (qp.path.merge) qp.merge_trust.timed_out(qp.snd.una(), qp.snd.nxt());
  missed_answer(qp);
  qp.timeout.expired(now_, next_nudge());
  lose_oldest(qp);
  note(TraceKind::kRto, qp, qp.snd.una(), qp.timeout.in_a_row(), qp.timeout.length(qp.rtt));
  qp.force_send = true;
  activate(qp);
  if (qp.timeout.in_a_row() >= 2 && silent_since(qp, qp.timeout.since_ns())) ask_port(qp, true);
}

/// Between time-outs, which back off: is the wire there again? A datagram without payload asks.
void Engine::Impl::nudge(QpContext& qp) {
  if (qp.timeout.in_a_row() == 0) return qp.timeout.ask_no_more();  // something has come since
  qp.timeout.asked(now_, next_nudge());
  const bool tracing = std::exchange(tracing_, tracing_ && qp.timeout.asks_first(now_));
  ask_peer(qp, PortWatch::hears_nothing(qp.heard_ns, qp.rtt.rto(0), now_));
  tracing_ = tracing;
}

/// Sends a datagram without payload that the peer answers at once. @p again: it has not answered the ones before.
void Engine::Impl::ask_peer(QpContext& qp, bool again) {
  send_sack(qp, USIW_TRP_F_ACK_REQ | (again ? USIW_TRP_F_RETRANS : 0));
}

/// Something has come for @p heard, whose time-outs back off: whoever waits for the same peer asks now, one behind the
/// other, and not when its turn comes, which with many is long.
void Engine::Impl::wire_is_back(const QpContext& heard) {
  if (now_ - back_ns_ < kBackNs) return;
  back_ns_ = now_;
  uint64_t at = now_;
  for (QpContext* qp : qps_) {
    if (qp == &heard || !qp->connected() || qp->timeout.in_a_row() == 0 ||
        qp->path.flow.remote_addr != heard.path.flow.remote_addr)
      continue;
    qp->timeout.ask_by(at += kBackTurnNs);
    touch_timer(*qp, at);
  }
}

/// Something has come while time-outs back off, but not what is waited for: the wire is there, this way at least, and
/// the oldest datagram has not arrived. The time-outs go on: they ask for another port, if it is the other way that
/// is not. After an outage the answer may also acknowledge what had arrived before it. That ends the time-outs, but the
/// datagram that is the oldest then has been on its way since before the outage, too.
void Engine::Impl::nudged(QpContext& qp) {
  wire_is_back(qp);
  // What answers a question that was sent before the last repetition says nothing of that.
  if (now_ - qp.snd.pkt(qp.snd.una()).sent_ns < std::max(RttEstimator::kMinRtoNs, qp.rtt.srtt() / 2)) return;
  lose_oldest(qp);
  qp.force_send = true;
  activate(qp);
}

/// The peer is gone.
void Engine::Impl::give_up(QpContext& qp) {
  fail(qp, qp.sq.head(), WcStatus::kRetryExcErr, -ETIMEDOUT, AsyncEvent::kNone);
}

/// The peer had no receive work request for too long.
void Engine::Impl::rnr_exceeded(QpContext& qp) {
  // What the peer did is what has failed, not the request that it does not take: the Terminate waits behind that.
  if (qp.life.is(Phase::kTerminating)) return end_unanswered(qp);
  // A READ ahead of what is not taken waits for its answer, and is not at fault.
  const bool takes = takes_receive(qp.sq.work(qp.sq.head()).opcode);
  fail(qp, qp.sq.head(), takes ? WcStatus::kRnrRetryExcErr : WcStatus::kWrFlushErr, -ETIMEDOUT, AsyncEvent::kNone);
}

void Engine::Impl::on_rnr_timer(QpContext& qp) {
  const uint64_t limit = qp.life.closing() ? kRnrClosingNs : qp.limited() ? qp.limits.rnr_ns : kRnrSenderNs;
  if (now_ - qp.not_ready.since_ns() >= limit) return rnr_exceeded(qp);
  // Repetitions count as well as time: it may have been this end that was stopped.
  if (qp.not_ready.unheard() >= kMinRetries && !qp.limited() && now_ - qp.heard_ns >= patience_ + NotReady::kMaxDelayNs)
    return give_up(qp);
  if (now_ - qp.not_ready.heard_ns() >= NotReady::kMaxDelayNs + qp.rtt.rto(0)) missed_answer(qp);
  qp.not_ready.tried(now_, qp.heard_ns);
  if (qp.not_ready.knows(qp.snd.una()) && qp.snd.lose(qp.snd.una())) count(qp, USIW_CNT_RETRANS_RNR);
  // A peer that has not answered may be gone. Then only the try is sent, and not the whole window with it.
  if (qp.not_ready.silent() <= kTriesUnderWay) lose_late(qp);
  note(TraceKind::kRnrRetry, qp, qp.snd.una(), qp.not_ready.tries(), qp.not_ready.at() - now_);
  qp.force_send = qp.snd.lost() != 0;
  activate(qp);
  if (qp.not_ready.unheard() >= 2 && silent_since(qp, qp.heard_ns)) ask_port(qp, true);
}

/// There is no time-out while the peer is not ready: what has been outstanding for as long as one is lost. (What later
/// datagrams have overtaken is found by acknowledgements.) Responses to READs go out again now. The peer has refused
/// all else, which goes out when the peer is ready and must not fill the congestion window until then.
void Engine::Impl::lose_late(QpContext& qp) {
  for (uint32_t psn = qp.snd.una(); psn_lt(psn, qp.snd.nxt()); ++psn) {
    TxPkt& pkt = qp.snd.pkt(psn);
    if (now_ - pkt.sent_ns < qp.rtt.rto(0) || !qp.snd.lose(psn)) continue;
    pkt.timed_out = true;
    count(qp, pkt.kind == PktKind::kReadResponse ? USIW_CNT_RETRANS_RTO : USIW_CNT_RETRANS_RNR);
  }
}

/// True if no work request waits for the peer, and the peer need not show that it exists.
bool Engine::Impl::wants_nothing(const QpContext& qp) {
  return qp.conn.silent && qp.sq.busy() == 0 && qp.sq.posted() == nullptr;
}

void Engine::Impl::on_keepalive(QpContext& qp) {
  if (qp.keepalive.answered(qp.heard_ns)) return;
  if (wants_nothing(qp) && qp.keepalive.may_rest(kMaxProbes)) return qp.keepalive.rest();
  // A QP with limits may have been silent for longer than these before it began to wait: see waited_in_vain().
  if (qp.keepalive.unanswered() >= kMaxProbes && !qp.limited() && now_ - qp.heard_ns >= patience_ && !wants_nothing(qp))
    return give_up(qp);
  const bool again = qp.keepalive.unanswered() != 0;
  if (again) missed_answer(qp);
  qp.keepalive.probed(now_);
  count(qp, USIW_CNT_PROBES);
  note(TraceKind::kProbe, qp, qp.keepalive.unanswered());
  if (qp.keepalive.unanswered() > 2 && silent_since(qp, qp.heard_ns)) ask_port(qp, true);
  ask_peer(qp, again);
}

}  // namespace usiw
