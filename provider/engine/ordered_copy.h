// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ordered_copy.h
/// The end of a WRITE, which a program may be polling for.
#ifndef USIW_ENGINE_ORDERED_COPY_H
#define USIW_ENGINE_ORDERED_COPY_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace usiw {

/// Copies the end of a WRITE for a program that polls its last byte: that byte changes
/// after all others (memcpy promises no order). A small aligned word changes as a whole.
inline void copy_last_byte_last(std::byte* to, const std::byte* from, uint32_t len) {
  const auto at = reinterpret_cast<uintptr_t>(to);
  std::atomic_thread_fence(std::memory_order_release);  // earlier segments first
  if (len == 8 && at % 8 == 0) {
    uint64_t v;
    std::memcpy(&v, from, 8);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(to)).store(v, std::memory_order_release);
    return;
  }
  if (len == 4 && at % 4 == 0) {
    uint32_t v;
    std::memcpy(&v, from, 4);
    std::atomic_ref(*reinterpret_cast<uint32_t*>(to)).store(v, std::memory_order_release);
    return;
  }
  std::memcpy(to, from, len - 1);
  std::atomic_ref(*reinterpret_cast<uint8_t*>(to + len - 1))
      .store(std::to_integer<uint8_t>(from[len - 1]), std::memory_order_release);
}

}  // namespace usiw

#endif  // USIW_ENGINE_ORDERED_COPY_H
