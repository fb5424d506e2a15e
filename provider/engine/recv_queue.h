// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file recv_queue.h
/// Receive work requests of a QP: those of its own ring, or those that it has taken from a shared receive queue. A
/// message of queue 0 takes one with its first segment, and an MSN names it from then on, whether its message is the
/// oldest that is not complete or one behind it. Those of a ring are taken in the order of their MSNs; those of an SRQ
/// in the order in which messages begin to arrive, so that none is taken for a message of which nothing has come.
#ifndef USIW_ENGINE_RECV_QUEUE_H
#define USIW_ENGINE_RECV_QUEUE_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "engine/ring.h"
#include "engine/srq_context.h"
#include "engine/types.h"

namespace usiw {

/// A receive work request that a message has taken.
struct RqWork {
  RecvWqe* wqe;       ///< nullptr: none is taken
  uint64_t received;  ///< bytes placed
  uint32_t capacity;  ///< sum of its SGEs
  uint16_t slot;      ///< of an SRQ: its number there
  uint8_t num_sge;

  /// Its slot says more SGEs than there can be.
  bool broken() const { return capacity == kBroken; }
  static constexpr uint32_t kBroken = UINT32_MAX;
};
static_assert(USIW_MAX_MSG_SIZE < RqWork::kBroken && USIW_MAX_SRQ_WR - 1 <= UINT16_MAX);

class RecvQueue {
 public:
  /// For the life of the QP, whose ring it is. @p wanted: ring_recv() must ring. false: out of memory.
  bool create(WqeRing<RecvWqe>& ring, uint32_t max_sge, uint32_t pd, std::atomic<bool>& wanted) {
    ring_ = &ring;
    wanted_ = &wanted;
    return create(ring.capacity(), max_sge, pd);
  }
  /// For the life of the QP. @p reach: as far as messages behind the oldest are looked at, a power of two.
  bool create(SrqContext& srq, uint32_t reach) {
    srq_ = &srq;
    return create(std::min(srq.capacity(), reach), srq.max_sge(), srq.pd());
  }
  /// As after create(). What is taken from an SRQ must have been completed or given back.
  void reset() {
    work_storage_.clear();
    msn_ = 1;
    lack_ = 0;
    if (srq_ == nullptr) wanted_->store(false, std::memory_order_relaxed);
  }

  SrqContext* srq() const { return srq_; }  ///< nullptr: the QP has a ring of its own
  uint32_t msn() const { return msn_; }     ///< of the oldest message that is not complete
  uint32_t pd() const { return pd_; }       ///< of the memory that SGEs name
  uint32_t capacity() const { return mask_ + 1; }

  /// The work request of message @p msn, which is taken now if it has not been. nullptr: it is not posted.
  RqWork* take(uint32_t msn) {
    if (msn - msn_ > mask_) return nullptr;
    RqWork& r = work(msn);
    if (r.wqe != nullptr) return &r;
    if (srq_ != nullptr) [[unlikely]] return srq_->waiting.empty() ? take_shared(r) : nullptr;
    RecvWqe& wqe = ring_->at(msn - 1);
    if (wqe.valid.load(std::memory_order_acquire) == 0) return nullptr;
    return begin(r, wqe);
  }
  /// That of message @p msn, if it is the oldest, and has been taken.
  RqWork* begun(uint32_t msn) const { return msn == msn_ && work(msn).wqe != nullptr ? &work(msn) : nullptr; }
  /// That of the oldest message, if it is posted, has not been taken, and is in no SRQ.
  RecvWqe* fresh() const {
    if (srq_ != nullptr || work(msn_).wqe != nullptr) return nullptr;
    RecvWqe& wqe = ring_->at(msn_ - 1);
    return wqe.valid.load(std::memory_order_acquire) != 0 ? &wqe : nullptr;
  }
  /// The message of fresh() is complete, at once.
  void pop(RecvWqe& fresh) {
    ++msn_;
    fresh.valid.store(0, std::memory_order_release);
  }
  /// As take(), for a message that is ahead of its turn. Of an SRQ, from which others take, this QP holds at most as
  /// many as are left for them: its peer need never fill the gap. So the last one is left for a message whose turn it
  /// is, which needs no other to complete: QPs that hold early messages cannot wait for each other.
  RqWork* take_early(uint32_t msn) {
    if (srq_ != nullptr && msn - msn_ <= mask_ && work(msn).wqe == nullptr && !srq_->has(taken_ + 2)) return nullptr;
    return take(msn);
  }
  /// For the oldest message of a QP that is the first among SrqContext::waiting.
  bool take_in_turn() { return work(msn_).wqe != nullptr || take_shared(work(msn_)) != nullptr; }

  /// Nothing has been placed for the oldest message.
  bool untouched() const { return work(msn_).received == 0; }
  /// That of the oldest message, which has been taken.
  const RqWork& oldest() const { return work(msn_); }
  /// The oldest message has @p length bytes, and all of them are in place.
  bool filled(uint32_t length) const { return work(msn_).wqe != nullptr && work(msn_).received == length; }
  /// The oldest one is complete: gives its slot back to the producer.
  void pop() {
    RqWork& r = work(msn_);
    RecvWqe* wqe = r.wqe;
    const uint16_t slot = r.slot;
    r = {};
    ++msn_;
    if (srq_ != nullptr) [[unlikely]] {
      --taken_;
      srq_->complete(slot);
    } else {
      wqe->valid.store(0, std::memory_order_release);
    }
  }

  /// Behind the end of the connection: goes on to the next one that is to be flushed, which is the oldest() then. A
  /// ring is flushed to its end; what is still in an SRQ stays there. false: there is none.
  bool next_to_flush() {
    if (srq_ == nullptr) return take(msn_) != nullptr;
    if (taken_ == 0) return false;
    while (work(msn_).wqe == nullptr) ++msn_;
    return true;
  }
  /// All that is taken from an SRQ goes back there, as if it had never been.
  void give_back() {
    for (uint32_t n = capacity(); srq_ != nullptr && taken_ != 0 && n != 0; --n) {
      RqWork& r = work(msn_ + n - 1);
      if (r.wqe == nullptr) continue;
      srq_->give_back(r.slot);
      r = {};
      --taken_;
    }
  }

  /// The SRQ has another size, in which slot @p moved[n] is what n was. Of a larger one messages further ahead are
  /// looked at, up to @p reach, if there is memory for that.
  void resized(const ZeroedArray<uint32_t>& moved, uint32_t reach) {
    for (uint32_t i = 0; i <= mask_; ++i) {
      RqWork& r = work_[i];
      if (r.wqe == nullptr) continue;
      r.slot = static_cast<uint16_t>(moved[r.slot]);
      r.wqe = &srq_->slot(r.slot);
    }
    const uint32_t size = std::min(srq_->capacity(), reach);
    ZeroedArray<RqWork> larger;
    if (size <= capacity() || !larger.allocate(size)) return;
    for (uint32_t i = 0; i <= mask_; ++i) larger[(msn_ + i - 1) & (size - 1)] = work(msn_ + i);
    work_storage_ = std::move(larger);
    work_ = work_storage_.data();
    mask_ = size - 1;
  }

  // ---- None is posted ----

  /// The next message has found a receive so far, or has not come.
  bool ready() const { return lack_ == 0; }
  /// The peer has been told that no receive is posted, or is told at once.
  bool told() const { return (lack_ & kTold) != 0; }
  uint64_t told_ns() const { return told_ns_; }
  /// From here on the producer rings. Either it sees that, or its slot is seen behind this.
  void tell(uint64_t now) {
    if (!skipped()) told_ns_ = now;
    lack_ |= kTold;
    want();
  }
  /// The beginning of the oldest message was counted as arrived without a receive: it comes again, and so does all
  /// that came behind it.
  bool skipped() const { return (lack_ & kSkipped) != 0; }
  void skip() {
    serve();
    lack_ |= kSkipped;
    for (uint32_t i = 0; i <= mask_; ++i) work_[i].received = 0;
  }
  /// The beginning of the oldest message is there.
  void skip_no_more() { lack_ &= static_cast<uint8_t>(~kSkipped); }
  void want() {
    if (srq_ != nullptr) return srq_->want();
    wanted_->store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// One is posted.
  void serve() {
    lack_ &= static_cast<uint8_t>(~kTold);
    if (srq_ == nullptr) wanted_->store(false, std::memory_order_relaxed);
  }
  /// Nothing more is accepted.
  void stop() { lack_ = 0; }

 private:
  static constexpr uint8_t kTold = 1, kSkipped = 2;

  bool create(uint32_t capacity, uint32_t max_sge, uint32_t pd) {
    if (!work_storage_.allocate(capacity)) return false;
    work_ = work_storage_.data();
    mask_ = capacity - 1;
    max_sge_ = max_sge;
    pd_ = pd;
    return true;
  }
  RqWork& work(uint32_t msn) const { return work_[(msn - 1) & mask_]; }

  RqWork* begin(RqWork& r, RecvWqe& wqe) const {
    r = {.wqe = &wqe, .received = 0, .capacity = RqWork::kBroken, .slot = 0, .num_sge = 0};
    uint8_t num_sge;
    snapshot(&num_sge, &wqe.num_sge);
    if (num_sge > max_sge_) return &r;
    uint64_t sum = 0;
    for (unsigned i = 0; i < num_sge; ++i) {
      Sge sge;
      snapshot(&sge, wqe.sges() + i);
      sum += sge.length;
    }
    r.capacity = static_cast<uint32_t>(std::min<uint64_t>(sum, USIW_MAX_MSG_SIZE));
    r.num_sge = num_sge;
    return &r;
  }
  [[gnu::noinline]] RqWork* take_shared(RqWork& r) {
    uint32_t slot;
    RecvWqe* wqe = srq_->take(slot);
    if (wqe == nullptr) return nullptr;
    ++taken_;
    begin(r, *wqe);
    r.slot = static_cast<uint16_t>(slot);
    return &r;
  }

  WqeRing<RecvWqe>* ring_ = nullptr;
  SrqContext* srq_ = nullptr;
  RqWork* work_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t msn_ = 1;
  uint32_t max_sge_ = 0;
  uint32_t pd_ = 0;
  uint32_t taken_ = 0;  ///< from the SRQ
  uint8_t lack_ = 0;  ///< of a receive for the oldest message: kTold, kSkipped
  uint64_t told_ns_ = 0;
  std::atomic<bool>* wanted_ = nullptr;
  ZeroedArray<RqWork> work_storage_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_RECV_QUEUE_H
