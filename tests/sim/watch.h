// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// Rules that can be seen on the wire: sequence numbers, windows, acknowledgements, what a
/// PSN means, and repetitions. Every datagram that an engine offers to its port comes by
/// here, and every one that an engine takes from it.
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
  /// What one end has said and heard.
  struct End {
    ConnAttr attr;
    uint32_t next;              ///< PSN of the next new datagram
    uint32_t edge;              ///< first PSN that the peer has not allowed
    uint32_t acked;             ///< latest ACK PSN sent
    uint32_t reads = 0;         ///< READ requests sent, without those that come again behind a skip ...
    uint32_t reads_answered = 0;  ///< ... and last segments of responses taken
    std::vector<bool> arrived;  ///< by PSN - attr.rcv_psn: taken from the port and not refused
    std::vector<bool> answers;  ///< of those, the ones in reads_answered
    std::vector<uint64_t> content;  ///< by PSN - attr.snd_psn: hash of what it carried
    std::vector<bool> requests;  ///< of those, the ones that a peer throws away behind a message that it has skipped
    uint32_t asked = 0;         ///< PSN that the peer was asked to skip
    uint32_t first_void = 0;    ///< first PSN that the peer has skipped
    bool asks = false, voids = false;  ///< asked holds; first_void holds
    bool ended = false;         ///< SHUTDOWN or Terminate sent
    uint64_t repeats = 0, lost = 0, acks_lost = 0, not_ready = 0, opened_ns = 0, last_ns = 0;
  };
  End* find(int side, const FlowKey& flow);
  void check_data(int side, End& e, const TrpHeader& h, std::span<const std::byte> d);
  static bool may_be_emptied(const End& e, uint32_t psn, const DdpSegment& s);
  void check_skipped(int side, const FlowKey& flow, const TrpHeader& h);
  void check_ack(int side, const FlowKey& flow, End& e, const TrpHeader& h, std::span<const std::byte> d);
  void check_repeats(int side, End& e);

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
