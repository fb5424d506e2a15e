// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file ack_state.h
/// The acknowledgement that this end owes, and how soon the program's reply, which would carry it, can be expected.
/// AckQueue knows whether one is owed at all. Times in ns.
#ifndef USIW_ENGINE_ACK_STATE_H
#define USIW_ENGINE_ACK_STATE_H

#include <algorithm>
#include <cstdint>

#include "engine/rtt.h"

namespace usiw {

/// How soon messages of the peer have been answered by a DATA of late. One late reply (a thread was preempted) does not
/// change what is expected, or a ping-pong would fall apart into acknowledgements.
class Replies {
 public:
  /// A message has ended. false: one before it waits for its reply already.
  bool asked(uint64_t now) {
    if (asked_ns_ != 0) return false;
    asked_ns_ = now;
    return true;
  }
  bool outstanding() const { return asked_ns_ != 0; }

  /// A DATA goes out: has it answered a message?
  void sent(uint64_t now) {
    if (asked_ns_ == 0) return;
    const uint64_t took = now - asked_ns_;
    if (took > kSoonNs) return missed();
    asked_ns_ = 0;
    // The slowest of late: what has to be waited for. Forgotten slowly.
    slowest_ns_ = std::max(static_cast<uint32_t>(took), slowest_ns_ - slowest_ns_ / 16);
    if (score_ < kScoreMax) ++score_;
  }

  /// It has been waited for in vain.
  void missed() {
    score_ /= 2;
    asked_ns_ = 0;
  }

  bool expected() const { return score_ >= kScoreSoon; }

  /// How long an acknowledgement waits for a reply that could carry it.
  uint64_t delay(const RttEstimator& rtt) const {
    if (!expected()) return kUnexpectedNs;
    const uint64_t least = score_ == kScoreMax ? kSureNs : kUnexpectedNs;
    return std::clamp<uint64_t>(2 * uint64_t{slowest_ns_}, least, longest(rtt));
  }

  /// By then a reply that has begun must have ended to carry it.
  uint64_t complete_by(const RttEstimator& rtt) const { return asked_ns_ + longest(rtt); }

 private:
  static constexpr uint64_t kUnexpectedNs = 4'000;
  /// Where every reply of late came soon, an acknowledgement ahead of it is worth nothing; and a program that waits for
  /// the reply in memory, once its own message is complete, does not drive its end any more.
  static constexpr uint64_t kSureNs = 100'000;
  static constexpr uint64_t kSoonNs = 500'000;
  /// The wait has to end well before the peer's time-out: half of the least there is (RttEstimator::kMinRtoNs), or of
  /// what this end's own would be on the same way.
  static constexpr uint64_t kWaitMaxNs = 200'000;
  /// Replies that came soon count up to so many, one that did not halves the count; so many and the next one is
  /// expected soon.
  static constexpr uint8_t kScoreMax = 8, kScoreSoon = 2;

  static uint64_t longest(const RttEstimator& rtt) {
    return rtt.valid() ? std::max(kWaitMaxNs, rtt.rto(0) / 2) : kWaitMaxNs;
  }

  uint64_t asked_ns_ = 0;    ///< when a message ended that no DATA has followed yet; or 0
  uint32_t slowest_ns_ = 0;  ///< how long replies take at most
  uint8_t score_ = 0;        ///< replies have come soon: 0 (no) to kScoreMax
};

class AckState {
 public:
  static constexpr unsigned kEvery = 8;  ///< datagrams acknowledged by one SACK at most

  void start(uint32_t rcv_psn) { told_ = static_cast<uint16_t>(rcv_psn); }

  /// A datagram with a PSN has come. @p again: a repetition, whose echo goes ahead of any DATA.
  void heard(uint16_t echo, bool again) {
    echo_ = echo;
    again_ |= again;
  }
  /// One more that an acknowledgement is due for some time. true: that is now.
  bool one_more() { return ++count_ >= kEvery; }

  void at_once() { now_ = true; }
  void by(uint64_t at) { due_ns_ = at; }
  void put_off(uint64_t at) { due_ns_ = std::max(due_ns_, at); }
  bool is_at_once() const { return now_; }
  bool is_due(uint64_t now) const { return now_ || now >= due_ns_; }
  uint64_t due_ns() const { return now_ ? 0 : due_ns_; }
  bool repetition_at_once() const { return again_ && now_; }
  uint16_t echo() const { return echo_; }

  /// What a datagram says that does not acknowledge all: what was said last. @p rcv_nxt: all.
  uint32_t told(uint32_t rcv_nxt) const { return rcv_nxt - static_cast<uint16_t>(rcv_nxt - told_); }
  void tell(uint32_t rcv_nxt) { told_ = static_cast<uint16_t>(rcv_nxt); }
  /// A DATA has said all that a SACK would, or nothing is to be said any more.
  void settled() {
    count_ = 0;
    now_ = false;
  }
  /// A SACK has gone out.
  void sacked() {
    settled();
    again_ = false;
  }

 private:
  uint64_t due_ns_ = 0;  ///< unless it is at once
  uint16_t told_ = 0;    ///< lower half of the ACK PSN sent last
  uint16_t echo_ = 0;    ///< time stamp that the next SACK has
  uint8_t count_ = 0;    ///< datagrams since the last acknowledgement
  bool now_ = false;     ///< at the end of this run
  bool again_ = false;   ///< a repetition has come
};

}  // namespace usiw

#endif  // USIW_ENGINE_ACK_STATE_H
