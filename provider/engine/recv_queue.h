// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file recv_queue.h
/// Receive work requests. Messages of queue 0 take them in the order of their MSNs, so an MSN names one, whether its
/// message is the oldest that is not complete or one behind it.
#ifndef USIW_ENGINE_RECV_QUEUE_H
#define USIW_ENGINE_RECV_QUEUE_H

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "engine/ring.h"
#include "engine/types.h"

namespace usiw {

/// A receive work request that segments have been placed into.
struct RqWork {
  uint64_t received;  ///< bytes placed
  uint32_t capacity;  ///< sum of its SGEs, valid when sized
  bool sized;
};

class RecvQueue {
 public:
  /// For the life of the QP, whose ring it is. @p wanted: ring_recv() must ring. false: out of memory.
  bool create(WqeRing<RecvWqe>& ring, uint32_t max_sge, std::atomic<bool>& wanted) {
    if (!work_storage_.allocate(ring.capacity())) return false;
    ring_ = &ring;
    work_ = work_storage_.data();
    wanted_ = &wanted;
    mask_ = ring.capacity() - 1;
    max_sge_ = max_sge;
    return true;
  }
  /// As after create().
  void reset() {
    work_storage_.clear();
    msn_ = 1;
    told_ = false;
    wanted_->store(false, std::memory_order_relaxed);
  }

  uint32_t msn() const { return msn_; }  ///< of the oldest message that is not complete
  /// Every work request up to that of message @p msn is posted: they are filled in order.
  bool posted(uint32_t msn) const {
    return msn - msn_ <= mask_ && wqe(msn).valid.load(std::memory_order_acquire) != 0;
  }
  RecvWqe& wqe(uint32_t msn) const { return ring_->at(msn - 1); }
  /// As many as a posted one may have, whatever its slot says by now.
  uint32_t num_sge(uint32_t msn) const {
    uint8_t num_sge;
    snapshot(&num_sge, &wqe(msn).num_sge);
    return std::min<uint32_t>(num_sge, max_sge_);
  }
  uint32_t capacity() const { return mask_ + 1; }

  /// What is known of a posted one: nullptr if the slot says more SGEs than there can be.
  RqWork* sized(uint32_t msn) const {
    RqWork& r = work(msn);
    if (r.sized) return &r;
    RecvWqe& wqe = this->wqe(msn);
    uint8_t num_sge;
    snapshot(&num_sge, &wqe.num_sge);
    if (num_sge > max_sge_) return nullptr;
    uint64_t sum = 0;
    for (unsigned i = 0; i < num_sge; ++i) {
      Sge sge;
      snapshot(&sge, wqe.sges() + i);
      sum += sge.length;
    }
    r = {.received = 0, .capacity = static_cast<uint32_t>(std::min<uint64_t>(sum, USIW_MAX_MSG_SIZE)), .sized = true};
    return &r;
  }
  /// The oldest message has @p length bytes, and all of them are in place.
  bool filled(uint32_t length) const { return work(msn_).sized && work(msn_).received == length; }

  /// Nothing has been placed for the oldest message.
  bool untouched() const { return work(msn_).received == 0; }

  /// Gives the oldest one's slot back to the producer.
  void pop() {
    RecvWqe& wqe = this->wqe(msn_);
    work(msn_) = {};
    ++msn_;
    wqe.valid.store(0, std::memory_order_release);
  }

  // ---- None is posted ----

  /// The peer knows, or is told at once.
  bool told() const { return told_; }
  uint64_t told_ns() const { return told_ns_; }
  /// From here on the producer rings. Either it sees that, or its slot is seen behind this.
  void tell(uint64_t now) {
    told_ = true;
    told_ns_ = now;
    want();
  }
  void want() {
    wanted_->store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// One is posted.
  void serve() {
    told_ = false;
    wanted_->store(false, std::memory_order_relaxed);
  }
  /// Nothing more is accepted.
  void stop() { told_ = false; }

 private:
  RqWork& work(uint32_t msn) const { return work_[(msn - 1) & mask_]; }

  WqeRing<RecvWqe>* ring_ = nullptr;
  RqWork* work_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t msn_ = 1;
  uint32_t max_sge_ = 0;
  bool told_ = false;
  uint64_t told_ns_ = 0;
  std::atomic<bool>* wanted_ = nullptr;
  ZeroedArray<RqWork> work_storage_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_RECV_QUEUE_H
