// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file big_lock.h
/// The emulated kernel in this process is one monitor. Each way into it (a call of the program, a datagram, a timer)
/// takes the big lock. No thread that holds the big lock waits for the program, for a peer or for a timer. A function
/// whose caller must hold the big lock has the tag [big lock].
#ifndef USIW_RUN_BIG_LOCK_H
#define USIW_RUN_BIG_LOCK_H

#include <mutex>

#include "base/quiet_thread.h"

namespace usiw::run {

/// Returns the big lock. It is never destroyed, because threads of the program may hold it while the process exits.
inline std::mutex& big_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}

/// Holds the big lock. A thread that holds it cannot be cancelled: as in the kernel, a call that has begun continues to
/// the point where it waits.
class HoldBigLock {
 private:
  NoCancel no_cancel_;  // outlives the lock
  std::lock_guard<std::mutex> hold_{big_lock()};
};

}  // namespace usiw::run

#endif  // USIW_RUN_BIG_LOCK_H
