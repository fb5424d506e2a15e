// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_watch.h
/// When a connection that has two ports asks whether it should go on by the other one, because nothing gets through.
/// Times in ns.
#ifndef USIW_ENGINE_PORT_WATCH_H
#define USIW_ENGINE_PORT_WATCH_H

#include <algorithm>
#include <cstdint>

#include "engine/waits.h"

namespace usiw {

class PortWatch {
 public:
  /// Nothing has got through since @p since: is it time to ask?
  bool silent(uint64_t since, uint64_t now) {
    if (since > asked_ns_) asks_ = 0;
    const uint64_t long_enough = kSilenceNs << std::min<unsigned>(asks_, kMaxShifts);
    if (now - std::max(since, asked_ns_) < long_enough) return false;
    count_up(asks_);
    return true;
  }
  void asked(uint64_t now) { asked_ns_ = now; }
  unsigned asks() const { return asks_; }  ///< in a row, while nothing got through

  /// This end asks the peer, which it has last heard at @p heard_ns: is it time to tell that it hears nothing? An
  /// answer takes up to @p rto_ns.
  static bool hears_nothing(uint64_t heard_ns, uint64_t rto_ns, uint64_t now) {
    return now - heard_ns >= kSilenceNs / 2 + rto_ns;
  }
  /// The peer repeats what it has an acknowledgement of, or asks and hears nothing, while @p rcv_nxt is expected. true:
  /// so often that it may not hear this end, which has nothing to send that would tell; silent(repeats_since()) says
  /// whether to ask.
  bool repeated(uint32_t rcv_nxt, uint64_t now) {
    if (repeats_ == 0 || rcv_nxt_ != rcv_nxt) {
      repeats_ = 0;
      rcv_nxt_ = rcv_nxt;
      repeats_since_ns_ = now;
    }
    count_up(repeats_);
    return repeats_ >= kRepeatsUnheard;
  }
  uint64_t repeats_since() const { return repeats_since_ns_; }
  void repeats_told() { repeats_ = 1; }

 private:
  /// So long without a sign that anything gets through, besides two repetitions: longer than a busy host keeps a
  /// program waiting, or a processor quota a container (the rest of a period of 100 ms, as a rule, or of two). Twice as
  /// long before each further time, up to kMaxShifts.
  static constexpr uint64_t kSilenceNs = 200'000'000;
  static constexpr unsigned kMaxShifts = 2;
  static constexpr unsigned kRepeatsUnheard = 3;

  uint64_t asked_ns_ = 0;
  uint64_t repeats_since_ns_ = 0;
  uint32_t rcv_nxt_ = 0;
  uint8_t asks_ = 0;
  uint8_t repeats_ = 0;
};

}  // namespace usiw

#endif  // USIW_ENGINE_PORT_WATCH_H
