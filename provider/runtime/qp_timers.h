// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file qp_timers.h
/// The attributes of InfiniBand by which a program bounds how long its QP waits, as the engine's limits (docs/face.md).
#ifndef USIW_RUNTIME_QP_TIMERS_H
#define USIW_RUNTIME_QP_TIMERS_H

#include <infiniband/verbs.h>

#include <cstdint>
#include <string_view>

#include "engine/types.h"

namespace usiw {

inline constexpr char kRetryTimeVariable[] = "USIW_RETRY_TIME";  ///< seconds
inline constexpr double kRetryTimeMin = 0.1, kRetryTimeMax = 3600;

/// Shortest limits, ns: a software end may be off its processor for a while, and its peer may still be starting.
inline constexpr uint64_t kRetryLeastNs = 2'000'000'000, kFirstContactLeastNs = 10'000'000'000;

/// ns from @p text; 0 if that is no number of seconds between the limits.
uint64_t parse_retry_time(std::string_view text);

/// The attributes of one QP.
struct QpTimers {
  /// Those of @p attr that @p mask names.
  void keep(const ibv_qp_attr& attr, int mask);
  /// The program has given them all, as it does by RTS when the QP connects by itself. rdma_cm gives none.
  bool are_set() const { return (known_ & kAtRts) == kAtRts; }
  /// @p mask names one of them.
  static bool concern(int mask) { return (mask & kAll) != 0; }
  /// @p retry_time_ns: USIW_RETRY_TIME; 0: it is not set.
  QpLimits limits(uint64_t retry_time_ns) const;
  /// The same with the variable of this process.
  QpLimits limits() const;

 private:
  static constexpr int kAtRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  static constexpr int kAll = kAtRts | IBV_QP_MIN_RNR_TIMER;

  int known_ = 0;
  uint8_t timeout_ = 0, retry_cnt_ = 0, rnr_retry_ = 0, min_rnr_timer_ = 0, max_rd_atomic_ = 0;
};

}  // namespace usiw

#endif  // USIW_RUNTIME_QP_TIMERS_H
