// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file congestion.h
/// How many datagrams may be in flight. The engine uses one class, named by the alias
/// Congestion at the end; another algorithm provides the same members.
#ifndef USIW_ENGINE_CONGESTION_H
#define USIW_ENGINE_CONGESTION_H

#include <algorithm>
#include <cstdint>

#include "engine/psn.h"

namespace usiw {

/// Delay-based additive increase, multiplicative decrease, decided once per round trip,
/// in the manner of Swift (SIGCOMM 2020), made for software ends on noisy hosts:
///  - the signal is the smallest RTT of a round, that is a standing queue: one late
///    wake-up of a thread makes single RTTs a hundred times longer and means nothing;
///  - when a cut does not shorten the delay then this flow does not cause it (two
///    processes take turns on one CPU): the cut is taken back and the target raised;
///  - a few per cent of loss is noise of the wire, repaired by SACK. Congestion is more than
///    kLossPercent in a round, and any loss in slow start or while the queue is as long as
///    it has been of late: answered at once and once per window;
///  - where losses come with the longest queue, as those of a buffer that overflows do, the window
///    at which they came is remembered: it is approached by ever smaller steps and left by ever
///    larger ones, in the manner of BIC (INFOCOM 2004), so that few datagrams tell where it is.
///    Time counts there, not round trips alone: on a LAN they are so short that the window would
///    be back at once;
///  - marks of a router (ECN) say the same without a loss.
class DelayCongestion {
 public:
  static constexpr float kInitial = 64;
  static constexpr float kFloor = 2;
  static constexpr float kCeiling = kWindow;
  static constexpr float kRestart = 8;             ///< after an outage
  static constexpr uint64_t kBaseTarget = 1'000'000;  ///< ns of standing queue
  static constexpr uint64_t kMaxTarget = 50'000'000;
  static constexpr uint32_t kLossPercent = 5;
  static constexpr uint64_t kShortQueue = 10'000;  ///< ns; host noise, no queue
  static constexpr float kFullLosses = 0.4f;       ///< share of losses with the longest queue: a buffer overflows
  static constexpr float kFewest = 4;              ///< datagrams; in smaller windows steps are too coarse to matter
  static constexpr float kStep = 0.04f;            ///< datagrams by which the window grows in a round where it is full
  static constexpr float kLonger = 1.06f;          ///< from a step to the next, beyond
  static constexpr float kMarkCut = 0.85f;         ///< a window in which something was marked (RFC 8511)
  static constexpr float kRefill = 4'000'000;      ///< ns in which a window that was cut comes back, about
  static constexpr float kYield = 0.75f;           ///< of a window that shrinks: room for others to grow

  uint32_t window() const { return static_cast<uint32_t>(cwnd_); }

  /// @p acked datagrams newly delivered; @p rtt 0 when there is no sample. @p limited: the
  /// window, not the work, bounded what was in flight.
  void on_ack(uint32_t acked, uint64_t rtt, uint64_t min_rtt, bool limited, uint32_t snd_una,
              uint32_t snd_nxt) {
    acked_ += acked;
    limited_ |= limited;
    if (rtt != 0) {
      round_rtt_ = round_rtt_ == 0 ? rtt : std::min(round_rtt_, rtt);
      queue_ = rtt - min_rtt;
      longest_queue_ = std::max(longest_queue_, queue_);
    }
    if (slow_start_ && limited) cwnd_ = std::min(kCeiling, cwnd_ + static_cast<float>(acked));
    if (psn_lt(snd_una, round_end_)) return;
    end_round(min_rtt);
    longest_queue_ -= longest_queue_ / 64;
    round_end_ = snd_nxt;
    acked_ = lost_ = 0;
    round_rtt_ = 0;
    limited_ = false;
  }

  /// A transmission of @p sent_ns is lost.
  void on_loss(uint64_t sent_ns, uint64_t now) {
    if (sent_ns < cut_at_) return;  // sent before the window was cut: known
    ++lost_;
    const float round = std::max(cwnd_, static_cast<float>(acked_ + lost_));
    const bool full = longest_queue_ > kShortQueue && queue_ * 4 >= longest_queue_ * 3;
    full_losses_ += ((full ? 1.0f : 0.0f) - full_losses_) / 16;
    if (!full && !slow_start_ && (lost_ < 3 || static_cast<float>(lost_ * 100) <= round * kLossPercent)) return;
    undo_cwnd_ = cwnd_;
    cut_at_ = now;
    lost_ = 0;
    overflowed(0.7f);
  }

  /// The peer tells of marks, up to @p snd_una at least: answered once per window, as a loss in a full buffer.
  void on_mark(uint32_t snd_una, uint32_t snd_nxt) {
    if (psn_in(mark_end_, snd_una + 1, kWindow)) return;
    mark_end_ = snd_nxt;
    undo_cwnd_ = 0;
    full_losses_ += (1.0f - full_losses_) / 16;
    overflowed(kMarkCut);
  }

  /// A second time-out in a row: nothing gets through, start over gently.
  void on_timeout() {
    undo_cwnd_ = std::max(undo_cwnd_, cwnd_);
    cwnd_ = kFloor;
    slow_start_ = true;
  }

  /// An outage is over. Its time-outs said nothing about the queue, so the window need not start from the floor: flows
  /// that wait for the same wire start within one round trip, and who starts last with the floor finds a full queue.
  void on_outage_over() { cwnd_ = std::max(cwnd_, std::min(undo_cwnd_, kRestart)); }

  /// What looked like loss was delay or reordering.
  void on_spurious() {
    cwnd_ = std::max(cwnd_, undo_cwnd_);
    undo_cwnd_ = 0;
    lost_ = 0;
  }

  void start(uint32_t psn) { round_end_ = mark_end_ = psn; }

 private:
  void end_round(uint64_t min_rtt) {
    const uint64_t target = target_ + 2 * min_rtt;
    if (round_rtt_ > 4 * min_rtt + kBaseTarget / 8) slow_start_ = false;  // a queue builds up
    if (round_rtt_ > target) {
      if (cut_rtt_ == 0) {
        cut_cwnd_ = cwnd_;
        cut_rtt_ = round_rtt_;
      } else if (cwnd_ <= cut_cwnd_ * 0.6f) {
        // Enough has been cut to tell: a queue of our own would be much shorter now.
        if (round_rtt_ * 5 > cut_rtt_ * 4) {
          cwnd_ = cut_cwnd_;
          target_ = std::min(kMaxTarget, round_rtt_ + round_rtt_ / 4);
          cut_rtt_ = 0;
          return;
        }
        cut_cwnd_ = cwnd_;
        cut_rtt_ = round_rtt_;
      }
      const float excess = static_cast<float>(round_rtt_ - target) / static_cast<float>(round_rtt_);
      cut(std::max(0.5f, 1.0f - 0.8f * excess));
    } else {
      cut_rtt_ = 0;
      if (target_ > kBaseTarget) target_ -= (target_ - kBaseTarget) / 64 + 1;
      if (limited_ && !slow_start_) cwnd_ = std::min(kCeiling, cwnd_ + growth());
    }
  }
  /// By how much the window grows in a round.
  float growth() {
    const float most = std::max(1.0f, cwnd_ / 16);
    if (full_losses_ < kFullLosses || full_cwnd_ < kFewest) {
      full_cwnd_ = 0;
      return most;
    }
    if (cwnd_ < full_cwnd_) {
      const float part = std::clamp(static_cast<float>(round_rtt_) / kRefill, 1.0f / 32, 1.0f / 4);
      return std::clamp((full_cwnd_ - cwnd_) * part, kStep, most);
    }
    return step_ = std::min(most, step_ * kLonger);
  }
  /// The window was more than the buffer holds: remembers it, and cuts it.
  void overflowed(float factor) {
    full_cwnd_ = cwnd_ < full_cwnd_ ? cwnd_ * kYield : cwnd_;
    step_ = kStep;
    cut(factor);
  }
  void cut(float factor) {
    cwnd_ = std::max(kFloor, cwnd_ * factor);
    slow_start_ = false;
  }

  float cwnd_ = kInitial;
  float cut_cwnd_ = 0;    ///< window before the cuts for delay that are being judged
  float undo_cwnd_ = 0;   ///< window before the last cut for loss
  float full_cwnd_ = 0;    ///< window at which a buffer has overflowed; 0: not known
  float step_ = kStep;     ///< the last one beyond that
  float full_losses_ = 1;  ///< share of the last losses that came with the longest queue
  bool slow_start_ = true;
  bool limited_ = false;
  uint32_t mark_end_ = 0;  ///< marks of what was sent before this PSN are answered
  uint32_t round_end_ = 0;
  uint32_t acked_ = 0;    ///< in this round
  uint32_t lost_ = 0;     ///< in this round
  uint64_t cut_at_ = 0;   ///< time of the last cut for loss
  uint64_t round_rtt_ = 0;
  uint64_t queue_ = 0;          ///< ns by which the latest RTT exceeds the smallest
  uint64_t longest_queue_ = 0;  ///< of late
  uint64_t cut_rtt_ = 0;  ///< smallest RTT of the round before them; 0: none
  uint64_t target_ = kBaseTarget;
};

using Congestion = DelayCongestion;

}  // namespace usiw

#endif  // USIW_ENGINE_CONGESTION_H
