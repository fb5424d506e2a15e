// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file spinlock.h
/// A lock for a few instructions: one byte, no system call while free. A waiter yields,
/// because the holder may have been preempted on this very core.
#ifndef USIW_BASE_SPINLOCK_H
#define USIW_BASE_SPINLOCK_H

#include <sched.h>

#include <atomic>

namespace usiw {

inline void cpu_pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

class Spinlock {
 public:
  void lock() {
    for (unsigned spins = 0; flag_.test_and_set(std::memory_order_acquire); spins++) {
      if (spins < 64)
        cpu_pause();
      else
        sched_yield();
    }
  }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

}  // namespace usiw

#endif  // USIW_BASE_SPINLOCK_H
