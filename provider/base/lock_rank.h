// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lock_rank.h
/// The order in which the provider's locks are taken, checked at run time where USIW_LOCK_CHECK is defined (debug and
/// sanitizer builds); elsewhere a ranked lock is the plain lock. runtime/runtime.h says what each lock guards.
#ifndef USIW_BASE_LOCK_RANK_H
#define USIW_BASE_LOCK_RANK_H

#include <cstdint>
#include <mutex>

#ifdef USIW_LOCK_CHECK
#include <cstdio>
#include <cstdlib>
#endif

namespace usiw {

/// A thread that holds a lock takes only locks of higher rank. Those from kPending on are leaves: whoever holds one
/// takes no other.
enum class LockRank : unsigned {
  kBringUp,
  kRegistry,
  kRegions,
  kPorts,
  kQps,
  kReports,
  kEngine,  ///< the engine's token (progress/)
  kPending,
  kLink,
  kWatch,  ///< which descriptors the progress thread watches
  kLast = kWatch
};

namespace lock_rank {

#ifdef USIW_LOCK_CHECK

inline thread_local uint32_t t_held = 0;  ///< one bit per rank

constexpr uint32_t bit(LockRank r) { return 1u << static_cast<unsigned>(r); }

inline const char* name(unsigned rank) {
  static constexpr const char* kNames[] = {"bring-up", "registry", "regions", "ports", "qps",
                                           "reports",  "engine",   "pending", "link",  "watch"};
  return kNames[rank];
}

[[noreturn]] inline void fail(const char* what, LockRank r) {
  fprintf(stderr, "usiw: lock order: %s '%s'; held:", what, name(static_cast<unsigned>(r)));
  for (unsigned i = 0; i <= static_cast<unsigned>(LockRank::kWatch); ++i)
    if ((t_held >> i & 1) != 0) fprintf(stderr, " '%s'", name(i));
  fputc('\n', stderr);
  abort();
}

/// Before a thread waits for a lock.
inline void check(LockRank r) {
  const uint32_t leaves = t_held & ~(bit(LockRank::kPending) - 1);
  if (leaves != 0 || (t_held >> static_cast<unsigned>(r)) != 0) fail("out of order:", r);
}
inline void took(LockRank r) { t_held |= bit(r); }
inline void released(LockRank r) {
  if ((t_held & bit(r)) == 0) fail("released though not held:", r);
  t_held &= ~bit(r);
}
inline void assert_held(LockRank r) {
  if ((t_held & bit(r)) == 0) fail("needed and not held:", r);
}
/// Before a thread waits for another one that takes locks up to @p r.
inline void assert_none_up_to(LockRank r) {
  if ((t_held & (bit(r) | (bit(r) - 1))) != 0) fail("waiting for a thread that may need up to", r);
}

#else

inline void check(LockRank) {}
inline void took(LockRank) {}
inline void released(LockRank) {}
inline void assert_held(LockRank) {}
inline void assert_none_up_to(LockRank) {}

#endif

}  // namespace lock_rank

/// @p Lock with its place in the order. try_lock() is allowed out of order: it does not wait.
template <typename Lock, LockRank kRank>
class Ranked {
 public:
  void lock() {
    lock_rank::check(kRank);
    lock_.lock();
    lock_rank::took(kRank);
  }
  bool try_lock() {
    if (!lock_.try_lock()) return false;
    lock_rank::took(kRank);
    return true;
  }
  void unlock() {
    lock_rank::released(kRank);
    lock_.unlock();
  }

 private:
  Lock lock_;
};

template <LockRank kRank>
using RankedMutex = Ranked<std::mutex, kRank>;

}  // namespace usiw

#endif  // USIW_BASE_LOCK_RANK_H
