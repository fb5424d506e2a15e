// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file rtt.h
/// Round-trip time and retransmission time-out (RFC 6298 with a floor for hosts that
/// are microseconds apart). Times in nanoseconds.
#ifndef USIW_ENGINE_RTT_H
#define USIW_ENGINE_RTT_H

#include <algorithm>
#include <cstdint>

namespace usiw {

class RttEstimator {
 public:
  static constexpr uint64_t kMinRtoNs = 400'000;
  static constexpr uint64_t kInitialRtoNs = 20'000'000;
  static constexpr uint64_t kMaxRtoNs = 500'000'000;
  static constexpr uint64_t kMaxPatienceNs = 2'000'000;
  static constexpr uint64_t kOutageNs = 1'000'000'000;
  static constexpr uint64_t kMinRttWindow = 10'000'000'000;  ///< then the minimum is measured anew
  /// The sample of a datagram that was acknowledged in the run of the engine that sent it, as happens over shared
  /// memory. The engine reads the clock once a run, so the round trip is too short to measure: it is no minimum.
  static constexpr uint64_t kTooShort = 1;

  /// The sample tells how long an outage was, which is no round trip: of a datagram sent before an acknowledgement came
  /// for which @p time_outs in a row have passed. If that happens again soon, the path has become so long.
  bool is_outage(uint64_t rtt, unsigned time_outs, uint64_t now) {
    if (time_outs >= 2 && valid() && now - outage_at_ > kOutageNs) outage_at_ = now;
    return now - rtt < outage_at_;
  }
  void sample(uint64_t rtt, uint64_t now) {
    if (srtt_ == 0) {
      srtt_ = rtt;
      var_ = rtt / 2;
      min_ = rtt != kTooShort ? rtt : 0;
      min_at_ = now;
      return;
    }
    const uint64_t err = rtt > srtt_ ? rtt - srtt_ : srtt_ - rtt;
    var_ += (err >> 2) - (var_ >> 2);
    srtt_ += (rtt >> 3) - (srtt_ >> 3);
    if (least_ != kMinRtoNs) [[unlikely]] least_ -= (least_ - kMinRtoNs + 255) / 256;
    if (rtt == kTooShort) [[unlikely]] return;
    if (rtt - 1 <= min_ - 1 || now - min_at_ > kMinRttWindow) {  // also if there is none yet
      min_ = rtt;
      min_at_ = now;
    }
  }

  /// A time-out was needless: the first transmission had arrived, and its acknowledgement took @p took at least. Whoever
  /// acknowledges may be short of processors, now and then.
  void needless_time_out(uint64_t took) {
    least_ = std::max(least_, kMinRtoNs + std::min(2 * took, kMaxPatienceNs));
  }

  bool valid() const { return srtt_ != 0; }
  uint64_t srtt() const { return srtt_; }
  /// 0: none has been measured.
  uint64_t min_rtt() const { return min_; }
  /// @p sample for congestion control, which subtracts the minimum: one that was too short to measure becomes the
  /// minimum, or 0 (no sample) if there is none.
  uint64_t or_minimum(uint64_t sample) const { return sample != kTooShort ? sample : min_; }

  /// Time-out after @p backoffs time-outs in a row.
  uint64_t rto(unsigned backoffs) const {
    uint64_t rto = kInitialRtoNs;
    if (valid()) rto = std::max(least_, srtt_ + 4 * var_);
    return std::min(kMaxRtoNs, rto << std::min(backoffs, 12u));
  }

 private:
  uint64_t srtt_ = 0;
  uint64_t var_ = 0;
  uint64_t min_ = 0;
  uint64_t min_at_ = 0;
  uint64_t least_ = kMinRtoNs;  ///< of a time-out; longer for a while when one has been needless
  uint64_t outage_at_ = 0;  ///< when the last one was over
};

}  // namespace usiw

#endif  // USIW_ENGINE_RTT_H
