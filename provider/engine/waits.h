// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file waits.h
/// What a sender waits for, and how long: an acknowledgement (time-out), a receive work request of the peer (receiver
/// not ready), a sign of life (keepalive). Times in ns.
#ifndef USIW_ENGINE_WAITS_H
#define USIW_ENGINE_WAITS_H

#include <algorithm>
#include <cstdint>

#include "engine/psn.h"
#include "engine/rtt.h"
#include "engine/timers.h"

namespace usiw {

/// Adds one, up to the largest value.
inline void count_up(uint8_t& n) { n += n != UINT8_MAX; }

/// The retransmission time-out (RFC 6298), which backs off, and the questions between two of them, which do so much
/// less.
class TimeOut {
 public:
  /// So many in a row are an outage: a queue that has grown explains one of them, not the next, which waits twice as
  /// long.
  static constexpr unsigned kOutage = 2;

  /// The peer of this connection may be gone for good without a word, so the questions back off from the beginning.
  void expect_no_farewell() { backs_off_ = true; }
  /// The wait begins: something has been sent, or the wait for something else is over.
  void start(uint64_t now) { base_ns_ = since_ns_ = now; }
  /// Something new has been acknowledged.
  void progress(uint64_t now) {
    in_a_row_ = 0;
    ask_at_ = kNever;
    start(now);
  }
  /// It is the peer's program that is waited for.
  void forgive() { in_a_row_ = 0; }
  /// What is in flight gets a whole time-out from @p now.
  void prolong(uint64_t now) { base_ns_ = now; }

  uint64_t at(const RttEstimator& rtt) const { return base_ns_ + rtt.rto(in_a_row_); }
  uint64_t length(const RttEstimator& rtt) const { return rtt.rto(in_a_row_); }
  unsigned in_a_row() const { return in_a_row_; }
  uint64_t since_ns() const { return since_ns_; }  ///< last progress

  /// @p next_ns: as for asked().
  void expired(uint64_t now, uint64_t next_ns) {
    count_up(in_a_row_);
    base_ns_ = now;
    asked(now, next_ns);
  }
  /// When to ask the peer whether the wire is there again: so that who waits for the end of an outage hears of it at
  /// once. Many who do so at the same time must not fill the wire, so this one waits until its turn comes at
  /// @p next_ns; nor one for ever, so in a long outage 1/64 of what it has lasted is soon enough.
  uint64_t ask_at() const { return ask_at_; }
  void asked(uint64_t now, uint64_t next_ns) {
    const uint64_t stall = now - since_ns_, prompt = stall < kPromptNs ? RttEstimator::kMinRtoNs : stall / 64;
    ask_at_ = std::max(now + (backs_off_ ? soon(now) : prompt), next_ns);
  }
  /// How long a repetition may wait at @p now where a peer may be gone for good: an eighth of the time without
  /// progress.
  uint64_t soon(uint64_t now) const { return std::max(RttEstimator::kMinRtoNs, (now - since_ns_) / 8); }
  /// Another one has heard from the same peer.
  void ask_by(uint64_t at) { ask_at_ = std::min(ask_at_, at); }
  /// The first question since a time-out: the others tell nothing more.
  bool asks_first(uint64_t now) const { return now - base_ns_ < 2 * RttEstimator::kMinRtoNs; }
  void ask_no_more() { ask_at_ = kNever; }

 private:
  static constexpr uint64_t kPromptNs = 8'000'000'000;

  uint64_t base_ns_ = 0;   ///< the time-out counts from here
  uint64_t since_ns_ = 0;
  uint64_t ask_at_ = kNever;
  uint8_t in_a_row_ = 0;
  bool backs_off_ = false;
};

/// The peer has no receive work request for the oldest datagram, which is tried again and again.
class NotReady {
 public:
  bool active() const { return active_; }
  uint64_t at() const { return at_; }              ///< of the next try
  uint64_t since_ns() const { return since_ns_; }
  unsigned tries() const { return tries_; }
  unsigned unheard() const { return unheard_; }    ///< tries since the peer has said so
  uint64_t heard_ns() const { return heard_ns_; }  ///< when that was
  unsigned silent() const { return silent_; }      ///< tries since the peer has said anything

  /// The peer of this connection may be gone for good without a word, so tries without an answer become rarer.
  void expect_no_farewell() { backs_off_ = true; }
  /// The peer says so of @p psn, the oldest.
  void told(uint32_t psn, uint64_t now) {
    active_ = true;
    psn_ = psn;
    since_ns_ = now;
    tries_ = 1;
    at_ = now + kMinDelayNs;
  }
  bool knows(uint32_t psn) const { return active_ && psn_ == psn; }
  void heard(uint64_t now) {
    unheard_ = 0;
    heard_ns_ = now;
  }
  /// @p heard_ns: the last sign of the peer.
  void tried(uint64_t now, uint64_t heard_ns) {
    count_up(unheard_);
    if (heard_ns >= tried_ns_) silent_ = 0;
    count_up(silent_);
    tried_ns_ = now;
    const unsigned rarer = backs_off_ && silent_ > kPromptTries ? std::min<unsigned>(silent_ - kPromptTries, 5) : 0;
    at_ = now + (std::min(kMaxDelayNs, kMinDelayNs << std::min<unsigned>(tries_, 10)) << rarer);
    count_up(tries_);
  }

  /// All before @p una is acknowledged: it is over.
  bool over(uint32_t una) const { return active_ && psn_lt(psn_, una); }
  /// @p nxt: the next PSN to send.
  void end(uint32_t nxt) {
    active_ = unsent_ = false;
    was_ = true;
    recover_ = nxt;
  }

  // ---- The peer may skip it (skip.cc) ----

  /// From the next try on, which is due at once, the peer is asked to. false: it was asked before.
  bool ask_to_skip(uint64_t now) {
    if (asks_to_skip(psn_)) return false;
    asked_ = true;
    asked_psn_ = psn_;
    at_ = now;
    return true;
  }
  bool asks_to_skip(uint32_t psn) const { return asked_ && asked_psn_ == psn; }
  uint32_t asked_psn() const { return asked_psn_; }
  /// All before @p una is acknowledged: the answer is known.
  bool answers_skip(uint32_t una) const { return asked_ && psn_lt(asked_psn_, una); }
  void skip_answered() { asked_ = false; }
  /// The peer has: the next datagram that is sent, @p nxt, tries anew.
  void skipped(uint32_t nxt, uint64_t now) {
    if (!active_) told(nxt, now);
    psn_ = nxt;
    unsent_ = true;
    at_ = now + kMaxDelayNs;
  }
  bool unsent() const { return unsent_; }
  /// It has been sent, and is @p psn. @p heard_ns: as in tried().
  void sent(uint32_t psn, uint64_t now, uint64_t heard_ns) {
    unsent_ = false;
    psn_ = psn;
    tried(now, heard_ns);
  }
  /// The loss of @p psn says nothing about the network: the receiver did not take it.
  bool excuses(uint32_t psn, uint32_t una, uint32_t nxt) const {
    return was_ && psn_in(recover_, una, nxt - una + 1) && psn_lt(psn, recover_);
  }

  static constexpr uint64_t kMinDelayNs = 50'000;
  static constexpr uint64_t kMaxDelayNs = 10'000'000;

 private:
  static constexpr unsigned kPromptTries = 4;

  bool active_ = false;
  bool was_ = false;
  bool unsent_ = false;  ///< psn_ is the next PSN to send
  bool asked_ = false;   ///< the peer, to skip asked_psn_
  bool backs_off_ = false;
  uint8_t tries_ = 0;
  uint8_t unheard_ = 0;
  uint8_t silent_ = 0;
  uint32_t psn_ = 0;
  uint32_t asked_psn_ = 0;
  uint32_t recover_ = 0;  ///< what was sent before this PSN met a receiver that was not ready
  uint64_t since_ns_ = 0;
  uint64_t heard_ns_ = 0;
  uint64_t tried_ns_ = 0;
  uint64_t at_ = kNever;
};

/// Probes of a peer that is silent.
class Keepalive {
 public:
  /// When the next one is due. @p heard_ns: the last sign of the peer. @p reading: READs are outstanding.
  uint64_t at(uint64_t heard_ns, bool reading, const RttEstimator& rtt) const {
    if (unanswered_ != 0) return probed_ns_ + kIntervalNs;
    if (window_closed_) return std::max(heard_ns, probed_ns_) + std::max(rtt.rto(3), kWindowMinNs);
    return heard_ns + (reading ? kReadingNs : kIdleNs);
  }
  unsigned unanswered() const { return unanswered_; }
  /// No probe is unanswered, and none is needed to learn whether the window has opened.
  bool rests() const { return unanswered_ == 0 && !window_closed_; }
  /// No probe is sent until there is another reason. @p most: so many tell whether the window has opened.
  bool may_rest(unsigned most) const { return !window_closed_ || unanswered_ >= most; }
  void rest() {
    unanswered_ = 0;
    window_closed_ = false;
  }
  /// When the first one that is unanswered was sent.
  uint64_t since_ns() const { return since_ns_; }
  /// Returns true if no datagram of the peer has arrived since the last probe. @p heard_ns: when the last one did.
  bool waits(uint64_t heard_ns) const { return unanswered_ != 0 && heard_ns <= probed_ns_; }
  /// The peer has been heard at @p heard_ns. true: a probe was unanswered until then.
  bool answered(uint64_t heard_ns) {
    if (unanswered_ == 0 || heard_ns <= probed_ns_) return false;
    unanswered_ = 0;
    return true;
  }
  void probed(uint64_t now) {
    if (unanswered_ == 0) since_ns_ = now;
    count_up(unanswered_);
    probed_ns_ = now;
  }
  /// The kernel has one sent.
  void probe_first(uint64_t now) {
    unanswered_ = 1;
    probed_ns_ = since_ns_ = now;
  }
  /// Nothing is outstanding, and the peer's window lets nothing go.
  void window_closed(bool closed) { window_closed_ = closed; }

 private:
  static constexpr uint64_t kIdleNs = 10'000'000'000;
  static constexpr uint64_t kReadingNs = 500'000'000;
  static constexpr uint64_t kIntervalNs = 400'000'000;
  static constexpr uint64_t kWindowMinNs = 10'000'000;

  uint64_t probed_ns_ = 0, since_ns_ = 0;
  uint8_t unanswered_ = 0;
  bool window_closed_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_WAITS_H
