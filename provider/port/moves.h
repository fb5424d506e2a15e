// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file moves.h
/// When a live connection goes on by another port: between raw packets and the data socket, where the user leaves the
/// choice. The provider asks it, and so does the simulation.
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
  return {PortKind::kPacket, USIW_PORT_WHY_FASTEST};
}

/// What is remembered about one connection, so that it neither goes back and forth all the time nor stays where it was
/// driven to by what is over.
class PortMoves {
 public:
  static constexpr uint64_t kDrainLookNs = 10'000'000;  ///< between looks whether what is too long is acknowledged
  static constexpr uint64_t kFirstHoldNs = 1'000'000'000;  ///< without raw packets after they have vanished ...
  static constexpr unsigned kMostHolds = 6;                 ///< ... twice as long every time, so often

  /// A connection begins. @p mtu: of its path, bytes.
  void begin(PortWish wish, const PortFacts& facts, PortChoice first, uint32_t mtu) {
    *this = {};
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
    held_until_ = 0;
  }
  void link(bool up) { down_ = !up; }
  void broken() { facts_.broken = true; }

  /// What to go on by. @p longest: IP packet of the longest datagram outstanding, bytes.
  PortChoice decide(bool silent, uint32_t longest, uint64_t now) {
    const PortChoice next = move_port(wish_, {.port = facts_,
                                              .present = present_,
                                              .down = down_,
                                              .fits = longest <= mtu_,
                                              .vanished = now < held_until_,
                                              .silent = silent});
    if (silent && present_.kind == PortKind::kPacket && next.kind == PortKind::kSocket) {
      if (now >= held_until_ + (kFirstHoldNs << kMostHolds)) holds_ = 0;  // long ago
      held_until_ = now + (kFirstHoldNs << holds_);
      holds_ = std::min(holds_ + 1, kMostHolds);
    } else if (silent && next.kind == PortKind::kPacket) {
      held_until_ = 0;
    }
    present_ = next;
    return next;
  }
  /// When to decide again though nothing is heard.
  uint64_t review_at(uint64_t now) const {
    if (present_.kind != PortKind::kSocket) return UINT64_MAX;
    if (present_.why == USIW_PORT_WHY_MTU) return now + kDrainLookNs;
    return present_.why == USIW_PORT_WHY_SILENT ? std::max(held_until_, now + kDrainLookNs) : UINT64_MAX;
  }
  /// It may go by either port, once it has both.
  bool leaves_choice() const {
    const bool either = present_.kind == PortKind::kSocket || present_.kind == PortKind::kPacket;
    return wish_ == PortWish::kAuto && facts_.socket && either;
  }
  /// It has not come about.
  void end() { present_.kind = PortKind::kNone; }
  PortChoice present() const { return present_; }
  uint32_t mtu() const { return mtu_; }

 private:
  PortWish wish_ = PortWish::kAuto;
  PortFacts facts_{};
  PortChoice present_{};
  uint32_t mtu_ = 0;
  bool down_ = false;
  unsigned holds_ = 0;
  uint64_t held_until_ = 0;  ///< raw packets have vanished: not before then again
};

}  // namespace usiw

#endif  // USIW_PORT_MOVES_H
