// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file send_window.h
/// What is outstanding: PSNs that have been sent and not been acknowledged by an ACK PSN.
///
/// Each of them is in one of three states, and the counts and bitmaps say the same of it:
///
///   in flight   sent, and nothing heard of it since
///   lost        to be sent again
///   arrived     reported by the bitmap of a SACK, ahead of una()
///
/// una() itself has never arrived, or it would not be expected.
#ifndef USIW_ENGINE_SEND_WINDOW_H
#define USIW_ENGINE_SEND_WINDOW_H

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/psn.h"

namespace usiw {

enum class PktKind : uint8_t { kSend, kReadResponse, kTerminate, kShutdown, kNothing };

/// A datagram with a PSN, until it is acknowledged: where its bytes come from.
struct TxPkt {
  uint64_t sent_ns;        ///< last transmission
  uint32_t owner;          ///< kSend: send queue position; kReadResponse: responder position; kNothing: not used
  uint32_t offset;         ///< in the message
  uint16_t len;            ///< payload bytes
  PktKind kind;
  uint8_t tx_count;        ///< transmissions, saturating
  bool timed_out;          ///< resent by the time-out, not because others overtook it
  uint8_t asks;            ///< kReadResponse whose source is gone: questions to the peer whether it has this datagram
};
static_assert(sizeof(TxPkt) == 24);

class SendWindow {
 public:
  /// @p pkts: room for kWindow. @p window: datagrams that the peer takes to begin with.
  void start(uint32_t psn, uint32_t window, TxPkt* pkts) {
    pkts_ = pkts;
    una_ = nxt_ = psn;
    edge_ = psn + std::min(window, kWindow);
  }

  uint32_t una() const { return una_; }    ///< oldest PSN not acknowledged
  uint32_t nxt() const { return nxt_; }    ///< next PSN to send
  uint32_t edge() const { return edge_; }  ///< first PSN that the peer does not accept yet
  uint32_t in_flight() const { return in_flight_; }
  uint32_t lost() const { return lost_count_; }
  bool empty() const { return una_ == nxt_; }
  /// nxt() may be sent.
  bool has_room() const { return nxt_ - una_ < kWindow && has_credit(); }
  /// So many may be sent from nxt() on.
  uint32_t room() const {
    const int32_t credit = psn_diff(edge_, nxt_);
    return credit <= 0 ? 0 : std::min(kWindow - (nxt_ - una_), static_cast<uint32_t>(credit));
  }
  /// nxt() is the last one that may be sent for now.
  bool has_room_for_one() const { return nxt_ + 1 - una_ >= kWindow || !psn_lt(nxt_ + 1, edge_); }
  /// The peer accepts nxt().
  bool has_credit() const { return psn_lt(nxt_, edge_); }
  bool has_arrived(uint32_t psn) const { return arrived_.test(psn); }

  TxPkt& pkt(uint32_t psn) { return pkts_[psn & (kWindow - 1)]; }

  /// nxt() has been sent for the first time.
  void sent(const TxPkt& pkt, uint64_t now) {
    TxPkt& entry = this->pkt(nxt_++);
    entry = pkt;
    entry.sent_ns = now;
    entry.tx_count = 1;
    ++in_flight_;
  }

  /// @p psn is to be sent again. false: it is not in flight.
  bool lose(uint32_t psn) {
    if (!psn_in(psn, una_, nxt_ - una_) || arrived_.test(psn) || lost_.test(psn)) return false;
    lost_.set(psn);
    ++lost_count_;
    --in_flight_;
    return true;
  }

  /// lost() is not 0.
  uint32_t oldest_lost() const {
    for (uint32_t psn = una_;; psn += 64)
      if (const uint64_t bits = lost_.extract(psn); bits != 0)
        return psn + static_cast<uint32_t>(std::countr_zero(bits));
  }
  /// The same, of those that are not of @p kind. nxt(): none of them is lost.
  uint32_t oldest_lost_but(PktKind kind) const {
    if (lost_count_ == 0) return nxt_;
    for (uint32_t base = una_; psn_lt(base, nxt_); base += 64)
      for (uint64_t bits = lost_.extract(base); bits != 0; bits &= bits - 1) {
        const uint32_t psn = base + static_cast<uint32_t>(std::countr_zero(bits));
        if (pkts_[psn & (kWindow - 1)].kind != kind) return psn;
      }
    return nxt_;
  }

  /// A lost one has been sent again.
  void resent(uint32_t psn) {
    lost_.clear(psn);
    --lost_count_;
    ++in_flight_;
  }

  /// Everything before @p ack_psn, which is in [una(), nxt()], has arrived. @p news(psn, was_lost) for each of which
  /// that was not known.
  template <typename News>
  void acknowledge(uint32_t ack_psn, News&& news) {
    for (; una_ != ack_psn; ++una_) {
      if (arrived_.test(una_))
        arrived_.clear(una_);
      else
        news(una_, leave(una_));
    }
    if (arrived_.test(una_)) {
      // Reported by a bitmap, and now expected all the same: kept until its turn and then refused
      // (uapi/usiw_wire.h), or the peer lies. It is on its way again, or all counts would be wrong.
      arrived_.clear(una_);
      ++in_flight_;
    }
  }

  /// acknowledge() of some, where nothing is known of any that is outstanding, and of these each has been sent once.
  /// The last of them; nullptr: it is not so, and nothing has changed.
  const TxPkt* acknowledge_in_order(uint32_t ack_psn) {
    if (in_flight_ != nxt_ - una_) return nullptr;
    for (uint32_t psn = una_; psn != ack_psn; ++psn)
      if (pkt(psn).tx_count != 1) return nullptr;
    in_flight_ -= ack_psn - una_;
    una_ = ack_psn;
    return &pkt(ack_psn - 1);
  }

  /// Behind acknowledge(): the bitmap of a SACK from una() on, whose first bit is 0 and whose last is before nxt().
  template <typename News>
  void report(std::span<const std::byte> bitmap, News&& news) {
    const uint32_t bits = static_cast<uint32_t>(bitmap.size()) * 8;
    for (uint32_t i = 0; i < bits; i += 64) {
      uint64_t word = 0;
      std::memcpy(&word, bitmap.data() + i / 8, std::min<size_t>(8, bitmap.size() - i / 8));
      for (word &= ~arrived_.extract(una_ + i); word != 0; word &= word - 1) {
        const uint32_t psn = una_ + i + static_cast<uint32_t>(std::countr_zero(word));
        news(psn, leave(psn));
        arrived_.set(psn);
      }
    }
  }

  /// The peer accepts @p credit from una() on. true: more than before.
  bool accept(uint32_t credit) {
    const uint32_t edge = una_ + std::min(credit, kWindow);
    const bool opened = psn_lt(edge_, edge);
    edge_ = edge;
    return opened;
  }

  /// Those of the 64 from @p base on that are in flight, lowest first.
  uint64_t in_flight_from(uint32_t base) const {
    const uint64_t open = ~(arrived_.extract(base) | lost_.extract(base));
    return nxt_ - base < 64 ? open & ((uint64_t{1} << (nxt_ - base)) - 1) : open;
  }

  /// Do counts and bitmaps agree? For tests.
  bool consistent() const {
    const uint32_t out = nxt_ - una_;
    if (out > kWindow || (out != 0 && arrived_.test(una_))) return false;
    uint32_t arrived = 0, lost = 0;
    for (uint32_t psn = una_; psn != nxt_; ++psn) {
      if (arrived_.test(psn) && lost_.test(psn)) return false;
      arrived += arrived_.test(psn);
      lost += lost_.test(psn);
    }
    return arrived == arrived_.count() && lost == lost_.count() && lost == lost_count_ &&
           out == arrived + lost + in_flight_;
  }

  static constexpr size_t kCold = 2 * sizeof(PsnBitmap);  ///< bytes ahead of what is looked at for each datagram

 private:
  /// Not outstanding any more. true: it was lost.
  bool leave(uint32_t psn) {
    if (!lost_.test(psn)) {
      --in_flight_;
      return false;
    }
    lost_.clear(psn);
    --lost_count_;
    return true;
  }

  PsnBitmap arrived_;
  PsnBitmap lost_;
  TxPkt* pkts_ = nullptr;  ///< by PSN modulo kWindow
  uint32_t una_ = 0;
  uint32_t nxt_ = 0;
  uint32_t edge_ = 0;
  uint32_t in_flight_ = 0;
  uint32_t lost_count_ = 0;
};

}  // namespace usiw

#endif  // USIW_ENGINE_SEND_WINDOW_H
