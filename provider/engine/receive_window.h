// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file receive_window.h
/// What has arrived: everything before nxt(), and of the PSNs behind it those that the bitmap has, up to max().
///
/// nxt() itself has not arrived, or it would not be expected. max() is behind the highest that has, so the bitmap of a
/// SACK ends with a set bit.
#ifndef USIW_ENGINE_RECEIVE_WINDOW_H
#define USIW_ENGINE_RECEIVE_WINDOW_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/psn.h"

namespace usiw {

/// A datagram that arrived ahead of its turn: what remains to be done in its turn.
struct RxPkt {
  enum Kind : uint8_t { kNothing, kSendLast, kHeld };
  Kind kind = kNothing;
  uint8_t rdmap = 0;    ///< kSendLast: the RDMAP opcode
  uint16_t held = 0;    ///< kHeld: index in the pool of held buffers
  uint32_t msn = 0;     ///< kSendLast
  uint32_t length = 0;  ///< kSendLast: bytes of the message
  uint32_t imm = 0;     ///< kSendLast: what the header says of immediate data, or of an STag to invalidate
};
static_assert(sizeof(RxPkt) == 16);

class ReceiveWindow {
 public:
  /// @p psn: the first one. @p pkts: room for kWindow.
  void start(uint32_t psn, RxPkt* pkts) {
    pkts_ = pkts;
    nxt_ = max_ = psn;
    edge_ = psn + kFirstCredit;
  }

  uint32_t nxt() const { return nxt_; }  ///< PSN expected
  uint32_t max() const { return max_; }  ///< behind the highest PSN that has arrived
  bool has_gap() const { return max_ != nxt_; }
  bool has_arrived(uint32_t psn) const { return arrived_.test(psn); }
  unsigned early_count() const { return arrived_.count(); }

  /// A datagram that is new has come, wherever it belongs. @p ends_tagged: the end of a tagged message, which is kept
  /// as it is when it comes early.
  void saw(bool ends_tagged) {
    ends_share_ = static_cast<uint8_t>(ends_share_ - ends_share_ / 16 + (ends_tagged ? kEndsShareMax / 16 : 0));
  }

  /// The port holds @p datagrams of this connection that nobody has taken yet; what comes beyond them is lost.
  void limit(uint32_t datagrams) {
    share_ = static_cast<uint16_t>(std::clamp<uint32_t>(datagrams, kLeastLimit, kWindow));
  }

  /// Datagrams that the peer may send from nxt() on. Those that came early are out of the port, so its share counts
  /// from max() on. The pool of parked datagrams is small: a stream with many ends of tagged messages, which are parked
  /// when they come early, gets a smaller window. The edge that this advertises never moves back.
  uint16_t credit() {
    uint32_t most = kWindow;
    if (ends_share_ > kEndsShareMax / 4 + 4) most = ends_share_ <= kEndsShareMax / 2 + 8 ? kWindow / 2 : kLeastCredit;
    const uint32_t edge = nxt_ + std::min(max_ - nxt_ + share_, most);
    if (psn_lt(edge_, edge)) edge_ = edge;
    return static_cast<uint16_t>(edge_ - nxt_);
  }
  /// Moves the edge so far that the peer may send after @p refused, which came and found no receive work request.
  void pass(uint32_t refused) {
    if (!psn_in(refused, nxt_, kWindow)) return;
    const uint32_t edge = nxt_ + std::min(refused + 1 - nxt_ + share_, kWindow);
    if (psn_lt(edge_, edge)) edge_ = edge;
  }
  static constexpr uint32_t kLeastCredit = kWindow / 4;
  static constexpr uint32_t kFirstCredit = USIW_TRP_FIRST_WINDOW;  ///< the handshake advertises it
  /// However little a port holds: one datagram on its way and the next one sent while the first is acknowledged.
  static constexpr uint32_t kLeastLimit = 2;

  /// nxt() has arrived, and all is done that is to be done about it.
  void accept() {
    if (++nxt_; psn_lt(max_, nxt_)) max_ = nxt_;
  }

  /// @p psn, which is behind nxt() and had not arrived, has.
  void accept_early(uint32_t psn, const RxPkt& later) {
    pkts_[psn & (kWindow - 1)] = later;
    arrived_.set(psn);
    if (psn_lt(max_, psn + 1)) max_ = psn + 1;
  }

  /// The entry of @p psn, which has come early: the work that remains for its turn.
  RxPkt& early(uint32_t psn) { return pkts_[psn & (kWindow - 1)]; }

  /// What came early and is nxt() by now, into @p later: accept() or refuse() follows. false: it has not arrived.
  bool take(RxPkt& later) {
    if (!arrived_.test(nxt_)) return false;
    arrived_.clear(nxt_);
    later = pkts_[nxt_ & (kWindow - 1)];
    return true;
  }

  /// What take() gave is as if it had never arrived.
  void refuse() {
    while (max_ != nxt_ && !arrived_.test(max_ - 1)) --max_;
  }

  /// Forgets all that came early; @p each(RxPkt).
  template <typename Each>
  void clear(Each&& each) {
    for (uint32_t psn = nxt_; psn_lt(psn, max_); ++psn) {
      if (!arrived_.test(psn)) continue;
      arrived_.clear(psn);
      each(pkts_[psn & (kWindow - 1)]);
    }
    max_ = nxt_;
  }

  /// Writes the bitmap of a SACK, from nxt() to max(); returns its bytes.
  size_t write_bitmap(std::byte* out) const {
    const uint32_t bits = max_ - nxt_;
    const size_t bytes = (bits + 7) / 8;
    for (uint32_t i = 0; i < bits; i += 64) {
      const uint64_t word = arrived_.extract(nxt_ + i);
      std::memcpy(out + i / 8, &word, std::min<size_t>(8, bytes - i / 8));
    }
    return bytes;
  }

  /// Do positions and bitmap agree? For tests.
  bool consistent() const {
    const uint32_t ahead = max_ - nxt_;
    if (ahead > kWindow || arrived_.test(nxt_) || (ahead != 0 && !arrived_.test(max_ - 1))) return false;
    uint32_t arrived = 0;
    for (uint32_t psn = nxt_; psn != max_; ++psn) arrived += arrived_.test(psn);
    return arrived == arrived_.count();
  }

  static constexpr size_t kCold = sizeof(PsnBitmap);  ///< bytes ahead of what is looked at for each datagram

 private:
  static constexpr unsigned kEndsShareMax = 240;

  PsnBitmap arrived_;
  RxPkt* pkts_ = nullptr;  ///< by PSN modulo kWindow
  uint32_t nxt_ = 0;
  uint32_t max_ = 0;
  uint32_t edge_ = 0;        ///< advertised: the first PSN that the peer may not send yet
  uint16_t share_ = kFirstCredit;   ///< datagrams that the port holds for this connection
  uint8_t ends_share_ = 0;  ///< of kEndsShareMax, about: datagrams of late that end a tagged message
};

}  // namespace usiw

#endif  // USIW_ENGINE_RECEIVE_WINDOW_H
