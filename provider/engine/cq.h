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

#include "engine/allowance.h"
#include "engine/ring.h"
#include "engine/types.h"

namespace usiw {

/// What a CQ does beyond the usual.
struct CqOptions {
  bool timed = false;           ///< each completion gets the time when it was pushed
  bool ignore_overrun = false;  ///< a completion that finds the ring full is lost, and nothing else happens
  std::byte* memory = nullptr;  ///< Cq::bytes() for the ring, zeros, until the CQ is gone; nullptr: the engine's own
};

class Cq {
 public:
  struct alignas(kSlotBytes) Slot {
    Cqe cqe;
    std::atomic<uint32_t>* polled;  ///< counter of the queue (allowance.h)
    uint64_t pushed_ns;  ///< of the engine's clock; with CqOptions::timed, else 0
    std::atomic<uint32_t> valid;
  };
  static_assert(sizeof(Slot) == kSlotBytes);

  /// What a ring of @p capacity takes.
  static size_t bytes(uint32_t capacity) { return round_up_pow2(capacity) * sizeof(Slot); }

  /// [any thread, one at a time] The oldest completion, in its place until pop(); or nullptr.
  const Slot* front() const {
    const Slot& slot = slots_[head() & mask_];
    return slot.valid.load(std::memory_order_acquire) != 0 ? &slot : nullptr;
  }
  /// [as front()] Takes what front() has shown. Its work request does not count against its queue's depth any more. The
  /// slot is free before that: what the program posts in place of it may complete at once, and needs a slot.
  void pop() {
    const uint32_t head = this->head();
    Slot& slot = slots_[head & mask_];
    std::atomic<uint32_t>& polled = *slot.polled;
    slot.valid.store(0, std::memory_order_release);  // the engine may fill it again
    head_.store(head + 1, std::memory_order_relaxed);
    count_polled(polled);
  }
  /// [as front()] Takes up to out.size() completions; returns how many.
  size_t poll(std::span<Cqe> out) {
    size_t n = 0;
    for (; n < out.size(); ++n) {
      const Slot* slot = front();
      if (slot == nullptr) break;
      out[n] = slot->cqe;
      pop();
    }
    return n;
  }

  /// [any thread] There is nothing to take. What this thread's own run of the engine has pushed is seen; what another
  /// thread's has, soon.
  bool empty() const { return tail_.load(std::memory_order_relaxed) == head(); }

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
  bool timed() const { return options_.timed; }
  /// [any thread] true once the ring has overrun.
  bool dead() const { return dead_.load(std::memory_order_acquire); }

 private:
  friend class Engine;
  friend struct CqAccess;

  enum Arm : uint32_t { kNotArmed = 0, kArmedSolicited = 1, kArmedAny = 2 };

  uint32_t head() const { return head_.load(std::memory_order_relaxed); }

  // Changed by resizing only: by who is both the consumer and the engine then.
  Slot* slots_ = nullptr;
  uint32_t mask_ = 0;
  CqOptions options_;
  void* owner_ = nullptr;
  ZeroedArray<Slot> storage_;
  PolledTable::Unused unused_;  ///< the engine's

  alignas(kSlotBytes) std::atomic<uint32_t> head_{0};  ///< consumer's position
  alignas(kSlotBytes) std::atomic<uint32_t> tail_{0};  ///< engine's position
  alignas(kSlotBytes) std::atomic<uint32_t> arm_{0};  ///< written by both, rarely
  std::atomic<bool> dead_{false};
};

}  // namespace usiw

#endif  // USIW_ENGINE_CQ_H
