// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file link.h
/// A line with a queue in front of it. It has a rate, a delay and a random loss. The queue drops packets when it is
/// full and marks them (ECN CE) above a threshold. cut() stops all traffic.
#ifndef USIW_TESTS_SIM_LINK_H
#define USIW_TESTS_SIM_LINK_H

#include <cstdint>
#include <deque>
#include <functional>

#include "world.h"

namespace usiw::sim {

/// A packet on its way between two hosts: a datagram of the engine, or a segment of the TCP model.
struct Packet {
  int from = 0, to = 0;
  uint32_t bytes = 0;    ///< on the line, with headers, checksum, preamble and gap
  bool capable = false;  ///< may be marked (ECT)
  bool marked = false;   ///< is marked (CE)
  bool tcp = false;
  uint64_t number = 0;  ///< TCP: number of the transmission, or the one that this packet acknowledges
  Datagram data{};      ///< engine
  FlowKey flow{};       ///< engine: as the sender sees it
};

struct LinkPlan {
  uint64_t rate = 10'000'000'000;  ///< bits per second
  size_t buffer = SIZE_MAX;        ///< packets that wait or are being sent; more are dropped
  size_t mark = SIZE_MAX;          ///< a packet that finds so many in the queue is marked
  uint64_t delay = 0;              ///< ns
  double loss = 0;                 ///< probability for each packet
};

class Link {
 public:
  Link(World& world, const LinkPlan& plan, std::function<void(Packet&&)> deliver)
      : w_(world), plan_(plan), deliver_(std::move(deliver)) {}
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void send(Packet&& p);
  /// Changes the rate. The packet that is being sent keeps the old rate.
  void set_rate(uint64_t rate) { plan_.rate = rate; }
  /// Starts or ends a cut. It loses the packets in the queue and all that follow. Packets after the line still arrive.
  void cut(bool now);

  /// Returns the time that a packet which came now would wait, ns.
  uint64_t waiting() const { return time_of(queued_bytes_); }
  uint64_t rate() const { return plan_.rate; }

  struct Counts {
    uint64_t offered = 0, dropped = 0, marked = 0;
  };
  Counts engine;  ///< packets of engines, without those of the TCP model

 private:
  uint64_t time_of(uint64_t bytes) const { return bytes * 8'000'000'000 / plan_.rate; }
  void serve();
  void sent();

  World& w_;
  LinkPlan plan_;
  std::function<void(Packet&&)> deliver_;
  std::deque<Packet> queue_, flying_;
  uint64_t queued_bytes_ = 0;
  bool serving_ = false, cut_ = false;
  const Life life_ = std::make_shared<int>(0);
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_LINK_H
