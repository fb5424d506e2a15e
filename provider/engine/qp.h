// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp.h
/// Queue pair as its users see it: the producer's side of the send and receive rings.
/// What the engine keeps about a QP is in qp_context.h.
/// CONTRACT between engine and verbs: the public names and signatures below.
#ifndef USIW_ENGINE_QP_H
#define USIW_ENGINE_QP_H

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/allowance.h"
#include "engine/operations.h"
#include "engine/ring.h"
#include "engine/types.h"

namespace usiw {

class Qp {
 public:
  struct SendWr {
    uint64_t wr_id;
    WrOpcode opcode;
    uint8_t flags;         ///< WrFlags
    uint64_t remote_addr;  ///< of what names memory of the peer
    uint32_t rkey;
    uint32_t imm = 0;            ///< as SendWqe has it
    AtomicOperands operands{};   ///< of atomics
    BindDetails bind{};          ///< of kBindMw
  };

  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  /// [any thread, one at a time per QP] Writes a send slot. With kWrInline the bytes that
  /// @p sges point to are copied now (lkeys ignored). 0; ENOMEM: queue full, with work requests that have not completed
  /// or whose completions have not been polled (allowance.h); EINVAL: too many
  /// SGEs, inline too long, sum of lengths over USIW_MAX_MSG_SIZE, unknown opcode, something answered inline,
  /// SGEs for what is of this end alone, an atomic whose result does not have one SGE of kAtomicBytes at least.
  /// The work is visible to the engine only after ring_send() (a burst needs one).
  int post_send(const SendWr& wr, std::span<const Sge> sges) {
    SendWqe& wqe = sq_.at(sq_tail_);
    const int rc = fill(wqe, 0, wr, sges);
    if (rc != 0) return rc;
    wqe.valid.store(1, std::memory_order_release);
    ++sq_tail_;
    return 0;
  }

  /// [as post_send()] Writes the slot of the @p n-th work request from now on, counted from 0, after those before it.
  /// It is nothing to the engine until publish(). As post_send() otherwise.
  int prepare(uint32_t n, const SendWr& wr, std::span<const Sge> sges) {
    return n < sq_.capacity() ? fill(sq_.at(sq_tail_ + n), n, wr, sges) : ENOMEM;
  }
  /// [as post_send()] The @p n work requests that have been prepared are posted, all at a time: the engine takes none
  /// before the first, which is the last to be shown.
  void publish(uint32_t n) {
    for (uint32_t i = n; i-- != 0;) sq_.at(sq_tail_ + i).valid.store(1, std::memory_order_release);
    sq_tail_ += n;
  }

  /// [any thread]
  void ring_send() { ring(); }

  /// [as post_send()] The work request that was posted @p n before the last one has not completed, and so nor has any
  /// behind it. Sequentially consistent, so that Progress::posted_behind() comes before this look.
  bool under_way(uint32_t n) {
    return n + 1 < sq_.capacity() && sq_.at(sq_tail_ - 1 - n).valid.load(std::memory_order_seq_cst) != 0;
  }

  /// [any thread, one at a time per QP] ENOMEM: queue full; EINVAL: too many SGEs, or
  /// lengths that sum up to more than USIW_MAX_MSG_SIZE. Not of a QP with an SRQ.
  int post_recv(uint64_t wr_id, std::span<const Sge> sges) {
    if (int rc = check_recv_sges(sges, max_recv_sge_); rc != 0) return rc;
    RecvWqe& wqe = rq_.at(rq_tail_);
    if (!recv_allowance_.covers(rq_tail_)) return ENOMEM;
    write_recv(wqe, wr_id, sges);
    wqe.valid.store(1, std::memory_order_release);
    ++rq_tail_;
    return 0;
  }

  /// [any thread] Costs a fence and nothing more, unless the engine waits for receives
  /// (the peer was told NOT_READY, or they must be flushed). The fence pairs with the one
  /// in the engine between setting recv_wanted_ and looking at the ring once more.
  /// Returns true when it rang: the engine must run.
  bool ring_recv() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!recv_wanted_.load(std::memory_order_relaxed)) return false;
    ring();
    return true;
  }

  /// [any thread] Work requests posted in kError are flushed by the engine. Those posted in kIdle wait for the
  /// connection, or are flushed when there is none; verbs/ says when a send may be posted then.
  QpState state() const { return state_.load(std::memory_order_acquire); }
  uint32_t qpn() const { return qpn_; }
  void* owner() const { return owner_; }

  /// True capacities (rounded up): what post_send()/post_recv() take before ENOMEM.
  uint32_t send_capacity() const { return sq_.capacity(); }
  uint32_t recv_capacity() const { return rq_.capacity(); }  ///< not of a QP with an SRQ

 protected:
  Qp() { doorbell_.qp = this; }
  ~Qp() = default;

  /// Checks a work request and writes it into its slot, which stays the producer's: the next one after @p prepared
  /// others. As post_send().
  int fill(SendWqe& wqe, uint32_t prepared, const SendWr& wr, std::span<const Sge> sges) {
    if (!is_known(wr.opcode)) return EINVAL;
    uint64_t length = 0;
    for (const Sge& sge : sges) length += sge.length;
    const bool inlined = (wr.flags & kWrInline) != 0;
    if (inlined) {
      if (is_answered(wr.opcode) || length > max_inline_) return EINVAL;
    } else if (sges.size() > max_send_sge_ || length > USIW_MAX_MSG_SIZE) {
      return EINVAL;
    }
    if (is_local(wr.opcode) && (inlined || !sges.empty())) return EINVAL;
    const bool atomic = is_atomic(wr.opcode);
    if (atomic && (sges.size() != 1 || length < kAtomicBytes)) return EINVAL;
    if (!send_allowance_.covers(sq_tail_, prepared)) return ENOMEM;
    wqe.opcode = static_cast<uint8_t>(wr.opcode);
    wqe.flags = wr.flags;
    wqe.wr_id = wr.wr_id;
    wqe.remote_addr = wr.remote_addr;
    wqe.rkey = wr.rkey;
    wqe.imm = wr.imm;
    if (inlined) {
      wqe.count = static_cast<uint16_t>(length);
      std::byte* at = wqe.inline_data();
      for (const Sge& sge : sges) {
        if (sge.length == 0) continue;
        std::memcpy(at, reinterpret_cast<const void*>(sge.addr), sge.length);
        at += sge.length;
      }
    } else {
      wqe.count = static_cast<uint16_t>(sges.size());
      if (!sges.empty()) std::memcpy(wqe.sges(), sges.data(), sges.size_bytes());
      if (atomic) *wqe.operands() = wr.operands;
      if (wr.opcode == WrOpcode::kBindMw) *wqe.bind() = wr.bind;
    }
    return 0;
  }

  void ring() { doorbells_->ring(doorbell_); }

  // Read-only after creation (state_ aside, which changes rarely).
  uint32_t qpn_ = 0;
  uint32_t max_inline_ = 0;
  uint32_t max_send_sge_ = 0;
  uint32_t max_recv_sge_ = 0;
  void* owner_ = nullptr;
  DoorbellList* doorbells_ = nullptr;
  WqeRing<SendWqe> sq_;
  WqeRing<RecvWqe> rq_;
  std::atomic<QpState> state_{QpState::kIdle};
  std::atomic<bool> recv_wanted_{false};  ///< ring_recv() must ring the doorbell

  alignas(kSlotBytes) uint32_t sq_tail_ = 0;  ///< send producer's position
  Allowance send_allowance_;
  alignas(kSlotBytes) uint32_t rq_tail_ = 0;  ///< receive producer's position
  Allowance recv_allowance_;

  alignas(kSlotBytes) Doorbell doorbell_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_QP_H
