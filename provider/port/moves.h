// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file moves.h
/// When a live connection goes on by another port: between raw packets and the data socket, where the user leaves the
/// choice. The provider asks it, and so does the simulation.
///
/// Raw packets take the least time for a short message; by sockets the kernel moves many datagrams of a long one at
/// once. So a connection whose messages are long goes by its socket meanwhile, if its peer knows of this
/// (USIW_FEATURE_MERGES). While its socket takes merged datagrams (UDP_GRO), an adapter may merge what comes by raw
/// packets as well, and a packet socket cannot tell: so nothing is heard by raw packets then, nor for a while after.
#ifndef USIW_PORT_MOVES_H
#define USIW_PORT_MOVES_H

#include <algorithm>
#include <cstdint>

#include "port/choice.h"

namespace usiw {

/// What holds for a live connection now.
struct MoveFacts {
  PortFacts port;      ///< as for a new one
  PortChoice present;  ///< by which it goes
  bool down;           ///< the netdev of raw packets is not running
  bool fits;           ///< nothing that is outstanding is longer than the path's MTU
  bool vanished;       ///< raw packets did not get through lately
  bool silent;         ///< nothing gets through by the present port
  bool prefers_socket;  ///< its messages are long
};

/// By which port it goes on.
constexpr PortChoice move_port(PortWish wish, const MoveFacts& m) {
  const bool either = m.present.kind == PortKind::kPacket || m.present.kind == PortKind::kSocket;
  if (wish != PortWish::kAuto || !either || !m.port.socket) return m.present;
  if (const usiw_port_why why = against_packets(m.port); why != USIW_PORT_WHY_NONE) return {PortKind::kSocket, why};
  if (m.down) return {PortKind::kSocket, USIW_PORT_WHY_DOWN};
  if (!m.fits) return {PortKind::kSocket, USIW_PORT_WHY_MTU};  // the kernel makes fragments of it
  if (m.silent)
    return {m.present.kind == PortKind::kPacket ? PortKind::kSocket : PortKind::kPacket, USIW_PORT_WHY_SILENT};
  if (m.vanished) return {PortKind::kSocket, USIW_PORT_WHY_SILENT};
  if (m.prefers_socket) return {PortKind::kSocket, USIW_PORT_WHY_LONG};
  return {PortKind::kPacket, USIW_PORT_WHY_FASTEST};
}

/// What is remembered about one connection, so that it neither goes back and forth all the time nor stays where it was
/// driven to by what is over.
class PortMoves {
 public:
  static constexpr uint64_t kDrainLookNs = 10'000'000;  ///< between looks whether what is too long is acknowledged
  static constexpr uint64_t kFirstHoldNs = 1'000'000'000;  ///< without raw packets after they have vanished ...
  static constexpr unsigned kMostHolds = 6;                 ///< ... twice as long every time, so often
  static constexpr uint64_t kLongReviewNs = 250'000'000;    ///< between looks whether messages are still long
  static constexpr uint64_t kTellLookNs = 1'000'000;        ///< between looks whether the kernel has been told
  static constexpr uint64_t kSilenceIsOverNs = 1'000'000'000;  ///< after it the reason is looked at again
  /// The socket hears what is sent to it for so long before nothing else is heard: what the raw port alone has is
  /// taken.
  static constexpr uint64_t kBeforeMergingNs = 5'000'000;
  /// ... and so long after: what was merged before is through by then.
  static constexpr uint64_t kAfterMergingNs = 100'000'000;

  /// A connection begins. @p mtu: of its path, bytes. @p merges: both ends know USIW_FEATURE_MERGES.
  void begin(PortWish wish, const PortFacts& facts, PortChoice first, uint32_t mtu, bool merges = false) {
    *this = {};
    merges_ = merges;
    wish_ = wish;
    facts_ = facts;
    facts_.same_host = false;
    present_ = first;
    mtu_ = mtu;
  }
  /// The control path says what holds now. Raw packets get another chance.
  void path(usiw_not_packet not_packet, uint32_t mtu) {
    facts_.not_packet = not_packet;
    mtu_ = mtu;
    vanished_.until = 0;
  }
  void link(bool up) { down_ = !up; }
  /// @p socket: the kernel knows that this end goes by its socket, which hears all that comes since.
  void kernel_knows(bool socket) { socket_hears_ = socket; }
  void broken() { facts_.broken = true; }

  /// What to go on by. @p longest: IP packet of the longest datagram outstanding, bytes. @p long_messages: most of what
  /// is sent and received belongs to long messages.
  PortChoice decide(bool silent, uint32_t longest, uint64_t now, bool long_messages = false) {
    long_messages &= merges_ && !not_for_long_.lasts(now);
    PortChoice next = move_port(wish_, {.port = facts_,
                                        .present = present_,
                                        .down = down_,
                                        .fits = longest <= mtu_,
                                        .vanished = vanished_.lasts(now),
                                        .silent = silent,
                                        .prefers_socket = long_messages});
    if (silent && present_.kind == PortKind::kPacket && next.kind == PortKind::kSocket) {
      vanished_.begin(now);
    } else if (silent && next.kind == PortKind::kPacket) {
      vanished_.until = 0;
      if (long_messages) not_for_long_.begin(now);
      long_messages = false;
    }
    merge(long_messages && next.kind == PortKind::kSocket, now);
    if (next.kind == PortKind::kPacket && hears_socket_only()) next = {PortKind::kSocket, USIW_PORT_WHY_LONG};
    present_ = next;
    return next;
  }
  /// Its socket takes merged datagrams, and the peer is to be told.
  bool merging() const { return merging_ == Merging::kYes; }
  /// What comes by raw packets may be merged.
  bool hears_socket_only() const { return merging_ == Merging::kYes || merging_ == Merging::kAfter; }
  /// When to decide again though nothing is heard.
  uint64_t review_at(uint64_t now) const {
    if (present_.kind == PortKind::kPacket && present_.why == USIW_PORT_WHY_SILENT) return now + kSilenceIsOverNs;
    if (present_.kind != PortKind::kSocket) return UINT64_MAX;
    if (merging_ == Merging::kBefore && merging_at_ == 0) return now + kTellLookNs;
    if (merging_ == Merging::kBefore || merging_ == Merging::kAfter) return std::max(merging_at_, now + 1);
    if (present_.why == USIW_PORT_WHY_MTU) return now + kDrainLookNs;
    if (present_.why == USIW_PORT_WHY_SILENT) return std::max(vanished_.until, now + kDrainLookNs);
    return merging_ == Merging::kYes ? now + kLongReviewNs : UINT64_MAX;
  }
  /// It may go by either port, once it has both.
  bool leaves_choice() const {
    const bool either = present_.kind == PortKind::kSocket || present_.kind == PortKind::kPacket;
    return wish_ == PortWish::kAuto && facts_.socket && either;
  }
  /// It is over, or has not come about.
  void end() {
    present_.kind = PortKind::kNone;
    merging_ = Merging::kNo;
  }
  PortChoice present() const { return present_; }
  uint32_t mtu() const { return mtu_; }

 private:
  enum class Merging : uint8_t { kNo, kBefore, kYes, kAfter };
  /// A way that was tried in vain is left alone for a while, and for twice as long every time.
  struct Hold {
    uint64_t until = 0;
    unsigned times = 0;
    void begin(uint64_t now) {
      if (now >= until + (kFirstHoldNs << kMostHolds)) times = 0;  // long ago
      until = now + (kFirstHoldNs << times);
      times = std::min(times + 1, kMostHolds);
    }
    bool lasts(uint64_t now) const { return now < until; }
  };

  void merge(bool wanted, uint64_t now) {
    switch (merging_) {
      case Merging::kNo:
        if (!wanted) break;
        merging_ = Merging::kBefore;
        merging_at_ = 0;
        break;
      case Merging::kBefore:
        if (!wanted) merging_ = Merging::kNo;
        else if (!socket_hears_) merging_at_ = 0;
        else if (merging_at_ == 0) merging_at_ = now + kBeforeMergingNs;
        else if (now >= merging_at_) merging_ = Merging::kYes;
        break;
      case Merging::kYes:
        if (wanted) break;
        merging_ = Merging::kAfter;
        merging_at_ = now + kAfterMergingNs;
        break;
      case Merging::kAfter:
        if (wanted) merging_ = Merging::kYes;
        else if (now >= merging_at_) merging_ = Merging::kNo;
        break;
    }
  }

  PortWish wish_ = PortWish::kAuto;
  PortFacts facts_{};
  PortChoice present_{};
  uint32_t mtu_ = 0;
  bool down_ = false;
  Hold vanished_;      ///< raw packets have
  Hold not_for_long_;  ///< the socket was silent: long messages are no reason for it
  bool merges_ = false;
  Merging merging_ = Merging::kNo;
  uint64_t merging_at_ = 0;  ///< when it may go on from before or after to what is next. 0: the kernel has to be told
  bool socket_hears_ = false;
};

}  // namespace usiw

#endif  // USIW_PORT_MOVES_H
