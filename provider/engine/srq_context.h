// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file srq_context.h
/// The engine's side of a shared receive queue. A work request is in the queue until a QP takes it; it comes back when
/// the QP is destroyed with it, and else is gone with its completion.
#ifndef USIW_ENGINE_SRQ_CONTEXT_H
#define USIW_ENGINE_SRQ_CONTEXT_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/cq.h"
#include "engine/qp_list.h"
#include "engine/srq.h"

namespace usiw {

class EngineEvents;

struct SrqContext final : Srq {
  using Srq::doorbell_;

  /// false: out of memory.
  bool create(const SrqAttr& attr, DoorbellList& doorbells, EngineEvents& events);

  /// What is posted and not complete moves to a queue of @p capacity, a power of two, while the producer stands still.
  /// @p moved: by the old number of each slot of these the new one. 0; EINVAL: they are more than that; ENOMEM. Then
  /// nothing has changed.
  int resize(uint32_t capacity, ZeroedArray<uint32_t>& moved);
  RecvWqe& slot(uint32_t number) { return slots_.at(number); }

  uint32_t pd() const { return pd_; }

  /// Completions of its work requests that go to @p cq; nullptr: there are none yet.
  Completions* completions(const Cq& cq) {
    for (const auto& to : completions_)
      if (to->cq == &cq) return to.get();
    return nullptr;
  }
  /// The same, opened now. nullptr: out of memory.
  Completions* open_completions(PolledTable& table, Cq& cq);
  /// @p cq is being destroyed: another one may use what counts its completions, all of which count as polled.
  void forget(const Cq& cq) {
    for (const auto& to : completions_) {
      if (to->cq != &cq) continue;
      to->count_all_as_polled();
      to->cq = nullptr;
    }
  }
  /// It is being destroyed.
  void close_completions(PolledTable& table);

  /// At least @p n work requests are in the queue.
  bool has(uint32_t n) const {
    if (n <= returned_) return true;
    const uint32_t last = n - returned_ - 1;
    return last <= mask_ && posted_[(head_ + last) & mask_].load(std::memory_order_acquire) != 0;
  }
  /// The oldest work request, and the number of its slot. nullptr: none is posted.
  RecvWqe* take(uint32_t& slot) {
    if (!next(slot)) return nullptr;
    if (limit_ != 0 && !has(limit_)) [[unlikely]] limit_reached();
    return &slots_.at(slot);
  }
  /// What take() has given is complete: the slot is the producer's again.
  void complete(uint32_t slot) {
    taken_[slot] = false;
    free_[freed_++ & mask_].store(slot + 1, std::memory_order_release);
  }
  /// What take() has given was not used: it is the oldest again.
  void give_back(uint32_t slot) { back_[returned_++] = slot; }

  /// EngineEvents::srq_limit() is called once when fewer than @p limit are in the queue, now or later. 0: never.
  void arm(uint32_t limit) {
    limit_ = limit;
    if (limit != 0 && !has(limit)) limit_reached();
  }
  uint32_t limit() const { return limit_; }  ///< 0: not armed, or reached

  /// From here on the producer rings. Either it sees that, or what it has posted is seen behind this.
  void want() {
    wanted_.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void want_no_more() { wanted_.store(false, std::memory_order_relaxed); }

  /// QPs whose oldest message waits for a work request, in the order in which they get one: as long as there are any
  /// nobody else does.
  QpList waiting;
  size_t all_index = 0;  ///< in the engine's list of all SRQs

 private:
  /// A number that is none, or that the engine has already, is of a producer that breaks the rules, and is left out.
  bool next(uint32_t& slot) {
    if (returned_ != 0) {
      slot = back_[--returned_];
      return true;
    }
    for (uint32_t n = 0; n <= mask_; ++n) {
      std::atomic<uint32_t>& entry = posted_[head_ & mask_];
      const uint32_t number = entry.load(std::memory_order_acquire);
      if (number == 0) return false;
      entry.store(0, std::memory_order_relaxed);
      ++head_;
      slot = number - 1;
      if (slot > mask_ || taken_[slot]) continue;
      taken_[slot] = true;
      return true;
    }
    return false;
  }
  void limit_reached();

  uint32_t head_ = 0;      ///< in the ring of posted ones
  uint32_t freed_ = 0;     ///< in the ring of free ones
  uint32_t returned_ = 0;  ///< entries of back_
  uint32_t limit_ = 0;
  uint32_t pd_ = 0;
  EngineEvents* events_ = nullptr;
  /// One for each CQ that its QPs use, and those of CQs that are gone. The producer reads their sources, so none is
  /// removed.
  struct ToCq : Completions {
    Cq* cq;
  };
  std::vector<std::unique_ptr<ToCq>> completions_;
  std::atomic<uint32_t> silent_{0};
  ZeroedArray<bool> taken_;     ///< by slot: it is not the producer's
  ZeroedArray<uint32_t> back_;  ///< given back, the oldest last
};

}  // namespace usiw

#endif  // USIW_ENGINE_SRQ_CONTEXT_H
