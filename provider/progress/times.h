// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file times.h
/// What the threads that sleep for Progress have in common.
#ifndef USIW_PROGRESS_TIMES_H
#define USIW_PROGRESS_TIMES_H

#include <sys/types.h>
#include <unistd.h>

#include <cstdint>
#include <ctime>

namespace usiw {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

/// A deadline may be missed by this much rather than pay for a doorbell.
constexpr uint64_t kDeadlineSlackNs = 200 * kUs;
/// Right after work a sleeping thread wakes this often even without a deadline, so that the next
/// post (which sets a deadline) needs no doorbell.
constexpr uint64_t kRecentNs = 50 * kMs, kRecentNapNs = 1 * kMs;
/// For who else is to take the packets that woke a thread: the holder of the engine, or a thread that blocks. It may
/// have been preempted by this one, and poll(2) would not sleep while they wait.
constexpr uint64_t kHeldNapNs = 100 * kUs;

inline timespec time_left(uint64_t until_ns, uint64_t now_ns) {
  const uint64_t left = until_ns > now_ns ? until_ns - now_ns : 0;
  return {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
}

inline pid_t own_tid() {
  static thread_local pid_t tid = gettid();
  return tid;
}

}  // namespace usiw

#endif  // USIW_PROGRESS_TIMES_H
