// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file process.h
/// The registry of a process's runtimes, and what fork(2) and exit(3) mean for them.
#ifndef USIW_RUNTIME_PROCESS_H
#define USIW_RUNTIME_PROCESS_H

#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/lock_rank.h"
#include "uapi/usiw_abi.h"

namespace usiw {

class Context;

class Process {
 public:
  using Lock = RankedMutex<LockRank::kRegistry>;

  /// Finds or makes the runtime of the context's device. 0 or an errno value.
  static int attach(Context& context, const usiw_link_info& link);
  static void detach(Context& context);

  /// Guards the list of runtimes and each one's contexts.
  static Lock& registry_lock();

  /// How many forks lie between this process and the one that loaded the provider: what was made at another number is
  /// a parent's, and its engine and thread are not here.
  static uint32_t generation() { return g_generation.load(std::memory_order_relaxed); }

  /// The process ends: what peers wait for is acknowledged, and nobody drives any more.
  static void finish();

 private:
  static void before_fork();
  static void after_fork_parent();
  static void after_fork_child();
  static std::atomic<uint32_t> g_generation;
};

}  // namespace usiw

#endif  // USIW_RUNTIME_PROCESS_H
