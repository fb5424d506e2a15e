// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/reports.h"

#include <atomic>
#include <mutex>

#include "base/backoff.h"
#include "port/net_port.h"
#include "runtime/context.h"
#include "runtime/kernel_methods.h"

namespace usiw {

namespace {

/// A report of the connection @p conn_id; its other members are 0.
usiw_qp_report report_of(usiw_report_kind kind, uint32_t conn_id) {
  usiw_qp_report r{};
  r.kind = kind;
  r.conn_id = conn_id;
  return r;
}

std::atomic<uint32_t>& pins_of(const Pending& p) {
  return p.cq != nullptr ? p.cq->pins : p.srq != nullptr ? p.srq->pins : p.qp->pins;
}

}  // namespace

// ---- From the engine, which is held ------------------------------------------------------

void Reports::cq_ready(Cq& cq) {
  auto* v = static_cast<VCq*>(cq.owner());
  if (v->ibv.channel != nullptr) note(v->completion);
}

void Reports::cq_overrun(Cq& cq) { note(static_cast<VCq*>(cq.owner())->overrun); }

void Reports::qp_peer_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  note(v->peer_closed, report_of(USIW_REPORT_PEER_CLOSED, v->conn_id));
}

void Reports::qp_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  note(v->closed, report_of(USIW_REPORT_CLOSED, v->conn_id));
}

void Reports::qp_failed(Qp& qp, int error, AsyncEvent event) {
  auto* v = static_cast<VQp*>(qp.owner());
  usiw_qp_report r = report_of(USIW_REPORT_FAILED, v->conn_id);
  r.error = error > 0 ? -error : error;
  r.async_event = event == AsyncEvent::kNone ? 0u : static_cast<uint32_t>(event);
  note(v->failed, r);
}

void Reports::qp_last_wqe(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  usiw_qp_report r = report_of(USIW_REPORT_ASYNC, v->conn_id);
  r.async_event = IBV_EVENT_QP_LAST_WQE_REACHED;
  note(v->last_wqe, r);
}

void Reports::srq_limit(Srq& srq) { note(static_cast<VSrq*>(srq.owner())->limit); }

void Reports::qp_drained(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  usiw_qp_report r = report_of(USIW_REPORT_ASYNC, v->conn_id);
  r.async_event = IBV_EVENT_SQ_DRAINED;
  note(v->drained, r);
}

EngineEvents::PortAnswer Reports::qp_which_port(Qp& qp, const PortAsked& asked) {
  auto* v = static_cast<VQp*>(qp.owner());
  const PortChoice before = v->moves.present();
  const bool merged = v->moves.merging();
  v->moves.kernel_knows(v->told_socket.load(std::memory_order_acquire));
  v->moves.decide(asked.silent, asked.longest, asked.now, asked.long_messages);
  if (v->by().port == nullptr) {  // the port for raw packets could not be made
    v->moves.broken();
    v->moves.decide(false, asked.longest, asked.now, asked.long_messages);
  }
  if (v->moves.present().kind != before.kind && v->by().port != nullptr && v->other().port != nullptr) {
    v->by().port->sends(v->path, true);
    v->other().port->sends(v->path, false);
  }
  if ((merged || v->moves.merging()) && v->socket.port != nullptr)
    v->socket.port->merges(v->path, v->moves.merging());
  if (v->moves.present() != before) sends_by(*v);
  return {.port = v->by().number,
          .review_at = v->moves.review_at(asked.now),
          .merging = v->moves.merging(),
          .alone = v->moves.hears_socket_only()};
}

void Reports::sends_by(VQp& qp) {
  lock_rank::assert_held(LockRank::kEngine);
  const PortChoice choice = qp.moves.present();
  if (qp.stats != nullptr) {
    __u64* gauges = qp.stats->gauges;
    std::atomic_ref(gauges[USIW_GAUGE_PORT]).store(static_cast<uint64_t>(choice.kind), std::memory_order_relaxed);
    std::atomic_ref(gauges[USIW_GAUGE_PORT_WHY]).store(choice.why, std::memory_order_relaxed);
  }
  qp.told_socket.store(false, std::memory_order_relaxed);
  if ((qp.context->caps & USIW_CAP_PORT_REPORT) == 0 || choice.kind == PortKind::kNone || qp.conn_id == 0) return;
  usiw_qp_report r = report_of(USIW_REPORT_PORT, qp.conn_id);
  r.port = static_cast<uint32_t>(choice.kind) - static_cast<uint32_t>(PortKind::kPacket);
  r.port_why = choice.why;
  note(qp.sends_by, r);
}

void Reports::connected(VQp& qp, uint32_t conn_id, int error) {
  usiw_qp_report r = report_of(error == 0 ? USIW_REPORT_READY : USIW_REPORT_REFUSED, conn_id);
  r.error = -error;
  note(qp.connected, r);
}

/// Queues @p p, and pins what it belongs to, unless it is queued. An event of a CQ that was
/// armed again before the first one was raised needs no second one: both would be raised
/// behind the completions that caused them.
/// @p report is what it says from now on.
void Reports::note(Pending& p, const usiw_qp_report& report) {
  lock_rank::assert_held(LockRank::kEngine);
  pending_lock_.lock();
  p.report = report;
  if (!p.queued) {
    p.queued = true;
    p.next = nullptr;
    *tail_ = &p;
    tail_ = &p.next;
    pins_of(p).fetch_add(1, std::memory_order_relaxed);
  }
  have_pending_.store(true, std::memory_order_relaxed);
  pending_lock_.unlock();
}

// ---- To the kernel --------------------------------------------------------------------------

/// Tells the kernel what was noted down, in order. A thread that finds another one here
/// waits for it, so that it never returns before its own reports are made.
void Reports::flush_pending() {
  std::lock_guard flushing(flush_lock_);
  for (;;) {
    pending_lock_.lock();
    Pending* p = head_;
    if (p == nullptr) {
      have_pending_.store(false, std::memory_order_relaxed);
      pending_lock_.unlock();
      return;
    }
    head_ = p->next;
    if (head_ == nullptr) tail_ = &head_;
    p->queued = false;
    usiw_qp_report report = p->report;
    pending_lock_.unlock();

    // Errors are ignored: the object, or the whole device, is on its way out.
    if (p->cq != nullptr)
      kernel_cq_event(p->cq->context->cmd_fd, p->cq->ibv.handle, p->kind);
    else if (p->srq != nullptr)
      kernel_srq_event(p->srq->context->cmd_fd, p->srq->ibv.handle, USIW_SRQ_LIMIT);
    else if (kernel_qp_report(p->qp->context->cmd_fd, p->qp->ibv.handle, report) == 0 && p == &p->qp->sends_by)
      p->qp->told_socket.store(report.port == USIW_PORT_SOCKET, std::memory_order_release);
    pins_of(*p).fetch_sub(1, std::memory_order_release);
  }
}

static void wait_for_none(const std::atomic<uint32_t>& pins) {
  lock_rank::assert_none_up_to(LockRank::kEngine);
  for (Backoff backoff; pins.load(std::memory_order_acquire) != 0;) backoff.wait();
}

void Reports::settle(VCq& cq) { wait_for_none(cq.pins); }
void Reports::settle(VSrq& srq) { wait_for_none(srq.pins); }

}  // namespace usiw
