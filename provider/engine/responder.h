// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file responder.h
/// The peer's READs and atomics, up to IRD at a time and in order, each from its request until its response is
/// acknowledged.
/// Positions run freely: jobs before head() are done, those before next() have been sent and wait for acknowledgement,
/// the one at next() is being sent, and those up to tail() wait for it.
#ifndef USIW_ENGINE_RESPONDER_H
#define USIW_ENGINE_RESPONDER_H

#include <algorithm>
#include <cstdint>

#include "base/wire.h"
#include "engine/psn.h"
#include "engine/ring.h"
#include "engine/send_window.h"

namespace usiw {

/// A READ of the peer, or an atomic, which has been done: what it found is kept for as long as it may be told again.
struct Job {
  ReadRequest request;    ///< atomic: the sink STag is its identifier, all else is 0
  uint32_t msn;
  uint32_t sent;          ///< bytes
  uint32_t end_psn;       ///< behind its last datagram; valid when all are sent
  bool atomic;
  uint32_t response_msn;  ///< atomic: in queue 3
  uint64_t value;         ///< atomic: what was there before
};

class Responder {
 public:
  /// A connection. false: out of memory.
  bool start(uint16_t ird) {
    const uint32_t places = round_up_pow2(std::max<uint32_t>(ird, 1));
    if (!storage_.allocate(places)) return false;
    jobs_ = storage_.data();
    mask_ = places - 1;
    ird_ = ird;
    return true;
  }

  uint32_t msn() const { return msn_; }  ///< of the request expected
  bool full() const { return tail_ - head_ >= ird_; }
  /// The request expected, which is in order; not while full().
  void accept(const ReadRequest& request) {
    job(tail_++) = {.request = request, .msn = msn_++, .sent = 0, .end_psn = 0, .atomic = false, .response_msn = 0,
                    .value = 0};
  }
  /// The same of an atomic that has found @p value.
  void accept_atomic(uint32_t id, uint64_t value) {
    job(tail_++) = {.request = {.sink_stag = id, .sink_to = 0, .size = 0, .src_stag = 0, .src_to = 0},
                    .msn = msn_++,
                    .sent = 0,
                    .end_psn = 0,
                    .atomic = true,
                    .response_msn = response_msn_++,
                    .value = value};
  }

  const Job& at(uint32_t position) const { return job(position); }

  /// There is no response to send, or more of one.
  bool idle() const { return next_ == tail_; }
  /// Bytes of the response at next() that have not been sent.
  uint32_t left() const { return idle() ? 0 : job(next_).request.size - job(next_).sent; }
  /// Fills @p pkt with the next segment of a response, of @p full bytes at most. false: there is none.
  bool next(uint32_t full, TxPkt& pkt) const {
    if (idle()) return false;
    const Job& j = job(next_);
    pkt.kind = PktKind::kReadResponse;
    pkt.owner = next_;
    pkt.offset = j.sent;
    pkt.len = static_cast<uint16_t>(std::min(j.request.size - j.sent, full));
    return true;
  }
  /// So many bytes more of what next() has filled in are on their way, and @p psn is the one behind them.
  void sent(uint32_t len, uint32_t psn) {
    Job& j = job(next_);
    j.sent += len;
    if (j.sent != j.request.size) return;
    j.end_psn = psn;
    ++next_;
  }
  /// More of the response is to come behind @p pkt.
  bool goes_on(const TxPkt& pkt) const { return pkt.offset + pkt.len < job(pkt.owner).request.size; }

  /// All of the oldest response has been sent.
  bool oldest_is_sent() const { return head_ != next_; }
  /// oldest_is_sent(): where it is, by which its datagrams name it.
  uint32_t oldest() const { return head_; }
  /// oldest_is_sent(): all of it has arrived, though something before it may not have.
  void oldest_has_arrived() { ++head_; }

  /// All before @p una is acknowledged.
  void acknowledged(uint32_t una) {
    while (head_ != next_ && psn_le(job(head_).end_psn, una)) ++head_;
  }

  /// The one at next() is not served to its end, nor are those behind it.
  void cut() { tail_ = next_; }

  /// What has been accepted by now is waited for by served(); what comes later is not.
  void stop() { limit_ = tail_; }
  bool served() const { return !psn_lt(head_, limit_); }

  /// For tests.
  bool consistent() const { return tail_ - head_ <= ird_ && next_ - head_ <= tail_ - head_; }

 private:
  Job& job(uint32_t position) const { return jobs_[position & mask_]; }

  Job* jobs_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t head_ = 0;
  uint32_t next_ = 0;
  uint32_t tail_ = 0;
  uint32_t limit_ = 0;
  uint32_t msn_ = 1;
  uint32_t response_msn_ = 1;
  uint16_t ird_ = 0;
  UnsetArray<Job> storage_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_RESPONDER_H
