// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/reports.h"

#include <sched.h>

#include <mutex>

#include "runtime/context.h"
#include "runtime/kernel_methods.h"

namespace usiw {

// ---- From the engine, which is held ------------------------------------------------------

void Reports::cq_ready(Cq& cq) {
  auto* v = static_cast<VCq*>(cq.owner());
  if (v->ibv.channel != nullptr) note(v->completion);
}

void Reports::cq_overrun(Cq& cq) { note(static_cast<VCq*>(cq.owner())->overrun); }

void Reports::qp_peer_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->peer_closed.report = {USIW_REPORT_PEER_CLOSED, v->conn_id, 0, 0};
  note(v->peer_closed);
}

void Reports::qp_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->closed.report = {USIW_REPORT_CLOSED, v->conn_id, 0, 0};
  note(v->closed);
}

void Reports::qp_failed(Qp& qp, int error, AsyncEvent event) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->failed.report = {USIW_REPORT_FAILED, v->conn_id, error > 0 ? -error : error,
                      event == AsyncEvent::kNone ? 0u : static_cast<uint32_t>(event)};
  note(v->failed);
}

/// Queues @p p, and pins what it belongs to, unless it is queued. An event of a CQ that was
/// armed again before the first one was raised needs no second one: both would be raised
/// behind the completions that caused them.
void Reports::note(Pending& p) {
  lock_rank::assert_held(LockRank::kEngine);
  pending_lock_.lock();
  if (!p.queued) {
    p.queued = true;
    p.next = nullptr;
    *tail_ = &p;
    tail_ = &p.next;
    (p.cq != nullptr ? p.cq->pins : p.qp->pins).fetch_add(1, std::memory_order_relaxed);
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
    if (p->cq != nullptr) {
      kernel_cq_event(p->cq->context->cmd_fd, p->cq->ibv.handle, p->kind);
      p->cq->pins.fetch_sub(1, std::memory_order_release);
    } else {
      kernel_qp_report(p->qp->context->cmd_fd, p->qp->ibv.handle, report);
      p->qp->pins.fetch_sub(1, std::memory_order_release);
    }
  }
}

void Reports::settle(VCq& cq) {
  lock_rank::assert_none_up_to(LockRank::kEngine);
  while (cq.pins.load(std::memory_order_acquire) != 0) sched_yield();
}

}  // namespace usiw
