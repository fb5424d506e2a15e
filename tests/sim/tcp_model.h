// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file tcp_model.h
/// A model of a TCP connection that shares a bottleneck with flows of the engine. It has the window of Reno (RFC 5681)
/// or Cubic (RFC 9438), acknowledges every segment, and recovers with SACK without needless retransmissions. It carries
/// no bytes. Each transmission has a number, so a lost segment costs one transmission.
#ifndef USIW_TESTS_SIM_TCP_MODEL_H
#define USIW_TESTS_SIM_TCP_MODEL_H

#include <cstdint>
#include <deque>
#include <functional>

#include "link.h"
#include "world.h"

namespace usiw::sim {

enum class TcpKind : uint8_t { kNone, kReno, kCubic };

class TcpModel {
 public:
  TcpModel(World& world, TcpKind kind, int from, int to, bool capable, std::function<void(Packet&&)> out)
      : w_(world), kind_(kind), from_(from), to_(to), capable_(capable), out_(std::move(out)) {}

  void start() { fill(); }
  /// A packet of this connection arrives at one of its ends.
  void arrive(const Packet& p);
  uint64_t delivered() const { return delivered_; }  ///< bytes of payload

  static constexpr uint32_t kSegment = 1448, kSegmentOnLine = 1538, kAckOnLine = 90;

 private:
  struct Sent {
    uint64_t number, at;
    bool acked;
  };
  void fill();
  void acked(const Packet& p);
  void grow();
  void reduce();
  void arm();
  void timed_out();
  double cubic_window(double seconds) const;

  World& w_;
  const TcpKind kind_;
  const int from_, to_;
  const bool capable_;
  std::function<void(Packet&&)> out_;
  std::deque<Sent> sent_;  ///< starts with the oldest that is neither acknowledged nor lost
  uint64_t next_ = 1, highest_acked_ = 0, recover_ = 0;
  uint64_t inflight_ = 0, delivered_ = 0;
  double cwnd_ = 10, ssthresh_ = 1e9, w_max_ = 0, reno_ = 0;
  uint64_t epoch_ = 0;  ///< start of Cubic's growth, ns; 0: not begun
  double srtt_ = 0, rttvar_ = 0;
  uint64_t rto_at_ = 0;
  unsigned backoffs_ = 0;
  bool armed_ = false;
  const Life life_ = std::make_shared<int>(0);
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_TCP_MODEL_H
