// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file srq.h
/// Shared receive queue as its users see it: the producer's side. What the engine keeps about it is in srq_context.h.
///
/// Messages of many QPs take work requests from it, and complete in any order between QPs. So a work request keeps its
/// slot until its message is complete, and the slots themselves are in no order: their numbers go round. The producer
/// takes a number from the ring of free ones, fills the slot, and puts the number into the ring of posted ones, which
/// the engine takes them from, first in first out. An entry of either ring is a number + 1, or 0 for none, and so
/// passes itself, like the valid flag of a WQE. There are as many numbers as entries in a ring: neither can overflow.
/// CONTRACT between engine and verbs: the public names and signatures below.
#ifndef USIW_ENGINE_SRQ_H
#define USIW_ENGINE_SRQ_H

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <span>

#include "engine/allowance.h"
#include "engine/ring.h"
#include "engine/types.h"

namespace usiw {

class Srq {
 public:
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  /// [any thread, one at a time per SRQ] ENOMEM: as many as it takes are posted and not complete, or their completions
  /// have not been polled (allowance.h); EINVAL: too many SGEs, or lengths that sum up to more than USIW_MAX_MSG_SIZE.
  int post_recv(uint64_t wr_id, std::span<const Sge> sges) {
    if (int rc = check_recv_sges(sges, max_sge_); rc != 0) return rc;
    std::atomic<uint32_t>& free = free_[tail_ & mask_];
    const uint32_t number = free.load(std::memory_order_acquire);
    if (!allowance_.covers(count_) || number == 0) return ENOMEM;
    free.store(0, std::memory_order_relaxed);
    write_recv(slots_.at(number - 1), wr_id, sges);
    posted_[tail_ & mask_].store(number, std::memory_order_release);
    ++tail_;
    ++count_;
    return 0;
  }

  /// [any thread] As Qp::ring_recv(): returns true when the engine waits for receives and must run.
  bool ring_recv() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!wanted_.load(std::memory_order_relaxed)) return false;
    doorbells_->ring(doorbell_);
    return true;
  }

  void* owner() const { return owner_; }
  /// Work requests that it takes: rounded up.
  uint32_t capacity() const { return mask_ + 1; }
  uint32_t max_sge() const { return max_sge_; }

 protected:
  Srq() { doorbell_.srq = this; }
  ~Srq() = default;

  // Read-only after creation (wanted_ aside, which changes rarely).
  uint32_t mask_ = 0;
  uint32_t max_sge_ = 0;
  void* owner_ = nullptr;
  DoorbellList* doorbells_ = nullptr;
  WqeRing<RecvWqe> slots_;
  ZeroedArray<std::atomic<uint32_t>> posted_;  ///< producer to engine
  ZeroedArray<std::atomic<uint32_t>> free_;    ///< engine to producer
  std::atomic<bool> wanted_{false};            ///< ring_recv() must ring the doorbell

  alignas(kSlotBytes) uint32_t tail_ = 0;  ///< producer's position in both rings
  uint32_t count_ = 0;  ///< work requests posted so far; resizing does not change it, as it does tail_
  Allowance allowance_;
  alignas(kSlotBytes) Doorbell doorbell_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_SRQ_H
