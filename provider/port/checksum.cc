// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/checksum.h"

namespace usiw {
namespace {

/// A plain loop that the compiler turns into vector code for the caller's target.
[[gnu::always_inline]] inline uint64_t sum_words(const unsigned char* p, size_t len) {
  uint64_t sum = 0;
  for (size_t i = 0; i < len; i += 4) {
    uint32_t w;
    std::memcpy(&w, p + i, 4);
    sum += w;
  }
  return sum;
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) uint64_t sum_avx2(const unsigned char* p, size_t len) {
  return sum_words(p, len);
}
const bool kHaveAvx2 = __builtin_cpu_supports("avx2") != 0;
#endif

}  // namespace

uint64_t checksum_bulk(const void* data, size_t len) {
  const auto* p = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  if (kHaveAvx2) return sum_avx2(p, len);
#endif
  return sum_words(p, len);
}

}  // namespace usiw
