// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flows_table.cc
/// The scenarios of `flows`, with the targets that are meant for each.
#include <string>

#include "flows.h"

namespace usiw::sim {

namespace {

std::string text(uint64_t n) { return std::to_string(n); }

/// A bottleneck of 1 Gb/s with a round trip of 100 us and the targets of no scenario.
FlowsPlan gigabit(std::string name, std::string what, unsigned senders, size_t buffer) {
  FlowsPlan p{.name = std::move(name), .what = std::move(what), .senders = senders};
  p.rate = kGbit;
  p.rtt = 100 * kUs;
  p.buffer = buffer;
  return p;
}

/// A LAN: 10 Gb/s, 20 us, a switch's port with 128 packets.
void shared_lan(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {1, 2, 4, 8, 16, 32, 64})
    all.push_back({.name = "share-" + text(n),
                   .what = text(n) + " senders, 10 Gb/s, 20 us, 128 packets",
                   .senders = n,
                   .warm = 250 * kMs,  // the shares become fair after many round trips only
                   .wants_jain = n >= 2 && n <= 32,
                   .wants_drops = n <= 16,
                   .wants_queue = true});
}

/// A buffer much larger than the flows need: a flow that fills it makes all others wait.
void deep_buffer(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32}) {
    FlowsPlan p = gigabit("deep-" + text(n), text(n) + " senders, 1 Gb/s, 100 us, 4000 packets", n, 4000);
    p.warm = 500 * kMs;
    p.measure = kSec;
    p.wants_jain = p.wants_queue = true;
    all.push_back(p);
  }
}

void marking(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32})
    all.push_back({.name = "ecn-" + text(n),
                   .what = text(n) + " senders, 10 Gb/s, 20 us, 1000 packets, marks from 65 on",
                   .senders = n,
                   .buffer = 1000,
                   .mark = 65,
                   .warm = 250 * kMs,
                   .wants_jain = true,
                   .wants_queue = true});
}

/// All senders answer at the same time.
void incast(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32})
    all.push_back({.name = "incast-" + text(n),
                   .what = text(n) + ":1, rounds of 64 KB each, 10 Gb/s, 20 us, 128 packets",
                   .senders = n,
                   .incast = true,
                   .message = 65'536,
                   .rate = 10 * kGbit,
                   .access = 10 * kGbit,
                   .wants_drops = n <= 16,
                   .wants_queue = true});
}

/// One socket for all flows. It has the buffer that Debian gives a user, and a thread that runs every 20 us.
void one_socket(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {1, 16, 64})
    all.push_back({.name = "socket-" + text(n),
                   .what = text(n) + " senders to one socket that holds 184 datagrams, looked at every 20 us, 100 Gb/s",
                   .senders = n,
                   .one_sink = true,
                   .sink_holds = 184,
                   .sink_run = 20 * kUs,
                   .rate = 100 * kGbit,
                   .access = 100 * kGbit,
                   .rtt = 10 * kUs,
                   .buffer = 16'384,
                   .measure = 50 * kMs});
}

void beside_tcp(std::vector<FlowsPlan>& all) {
  for (const TcpKind kind : {TcpKind::kReno, TcpKind::kCubic}) {
    for (const auto& [n, ecn] : {std::pair{1u, false}, {4u, false}, {1u, true}}) {
      const bool reno = kind == TcpKind::kReno;
      all.push_back({.name = (reno ? "reno-" : "cubic-") + text(n) + (ecn ? "-ecn" : ""),
                     .what = text(n) + " beside " + text(n) + (reno ? " Reno" : " Cubic") +
                             ", 1 Gb/s, 1 ms, 250 packets" + (ecn ? ", marks from 65 on" : ""),
                     .senders = n,
                     .rate = kGbit,
                     .rtt = kMs,
                     .buffer = 250,
                     .mark = ecn ? 65 : SIZE_MAX,
                     .warm = kSec,
                     .measure = 4 * kSec,
                     .tcp = kind,
                     .tcps = n,
                     .wants_share = true});
    }
  }
}

void outages(std::vector<FlowsPlan>& all) {
  using Case = std::pair<unsigned, uint64_t>;
  for (const auto& [n, ms] : {Case{1, 1}, {1, 10}, {1, 20}, {1, 100}, {1, 1000}, {1, 5000}, {8, 20}, {8, 1000}}) {
    FlowsPlan p = gigabit("outage-" + text(ms) + (n == 1 ? "ms" : "ms-8"),
                          "nothing passes for " + text(ms) + " ms, 1 Gb/s, 100 us, " + text(n) +
                              (n == 1 ? " sender" : " senders"),
                          n, 512);
    p.warm = 50 * kMs;
    p.outage = ms * kMs;
    p.measure = 200 * kMs + (ms >= 1000 ? kSec : 0);
    p.wants_recovery = true;
    p.wants_life = ms >= 5000;
    all.push_back(p);
  }
}

void changing_rate(std::vector<FlowsPlan>& all) {
  for (const bool fast : {true, false}) {
    for (const unsigned n : {1, 8}) {
      const uint64_t rate = fast ? 10 * kGbit : kGbit, change = fast ? 20 * kMs : 200 * kMs;
      all.push_back({.name = (fast ? "rate-10g-1g-" : "rate-1g-100m-") + text(n),
                     .what = text(n) + (fast ? " senders, 10 and 1 Gb/s in turns of 20 ms, 20 us"
                                             : " senders, 1 Gb/s and 100 Mb/s in turns of 200 ms, 100 us"),
                     .senders = n,
                     .rate = rate,
                     .access = 4 * rate,
                     .rtt = fast ? 20 * kUs : 100 * kUs,
                     .buffer = 256,
                     .warm = change,
                     .measure = 8 * change,
                     .low_rate = rate / 10,
                     .change = change,
                     .wants_jain = n >= 2});
    }
  }
}

void losses(std::vector<FlowsPlan>& all) {
  struct Loss {
    std::string percent;
    double chance, wanted;
  };
  for (const Loss& l : {Loss{"0.01", 0.0001, -1}, {"0.1", 0.001, -1}, {"1", 0.01, 1.5}, {"5", 0.05, 10}}) {
    FlowsPlan p = gigabit("loss-" + l.percent, l.percent + " % of all packets are lost, 1 sender, 1 Gb/s, 100 us", 1,
                          512);
    p.loss = l.chance;
    p.warm = 100 * kMs;
    p.measure = kSec;
    p.wants_loss = l.wanted;
    all.push_back(p);
  }
}

/// A process stops for a while: SIGSTOP, a debugger, a virtual machine that is paused.
void stopped(std::vector<FlowsPlan>& all) {
  const auto add = [&all](const char* name, const char* what, FlowsPlan::Stop stop, uint64_t seconds) {
    FlowsPlan p = gigabit(name, what, 1, 512);
    p.stop = stop;
    p.stopped = seconds * kSec;
    p.measure = kSec;
    p.wants_life = true;
    all.push_back(p);
  };
  add("stop-2s", "the receiver stands still for 2 s amid a stream", FlowsPlan::kBusy, 2);
  add("stop-busy", "the receiver stands still for 30 s amid a stream", FlowsPlan::kBusy, 30);
  add("stop-idle", "the receiver stands still for 30 s, nothing under way", FlowsPlan::kIdle, 30);
  add("stop-read", "who is read from stands still for 30 s", FlowsPlan::kRead, 30);
}

}  // namespace

const std::vector<FlowsPlan>& flow_scenarios() {
  static const std::vector<FlowsPlan> kAll = [] {
    std::vector<FlowsPlan> all;
    shared_lan(all);
    deep_buffer(all);
    marking(all);
    incast(all);
    one_socket(all);
    beside_tcp(all);
    outages(all);
    changing_rate(all);
    losses(all);
    stopped(all);
    return all;
  }();
  return kAll;
}

}  // namespace usiw::sim
