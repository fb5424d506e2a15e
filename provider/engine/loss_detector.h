// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file loss_detector.h
/// Which of the datagrams in flight are lost, found by time as RACK (RFC 8985) does it: one is lost when another that
/// was sent later has been delivered, and a round trip plus a reordering window has passed. Until reordering has been
/// seen on the path, three datagrams delivered beyond one are enough. Times in ns.
#ifndef USIW_ENGINE_LOSS_DETECTOR_H
#define USIW_ENGINE_LOSS_DETECTOR_H

#include <algorithm>
#include <bit>
#include <cstdint>

#include "engine/psn.h"
#include "engine/rtt.h"
#include "engine/send_window.h"
#include "engine/timers.h"

namespace usiw {

class LossDetector {
 public:
  /// @p psn: the first one.
  void start(uint32_t psn) { highest_ = psn - 1; }

  /// @p psn has been delivered, @p rtt after its transmission at @p sent_ns. @p first: its only one.
  void delivered(uint32_t psn, uint64_t sent_ns, uint64_t rtt, bool first) {
    if (first && psn_lt(psn, highest_)) reordering_seen_ = true;
    if (psn_lt(highest_, psn)) highest_ = psn;
    if (!after(sent_ns, psn)) return;
    sent_ns_ = sent_ns;
    psn_ = psn;
    rtt_ = rtt;
  }

  /// The same for all from @p from to @p psn, the last of which was sent at @p sent_ns, and all once.
  void delivered_in_order(uint32_t from, uint32_t psn, uint64_t sent_ns, uint64_t rtt) {
    if (psn_lt(from, highest_)) reordering_seen_ = true;
    delivered(psn, sent_ns, rtt, true);
  }

  /// An acknowledgement has told something new. @p late: how late, at most, came what had been taken for lost; 0:
  /// nothing did. A spike is forgotten, lasting reordering shows itself again.
  void acknowledged(uint64_t late, const RttEstimator& rtt) {
    late_ -= late_ / 256;
    if (late != 0) expect_late(std::min(late, rtt.rto(0)));
  }
  /// What is in flight may be as late as @p late.
  void expect_late(uint64_t late) {
    reordering_seen_ = true;
    late_ = std::max(late_, late);
  }

  /// @p lost(psn) for each that should have arrived by @p now; it takes it out of those in flight.
  template <typename Lost>
  void detect(SendWindow& window, const RttEstimator& rtt, uint64_t now, Lost&& lost) {
    at_ = kNever;
    if (sent_ns_ == 0 || window.empty()) return;
    const TxPkt& oldest = window.pkt(window.una());
    if (oldest.tx_count == 1 && !before(oldest.sent_ns, window.una())) return;  // as below
    const uint64_t reordering = std::max({rtt.srtt() / 4, kMinReorderingNs, late_});
    for (uint32_t base = window.una(); psn_lt(base, window.nxt()); base += 64) {
      for (uint64_t open = window.in_flight_from(base); open != 0; open &= open - 1) {
        const uint32_t psn = base + static_cast<uint32_t>(std::countr_zero(open));
        const TxPkt& pkt = window.pkt(psn);
        if (!before(pkt.sent_ns, psn)) {
          if (pkt.tx_count == 1) return;  // nor are those behind it: first transmissions go in order
          continue;
        }
        const uint64_t due = pkt.sent_ns + rtt_ + reordering;
        const bool overtaken = !reordering_seen_ && pkt.tx_count == 1 && psn_diff(highest_, psn) >= kDupThreshold;
        if (overtaken || due <= now)
          lost(psn);
        else
          at_ = std::min(at_, due);
      }
    }
  }
  /// When detect() would find more, if nothing is heard; or kNever.
  uint64_t at() const { return at_; }

 private:
  static constexpr int32_t kDupThreshold = 3;
  static constexpr uint64_t kMinReorderingNs = 20'000;  ///< hosts that are microseconds apart reorder, too

  /// Sent before, or after, the latest that has been delivered.
  bool before(uint64_t sent_ns, uint32_t psn) const {
    return sent_ns < sent_ns_ || (sent_ns == sent_ns_ && psn_lt(psn, psn_));
  }
  bool after(uint64_t sent_ns, uint32_t psn) const {
    return sent_ns > sent_ns_ || (sent_ns == sent_ns_ && psn_lt(psn_, psn));
  }

  uint64_t sent_ns_ = 0;  ///< the latest sent among what has been delivered; 0: there is none
  uint64_t rtt_ = 0;      ///< it took so long
  uint32_t psn_ = 0;
  uint32_t highest_ = 0;  ///< delivered
  uint64_t late_ = 0;     ///< what was merely late has taken so long
  uint64_t at_ = kNever;
  bool reordering_seen_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_LOSS_DETECTOR_H
