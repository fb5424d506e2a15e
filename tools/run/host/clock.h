// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file clock.h
/// The clock of the emulated kernel.
#ifndef USIW_RUN_CLOCK_H
#define USIW_RUN_CLOCK_H

#include <cstdint>
#include <ctime>

namespace usiw::run {

/// Returns CLOCK_MONOTONIC in microseconds.
inline uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000u + static_cast<uint64_t>(t.tv_nsec) / 1000u;
}

}  // namespace usiw::run

#endif  // USIW_RUN_CLOCK_H
