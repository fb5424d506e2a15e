// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file clock.h
/// Production time: CLOCK_MONOTONIC through the vDSO, which reads the TSC where it is sound.
#ifndef USIW_PROGRESS_CLOCK_H
#define USIW_PROGRESS_CLOCK_H

#include <ctime>

#include "engine/port.h"

namespace usiw {

class MonotonicClock final : public Clock {
 public:
  uint64_t now_ns() override {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
  }
};

}  // namespace usiw

#endif  // USIW_PROGRESS_CLOCK_H
