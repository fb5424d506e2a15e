// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flows_table.cc
/// The scenarios of `flows`, with the targets that are meant for each.
#include <string>

#include "flows.h"

namespace usiw::sim {

namespace {

std::string number(const char* before, uint64_t n, const char* behind = "") {
  return before + std::to_string(n) + behind;
}

/// A LAN: 10 Gb/s, 20 us, a switch's port with 128 packets.
void shared_lan(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {1, 2, 4, 8, 16, 32, 64}) {
    FlowsPlan p;
    p.name = number("share-", n);
    p.what = number("", n, " senders, 10 Gb/s, 20 us, 128 packets");
    p.senders = n;
    p.warm = 250 * kMs;  // fair shares are not there from the first round trip on
    p.wants_jain = n >= 2 && n <= 32;
    p.wants_drops = n <= 16;
    p.wants_queue = true;
    all.push_back(p);
  }
}

/// A buffer that nobody needs: who fills it makes all others wait.
void deep_buffer(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32}) {
    FlowsPlan p;
    p.name = number("deep-", n);
    p.what = number("", n, " senders, 1 Gb/s, 100 us, 4000 packets");
    p.senders = n;
    p.rate = kGbit;
    p.rtt = 100 * kUs;
    p.buffer = 4000;
    p.warm = 500 * kMs;
    p.measure = kSec;
    p.wants_jain = p.wants_queue = true;
    all.push_back(p);
  }
}

void marking(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32}) {
    FlowsPlan p;
    p.name = number("ecn-", n);
    p.what = number("", n, " senders, 10 Gb/s, 20 us, 1000 packets, marks from 65 on");
    p.senders = n;
    p.buffer = 1000;
    p.mark = 65;
    p.warm = 250 * kMs;
    p.wants_jain = p.wants_queue = true;
    all.push_back(p);
  }
}

/// Everybody answers at the same time.
void incast(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {8, 32}) {
    FlowsPlan p;
    p.name = number("incast-", n);
    p.what = number("", n, ":1, rounds of 64 KB each, 10 Gb/s, 20 us, 128 packets");
    p.senders = n;
    p.incast = true;
    p.message = 65'536;
    p.access = p.rate;
    p.wants_drops = n <= 16;
    p.wants_queue = true;
    all.push_back(p);
  }
}

/// One socket for all, with the buffer that Debian gives a user, and a thread that comes by every 20 us.
void one_socket(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {1, 16, 64}) {
    FlowsPlan p;
    p.name = number("socket-", n);
    p.what = number("", n, " senders to one socket that holds 184 datagrams, looked at every 20 us, 100 Gb/s");
    p.senders = n;
    p.one_sink = true;
    p.sink_holds = 184;
    p.sink_run = 20 * kUs;
    p.rate = 100 * kGbit;
    p.rtt = 10 * kUs;
    p.buffer = 16'384;
    p.access = p.rate;
    p.measure = 50 * kMs;
    all.push_back(p);
  }
}

void beside_tcp(std::vector<FlowsPlan>& all) {
  for (const TcpKind kind : {TcpKind::kReno, TcpKind::kCubic}) {
    for (const bool ecn : {false, true}) {
      for (const unsigned n : {1, 4}) {
        if (ecn && n != 1) continue;
        FlowsPlan p;
        const char* name = kind == TcpKind::kReno ? "reno" : "cubic";
        p.name = number(name, n, ecn ? "-ecn" : "");
        p.name.insert(p.name.find_first_of("0123456789"), "-");
        p.what = number("", n, " beside ") + number("", n, kind == TcpKind::kReno ? " Reno" : " Cubic") +
                 (ecn ? ", 1 Gb/s, 1 ms, 250 packets, marks from 65 on" : ", 1 Gb/s, 1 ms, 250 packets");
        p.senders = p.tcps = n;
        p.tcp = kind;
        p.rate = kGbit;
        p.rtt = kMs;
        p.buffer = 250;
        if (ecn) p.mark = 65;
        p.warm = kSec;
        p.measure = 4 * kSec;
        p.wants_share = true;
        all.push_back(p);
      }
    }
  }
}

void outages(std::vector<FlowsPlan>& all) {
  for (const unsigned n : {1, 8}) {
    for (const uint64_t ms : {1, 10, 20, 100, 1000, 5000}) {
      if (n == 8 && ms != 20 && ms != 1000) continue;
      FlowsPlan p;
      p.name = number("outage-", ms, n == 1 ? "ms" : "ms-8");
      p.what = number("nothing passes for ", ms, " ms, 1 Gb/s, 100 us, ") +
               number("", n, n == 1 ? " sender" : " senders");
      p.senders = n;
      p.rate = kGbit;
      p.rtt = 100 * kUs;
      p.buffer = 512;
      p.warm = 50 * kMs;
      p.outage = ms * kMs;
      p.measure = 200 * kMs + (ms >= 1000 ? kSec : 0);
      p.wants_recovery = true;
      p.wants_life = ms >= 5000;
      all.push_back(p);
    }
  }
}

void changing_rate(std::vector<FlowsPlan>& all) {
  for (const bool fast : {true, false}) {
    for (const unsigned n : {1, 8}) {
      FlowsPlan p;
      p.name = number(fast ? "rate-10g-1g-" : "rate-1g-100m-", n);
      p.what = number("", n, fast ? " senders, 10 and 1 Gb/s in turns of 20 ms, 20 us"
                                  : " senders, 1 Gb/s and 100 Mb/s in turns of 200 ms, 100 us");
      p.senders = n;
      p.rate = fast ? 10 * kGbit : kGbit;
      p.low_rate = p.rate / 10;
      p.access = 4 * p.rate;
      p.change = fast ? 20 * kMs : 200 * kMs;
      p.rtt = fast ? 20 * kUs : 100 * kUs;
      p.buffer = 256;
      p.warm = p.change;
      p.measure = 8 * p.change;
      p.wants_jain = n >= 2;
      all.push_back(p);
    }
  }
}

void losses(std::vector<FlowsPlan>& all) {
  struct Loss {
    const char* name;
    double chance, wanted;
  };
  for (const Loss& l : {Loss{"loss-0.01", 0.0001, -1}, Loss{"loss-0.1", 0.001, -1}, Loss{"loss-1", 0.01, 1.5},
                        Loss{"loss-5", 0.05, 10}}) {
    FlowsPlan p;
    p.name = l.name;
    p.what = std::string(l.name + 5) + " % of all packets are lost, 1 sender, 1 Gb/s, 100 us";
    p.rate = kGbit;
    p.rtt = 100 * kUs;
    p.buffer = 512;
    p.loss = l.chance;
    p.warm = 100 * kMs;
    p.measure = kSec;
    p.wants_loss = l.wanted;
    all.push_back(p);
  }
}

/// SIGSTOP, a debugger, a virtual machine that is paused.
void stopped(std::vector<FlowsPlan>& all) {
  struct Stopped {
    const char *name, *what;
    FlowsPlan::Stop stop;
    uint64_t ns;
  };
  for (const Stopped& s : {
           Stopped{"stop-2s", "the receiver stands still for 2 s amid a stream", FlowsPlan::kBusy, 2 * kSec},
           Stopped{"stop-busy", "the receiver stands still for 30 s amid a stream", FlowsPlan::kBusy, 30 * kSec},
           Stopped{"stop-idle", "the receiver stands still for 30 s, nothing under way", FlowsPlan::kIdle, 30 * kSec},
           Stopped{"stop-read", "who is read from stands still for 30 s", FlowsPlan::kRead, 30 * kSec}}) {
    FlowsPlan p;
    p.name = s.name;
    p.what = s.what;
    p.rate = kGbit;
    p.rtt = 100 * kUs;
    p.buffer = 512;
    p.stop = s.stop;
    p.stopped = s.ns;
    p.measure = kSec;
    p.wants_life = true;
    all.push_back(p);
  }
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
