// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flows.h
/// Many flows through one bottleneck: what is set up, what happens to it, and what came of it.
#ifndef USIW_TESTS_SIM_FLOWS_H
#define USIW_TESTS_SIM_FLOWS_H

#include <cstdint>
#include <string>
#include <vector>

#include "tcp_model.h"

namespace usiw::sim {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;
constexpr uint64_t kGbit = 1'000'000'000, kMbit = 1'000'000;

/// Senders on the one side, receivers on the other, and the bottleneck between them.
struct FlowsPlan {
  std::string name, what;
  unsigned senders = 1;
  bool incast = false;        ///< one receiving host; all send a message at once, then the next round begins
  bool one_sink = false;      ///< one receiving host
  size_t sink_holds = 0;      ///< datagrams that the receivers' ports hold until the engine runs; 0: as many as come
  uint64_t sink_run = 0;      ///< ns from one run of their engine to the next; 0: half a microsecond
  uint32_t message = 32'768;  ///< bytes
  unsigned depth = 8;         ///< messages under way
  uint64_t rate = 10 * kGbit; ///< of the bottleneck, bits per second
  uint64_t access = 0;        ///< of each host's own line; 0: four times as much
  uint64_t rtt = 20 * kUs;    ///< without any queue
  size_t buffer = 128;        ///< packets
  size_t mark = SIZE_MAX;     ///< packets from which on they are marked
  double loss = 0;            ///< of each packet, in both directions
  uint16_t mtu = 1500;
  uint64_t warm = 20 * kMs;   ///< not measured
  uint64_t measure = 100 * kMs;
  uint64_t seed = 1;

  TcpKind tcp = TcpKind::kNone;
  unsigned tcps = 0;          ///< competitors
  uint64_t outage = 0;        ///< ns, both directions, between warm-up and measurement
  uint64_t low_rate = 0;      ///< the bottleneck has this rate every other @ref change
  uint64_t change = 0;
  enum Stop : uint8_t { kNobody, kBusy, kIdle, kRead } stop = kNobody;
  uint64_t stopped = 0;       ///< ns, the receiver (kRead: the one that is read from)

  /// Which of the targets (docs/testing-simulation.md) are meant for it.
  bool wants_jain = false, wants_drops = false, wants_queue = false, wants_recovery = false, wants_share = false,
       wants_life = false;
  double wants_loss = -1;     ///< per cent of the goodput without loss; -1: nothing
};

struct FlowsResult {
  std::string broken;           ///< "" or the rule that was broken, and how
  double goodput = 0;           ///< payload, % of what the bottleneck could carry, competitors not counted
  double tcp_goodput = 0;
  double share = 0;             ///< % of what all payload has, with competitors
  double jain = 1;
  double queue_median = 0, queue_p99 = 0;  ///< us
  double drops = 0;             ///< % of the packets that came to the bottleneck
  double overflow = 0;          ///< % of the datagrams that came to the receivers while their ports were full
  double marks = 0;             ///< %, ECN
  double repeats = 0;           ///< % of the datagrams with a PSN
  double recovery_first = -1, recovery_last = -1;  ///< us, the first and the last flow; -1: not asked for, or never
  double slowest = 0;           ///< % of its fair share that the slowest flow got
  double lost = -1;             ///< % of the goodput without loss; -1: the scenario has no loss
  double alive = 0;             ///< connections at the end
  double died_after = 0;        ///< s from the beginning of the trouble to the first connection that died
  uint64_t messages = 0;
};

FlowsResult run_flows(const FlowsPlan& plan);

/// Everything that `--all` runs, in its order.
const std::vector<FlowsPlan>& flow_scenarios();

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FLOWS_H
