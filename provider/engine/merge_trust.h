// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file merge_trust.h
/// Do frames of several datagrams get through? There are rules and devices that judge such a frame by its whole length,
/// and drop what they would let pass one by one: the oldest datagram, sent again alone, arrives, and all behind it is
/// lost again.
#ifndef USIW_ENGINE_MERGE_TRUST_H
#define USIW_ENGINE_MERGE_TRUST_H

#include <algorithm>
#include <cstdint>

#include "engine/psn.h"

namespace usiw {

class MergeTrust {
 public:
  /// A time-out has passed while datagrams were merged; @p una: the oldest one that is not acknowledged, @p nxt: the
  /// next PSN. The third one between which next to nothing arrived ends it for kHold datagrams, and for twice as many
  /// each further time.
  void timed_out(uint32_t una, uint32_t nxt) {
    if (una - from_ > kFew) {
      from_ = una;
      vain_ = 0;
    }
    if (++vain_ < kMost) return;
    vain_ = 0;
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
  static constexpr uint32_t kFew = 64, kHold = 4096;
  static constexpr int kMost = 3, kMostTimes = 16;

  uint32_t from_ = 0;  ///< una at the first time-out of these
  uint32_t until_ = 0;
  int vain_ = 0, times_ = 0;
  bool held_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_MERGE_TRUST_H
