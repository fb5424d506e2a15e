// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "flows.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "flow_host.h"
#include "scenario.h"

namespace usiw::sim {

namespace {

constexpr uint64_t kSampleNs = 10'000, kDrainNs = 30 * kSec;
constexpr size_t kReverseBuffer = 16'384;  ///< packets; the queue of acknowledgements is not examined
constexpr uint64_t kForever = UINT64_MAX;

double percent(double part, double whole) { return whole == 0 ? 0 : 100 * part / whole; }
double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }

/// World needs only the seed of a scenario.
Scenario seeded(uint64_t seed) {
  Scenario s;
  s.seed = seed;
  return s;
}

class FlowsRun {
 public:
  explicit FlowsRun(const FlowsPlan& plan)
      : plan_(plan), scenario_(seeded(plan.seed)), w_(scenario_, Mutation::kNone, 0),
        forward_(w_, {plan.rate, plan.buffer, plan.mark, plan.rtt / 2, plan.loss}, [this](Packet&& p) { come(p); }),
        reverse_(w_, {plan.rate, kReverseBuffer, SIZE_MAX, plan.rtt / 2, plan.loss}, [this](Packet&& p) { come(p); }) {
    // Sides: the sending hosts, the receiving ones, then pairs for the competitors.
    const bool one_sink = plan.incast || plan.one_sink;
    const unsigned sinks = one_sink ? 1 : plan.senders;
    left_ = static_cast<int>(plan.senders);
    for (unsigned i = 0; i < plan.senders + sinks; ++i) {
      const bool left = i < plan.senders;
      lines_.push_back(std::make_unique<Link>(
          w_, LinkPlan{.rate = plan.access != 0 ? plan.access : 4 * plan.rate},
          [this, left](Packet&& p) { (left ? forward_ : reverse_).send(std::move(p)); }));
      hosts_.push_back(std::make_unique<FlowHost>(
          w_, static_cast<int>(i), [line = lines_.back().get()](Packet&& p) { line->send(std::move(p)); },
          left ? 0 : plan.sink_holds, left || plan.sink_run == 0 ? FlowHost::kRunNs : plan.sink_run));
    }
    const Flow::Plan flow{plan.message, plan.incast ? 1 : plan.depth, plan.stop == FlowsPlan::kRead};
    for (unsigned i = 0; i < plan.senders; ++i)
      flows_.push_back(std::make_unique<Flow>(w_, flow, static_cast<int>(i), *hosts_[i],
                                              *hosts_[plan.senders + (one_sink ? 0 : i)], plan.mtu));
    for (unsigned i = 0; i < plan.tcps; ++i) {
      const auto side = static_cast<int>(hosts_.size() + 2 * i);
      lines_.push_back(std::make_unique<Link>(w_, LinkPlan{.rate = plan.access != 0 ? plan.access : 4 * plan.rate},
                                              [this](Packet&& p) { forward_.send(std::move(p)); }));
      tcps_.push_back(std::make_unique<TcpModel>(
          w_, plan.tcp, side, side + 1, plan.mark != SIZE_MAX, [this, side, line = lines_.back().get()](Packet&& p) {
            if (p.from == side)
              line->send(std::move(p));
            else
              reverse_.send(std::move(p));
          }));
    }
  }

  FlowsResult go();

 private:
  void come(Packet& p) {
    if (p.tcp)
      tcps_[(static_cast<size_t>(p.to) - hosts_.size()) / 2]->arrive(p);
    else
      hosts_.at(static_cast<size_t>(p.to))->arrive(std::move(p));
  }
  void start();
  void round();
  void trouble();
  void change_rate();
  void sample();
  void run_until(uint64_t at, bool at_rest = false);
  /// Sums over the line, all hosts and all competitors since the beginning, in datagrams; tcp in bytes.
  struct Counts {
    double offered = 0, dropped = 0, marked = 0, repeated = 0, sent = 0, arrived = 0, overflowed = 0, tcp = 0;
  };
  Counts counts() const;
  void measure(FlowsResult& r);
  void drain();

  const FlowsPlan& plan_;
  const Scenario scenario_;
  World w_;
  Link forward_, reverse_;
  std::vector<std::unique_ptr<Link>> lines_;
  std::vector<std::unique_ptr<FlowHost>> hosts_;
  std::vector<std::unique_ptr<Flow>> flows_;
  std::vector<std::unique_ptr<TcpModel>> tcps_;
  int left_ = 0;
  uint64_t rounds_ = 0;
  bool sampling_ = false, low_ = false, stopping_ = false;
  std::vector<uint32_t> waits_;  ///< samples of the time in the queue, ns
  double capacity_ = 0;          ///< bytes that the bottleneck could carry
  uint64_t trouble_at_ = 0, back_at_ = 0;
  const Life life_ = std::make_shared<int>(0);
};

void FlowsRun::start() {
  for (auto& f : flows_) {
    if (plan_.incast)
      f->on_message = [this] { round(); };
    else
      w_.after(w_.rng.below(plan_.warm / 4 + 1), life_, [this, flow = f.get()] {
        if (!stopping_) flow->want(kForever);
      });
  }
  for (auto& t : tcps_) w_.after(w_.rng.below(plan_.warm / 4 + 1), life_, [tcp = t.get()] { tcp->start(); });
  if (plan_.incast) round();
  if (plan_.change != 0) w_.after(plan_.change, life_, [this] { change_rate(); });
}

/// Begins the next round if all messages of this one have arrived.
void FlowsRun::round() {
  for (const auto& f : flows_)
    if (!f->finished()) return;
  if (stopping_) return;
  ++rounds_;
  for (const auto& f : flows_) f->want(rounds_);
}

void FlowsRun::change_rate() {
  low_ = !low_;
  forward_.set_rate(low_ ? plan_.low_rate : plan_.rate);
  w_.after(plan_.change, life_, [this] { change_rate(); });
}

void FlowsRun::sample() {
  if (!sampling_) return;
  waits_.push_back(static_cast<uint32_t>(std::min<uint64_t>(forward_.waiting(), UINT32_MAX)));
  capacity_ += static_cast<double>(forward_.rate()) / 8 * kSampleNs / 1e9;
  w_.after(kSampleNs, life_, [this] { sample(); });
}

void FlowsRun::run_until(uint64_t at, bool at_rest) {
  const auto rest = [&] { return std::ranges::all_of(flows_, [](const auto& f) { return f->at_rest(); }); };
  while (!w_.failed() && w_.next_due() <= at && !(at_rest && rest())) {
    w_.clock.now = std::max(w_.clock.now, w_.next_due());
    w_.run_due();
  }
  if (!at_rest) w_.clock.now = std::max(w_.clock.now, at);
}

void FlowsRun::trouble() {
  trouble_at_ = w_.clock.now;
  if (plan_.outage != 0) {
    forward_.cut(true);
    reverse_.cut(true);
    run_until(w_.clock.now + plan_.outage);
    forward_.cut(false);
    reverse_.cut(false);
  }
  if (plan_.stop != FlowsPlan::kNobody) {
    if (plan_.stop == FlowsPlan::kIdle) {
      for (const auto& f : flows_) f->stop();
      run_until(w_.clock.now + kSec, true);
    }
    std::vector<FlowHost*> stopped;
    for (size_t i = 0; i < hosts_.size(); ++i)
      if ((static_cast<int>(i) < left_) == (plan_.stop == FlowsPlan::kRead)) stopped.push_back(hosts_[i].get());
    for (FlowHost* h : stopped) h->freeze(true);
    run_until(w_.clock.now + plan_.stopped);
    for (FlowHost* h : stopped) h->freeze(false);
  }
  back_at_ = w_.clock.now;
  for (const auto& f : flows_) {
    f->look_for_first();
    if (plan_.stop == FlowsPlan::kIdle) f->want(kForever);
  }
}

FlowsRun::Counts FlowsRun::counts() const {
  Counts c;
  c.offered = forward_.engine.offered;
  c.dropped = forward_.engine.dropped;
  c.marked = forward_.engine.marked;
  for (const auto& h : hosts_) {
    c.repeated += h->repeated();
    c.arrived += h->port.arrived;
    c.overflowed += h->port.overflowed;
    c.sent += h->count(USIW_CNT_TX_PKTS) - h->count(USIW_CNT_TX_SACKS);
  }
  for (const auto& t : tcps_) c.tcp += t->delivered();
  return c;
}

void FlowsRun::measure(FlowsResult& r) {
  std::vector<uint64_t> before;
  for (const auto& f : flows_) before.push_back(f->bytes());
  const Counts old = counts();
  sampling_ = true;
  sample();
  run_until(w_.clock.now + plan_.measure);
  sampling_ = false;

  const Counts now = counts();
  double sum = 0, squares = 0, least = 1e300;
  for (size_t i = 0; i < flows_.size(); ++i) {
    const auto got = static_cast<double>(flows_[i]->bytes() - before[i]);
    sum += got;
    squares += got * got;
    least = std::min(least, got);
  }
  const double tcp_bytes = now.tcp - old.tcp;
  const auto n = static_cast<double>(flows_.size());
  r.goodput = percent(sum, capacity_);
  r.tcp_goodput = percent(tcp_bytes, capacity_);
  r.share = percent(sum, sum + tcp_bytes);
  r.jain = squares == 0 ? 0 : sum * sum / (n * squares);
  r.slowest = percent(least, sum / n);
  r.drops = percent(now.dropped - old.dropped, now.offered - old.offered);
  r.overflow = percent(now.overflowed - old.overflowed, now.arrived - old.arrived);
  r.marks = percent(now.marked - old.marked, now.offered - old.offered);
  r.repeats = percent(now.repeated - old.repeated, now.sent - old.sent);
  std::ranges::sort(waits_);
  r.queue_median = us(waits_[waits_.size() / 2]);
  r.queue_p99 = us(waits_[waits_.size() * 99 / 100]);
}

/// Stops posting, and checks that all posted messages complete, whatever the faults were.
void FlowsRun::drain() {
  stopping_ = true;
  for (const auto& f : flows_) f->stop();
  run_until(w_.clock.now + kDrainNs, true);
  for (size_t i = 0; i < flows_.size(); ++i)
    if (!flows_[i]->at_rest())
      w_.fail("hang", "flow %zu: what was posted is not complete %llu s later", i, ull(kDrainNs / kSec));
}

FlowsResult FlowsRun::go() {
  FlowsResult r;
  start();
  run_until(w_.clock.now + plan_.warm);
  const bool troubled = plan_.outage != 0 || plan_.stop != FlowsPlan::kNobody;
  if (troubled) trouble();
  measure(r);
  if (troubled && !w_.failed()) {
    uint64_t first = UINT64_MAX, last = 0;
    for (const auto& f : flows_) {
      const uint64_t at = f->first() == 0 ? UINT64_MAX : f->first();
      first = std::min(first, at);
      last = std::max(last, at);
    }
    if (first != UINT64_MAX) r.recovery_first = us(first - back_at_);
    if (last != UINT64_MAX) r.recovery_last = us(last - back_at_);
  }
  drain();
  for (const auto& f : flows_) {
    r.messages += f->received();
    r.alive += !f->dead;
    if (f->dead && (r.died_after == 0 || us(f->died_at - trouble_at_) / 1e6 < r.died_after))
      r.died_after = us(f->died_at - trouble_at_) / 1e6;
    if (f->dead && !troubled) w_.fail("lost", "a connection ended, error %d", f->error);
  }
  hosts_.clear();  // their destructors check for leaks
  if (w_.failed()) r.broken = w_.rule + ": " + w_.why;
  return r;
}

}  // namespace

FlowsResult run_flows(const FlowsPlan& plan) { return FlowsRun(plan).go(); }

}  // namespace usiw::sim
