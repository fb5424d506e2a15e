// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file merge_trust.h
/// Do frames of several datagrams get through? There are rules and devices that judge such a frame by its whole length,
/// and drop what they would let pass one by one: the oldest datagram, sent again alone, arrives, and all behind it is
/// lost again. A wire or a peer that is gone for a while looks different: nothing arrives, and then everything.
#ifndef USIW_ENGINE_MERGE_TRUST_H
#define USIW_ENGINE_MERGE_TRUST_H

#include <algorithm>
#include <cstdint>

#include "engine/psn.h"

namespace usiw {

class MergeTrust {
 public:
  /// A time-out has passed while datagrams were merged; @p una: the oldest one that is not acknowledged, @p nxt: the
  /// next PSN. Three in a row before each of which next to nothing had arrived since the one before end it for kHold
  /// datagrams, and for twice as many each further time.
  void timed_out(uint32_t una, uint32_t nxt) {
    const uint32_t arrived = una - una_;
    una_ = una;
    if (arrived == 0) return;
    if (arrived > kFew) vain_ = 0;
    else ++vain_;
    if (vain_ < kMost) return;
    vain_ = 0;
    if (psn_lt(until_ + (kHold << kMostTimes), nxt)) times_ = 0;  // long ago
    until_ = nxt + (kHold << times_);
    times_ = std::min(times_ + 1, kMostTimes);
    held_ = true;
  }
  /// What is sent from PSN @p nxt on may be merged.
  bool holds(uint32_t nxt) {
    if (held_ && psn_le(until_, nxt)) held_ = false;
    return !held_;
  }

 private:
  static constexpr uint32_t kFew = 4, kHold = 4096;
  static constexpr int kMost = 3, kMostTimes = 8;

  uint32_t una_ = 0;    ///< at the last time-out
  uint32_t until_ = 0;
  int vain_ = 0, times_ = 0;
  bool held_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_MERGE_TRUST_H
