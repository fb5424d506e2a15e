// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cq.h
/// Completion queue: a single-producer (the engine) ring of 64-byte slots with the
/// valid flag inside the slot. Consumers serialise among themselves (verbs/ does).
/// CONTRACT between engine and verbs: the public names and signatures below.
#ifndef USIW_ENGINE_CQ_H
#define USIW_ENGINE_CQ_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/ring.h"
#include "engine/types.h"

namespace usiw {

class Cq {
 public:
  /// [any thread, one at a time] Takes up to out.size() completions; returns how many.
  size_t poll(std::span<Cqe> out) {
    size_t n = 0;
    for (; n < out.size(); ++n) {
      Slot& slot = slots_[head_ & mask_];
      if (slot.valid.load(std::memory_order_acquire) == 0) break;
      out[n] = slot.cqe;
      slot.valid.store(0, std::memory_order_release);  // the engine may fill it again
      ++head_;
    }
    return n;
  }

  /// [any thread, as poll()] true when poll() would return nothing.
  bool empty() const { return slots_[head_ & mask_].valid.load(std::memory_order_acquire) == 0; }

  /// [any thread] Arms the CQ: the next completion (or, with @p solicited_only, the next
  /// solicited or failed one) calls EngineEvents::cq_ready once. Completions that came
  /// before arming do not count (verbs semantics: the caller polls again after arming).
  /// Arming for any completion is not weakened by a later solicited-only call.
  ///
  /// No completion is missed: the engine publishes the slot and then reads the arm state,
  /// the caller writes the arm state and then reads the slot; the sequentially consistent
  /// store there and the fence here mean that at least one of the two sees the other.
  void arm(bool solicited_only) {
    if (solicited_only) {
      uint32_t none = kNotArmed;
      arm_.compare_exchange_strong(none, kArmedSolicited, std::memory_order_relaxed);
    } else {
      arm_.store(kArmedAny, std::memory_order_relaxed);
    }
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

  /// [any thread] Somebody sleeps until a completion comes, or is about to.
  bool armed() const { return arm_.load(std::memory_order_relaxed) != kNotArmed; }

  void* owner() const { return owner_; }
  uint32_t capacity() const { return mask_ + 1; }
  /// [any thread] true once the ring has overrun.
  bool dead() const { return dead_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend struct CqAccess;

  enum Arm : uint32_t { kNotArmed = 0, kArmedSolicited = 1, kArmedAny = 2 };

  struct alignas(kSlotBytes) Slot {
    Cqe cqe;
    std::atomic<uint32_t> valid;
  };
  static_assert(sizeof(Slot) == kSlotBytes);

  // Read-only after creation.
  Slot* slots_ = nullptr;
  uint32_t mask_ = 0;
  void* owner_ = nullptr;
  ZeroedArray<Slot> storage_;

  alignas(kSlotBytes) uint32_t head_ = 0;             ///< consumer's position
  alignas(kSlotBytes) uint32_t tail_ = 0;             ///< engine's position
  alignas(kSlotBytes) std::atomic<uint32_t> arm_{0};  ///< written by both, rarely
  std::atomic<bool> dead_{false};
};

}  // namespace usiw

#endif  // USIW_ENGINE_CQ_H
