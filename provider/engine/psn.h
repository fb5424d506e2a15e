// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file psn.h
/// Serial arithmetic on packet sequence numbers (RFC 1982 with 32 bits) and a bitmap
/// over the window of PSNs.
#ifndef USIW_ENGINE_PSN_H
#define USIW_ENGINE_PSN_H

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "uapi/usiw_wire.h"

namespace usiw {

/// Datagrams in flight, and the distance ahead at which one is accepted. A power of two.
inline constexpr uint32_t kWindow = USIW_TRP_MAX_WINDOW;
static_assert(std::has_single_bit(kWindow));

/// Signed distance from @p b to @p a; right while they are less than 2^31 apart.
constexpr int32_t psn_diff(uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b); }
constexpr bool psn_lt(uint32_t a, uint32_t b) { return psn_diff(a, b) < 0; }
constexpr bool psn_le(uint32_t a, uint32_t b) { return psn_diff(a, b) <= 0; }
/// @p x in [@p from, @p from + @p count)
constexpr bool psn_in(uint32_t x, uint32_t from, uint32_t count) { return x - from < count; }

/// One bit per PSN of a window of kWindow; a PSN and PSN + kWindow share a bit.
class PsnBitmap {
 public:
  bool test(uint32_t psn) const { return (words_[word(psn)] >> (psn & 63) & 1) != 0; }
  void set(uint32_t psn) { words_[word(psn)] |= uint64_t{1} << (psn & 63); }
  void clear(uint32_t psn) { words_[word(psn)] &= ~(uint64_t{1} << (psn & 63)); }
  void reset() { words_.fill(0); }
  unsigned count() const {
    unsigned n = 0;
    for (uint64_t word : words_) n += static_cast<unsigned>(std::popcount(word));
    return n;
  }

  /// The bits of psn, psn + 1, ... psn + 63, lowest first.
  uint64_t extract(uint32_t psn) const {
    const unsigned shift = psn & 63;
    const uint64_t low = words_[word(psn)] >> shift;
    return shift == 0 ? low : low | words_[word(psn + 64)] << (64 - shift);
  }

 private:
  static constexpr size_t kWords = kWindow / 64;
  static size_t word(uint32_t psn) { return psn / 64 % kWords; }
  std::array<uint64_t, kWords> words_{};
};

}  // namespace usiw

#endif  // USIW_ENGINE_PSN_H
