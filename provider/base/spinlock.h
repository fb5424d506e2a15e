// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file spinlock.h
/// A lock for a few instructions: one byte, no system call while free.
#ifndef USIW_BASE_SPINLOCK_H
#define USIW_BASE_SPINLOCK_H

#include <atomic>

#include "base/backoff.h"

namespace usiw {

class Spinlock {
 public:
  void lock() {
    for (Backoff backoff; flag_.test_and_set(std::memory_order_acquire);) backoff.wait();
  }
  bool try_lock() { return !flag_.test_and_set(std::memory_order_acquire); }
  void unlock() { flag_.clear(std::memory_order_release); }

 private:
  std::atomic_flag flag_;
};

}  // namespace usiw

#endif  // USIW_BASE_SPINLOCK_H
