// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.cc
/// The engine's side of a completion queue.
#include "engine/cq.h"

#include <new>

#include "engine/engine_impl.h"

namespace usiw {

Cq* CqAccess::create(uint32_t capacity, void* owner) {
  if (capacity == 0 || capacity > USIW_MAX_CQE) return nullptr;
  auto* cq = new (std::nothrow) Cq;
  if (cq == nullptr) return nullptr;
  const uint32_t slots = round_up_pow2(capacity);
  if (!cq->storage_.allocate(slots)) {
    delete cq;
    return nullptr;
  }
  cq->slots_ = cq->storage_.data();
  cq->mask_ = slots - 1;
  cq->owner_ = owner;
  return cq;
}

void CqAccess::destroy(Cq* cq) { delete cq; }

CqAccess::Push CqAccess::push(Cq& cq, const Cqe& cqe, bool solicited) {
  if (cq.dead_.load(std::memory_order_relaxed)) return Push::kPlain;
  Cq::Slot& slot = cq.slots_[cq.tail_ & cq.mask_];
  if (slot.valid.load(std::memory_order_acquire) != 0) {
    cq.dead_.store(true, std::memory_order_release);
    return Push::kOverrun;
  }
  slot.cqe = cqe;
  ++cq.tail_;
  // seq_cst store, then seq_cst load: see Cq::arm().
  slot.valid.store(1, std::memory_order_seq_cst);
  const uint32_t armed = cq.arm_.load(std::memory_order_seq_cst);
  if (armed == Cq::kNotArmed) [[likely]]
    return Push::kPlain;
  if (armed == Cq::kArmedSolicited && !solicited && cqe.status == WcStatus::kSuccess)
    return Push::kPlain;
  cq.arm_.store(Cq::kNotArmed, std::memory_order_seq_cst);
  return Push::kNotify;
}

}  // namespace usiw
