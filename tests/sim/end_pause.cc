// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file end_pause.cc
/// A program puts a QP into SQD while it works. The work requests posted before that complete. Those posted later do
/// not begin until the program resumes the QP. A program that requested SQ_DRAINED waits for this event first.
#include "run.h"

namespace usiw::sim {

void End::pause(const PausePlan& p) {
  Qp* q = qp();
  if (over || gone_ || closing_ || paused_ || q == nullptr || q->state() != QpState::kRts) return;
  trace("app: qp %u pauses behind %zu", qpn, out()->send.posted);
  paused_ = true;
  asked_ = p.tell;
  drained_ = false;
  pause_limit_ = out()->send.posted;
  pause_length_ = p.length;
  process_->engine->qp_pause(q, p.tell);
  if (w_.mutation == Mutation::kGoOnEarly) ++w_.mutated, process_->engine->qp_resume(q);
  if (!p.tell) later(p.length, &End::resume);
}

void End::drained() {
  trace("engine: qp %u is drained", qpn);
  if (w_.mutation == Mutation::kSwallowDrained) return void(++w_.mutated);
  if (!paused_ || !asked_ || drained_) return fail("drain", "QP %u is drained, which nobody has asked for", qpn);
  drained_ = true;
  later(pause_length_, &End::resume);
}

void End::resume() {
  Qp* q = qp();
  if (over || gone_ || q == nullptr || !paused_) return;
  if (q->state() == QpState::kRts) {
    bool polled = true;
    for (const Cq* cq : process_->cqs) polled &= cq->empty();
    if (drained_ && polled && !out()->completed_before(pause_limit_))
      fail("drain", "QP %u was drained, and what was posted before has not completed", qpn);
    out()->check_not_begun(pause_limit_);
  }
  trace("app: qp %u goes on, posted %zu", qpn, out()->send.posted);
  paused_ = false;
  process_->engine->qp_resume(q);
}

}  // namespace usiw::sim
