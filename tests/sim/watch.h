// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// The rules of the wire: sequence numbers, windows, acknowledgements, the contents of a PSN, and retransmissions.
/// Watch sees each datagram that an engine gives to its port, and each that an engine takes from it.
#ifndef USIW_TESTS_SIM_WATCH_H
#define USIW_TESTS_SIM_WATCH_H

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/types.h"
#include "base/wire.h"
#include "world.h"

namespace usiw::sim {

class Watch {
 public:
  explicit Watch(World& world) : w_(world) {}

  /// The engine of @p side was given this connection.
  void open(int side, const FlowKey& flow, const ConnAttr& attr);
  void offered(int side, const FlowKey& flow, std::span<const std::byte> d);
  void delivered(int side, const FlowKey& flow, std::span<const std::byte> d);
  void lost(int side, const FlowKey& flow, std::span<const std::byte> d);

 private:
  /// The traffic of one end.
  struct End : Reporter {
    End(World& world, int side, const ConnAttr& conn) : Reporter(world, side), attr(conn) {}
    const ConnAttr attr;
    uint32_t next = attr.snd_psn;   ///< PSN of the next new datagram
    uint32_t edge = attr.snd_psn;   ///< first PSN that the peer has not allowed
    uint32_t acked = attr.rcv_psn;  ///< latest ACK PSN sent
    uint32_t reads = 0;             ///< READ requests sent, without those sent again after a skip
    uint32_t reads_answered = 0;    ///< last segments of READ responses received
    std::vector<bool> arrived;      ///< by PSN - attr.rcv_psn: received and not refused
    std::vector<bool> answers;      ///< the same index: counted in reads_answered
    std::vector<uint64_t> content;  ///< by PSN - attr.snd_psn: hash of the contents
    std::vector<bool> requests;     ///< the same index: a request, which a peer discards after a skipped message
    uint32_t asked = 0;             ///< PSN that the end asked its peer to skip
    uint32_t first_void = 0;    ///< first PSN that the peer has skipped
    bool asks = false, voids = false;  ///< asked is valid; first_void is valid
    bool ended = false;         ///< SHUTDOWN or Terminate sent
    uint64_t repeats = 0, lost = 0, acks_lost = 0, not_ready = 0, opened_ns = 0;
  };
  End* find(int side, const FlowKey& flow);
  End* peer_of(const FlowKey& flow);
  void check_data(End& e, const TrpHeader& h, std::span<const std::byte> d);
  static bool may_be_emptied(const End& e, uint32_t psn, const DdpSegment& s);
  void check_skipped(const End& e, const FlowKey& flow, const TrpHeader& h);
  void check_ack(const FlowKey& flow, End& e, const TrpHeader& h, std::span<const std::byte> d);
  void check_repeats(const End& e);

  struct Key {
    int side;
    FlowKey flow;
    bool operator<(const Key& o) const {
      return side != o.side ? side < o.side : std::memcmp(&flow, &o.flow, sizeof flow) < 0;
    }
  };
  World& w_;
  std::map<Key, End> ends_;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_WATCH_H
