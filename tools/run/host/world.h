// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file world.h
/// What plays the kernel in this process is one monitor: every entry (a call of the program, a
/// datagram, the clock) takes this lock, and nothing waits with it held. Functions that need
/// it held say [world].
#ifndef USIW_RUN_WORLD_H
#define USIW_RUN_WORLD_H

#include <cstdint>
#include <ctime>
#include <mutex>

#include "base/quiet_thread.h"

namespace usiw::run {

/// Never destroyed: threads of the program may be inside while the process exits.
inline std::mutex& world() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}

/// Holds it. Threads are not cancelled with it held: as in the kernel, a call that has begun goes on to where it waits.
class World {
 public:
  explicit World(std::mutex& lock) : hold_(lock) {}

 private:
  NoCancel no_cancel_;  // outlives the lock
  std::lock_guard<std::mutex> hold_;
};

inline uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000u + static_cast<uint64_t>(t.tv_nsec) / 1000u;
}

}  // namespace usiw::run

#endif  // USIW_RUN_WORLD_H
