// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file reports.h
/// What the engine reports and the kernel must hear: completion events and the ends of connections. Noted down while
/// the engine is held, told to the kernel when it is not.
#ifndef USIW_RUNTIME_REPORTS_H
#define USIW_RUNTIME_REPORTS_H

#include <atomic>

#include "base/lock_rank.h"
#include "base/spinlock.h"
#include "engine/engine.h"
#include "runtime/objects.h"

namespace usiw {

class Reports final : public EngineEvents {
 public:
  void cq_ready(Cq& cq) override;
  void cq_overrun(Cq& cq) override;
  void qp_peer_closed(Qp& qp) override;
  void qp_closed(Qp& qp) override;
  void qp_failed(Qp& qp, int error, AsyncEvent event) override;
  void qp_last_wqe(Qp& qp) override;
  void srq_limit(Srq& srq) override;
  void qp_drained(Qp& qp) override;
  PortAnswer qp_which_port(Qp& qp, const PortAsked& asked) override;

  /// [engine held] The port by which the QP's connection sends now: in its page, and to the kernel.
  void sends_by(VQp& qp);
  /// [engine held] Queues the answer to the CONNECT of the connection @p conn_id: READY, or REFUSED if @p error, an
  /// errno value, is not 0. Call it before the engine is released: another thread may drive the engine from then on, and
  /// the kernel ignores a report of the connection's end that precedes READY.
  void connected(VQp& qp, uint32_t conn_id, int error);

  /// [any thread, engine not held] Tells the kernel what has been noted down, if anything.
  void flush() {
    if (have_pending_.load(std::memory_order_seq_cst)) flush_pending();
  }
  /// Waits until no event of the CQ or SRQ is on its way to the kernel.
  static void settle(VCq& cq);
  static void settle(VSrq& srq);

 private:
  void note(Pending& pending, const usiw_qp_report& report = {});
  void flush_pending();

  Ranked<Spinlock, LockRank::kPending> pending_lock_;
  Pending* head_ = nullptr;     ///< under pending_lock_
  Pending** tail_ = &head_;     ///< under pending_lock_
  std::atomic<bool> have_pending_{false};
  RankedMutex<LockRank::kReports> flush_lock_;  ///< one at a time: keeps the order of reports
};

}  // namespace usiw

#endif  // USIW_RUNTIME_REPORTS_H
