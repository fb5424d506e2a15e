// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file send_queue.h
/// Send work requests, from the ring to their completion. Positions run freely and are reduced to the ring on use:
///
///   head()   the oldest that has not completed
///   next()   the one being sent, or the next one to be taken; at most one ring ahead of head()
///
/// READs and atomics complete by their answer, all else by the acknowledgement of its last datagram; work requests
/// complete in order. Once one has failed none is taken any more.
#ifndef USIW_ENGINE_SEND_QUEUE_H
#define USIW_ENGINE_SEND_QUEUE_H

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>

#include "engine/operations.h"
#include "engine/psn.h"
#include "engine/ring.h"
#include "engine/send_window.h"
#include "engine/types.h"

namespace usiw {

/// A send work request from its start to its completion.
struct SqWork {
  enum Stage : uint8_t { kInit, kTransfer, kWait, kDone };
  uint64_t remote_addr;
  uint32_t rkey;
  uint32_t length;    ///< bytes of the message
  uint32_t end_psn;   ///< behind its last datagram; valid from kWait on
  uint32_t msn;       ///< what takes a receive: MSN of queue 0. READ, atomic: of queue 1, by which the answer names it
  Stage stage;
  WrOpcode opcode;
  uint8_t flags;      ///< WrFlags
  uint8_t num_sge;
  WcStatus error;     ///< kSuccess, or what it will complete with once it is the oldest
};
static_assert(sizeof(SqWork) == 32, "two share a cache line");

/// Bytes from the last multiple of 8 to the peer's address of byte @p offset of a WRITE.
inline uint32_t misaligned(const SqWork& write, uint32_t offset) {
  return static_cast<uint32_t>(write.remote_addr + offset) & 7;
}

/// Own READ or atomic on the wire, by MSN.
struct ReadOp {
  uint32_t sq_index;
  uint32_t placed = 0;      ///< bytes
  uint32_t last_psn = 0;    ///< last_held: of the end of its answer, which came early and waits
  bool last_held = false;
};

class SendQueue {
 public:
  /// For the life of the QP, whose ring it is. false: out of memory.
  bool create(WqeRing<SendWqe>& ring) {
    if (!work_storage_.allocate(ring.capacity())) return false;
    ring_ = &ring;
    work_ = work_storage_.data();
    mask_ = ring.capacity() - 1;
    return true;
  }
  /// A connection, with @p ord READs outstanding at most. false: out of memory.
  bool start(uint16_t ord) {
    const uint32_t places = round_up_pow2(std::max<uint32_t>(ord, 1));
    if (!op_storage_.allocate(places)) return false;
    ops_ = op_storage_.data();
    op_mask_ = places - 1;
    ord_ = ord;
    return true;
  }
  /// As after create().
  void reset() {
    work_storage_.clear();
    op_storage_ = {};
    ops_ = nullptr;
    head_ = next_ = offset_ = limit_ = 0;
    started_ = again_ = false;
    send_msn_ = read_msn_ = read_done_ = atomic_msn_ = 1;
    ord_ = 0;
    failed_ = stopped_ = tells_drained_ = false;
  }

  uint32_t head() const { return head_; }
  uint32_t next() const { return next_; }
  uint32_t busy() const { return next_ - head_; }
  uint32_t capacity() const { return mask_ + 1; }
  SendWqe& wqe(uint32_t index) const { return ring_->at(index); }
  SqWork& work(uint32_t index) const { return work_[index & mask_]; }

  // ---- Sending ----

  /// The work request at next() is being sent.
  bool started() const { return started_; }
  /// The work request at next(), which is posted(), is taken.
  SqWork& take(const SqWork& taken) {
    started_ = true;
    return work(next_) = taken;
  }
  /// The WQE at next(), if it may be taken now.
  SendWqe* posted() const {
    // When the ring has wrapped it is still the oldest one, sent and not complete.
    if (failed_ || (stopped_ && next_ == limit_)) return nullptr;
    return shown();
  }
  /// The next one is still to be taken, and no reason is known not to.
  bool fresh() const { return !started_ && !failed_ && !stopped_; }
  /// posted(), while it is fresh().
  SendWqe* shown() const {
    if (busy() > mask_) return nullptr;
    SendWqe& wqe = this->wqe(next_);
    return wqe.valid.load(std::memory_order_acquire) != 0 ? &wqe : nullptr;
  }
  /// The message of next(), which has been taken, begins; it has @p length bytes.
  void begin(uint32_t length) {
    SqWork& w = work(next_);
    w.length = length;
    offset_ = 0;
    number(w);
  }
  /// next() has been done, and nothing is sent of it.
  void done_here() {
    work(next_).stage = SqWork::kDone;
    advance();
  }
  uint32_t offset() const { return offset_; }  ///< bytes of next() that have been sent
  /// @p len bytes more have, and @p psn is the one behind them.
  void sent(uint32_t len, uint32_t psn) {
    SqWork& w = work(next_);
    offset_ += len;
    if (!is_answered(w.opcode) && offset_ != w.length) return;
    if (len != 0 && is_trailed(w.opcode)) return;
    w.stage = SqWork::kWait;
    w.end_psn = psn;
    offset_ = 0;
    advance();
  }
  /// What is shown() has been taken, and sent by one datagram: @p sent, but for the MSN that it gets.
  const SqWork& sent_whole(const SqWork& sent) {
    SqWork& w = work(next_);
    w = sent;
    number(w);
    ++next_;
    return w;
  }
  /// The peer has thrown away all from byte @p offset of the message at @p index on, and it is sent again. What is of
  /// this end alone is not done again.
  void rewind(uint32_t index, uint32_t offset) {
    if (!again_) again_end_ = started_ ? next_ + 1 : next_;
    for (uint32_t at = index; at != again_end_; ++at)
      if (work(at).stage != SqWork::kDone) work(at).stage = SqWork::kTransfer;
    next_ = index;
    offset_ = offset;
    started_ = again_ = true;
  }
  /// next() has been sent before, and could be.
  bool again() const { return again_ && work(next_).error == WcStatus::kSuccess; }
  /// More of the message is to come behind @p pkt.
  bool goes_on(const TxPkt& pkt) const {
    const SqWork& w = work(pkt.owner);
    if (is_answered(w.opcode)) return false;
    return pkt.offset + pkt.len < w.length || (pkt.len != 0 && is_trailed(w.opcode));
  }

  /// No further work request is taken than those that are posted by now; or were by the first stop().
  void stop() {
    if (stopped_) return;
    limit_ = next_;
    while (limit_ - head_ <= mask_ && wqe(limit_).valid.load(std::memory_order_acquire) != 0) ++limit_;
    stopped_ = true;
  }
  bool stopped() const { return stopped_; }
  /// Behind stop(): all have completed.
  bool drained() const { return head_ == limit_; }
  /// What was posted meanwhile may be taken.
  void go_on() { stopped_ = tells_drained_ = false; }
  /// The owner wants to hear when all have completed. take_drained() says so, once.
  void tell_drained() { tells_drained_ = true; }
  bool take_drained() { return drained() && std::exchange(tells_drained_, false); }

  // ---- READs and atomics ----

  uint16_t ord() const { return ord_; }
  /// No more than @p most are outstanding from now on. It must not exceed that of start().
  void limit_reads(uint16_t most) { ord_ = most; }
  uint32_t reads_out() const { return read_msn_ - read_done_; }
  bool may_read() const { return reads_out() < ord_; }
  /// The READ outstanding with this MSN, or nullptr.
  ReadOp* read(uint32_t msn) const { return psn_in(msn, read_done_, reads_out()) ? &op(msn) : nullptr; }
  /// The oldest READ or atomic that is outstanding, or nullptr.
  ReadOp* oldest_read() const { return read(read_done_); }
  /// Its MSN.
  uint32_t oldest_read_msn() const { return read_done_; }
  /// All of an outstanding READ's answer is in place. false: it is not, or one before it is outstanding.
  bool answered(uint32_t msn) {
    const ReadOp& r = op(msn);
    SqWork& w = work(r.sq_index);
    if (msn != read_done_ || r.placed != w.length) return false;
    w.stage = SqWork::kDone;
    ++read_done_;
    return true;
  }

  /// MSN of queue 3 of the next answer to an atomic.
  uint32_t atomic_msn() const { return atomic_msn_; }
  void atomic_answered() { ++atomic_msn_; }

  // ---- Completing ----

  /// The work request at @p index cannot succeed: no further one is taken.
  void fail(uint32_t index, WcStatus status) {
    SqWork& w = work(index);
    if (w.error != WcStatus::kSuccess) return;
    w.error = status;
    failed_ = true;
  }
  bool failed() const { return failed_; }
  /// What the oldest has failed with, or kSuccess.
  WcStatus error() const { return failed_ ? work(head_).error : WcStatus::kSuccess; }

  /// The oldest has succeeded; all before @p una is acknowledged.
  bool done(uint32_t una) const {
    if (head_ == next_) return false;
    const SqWork& w = work(head_);
    if (w.error != WcStatus::kSuccess) return false;
    if (w.stage == SqWork::kWait) return !is_answered(w.opcode) && psn_le(w.end_psn, una);
    return w.stage == SqWork::kDone;
  }
  /// Gives the oldest one's slot back to the producer. It may never have been taken.
  void pop() {
    SqWork& w = work(head_);
    SendWqe& wqe = this->wqe(head_);
    w.stage = SqWork::kInit;
    w.error = WcStatus::kSuccess;
    if (next_ == head_) advance();
    ++head_;
    wqe.valid.store(0, std::memory_order_release);
  }

  /// For tests.
  bool consistent() const { return busy() <= capacity() && reads_out() <= ord_; }

 private:
  ReadOp& op(uint32_t msn) const { return ops_[msn & op_mask_]; }
  /// The message of next() gets the MSN by which it is known, if it has one.
  void number(SqWork& w) {
    if (takes_receive(w.opcode)) {
      w.msn = send_msn_++;
    } else if (is_answered(w.opcode)) {
      w.msn = read_msn_++;
      op(w.msn) = {.sq_index = next_};
    }
  }
  void advance() {
    started_ = false;
    ++next_;
    if (!again_) return;
    while (next_ != again_end_ && work(next_).stage == SqWork::kDone) ++next_;
    started_ = again_ = next_ != again_end_;
  }

  WqeRing<SendWqe>* ring_ = nullptr;
  SqWork* work_ = nullptr;
  ReadOp* ops_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t op_mask_ = 0;
  uint32_t head_ = 0;
  uint32_t next_ = 0;
  uint32_t offset_ = 0;
  uint32_t limit_ = 0;
  uint32_t again_end_ = 0;  ///< again_: behind the last that is sent again
  uint32_t send_msn_ = 1;   ///< next of queue 0
  uint32_t read_msn_ = 1;   ///< next of queue 1
  uint32_t read_done_ = 1;  ///< MSN of the oldest own READ or atomic not complete
  uint32_t atomic_msn_ = 1;
  uint16_t ord_ = 0;
  bool started_ = false;
  bool again_ = false;      ///< next() has been sent before
  bool failed_ = false;
  bool stopped_ = false;
  bool tells_drained_ = false;

  ZeroedArray<SqWork> work_storage_;
  UnsetArray<ReadOp> op_storage_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_SEND_QUEUE_H
