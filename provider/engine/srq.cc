// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file srq.cc
/// Shared receive queues: life, and who gets what is posted.
#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

bool SrqContext::create(const SrqAttr& attr, DoorbellList& doorbells, EngineEvents& events) {
  if (!slots_.allocate(attr.max_wr, attr.max_sge * sizeof(Sge))) return false;
  const uint32_t capacity = slots_.capacity();
  if (!posted_.allocate(capacity) || !free_.allocate(capacity) || !taken_.allocate(capacity) ||
      !back_.allocate(capacity))
    return false;
  for (uint32_t i = 0; i < capacity; ++i) free_[i].store(i + 1, std::memory_order_relaxed);
  mask_ = capacity - 1;
  max_sge_ = attr.max_sge;
  owner_ = attr.owner;
  doorbells_ = &doorbells;
  pd_ = attr.pd;
  events_ = &events;
  allowance_.start(capacity, silent_);
  return true;
}

Completions* SrqContext::open_completions(PolledTable& table, Cq& cq) {
  if (Completions* to = completions(cq); to != nullptr) return to;
  // All completions of a destroyed CQ count as polled, so another CQ can go on with its counter.
  for (const auto& to : completions_) {
    if (to->cq != nullptr) continue;
    to->cq = &cq;
    return to.get();
  }
  auto to = std::make_unique<ToCq>();
  completions_.reserve(completions_.size() + 1);
  if (!to->open(table, CqAccess::unused(cq), silent_)) return nullptr;
  to->cq = &cq;
  allowance_.add(to->source);
  return completions_.emplace_back(std::move(to)).get();
}

void SrqContext::close_completions(PolledTable& table) {
  for (const auto& to : completions_) {
    if (to->cq != nullptr)
      table.give_back(CqAccess::unused(*to->cq), to->pushed);
    else
      table.give_back(to->pushed);
  }
}

int SrqContext::resize(uint32_t capacity, ZeroedArray<uint32_t>& moved) {
  WqeRing<RecvWqe> slots;
  ZeroedArray<std::atomic<uint32_t>> posted, free;
  ZeroedArray<bool> taken;
  ZeroedArray<uint32_t> back, order;
  const uint32_t before = this->capacity();
  if (!slots.allocate(capacity, max_sge_ * sizeof(Sge)) || !posted.allocate(capacity) || !free.allocate(capacity) ||
      !taken.allocate(capacity) || !back.allocate(capacity) || !order.allocate(before) || !moved.allocate(before))
    return ENOMEM;

  // All that is in the queue is taken, and put back in the order in which it was: it lies in back_ then.
  uint32_t queued = 0, kept = 0, slot;
  while (next(slot)) order[queued++] = slot;
  for (uint32_t n = queued; n-- != 0;) give_back(order[n]);
  for (slot = 0; slot < before; ++slot)
    if (taken_[slot]) moved[slot] = kept++;
  if (kept > capacity) return EINVAL;

  for (slot = 0; slot < before; ++slot)
    if (taken_[slot]) slots.copy(moved[slot], slots_, slot);
  for (uint32_t n = 0; n < queued; ++n) back[n] = moved[back_[n]];
  for (uint32_t n = 0; n < kept; ++n) taken[n] = true;
  for (uint32_t n = kept; n < capacity; ++n) free[n - kept].store(n + 1, std::memory_order_relaxed);
  slots_ = std::move(slots);
  posted_ = std::move(posted);
  free_ = std::move(free);
  taken_ = std::move(taken);
  back_ = std::move(back);
  mask_ = capacity - 1;
  head_ = tail_ = 0;
  freed_ = capacity - kept;
  allowance_.resize(capacity, count_);
  return 0;
}

void SrqContext::limit_reached() {
  limit_ = 0;
  events_->srq_limit(*this);
}

Srq* Engine::Impl::srq_create(const SrqAttr& attr) {
  if (attr.max_wr == 0 || attr.max_wr > USIW_MAX_SRQ_WR || attr.max_sge > USIW_MAX_SGE) return nullptr;
  auto srq = std::make_unique<SrqContext>();
  SrqAttr with_sge = attr;
  with_sge.max_sge = std::max(1u, attr.max_sge);
  if (!srq->create(with_sge, doorbells_, events_)) return nullptr;
  srq->all_index = srqs_.size();
  srqs_.push_back(srq.get());
  return srq.release();
}

int Engine::Impl::srq_resize(SrqContext& srq, uint32_t max_wr) {
  if (max_wr == 0 || max_wr > USIW_MAX_SRQ_WR) return EINVAL;
  const uint32_t capacity = round_up_pow2(max_wr);
  if (capacity == srq.capacity()) return 0;
  ZeroedArray<uint32_t> moved;
  if (int rc = srq.resize(capacity, moved); rc != 0) return rc;
  for (QpContext* qp : qps_)
    if (qp->rq.srq() == &srq) qp->rq.resized(moved, kWindow);
  return 0;
}

void Engine::Impl::srq_destroy(SrqContext& srq) {
  take_doorbells();  // it may be among them
  srqs_[srq.all_index] = srqs_.back();
  srqs_[srq.all_index]->all_index = srq.all_index;
  srqs_.pop_back();
  srq.close_completions(polled_);
  delete &srq;
}

/// Each work request goes to the QP that has waited longest, before its peer hears of it: whoever sends most takes none
/// of what others wait for.
void Engine::Impl::serve_waiting(SrqContext& srq) {
  while (QpContext* qp = srq.waiting.front()) {
    if (!qp->rq.take_in_turn()) return;
    qp->srq_hook.unlink();
    qp->rq.serve();
    ack_at_once(*qp);
    activate(*qp);
  }
  srq.want_no_more();
}

/// The QP takes nothing more from its SRQ, if it has one.
void Engine::Impl::leave_waiting(QpContext& qp) {
  if (!qp.srq_hook.linked()) return;
  qp.srq_hook.unlink();
  if (qp.rq.srq()->waiting.empty()) qp.rq.srq()->want_no_more();
}

/// There is no receive work request for the oldest message: the peer is told, unless there is one by now. kTooLong: it
/// has been kept waiting for as long as it may be.
Engine::Impl::Awaited Engine::Impl::await_receive(QpContext& qp) {
  SrqContext* srq = qp.rq.srq();
  if (!qp.rq.told()) {
    if (srq != nullptr && !qp.srq_hook.linked()) srq->waiting.push_back(qp.srq_hook);  // linked: it was skipped
    qp.rq.tell(now_);
  } else if (now_ - qp.rq.told_ns() >= kRnrReceiverNs && !qp.conn.silent) {
    return Awaited::kTooLong;
  }
  if (srq != nullptr) serve_waiting(*srq);
  return qp.rq.take(qp.rq.msn()) != nullptr ? Awaited::kTaken : Awaited::kNotReady;
}

}  // namespace usiw
