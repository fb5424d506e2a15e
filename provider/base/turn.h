// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file turn.h
/// Turns of the program's threads on a CQ, or on one side of a QP. A turn comes before every lock of the provider: a
/// program holds it from ibv_start_poll() to ibv_end_poll() and from ibv_wr_start() to ibv_wr_complete(), and may call
/// any verb of other objects meanwhile.
#ifndef USIW_BASE_TURN_H
#define USIW_BASE_TURN_H

#include "base/lock_rank.h"
#include "base/spinlock.h"

namespace usiw {

class Turn {
 public:
  /// The program promises that only one thread comes. Before the first lock().
  void never_contended() { contended_ = false; }
  bool contended() const { return contended_; }

  void lock() {
    if (!contended_) return;
    lock_rank::assert_none_up_to(LockRank::kLast);
    lock_.lock();
  }
  /// Returns false if a thread, which may be this one, has locked it.
  bool try_lock() { return !contended_ || lock_.try_lock(); }
  void unlock() {
    if (contended_) lock_.unlock();
  }

 private:
  Spinlock lock_;
  bool contended_ = true;
};

}  // namespace usiw

#endif  // USIW_BASE_TURN_H
