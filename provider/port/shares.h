// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shares.h
/// Shares counts the flows that share one buffer for received datagrams: a socket's, or a ring. The buffer overflows
/// when the peers of all flows together send more than it holds before the engine runs again. So the credit of a flow
/// is the capacity of the buffer, divided by the number of flows that use it. Only flows that have received of late
/// count: a thousand idle connections must not slow down the one that is busy.
#ifndef USIW_PORT_SHARES_H
#define USIW_PORT_SHARES_H

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>

namespace usiw {

class Shares {
 public:
  /// Returns the number of flows that have received in this period or the one before: at least 1, the caller. @p counted
  /// says where and when that flow was counted last; 0 at first. A flow that has just moved here from another buffer is
  /// counted again.
  uint32_t users(uint64_t& counted, uint64_t now) {
    const auto period = static_cast<uint32_t>(now >> kPeriodShift) + 1;
    const uint64_t here = uint64_t{id_} << 32 | period;
    if (period != period_) {
      const uint32_t passed = period - period_;
      before_ = passed == 1 ? now_ : passed <= kPause ? std::max(now_, before_) : 0;
      now_ = 0;
      period_ = period;
    }
    if (counted != here) {
      counted = here;
      ++now_;
    }
    return std::max({now_, before_, 1u});
  }

  static constexpr unsigned kPeriodShift = 26;  ///< of the time in ns: 67 ms
  /// Periods. When nothing has come for no longer than this the process had no processor, as a rule, and all flows will
  /// go on: if each that does were told that it is the first, all together would get a multiple of the buffer.
  static constexpr uint32_t kPause = 16;

 private:
  static inline std::atomic<uint32_t> ids_{0};
  uint32_t id_ = ++ids_;  ///< no other buffer of this process has it
  uint32_t period_ = 0, now_ = 0, before_ = 0;
};

/// Bytes of a socket's buffer that the kernel counts for an IP packet of @p len bytes (truesize): the packet with room
/// for headers in front and skb_shared_info behind, as kmalloc() rounds it up, and the sk_buff. A merged packet counts
/// for less than its datagrams would, but it finds no space where 64 KB are missing; the one makes up for the other.
constexpr uint32_t truesize(uint32_t len) { return std::bit_ceil(len + 64 + 320) + 256; }
static_assert(truesize(1500) == 2304);

}  // namespace usiw

#endif  // USIW_PORT_SHARES_H
