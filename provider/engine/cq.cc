// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.cc
/// The engine's side of a completion queue.
#include "engine/cq.h"

#include <cerrno>
#include <new>
#include <utility>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

template <typename Slot>
bool place(ZeroedArray<Slot>& ring, uint32_t slots, std::byte* memory) {
  if (memory == nullptr) return ring.allocate(slots);
  ring.borrow(memory, slots);
  return true;
}

}  // namespace

Cq* CqAccess::create(uint32_t capacity, void* owner, const CqOptions& options) {
  if (capacity == 0 || capacity > USIW_MAX_CQE) return nullptr;
  auto* cq = new (std::nothrow) Cq;
  if (cq == nullptr) return nullptr;
  const uint32_t slots = round_up_pow2(capacity);
  if (!place(cq->storage_, slots, options.memory)) {
    delete cq;
    return nullptr;
  }
  cq->slots_ = cq->storage_.data();
  cq->mask_ = slots - 1;
  cq->options_ = options;
  cq->owner_ = owner;
  return cq;
}

void CqAccess::destroy(Cq* cq, PolledTable& polled) {
  polled.give_back_all(cq->unused_);
  delete cq;
}

int CqAccess::resize(Cq& cq, uint32_t capacity, std::byte* memory) {
  if (capacity == 0 || capacity > USIW_MAX_CQE) return EINVAL;
  const uint32_t head = cq.head(), tail = cq.tail_.load(std::memory_order_relaxed);
  if (cq.dead() || tail - head > capacity) return EINVAL;
  const uint32_t slots = round_up_pow2(capacity);
  if (slots == cq.capacity() && memory == nullptr) return 0;
  ZeroedArray<Cq::Slot> storage;
  if (!place(storage, slots, memory)) return ENOMEM;
  for (uint32_t at = head; at != tail; ++at) {
    const Cq::Slot& from = cq.slots_[at & cq.mask_];
    Cq::Slot& to = storage[at & (slots - 1)];
    to.cqe = from.cqe;
    to.polled = from.polled;
    to.pushed_ns = from.pushed_ns;
    to.valid.store(1, std::memory_order_relaxed);
  }
  cq.storage_ = std::move(storage);
  cq.slots_ = cq.storage_.data();
  cq.mask_ = slots - 1;
  return 0;
}

void CqAccess::forget(Cq& cq, uint32_t qpn) {
  const uint32_t head = cq.head(), tail = cq.tail_.load(std::memory_order_relaxed);
  if (tail - head > cq.capacity()) return;  // the program has written over it
  uint32_t to = head;
  for (uint32_t at = head; at != tail; ++at) {
    const Cq::Slot& from = cq.slots_[at & cq.mask_];
    if (from.cqe.qpn == qpn) {
      count_polled(*from.polled);
      continue;
    }
    Cq::Slot& slot = cq.slots_[to++ & cq.mask_];
    slot.cqe = from.cqe;
    slot.polled = from.polled;
    slot.pushed_ns = from.pushed_ns;
  }
  cq.tail_.store(to, std::memory_order_relaxed);
  for (; to != tail; ++to) cq.slots_[to & cq.mask_].valid.store(0, std::memory_order_release);
}

CqAccess::Push CqAccess::push(Cq& cq, const Cqe& cqe, Completions& of, bool solicited, uint64_t now) {
  if (cq.dead_.load(std::memory_order_relaxed)) return Push::kDead;
  const uint32_t tail = cq.tail_.load(std::memory_order_relaxed);
  Cq::Slot& slot = cq.slots_[tail & cq.mask_];
  if (slot.valid.load(std::memory_order_acquire) != 0) {
    if (cq.options_.ignore_overrun) {
      of.end_silently();
      return Push::kLost;
    }
    cq.dead_.store(true, std::memory_order_release);
    return Push::kOverrun;
  }
  slot.cqe = cqe;
  slot.polled = of.polled;
  slot.pushed_ns = now;
  ++of.pushed.count;
  cq.tail_.store(tail + 1, std::memory_order_relaxed);
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
