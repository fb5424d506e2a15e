// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/qp_timers.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/say.h"

namespace usiw {
namespace {

constexpr uint64_t kForEver = UINT64_MAX;

/// The times that min_rnr_timer stands for, in units of 10 us (IBA 1.4, table 46).
constexpr uint32_t kRnrTimer[32] = {65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
                                    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
                                    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

uint64_t retry_time_ns() {
  static const uint64_t once = [] {
    const char* text = getenv(kRetryTimeVariable);
    if (text == nullptr || *text == 0) return uint64_t{0};
    const uint64_t ns = parse_retry_time(text);
    if (ns == 0) say_once(std::string(kRetryTimeVariable) + ": 0.1 to 3600 seconds, not '" + text + "'; it is ignored");
    return ns;
  }();
  return once;
}

}  // namespace

uint64_t parse_retry_time(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double seconds = strtod(copy.c_str(), &end);
  if (copy.empty() || *end != 0 || !(seconds >= kRetryTimeMin && seconds <= kRetryTimeMax)) return 0;
  return static_cast<uint64_t>(seconds * 1e9);
}

void QpTimers::keep(const ibv_qp_attr& attr, int mask) {
  known_ |= mask & kAll;
  if ((mask & IBV_QP_TIMEOUT) != 0) timeout_ = attr.timeout & 31;
  if ((mask & IBV_QP_RETRY_CNT) != 0) retry_cnt_ = attr.retry_cnt;
  if ((mask & IBV_QP_RNR_RETRY) != 0) rnr_retry_ = attr.rnr_retry;
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) min_rnr_timer_ = attr.min_rnr_timer & 31;
  if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) != 0) max_rd_atomic_ = attr.max_rd_atomic;
}

/// The time-out is 4.096 us times a power of two, and 0 means none (IBA 1.4, 9.9.2.1.1). So many retries follow, of
/// which 7 means no limit where the receiver is not ready.
QpLimits QpTimers::limits(uint64_t retry_time_ns) const {
  QpLimits l{.retry_ns = kForEver, .rnr_ns = kForEver, .first_ns = kForEver, .ord = max_rd_atomic_};
  if (timeout_ != 0) {
    const uint64_t formula = (uint64_t{4096} << timeout_) * (retry_cnt_ + 1u);
    l.retry_ns = std::max(formula, kRetryLeastNs);
    l.first_ns = std::max(formula, kFirstContactLeastNs);
    if (retry_time_ns != 0) l.retry_ns = l.first_ns = retry_time_ns;
  }
  if (rnr_retry_ != 7) l.rnr_ns = uint64_t{rnr_retry_} * kRnrTimer[min_rnr_timer_] * 10'000;
  return l;
}

QpLimits QpTimers::limits() const { return limits(retry_time_ns()); }

}  // namespace usiw
