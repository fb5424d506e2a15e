// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.cc
/// Life of a QP: creation, connection, and the ways it ends.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

Qp* Engine::Impl::qp_create(const QpAttr& attr) {
  auto* srq = static_cast<SrqContext*>(attr.srq);
  if (attr.max_send_wr == 0 || attr.max_send_wr > USIW_MAX_QP_WR || attr.max_send_sge > USIW_MAX_SGE ||
      attr.max_inline > USIW_MAX_INLINE)
    return nullptr;
  if (srq == nullptr &&
      (attr.max_recv_wr == 0 || attr.max_recv_wr > USIW_MAX_QP_WR || attr.max_recv_sge > USIW_MAX_SGE))
    return nullptr;
  if (qps_.size() == qps_.capacity()) {
    qps_.reserve(2 * qps_.size() + 16);
    timers_.reserve(qps_.capacity());
  }
  auto qp = std::make_unique<QpContext>();
  qp->qpn_ = attr.qpn;
  qp->max_inline_ = attr.max_inline;
  qp->max_send_sge_ = std::max(1u, attr.max_send_sge);
  qp->max_recv_sge_ = std::max(1u, attr.max_recv_sge);
  qp->owner_ = attr.owner;
  qp->doorbells_ = &doorbells_;
  qp->attr = attr;
  qp->counters = attr.stats != nullptr ? attr.stats->counters : counters_;
  if (!qp->sq_.allocate(attr.max_send_wr, send_tail(attr), attr.send_ring) || !qp->sq.create(qp->sq_)) return nullptr;
  if (srq != nullptr ? !qp->rq.create(*srq, kWindow)
                     : !qp->rq_.allocate(attr.max_recv_wr, recv_tail(attr), attr.recv_ring) ||
                           !qp->rq.create(qp->rq_, qp->max_recv_sge_, attr.pd, qp->recv_wanted_))
    return nullptr;
  if (!open_completions(*qp)) return nullptr;
  qp->all_index = qps_.size();
  qps_.push_back(qp.get());
  return qp.release();
}

/// Counters for the completions of the QP's queues, of which nothing has been posted. false: out of memory.
bool Engine::Impl::open_completions(QpContext& qp) {
  SrqContext* srq = qp.rq.srq();
  if (srq != nullptr) {
    qp.receives = srq->open_completions(polled_, *qp.attr.recv_cq);
    if (qp.receives == nullptr) return false;
  } else if (!qp.own_receives.open(polled_, CqAccess::unused(*qp.attr.recv_cq), qp.receives_silent)) {
    return false;
  }
  if (!qp.sends.open(polled_, CqAccess::unused(*qp.attr.send_cq), qp.sends_silent)) {
    close_completions(qp);
    return false;
  }
  allow_posts(qp);
  return true;
}

/// Nothing is posted in the QP's queues. Completions of an earlier connection that have not been polled count against
/// their depth until they are.
void Engine::Impl::allow_posts(QpContext& qp) {
  qp.sends.start_anew();
  qp.send_allowance_.start(qp.sq.capacity(), qp.sends_silent, qp.sends.source);
  if (qp.rq.srq() != nullptr) return;
  qp.own_receives.start_anew();
  qp.recv_allowance_.start(qp.rq_.capacity(), qp.receives_silent, qp.own_receives.source);
}

/// Completions that the program has not polled stay in their CQs.
void Engine::Impl::close_completions(QpContext& qp) {
  polled_.give_back(CqAccess::unused(*qp.attr.send_cq), qp.sends.pushed);
  polled_.give_back(CqAccess::unused(*qp.attr.recv_cq), qp.own_receives.pushed);
}

void Engine::Impl::qp_destroy(QpContext& qp) {
  take_doorbells();  // it may be among them
  qp.active_hook.unlink();
  acks_.settle(qp);
  timers_.disarm(qp);
  release_held(qp);
  drop_flow(qp);
  leave_waiting(qp);
  if (SrqContext* srq = qp.rq.srq(); srq != nullptr) {
    qp.rq.give_back();
    serve_waiting(*srq);
  }
  qps_[qp.all_index] = qps_.back();
  qps_[qp.all_index]->all_index = qp.all_index;
  qps_.pop_back();
  close_completions(qp);
  delete &qp;
}

/// A silent connection whose peer has begun anew: no message has passed, and this end has nothing under way. Another one
/// may take its place.
bool Engine::Impl::is_unused(const QpContext& qp) {
  return qp.life.is(Phase::kOpen) && qp.conn.silent && qp.snd.empty() && qp.sq.busy() == 0 && !qp.sq.started() &&
         qp.snd.nxt() == qp.conn.snd_psn && qp.rcv.nxt() == qp.conn.rcv_psn;
}

bool Engine::Impl::keeps_connection(const QpContext& qp) {
  return qp.life.is(Phase::kOpen) && qp.conn.silent && !is_unused(qp);
}

/// Leaves the work of the QP as it is. A message of which only a part has arrived early gives back its receive.
void Engine::Impl::forget_connection(QpContext& qp) {
  const QpLimits limits = qp.limits;
  const uint64_t first_at = qp.first_at;
  qp.active_hook.unlink();
  acks_.settle(qp);
  timers_.disarm(qp);
  leave_waiting(qp);
  release_held(qp);
  drop_flow(qp);
  if (SrqContext* srq = qp.rq.srq(); srq != nullptr) {
    qp.rq.give_back();
    serve_waiting(*srq);
  }
  qp.rq.reset();
  static_cast<QpConnection&>(qp) = QpConnection{};
  qp.limits = limits;
  qp.first_at = first_at;
  qp.state_.store(QpState::kIdle, std::memory_order_release);
}

int Engine::Impl::qp_connect(QpContext& qp, int port, const Path& path, const ConnAttr& conn) {
  if (!qp.life.is(Phase::kIdle) && !is_unused(qp)) return EISCONN;
  if (port < 0 || static_cast<size_t>(port) >= ports_.size() || conn.mtu < USIW_MIN_MTU ||
      std::max(conn.mtu, conn.handshake_mtu) > USIW_MAX_MTU || conn.ird > USIW_MAX_IRD || conn.ord > USIW_MAX_ORD)
    return EINVAL;
  if (qp.attr.send_cq->dead() || qp.attr.recv_cq->dead()) return EOVERFLOW;  // nothing would be seen to complete
  const uint32_t payload = std::min(conn.mtu - outer_bytes(path), ports_[port].port->max_payload());
  if (payload < USIW_MIN_MTU - kIpv6Bytes - kUdpBytes) return EINVAL;
  if (qp.connected()) forget_connection(qp);
  if (QpContext* other = flows_.find(path.flow)) {
    // A dead connection holds its 4-tuple only to answer repetitions.
    if (!other->life.is(Phase::kDead)) return EADDRINUSE;
    drop_flow(*other);
  }
  if (!qp.tables.allocate(1) || !qp.responder.start(conn.ird) || !qp.sq.start(conn.ord)) return ENOMEM;
  flows_.insert(path.flow, &qp);
  qp.in_flows = true;
  qp.port = port;
  qp.path = path;
  qp.merged = path.merge;
  qp.conn = conn;
  qp.conn.handshake_mtu = std::max(conn.mtu, conn.handshake_mtu);
  qp.longest = conn.merges ? qp.conn.handshake_mtu : UINT32_MAX;
  qp.stream = ++streams_;
  qp.permit(qp.access == 0 && !conn.silent ? kAccessOfConnection : qp.access);
  if (qp.limited()) qp.sq.limit_reads(std::min(qp.limits.ord, conn.ord));
  cut_by(qp, conn.mtu);
  // A datagram of a responder before the initiator has the connection is lost, and costs a time-out. With rdma_cm the
  // initiator sends first. Here the responder waits for credit, which the initiator sends when it is there.
  const bool waits_for_peer = conn.silent && !conn.initiator;
  qp.snd.start(conn.snd_psn, waits_for_peer ? 0 : conn.snd_window, qp.tables[0].tx);
  qp.losses.start(conn.snd_psn);
  qp.rcv.start(conn.rcv_psn, qp.tables[0].rx);
  qp.share_psn = conn.rcv_psn + 1 - kShareEvery;  // with the first datagram
  qp.ack.start(conn.rcv_psn);
  qp.marks.start(path.sees_ce);
  qp.cc.start(conn.snd_psn);
  now_ = clock_.now_ns();
  qp.heard_ns = now_;
  qp.timeout.start(now_);
  if (conn.silent) {
    qp.timeout.expect_no_farewell();
    qp.not_ready.expect_no_farewell();
  }
  qp.life.open();
  qp.state_.store(QpState::kRts, std::memory_order_release);
  publish(qp);
  qp.trace_flow = tracer_.connection(qp.qpn_, path);
  note(TraceKind::kConnect, qp, conn.snd_psn, conn.rcv_psn, conn.mtu);
  touch_timer(qp, probe_at(qp));
  activate(qp);
  if (conn.silent && conn.initiator) send_sack_now(qp, 0);
  return 0;
}

void Engine::Impl::qp_shutdown(QpContext& qp) {
  now_ = clock_.now_ns();
  switch (qp.life.phase()) {
    case Phase::kOpen:
      qp.life.drain();
      qp.state_.store(QpState::kClosing, std::memory_order_release);
      qp.sq.stop();
      qp.responder.stop();
      activate(qp);
      check_drained(qp);
      break;
    case Phase::kTerminating:
      qp.life.close();  // told when the Terminate is through
      break;
    case Phase::kDraining:
    case Phase::kShutdownSent:
      break;
    case Phase::kIdle:
    case Phase::kDead:
      kill(qp, qp.sq.head(), WcStatus::kWrFlushErr);
      events_.qp_closed(qp);
      break;
  }
}

/// The send queue takes nothing more. In kDraining: sends SHUTDOWN once all work is complete and the READs that the
/// peer had asked for at the call of qp_shutdown() are served.
void Engine::Impl::check_drained(QpContext& qp) {
  if (!qp.life.is(Phase::kDraining)) {
    const bool may_pause = qp.life.is(Phase::kOpen) || qp.life.is(Phase::kIdle);
    if (may_pause && qp.sq.take_drained()) events_.qp_drained(qp);
    return;
  }
  if (!qp.sq.drained() || !qp.responder.served()) return;
  qp.life.shut(now_ + kShutdownTimeNs);
  touch_timer(qp, qp.life.deadline());
  activate(qp);
}

/// A QP that connects by itself may come here before it has a connection. Work that was posted before waits for one.
void Engine::Impl::qp_pause(QpContext& qp, bool tell) {
  if ((!qp.life.is(Phase::kOpen) && !qp.life.is(Phase::kIdle)) || qp.sq.stopped()) return;
  qp.sq.stop();
  if (tell) qp.sq.tell_drained();
  check_drained(qp);
}

void Engine::Impl::qp_resume(QpContext& qp) {
  if (!qp.life.is(Phase::kOpen) && !qp.life.is(Phase::kIdle)) return;
  qp.sq.go_on();
  if (qp.life.is(Phase::kIdle)) return expect_connection(qp);
  activate(qp);
}

/// The peer's SHUTDOWN is in sequence.
void Engine::Impl::peer_shutdown(QpContext& qp) {
  const bool closing = qp.life.closing();
  qp.life.answer(true);
  note(TraceKind::kPeerClosed, qp);
  kill(qp, qp.sq.head(), WcStatus::kWrFlushErr);
  ack_at_once(qp);
  if (closing)
    events_.qp_closed(qp);
  else
    events_.qp_peer_closed(qp);
}

void Engine::Impl::qp_abort(QpContext& qp) {
  end_silently(qp);
  flush(qp, qp.sq.head(), WcStatus::kWrFlushErr);
}

/// No packet is sent, and nothing completes.
void Engine::Impl::end_silently(QpContext& qp) {
  // The peer may answer a Terminate by the end of the connection before it acknowledges it.
  const bool owed = qp.life.is(Phase::kTerminating) && qp.life.event() != AsyncEvent::kNone;
  if (qp.connected()) note(TraceKind::kAbort, qp);
  stop(qp);
  qp.life.answer(false);
  acks_.settle(qp);
  drop_flow(qp);
  if (owed) events_.qp_failed(qp, -EPROTO, qp.life.event());
}

void Engine::Impl::qp_reset(QpContext& qp) {
  end_silently(qp);
  // The producers' positions start anew too: nobody posts during a reset.
  qp.sq_.clear();
  if (SrqContext* srq = qp.rq.srq(); srq != nullptr) {
    qp.rq.give_back();
    serve_waiting(*srq);
  } else {
    qp.rq_.clear();
  }
  take_doorbells();  // a late ring must not meet the new state
  static_cast<QpConnection&>(qp) = QpConnection{};
  qp.sq_tail_ = qp.rq_tail_ = 0;
  allow_posts(qp);
  qp.sq.reset();
  qp.rq.reset();
  qp.state_.store(QpState::kIdle, std::memory_order_release);
}

void Engine::Impl::qp_acknowledge(QpContext& qp) {
  if (!acks_.owes(qp)) return;
  now_ = clock_.now_ns();
  send_sack_now(qp, 0);
}

/// Outside of a run: the QP may be destroyed before the next one.
void Engine::Impl::send_sack_now(QpContext& qp, uint16_t flags) {
  send_sack(qp, flags);
  tx_flush(ports_[qp.port]);
  ports_[qp.port].blocked = false;
}

void Engine::Impl::qp_probe(QpContext& qp) {
  if (!qp.connected()) return;
  now_ = clock_.now_ns();
  qp.keepalive.probe_first(now_);
  count(qp, USIW_CNT_PROBES);
  note(TraceKind::kProbe, qp, qp.keepalive.unanswered());
  send_sack_now(qp, USIW_TRP_F_ACK_REQ);
  touch_timer(qp, keepalive_at(qp));
}

void Engine::Impl::kill(QpContext& qp, uint32_t at, WcStatus status, uint16_t vendor_err) {
  stop(qp);
  flush(qp, at, status, vendor_err);
}

void Engine::Impl::stop(QpContext& qp) {
  qp.life.die();
  qp.state_.store(QpState::kError, std::memory_order_release);
  leave_waiting(qp);
  if (qp.rq.srq() == nullptr) qp.rq.want();  // a producer that does not see it has its slot seen by flush()
  qp.active_hook.unlink();
  acks_.settle(qp);
  qp.ack.settled();
  timers_.disarm(qp);
  publish(qp);
  release_held(qp);
}

/// The gauges: written at times that cost the data path nothing.
void Engine::Impl::publish(QpContext& qp) {
  if (qp.attr.stats == nullptr) return;
  __u64* g = qp.attr.stats->gauges;
  g[USIW_GAUGE_SRTT_NS] = qp.rtt.min_rtt() != 0 ? qp.rtt.srtt() : 0;
  g[USIW_GAUGE_MIN_RTT_NS] = qp.rtt.min_rtt();
  g[USIW_GAUGE_RTO_NS] = qp.timeout.length(qp.rtt);
  g[USIW_GAUGE_CWND] = qp.cc.window();
  g[USIW_GAUGE_CREDIT] = qp.snd.edge() - qp.snd.una();
  g[USIW_GAUGE_INFLIGHT] = qp.snd.in_flight();
  g[USIW_GAUGE_LOST] = qp.snd.lost();
  g[USIW_GAUGE_HELD] = qp.rcv.early_count();
  g[USIW_GAUGE_READS_OUT] = qp.sq.reads_out();
  g[USIW_GAUGE_SQ_BUSY] = qp.sq.busy();
}

void Engine::Impl::fail(QpContext& qp, uint32_t at, WcStatus status, int error, AsyncEvent event,
                        uint16_t vendor_err) {
  // An orderly end that does not come to its SHUTDOWN has told the peer nothing: the kernel must (RESET), as for a
  // failure.
  const bool untold = qp.life.is(Phase::kDraining) && error != -ECONNRESET && error != -EREMOTEIO;
  kill(qp, at, status, vendor_err);
  if (error != 0) {
    note(TraceKind::kFailed, qp, static_cast<uint64_t>(-error));
    if (tracing_) tracing_ = tracer_.failed();
  }
  if (qp.life.closing() && !untold)
    events_.qp_closed(qp);
  else
    events_.qp_failed(qp, error, event);
}

void Engine::Impl::drop_flow(QpContext& qp) {
  if (!qp.in_flows) return;
  flows_.erase(qp.path.flow);
  qp.in_flows = false;
  if (last_flow_ == &qp) last_flow_ = nullptr;
}

void Engine::Impl::release_held(QpContext& qp) {
  qp.rcv.clear([&](const RxPkt& rx) {
    if (rx.kind == RxPkt::kHeld) give_back(qp, rx.held);
  });
}

}  // namespace usiw
