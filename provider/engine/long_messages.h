// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file long_messages.h
/// Is what a connection carries long messages, or short ones? Of a long one most segments have another one of the same
/// message behind them.
#ifndef USIW_ENGINE_LONG_MESSAGES_H
#define USIW_ENGINE_LONG_MESSAGES_H

#include <cstdint>

namespace usiw {

class LongMessages {
 public:
  /// @p n segments have been sent, or have come, behind each of which there is another one of its message.
  void more(uint32_t n) { count_ += n; }
  /// Enough have for a look().
  bool due() const { return count_ >= kLook; }
  /// @p numbers: PSNs used so far, sent and received. true: most were of long messages, which makes messages long for a
  /// while.
  bool look(uint32_t numbers, uint64_t now) {
    const bool most = numbers - numbers_ <= 2 * count_ && now - since_ns_ <= kSpanNs;
    count_ = 0;
    numbers_ = numbers;
    since_ns_ = now;
    if (most) until_ns_ = now + kLastsNs;
    return most;
  }
  bool now(uint64_t now) const { return now < until_ns_; }

 private:
  static constexpr uint32_t kLook = 256;
  static constexpr uint64_t kLastsNs = 500'000'000;
  /// kLook segments come within this time, or messages are not long: after a longer one they would be so at times only.
  static constexpr uint64_t kSpanNs = kLastsNs;

  uint32_t count_ = 0;
  uint32_t numbers_ = 0;  ///< at the last look
  uint64_t since_ns_ = 0;
  uint64_t until_ns_ = 0;
};

}  // namespace usiw

#endif  // USIW_ENGINE_LONG_MESSAGES_H
