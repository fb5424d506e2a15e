// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file backoff.h
/// How a thread waits until another one has executed a few instructions.
#ifndef USIW_BASE_BACKOFF_H
#define USIW_BASE_BACKOFF_H

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

#include "base/machine.h"

namespace usiw {

/// Between two looks at what the other thread changes. It may have been preempted on this very core: then a yield lets
/// it go on, unless it has a lower real-time priority (SCHED_FIFO). Only a nap helps then.
class Backoff {
 public:
  void wait() {
    if (tries_ >= kPauses + kYields) {
      // Not nanosleep(2) by its name: this must not be a cancellation point.
      const timespec nap = {0, kNapNs};
      syscall(SYS_nanosleep, &nap, nullptr);
      return;
    }
    if (tries_++ < kPauses)
      cpu_pause();
    else
      sched_yield();
  }

 private:
  static constexpr unsigned kPauses = 64, kYields = 64;
  static constexpr long kNapNs = 50'000;
  unsigned tries_ = 0;
};

}  // namespace usiw

#endif  // USIW_BASE_BACKOFF_H
