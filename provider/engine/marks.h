// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file marks.h
/// Congestion marks of routers (ECN, RFC 3168): this end tells the peer of those on what comes, and hears from the peer
/// of those on what it sends. A header has three bits for them: how many headers have told of marks so far. One more
/// bit of each header says whether its sender takes merged datagrams, and is told and heard here as well.
#ifndef USIW_ENGINE_MARKS_H
#define USIW_ENGINE_MARKS_H

#include <cstdint>

#include "base/wire.h"
#include "engine/psn.h"

namespace usiw {

/// The marks of one connection, both ways.
class Marks {
 public:
  /// @p sees: this end's ports see marks. An end that does not tells nothing, and sends nothing that can be marked.
  void start(bool sees) { tell_ = sees ? kTells : uint16_t{0}; }

  /// A datagram in the window has come with a mark.
  void came() { fresh_ = true; }
  /// Of the next header.
  uint16_t flags() {
    if (fresh_) [[unlikely]] {
      fresh_ = false;
      if ((tell_ & kTells) != 0) tell_ = static_cast<uint16_t>((tell_ & ~kCount) | ((tell_ + kOne) & kCount));
    }
    return tell_;
  }

  /// The peer's header says what the one before it said.
  bool known(uint16_t flags) const { return (flags & kAll) == heard_; }
  /// The peer has told, by a header whose numbers fit. true: of new marks.
  bool hear(uint16_t flags) {
    const auto bits = static_cast<uint16_t>(flags & kAll);
    const unsigned step = ((bits & kCount) - (heard_ & kCount)) & kCount;
    if (step > kCount / 2) return false;  // overtaken by a later one
    const bool tells = (bits & kTells) != 0;
    heard_ = static_cast<uint16_t>(tells ? bits : (heard_ & ~kMerged) | (bits & kMerged));
    return tells && step != 0;
  }

  /// This end takes merged datagrams from now on, or no more. true: that is news.
  bool merge(bool yes) {
    const auto tell = static_cast<uint16_t>(yes ? tell_ | kMerged : tell_ & ~kMerged);
    const bool news = tell != tell_;
    tell_ = tell;
    return news;
  }
  bool merges() const { return (tell_ & kMerged) != 0; }
  /// This end has skipped a message, or has got it by now: it is in the flags of the next header as well.
  void skipped(bool yes) {
    tell_ = static_cast<uint16_t>(yes ? tell_ | USIW_TRP_F_SKIPPED : tell_ & ~USIW_TRP_F_SKIPPED);
  }
  bool peer_merges() const { return (heard_ & kMerged) != 0; }

  /// What is sent may be marked, acknowledgements as well (as in QUIC, RFC 9000, 13.4): the peer tells of marks, this
  /// end sees them, and such datagrams are not lost on the way.
  bool asks() const { return asks_; }
  /// arrived() would change nothing.
  bool settled() const { return asks_ && vain_ == 0; }
  /// What the peer tells has changed. @p nxt: the next PSN.
  void begin(uint32_t nxt) {
    if (asks_ || paused_ || (tell_ & heard_ & kTells) == 0) return;
    if (vain_ >= kVainMost && psn_lt(nxt, from_ + (kHold << vain_))) return;
    from_ = nxt;
    asks_ = true;
  }
  /// Something that was sent once has arrived, and so has everything before @p una.
  void arrived(uint32_t una, uint32_t nxt) {
    if (!asks_) {
      paused_ = false;
      begin(nxt);
    } else if (psn_lt(from_, una)) {
      vain_ = 0;
    }
  }
  /// Nothing that can be marked goes out until something has arrived: the peer repeats what has been acknowledged.
  void pause() {
    asks_ = false;
    paused_ = true;
  }
  /// A time-out has passed, or an answer was missed. After the third time without any arrival of what could be marked,
  /// this end asks again only when kHold << 3 datagrams more have been sent, and twice as many every time: there are
  /// routers that drop all of it, and hosts that are late.
  void timed_out() {
    if (!asks_) return;
    if (vain_ < kVainLast) ++vain_;
    pause();
  }

 private:
  static constexpr uint8_t kVainMost = 3, kVainLast = 20;
  static constexpr uint32_t kHold = 1024;  ///< datagrams
  static constexpr uint16_t kTells = USIW_TRP_F_TELLS_CE, kMerged = USIW_TRP_F_MERGED, kCount = USIW_TRP_F_CE_COUNT,
                            kOne = 1 << USIW_TRP_CE_SHIFT, kAll = kTells | kMerged | kCount;

  uint16_t tell_ = 0;    ///< what the flags of the next header are, but for fresh_
  uint16_t heard_ = 0;   ///< the peer's; 0: it has told nothing yet
  bool fresh_ = false;   ///< marks have come that no header has told of
  bool asks_ = false;
  bool paused_ = false;
  uint8_t vain_ = 0;     ///< time-outs since a datagram that could be marked has arrived
  uint32_t from_ = 0;    ///< the first PSN that could be marked
};

}  // namespace usiw

#endif  // USIW_ENGINE_MARKS_H
