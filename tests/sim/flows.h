// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flows.h
/// Many flows through one bottleneck. A plan has the set-up and the events of a scenario, a result has its figures.
#ifndef USIW_TESTS_SIM_FLOWS_H
#define USIW_TESTS_SIM_FLOWS_H

#include <cstdint>
#include <string>
#include <vector>

#include "tcp_model.h"

namespace usiw::sim {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;
constexpr uint64_t kGbit = 1'000'000'000, kMbit = 1'000'000;

/// A plan has senders on one side, receivers on the other side, and the bottleneck between them.
struct FlowsPlan {
  std::string name, what;
  unsigned senders = 1;
  bool incast = false;        ///< one receiving host; all senders send a message at once, in rounds
  bool one_sink = false;      ///< one receiving host
  size_t sink_holds = 0;      ///< datagrams that fit in the receivers' ports; 0: no limit
  uint64_t sink_run = 0;      ///< ns from one run of their engine to the next; 0: 500 ns
  uint32_t message = 32'768;  ///< bytes
  unsigned depth = 8;         ///< messages under way at a time
  uint64_t rate = 10 * kGbit;  ///< rate of the bottleneck, bits per second
  uint64_t access = 0;         ///< rate of each host's own line; 0: four times that of the bottleneck
  uint64_t rtt = 20 * kUs;    ///< without any queue
  size_t buffer = 128;        ///< packets
  size_t mark = SIZE_MAX;     ///< a packet that finds so many in the queue is marked
  double loss = 0;            ///< probability of loss for each packet, in both directions
  uint16_t mtu = 1500;
  uint64_t warm = 20 * kMs;  ///< ns before the measurement
  uint64_t measure = 100 * kMs;
  uint64_t seed = 1;

  TcpKind tcp = TcpKind::kNone;
  unsigned tcps = 0;          ///< competitors
  uint64_t outage = 0;        ///< ns, both directions, between warm-up and measurement
  uint64_t low_rate = 0;      ///< the bottleneck has this rate every other @ref change
  uint64_t change = 0;
  enum Stop : uint8_t { kNobody, kBusy, kIdle, kRead } stop = kNobody;
  uint64_t stopped = 0;       ///< ns, the receiver (kRead: the one that is read from)

  /// The targets (docs/testing-simulation.md) that apply to the scenario.
  bool wants_jain = false, wants_drops = false, wants_queue = false, wants_recovery = false, wants_share = false,
       wants_life = false;
  double wants_loss = -1;  ///< largest loss of goodput, %; -1: no target
};

struct FlowsResult {
  std::string broken;  ///< the broken rule with its reason; empty: none
  double goodput = 0;  ///< payload without that of competitors, % of the bottleneck's capacity
  double tcp_goodput = 0;
  double share = 0;  ///< % of all payload, with that of competitors
  double jain = 1;
  double queue_median = 0, queue_p99 = 0;  ///< us
  double drops = 0;                        ///< dropped at the bottleneck, % of the packets that arrived there
  double overflow = 0;                     ///< % of the datagrams that found the receivers' ports full
  double marks = 0;             ///< %, ECN
  double repeats = 0;           ///< % of the datagrams with a PSN
  double recovery_first = -1, recovery_last = -1;  ///< us, first and last flow; -1: not measured, or never
  double slowest = 0;           ///< % of its fair share that the slowest flow got
  double lost = -1;             ///< % of the goodput without loss; -1: the scenario has no loss
  double alive = 0;             ///< connections that live at the end
  double died_after = 0;        ///< s from the beginning of the trouble to the first connection that died
  uint64_t messages = 0;
};

FlowsResult run_flows(const FlowsPlan& plan);

/// All scenarios that `--all` runs, in order.
const std::vector<FlowsPlan>& flow_scenarios();

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FLOWS_H
