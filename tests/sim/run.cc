// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "run.h"

#include <algorithm>
#include <cerrno>

namespace usiw::sim {
namespace {

constexpr uint64_t kTick = 300;                 ///< ns that one step takes
constexpr uint64_t kLimit = 2'000'000'000'000;  ///< ns of virtual time for the whole scenario
constexpr uint64_t kMaxSteps = 30'000'000;
constexpr uint64_t kLingerNs = 40'000'000'000;  ///< ns after which no object may be left
constexpr int kTries = 8;

}  // namespace

Run::Run(const Scenario& scenario, Mutation mutation, size_t trace_lines)
    : w(scenario, mutation, trace_lines), watch(w), faults_(scenario.wire) {
  w.wire.faults = faults_;
  w.wire.lost = [this](int side, const Datagram& d, const FlowKey& flow, const char* why) {
    watch.lost(side, flow, d);
    if (w.tracing()) w.trace("%c  lost (%s) %s", 'A' + side, why, describe(d).c_str());
  };
  w.wire.filter = [this](int, Datagram& d) {
    mutate(d);
    return true;
  };
  machines.reserve(scenario.hosts.size());
  for (size_t i = 0; i < scenario.hosts.size(); ++i) machines.push_back({static_cast<int>(i), nullptr, nullptr});
  for (Machine& m : machines) start_process(m);
  session_.resize(scenario.pairs.size());
  old_client_.resize(scenario.pairs.size());
}

// ---- Hosts ----

void Run::start_process(Machine& m) {
  if (m.kernel == nullptr) {
    m.kernel = std::make_unique<Kernel>(w, m.side);
    m.kernel->on_request = [this, &m](uint32_t conn_id, std::span<const uint8_t> pd) { on_request(m, conn_id, pd); };
    m.kernel->passive = [this](const FlowKey& tuple, uint32_t& isn, uint16_t& mtu) {
      isn = static_cast<uint32_t>(w.rng());
      for (size_t i = attempts_.size(); i-- > 0;) {
        const Attempt& a = *attempts_[i];
        if (!(SimWire::reversed(a.flow) == tuple)) continue;
        if (a.tries == 0 && !a.requested) isn = a.plan->isn[1];
        mtu = a.plan->mtu[1];
        return;
      }
    };
  }
  const bool shares = w.sc.hosts[m.side].srq.wr != 0 || w.sc.has(kWord) || w.sc.has(kForeign);
  m.process = std::make_unique<Process>(w, watch, *m.kernel, m.side, m.next_qpn, shares ? take_stags() : 0);
  m.process->on_drained = [this](Process& p, uint32_t qpn) {
    if (End* e = end_of(p, qpn)) return e->drained();
    w.fail("drain", "QP %u is drained, and nobody's", qpn);
  };
  m.process->on_cqe = [this](Process& p, const Cqe& c) { on_cqe(p, c); };
  m.kernel->listen(m.process.get());
}

/// Returns the end of a running attempt that has this QP, or nullptr.
End* Run::end_of(const Process& p, uint32_t qpn) const {
  for (const auto& a : attempts_)
    for (const auto& e : a->end)
      if (!a->finished && e != nullptr && e->qpn == qpn && e->life_.lock() == p.life) return e.get();
  return nullptr;
}

void Run::on_cqe(Process& p, const Cqe& c) {
  if ((c.wr_id & SharedQueue::kWrId) != 0) {
    SharedQueue::Buffer* b = p.shared == nullptr ? nullptr : p.shared->completed(c);
    if (b == nullptr) return w.fail("completion", "a completion of nobody's receive");
    if (End* e = end_of(p, c.qpn)) e->on_shared_cqe(c, *b);
    return p.shared->reuse(*b);
  }
  Attempt* a = attempt(static_cast<uint32_t>(c.wr_id >> 32));
  if (a == nullptr) return w.fail("completion", "a completion of nobody's work request");
  if (a->finished) return;
  for (const auto& e : a->end)
    if (e != nullptr && e->qpn == c.qpn && e->life_.lock() == p.life) return e->on_cqe(c);
  w.fail("completion", "a completion on QP %u, which did not post it", c.qpn);
}

void Run::kill(Machine& m) {
  if (m.process == nullptr) return;
  for (auto& a : attempts_)
    if (!a->finished)
      for (auto& e : a->end)
        if (e != nullptr && &e->machine_ == &m) e->process_died();
  for (auto& e : ghosts_)
    if (&e->machine_ == &m) e->process_died();
  m.process.reset();
}

/// Reports the new MTU to the kernels, as ICMP does some time later.
void Run::tell_mtu() {
  w.after(w.rng.below(20'000'000), life_, [this] {
    w.mtu_known = w.wire.faults.max_payload != faults_.max_payload;
    for (Machine& m : machines)
      if (m.kernel != nullptr) m.kernel->path_changes(w.wire.faults.max_payload);
  });
}

/// Begins an incident if @p on is true, else ends it.
void Run::incident(const Incident& i, bool on) {
  if (on)
    w.trace("-- %s begins, host %d", fault_name(i.kind), i.side);
  else
    w.trace("-- %s is over", fault_name(i.kind));
  incidents_open_ -= !on;
  if (i.kind == kMtu) {
    w.wire.faults.max_payload = on ? 400 + i.value % 1200 : faults_.max_payload;
    return tell_mtu();
  }
  for (Machine& m : machines)
    if (i.side < 0 || m.side == i.side) incident(i, m, on);
}

void Run::incident(const Incident& i, Machine& m, bool on) {
  switch (i.kind) {
    case kPort: return on ? lose_port(m, i.value) : restore_ports(m);
    case kCut:
    case kLongCut: w.wire.faults.cut[m.side] = on; break;
    case kFreeze:
      if (m.process != nullptr) m.process->frozen = on;
      break;
    case kKill:
    case kCrash:
      if (!on && m.process == nullptr) start_process(m);
      if (!on) break;
      if (i.kind == kKill && m.process != nullptr) m.kernel->process_died(m.process.get());
      kill(m);
      if (i.kind == kCrash) m.kernel.reset();
      break;
    default: break;
  }
}

/// Makes one port of the host dead, in the directions that @p value names. The kernel reports some dead ports for raw
/// packets.
void Run::lose_port(Machine& m, uint64_t value) {
  const bool late = w.sc.has(kLate), socket = (value & 1) != 0;
  const bool told = !socket && ((value & 2) != 0 || late), forbids = (value & 4) != 0 || late;
  const uint64_t ways = 1 + (value >> 8) % 3;
  for (int way : {0, 1}) w.dead[m.side][socket][way] = (ways >> way & 1) != 0;
  if (!told) return;
  if (m.kernel != nullptr) m.kernel->path_changes(forbids ? USIW_NOT_PACKET_IPSEC : USIW_NOT_PACKET_NETDEV);
  if (!late || m.process == nullptr) return;
  w.trace("%c process: is late", 'A' + m.side);
  m.process->frozen = true;
  w.after(USIW_MOVE_MS * 1'000'000ull + value % 1'000'000'000, m.process->life,
          [p = m.process.get()] { p->frozen = false; });
}

void Run::restore_ports(Machine& m) {
  for (auto& port : w.dead[m.side]) port[0] = port[1] = false;
  if (m.kernel != nullptr) m.kernel->path_changes(USIW_NOT_PACKET_NONE);
}

// ---- Programs ----

void Run::start_session(size_t pair) {
  if (session_[pair] == w.sc.pairs[pair].sessions.size()) {
    ++pairs_over_;
    return;
  }
  start_attempt(pair, 0);
}

void Run::start_attempt(size_t pair, int tries) {
  const PairPlan& plan = w.sc.pairs[pair];
  Machine& m = machines[static_cast<size_t>(plan.host[0])];
  if (m.process == nullptr || m.process->frozen)
    return w.after(10'000'000, life_, [this, pair, tries] { start_attempt(pair, tries); });
  auto a = std::make_unique<Attempt>();
  a->id = static_cast<uint32_t>(attempts_.size());
  a->pair = pair;
  a->plan = &plan.sessions[session_[pair]];
  a->tries = tries;
  a->flow = {SimWire::address(plan.host[0], plan.ipv6), SimWire::address(plan.host[1], plan.ipv6), plan.port,
             kListenPort};
  for (int i : {0, 1})
    a->lane[i] = std::make_unique<Lane>(w, a->plan->lane[i], *a->plan,
                                        static_cast<char>('0' + 2 * pair + static_cast<size_t>(i)), take_stags(),
                                        take_windows(), w.rng());
  a->end[0] = std::make_shared<End>(*this, a.get(), 0, m);
  End& e = *a->end[0];
  ends_.push_back(a->end[0]);
  if (auto old = std::move(old_client_[pair]); old != nullptr) {
    if (old->life_.lock() == m.process->life) {
      m.process->reset_qp(old->qpn);
      e.qpn = old->qpn;
    }
    old_client_[pair] = nullptr;
  }
  attempts_.push_back(std::move(a));
  e.start_client();
}

void Run::on_request(Machine& m, uint32_t conn_id, std::span<const uint8_t> pd) {
  uint32_t id = UINT32_MAX;
  if (pd.size() >= 4) std::memcpy(&id, pd.data(), 4);
  const Attempt* a = attempt(id);
  if (a == nullptr && !w.sc.has(kRaw)) return w.fail("connect", "a request with wrong private data");
  const uint64_t think = a != nullptr ? a->plan->think : 1000;
  w.after(think, m.process->life, [this, &m, conn_id, id] { serve(m, conn_id, id); });
}

void Run::serve(Machine& m, uint32_t conn_id, uint32_t id) {
  if (m.process->frozen)
    return w.after(1'000'000, m.process->life, [this, &m, conn_id, id] { serve(m, conn_id, id); });
  Attempt* a = attempt(id);
  if (a != nullptr && w.sc.pairs[a->pair].host[1] != m.side) a = nullptr;  // damage has changed the id
  const bool first = a != nullptr && !a->requested && !a->finished;
  if (a != nullptr) a->requested = true;
  const uint8_t no[] = {'n', 'o'};
  if (first && a->plan->reject && a->tries == 0) {
    a->rejected = true;
    return m.kernel->reject(conn_id, no);
  }
  // A program cannot recognise an old REQ that arrives late, and some programs accept it.
  if (!first && (a == nullptr || !a->finished || w.rng.chance(50))) return m.kernel->reject(conn_id, no);
  auto e = std::make_shared<End>(*this, first ? a : nullptr, 1, m);
  ends_.push_back(e);
  if (first)
    a->end[1] = e;
  else
    ghost(e);
  e->start_server(conn_id);
}

void Run::attempt_progress(Attempt& a) {
  if (a.finished || a.end[1] == nullptr || !a.end[0]->established || !a.end[1]->established) return;
  if (!a.lane[0]->done() || !a.lane[1]->done()) return;
  const bool both = a.plan->ending == Ending::kBoth;
  // An end whose window other connections name waits a while for them.
  const bool lent = a.plan->lane[0].lent || a.plan->lane[1].lent;
  for (int i : {0, 1})
    if (both || i == a.plan->closer)
      w.after(lent ? w.rng.log_range(20'000'000, 3'000'000'000) : w.rng.below(10'000), a.end[i]->life_,
              [e = a.end[i]] { e->close(); });
}

void Run::end_is_over(Attempt* a) {
  if (a == nullptr || a->finished || !a->end[0]->over || (a->end[1] != nullptr && !a->end[1]->over)) return;
  // Later, because the caller may still use the attempt.
  w.after(0, life_, [this, a] {
    if (!a->finished && (a->end[1] == nullptr || a->end[1]->over)) finish_attempt(*a);
  });
}

/// Checks that both ends, which are over, agree about the connection.
void Run::finish_attempt(Attempt& a) {
  a.finished = true;
  const End& c = *a.end[0];
  const End* s = a.end[1].get();
  const bool opened = c.machine_opens != 0 && c.failures == 0;
  if (opened && s == nullptr && !w.sc.has(kRaw)) w.fail("agree", "the client was connected to nobody");
  if (opened && s != nullptr && s->failures != 0 && !w.sc.has(kRaw))
    w.fail("agree", "the client was connected, and accept said %d", s->failures);
  if (c.machine_opens > 1 || (s != nullptr && s->machine_opens > 1)) w.fail("cm", "told twice that it is open");
  const bool complete = !w.sc.may_break() && opened && s != nullptr && s->machine_opens != 0 && c.set_up_holds();
  const auto flushed = [&](int i) { return a.end[i] != nullptr && a.end[i]->flushed; };
  for (int i : {0, 1}) a.lane[i]->check_end(!complete, flushed(i), flushed(1 - i));
  if (w.sc.clean() && opened && s != nullptr && (c.status != 0 || s->status != 0))
    w.fail("agree", "an orderly end, and the statuses are %d and %d", c.status, s->status);
  if (w.sc.clean() && !opened && !a.rejected) w.fail("connect", "no connection over a clean wire: %d", c.failures);
  if (w.tracing()) w.trace("-- attempt %u is over: %s", a.id, opened ? "was connected" : "was not");
  a.lane[0].reset();
  a.lane[1].reset();

  const size_t pair = a.pair;
  const uint64_t gap = a.plan->gap;
  const bool again = !opened && a.tries + 1 < kTries;
  const int tries = a.tries + 1;
  if (!again) ++session_[pair];
  w.after(gap, life_, [this, pair, again, tries] { again ? start_attempt(pair, tries) : start_session(pair); });
}

// ---- Time ----

void Run::arrivals() {
  Datagram d;
  FlowKey flow;
  bool ce;
  for (Machine& m : machines) {
    while (w.wire.receive(m.side, d, flow, ce)) {
      if (m.kernel == nullptr) continue;
      if (d.size() == 5 && d[0] == std::byte{0xff}) {
        m.kernel->icmp_unreachable(flow, std::span(d).subspan(1));
        continue;
      }
      if (w.tracing()) w.trace("%c <wire %s", 'A' + m.side, describe(d).c_str());
      if (m.process != nullptr) m.process->arrive(d, flow, ce);
      m.kernel->receive(d, flow);
    }
  }
}

void Run::check_orders(int side) {
  for (auto& a : attempts_) {
    if (a->finished) continue;
    for (int i : {0, 1}) {
      if (a->end[i] == nullptr) continue;
      if (a->end[i]->machine_.side == side)
        a->lane[i]->check_reads();
      else
        a->lane[i]->check_order();
    }
  }
}

/// Runs each process once. Returns false if no event is left.
bool Run::step() {
  bool work = w.run_due();
  arrivals();
  for (Machine& m : machines) {
    if (m.kernel != nullptr) m.kernel->run_timers();
    if (m.process == nullptr) continue;
    const unsigned n = m.process->run();
    w.mix(n);
    if (n == 0) continue;
    work = true;
    check_orders(m.side);
  }
  w.mix(w.clock.now);
  w.clock.now += kTick;
  if (work) return true;
  uint64_t at = std::min(w.next_due(), w.wire.next_arrival());
  for (const Machine& m : machines) {
    if (m.kernel != nullptr) at = std::min(at, m.kernel->next_deadline());
    if (m.process != nullptr) at = std::min(at, m.process->next_deadline());
  }
  if (at == UINT64_MAX) return false;
  if (at > w.clock.now) w.clock.now = at;
  return true;
}

bool Run::all_over() const {
  if (pairs_over_ != w.sc.pairs.size() || incidents_open_ != 0) return false;
  return std::all_of(ghosts_.begin(), ghosts_.end(), [](const auto& e) { return e->over; });
}

std::string Run::state() const {
  std::string text;
  for (const auto& a : attempts_) {
    if (a->finished) continue;
    text += "attempt " + std::to_string(a->id) + ": ";
    for (const auto& e : a->end)
      if (e != nullptr) e->describe(text);
  }
  for (const Machine& m : machines)
    if (m.kernel != nullptr) text += m.kernel->describe();
  return text;
}

bool Run::go() {
  const uint64_t start = w.clock.now;
  for (const Incident& i : w.sc.incidents) {
    ++incidents_open_;
    w.after(i.at, life_, [this, &i] { incident(i, true); });
    w.after(i.at + i.length, life_, [this, &i] { incident(i, false); });
  }
  for (size_t p = 0; p < w.sc.pairs.size(); ++p) w.after(w.sc.pairs[p].start, life_, [this, p] { start_session(p); });

  uint64_t steps = 0;
  while (!all_over() && !w.failed()) {
    if (!step()) w.fail("hang", "nothing will ever happen: %s", state().c_str());
    const bool late = ++steps > kMaxSteps || w.clock.now - start > kLimit;
    // With undetected damage the ends may wait for each other until a program gives up.
    if (late && w.sc.has(kRaw)) return !w.failed();
    if (late) w.fail("hang", "it does not end: %s", state().c_str());
    if (!w.wire.broken.empty()) w.fail("port", "%s", w.wire.broken.c_str());
  }
  if (!w.failed()) check_final();
  return !w.failed();
}

/// Checks, some time after the last session, that no connection, QP or buffer is left.
void Run::check_final() {
  const uint64_t until = w.clock.now + kLingerNs;
  while (w.clock.now < until && !w.failed())
    if (!step()) break;
  for (Machine& m : machines) {
    if (w.failed() || m.kernel == nullptr) continue;
    if (m.kernel->connections() != 0)
      w.fail("leak", "%c: connections left: %s", 'A' + m.side, m.kernel->describe().c_str());
    if (m.process == nullptr) continue;
    if (m.kernel->qps() != 0) w.fail("leak", "%c: %zu QPs left in the kernel", 'A' + m.side, m.kernel->qps());
    for (const auto& e : old_client_)
      if (e != nullptr && e->life_.lock() == m.process->life) m.process->destroy_qp(e->qpn);
    if (!w.failed()) m.process->check_empty();
  }
  w.mix(w.totals[kSent]);
  w.mix(w.totals[kRepeated]);
}

// ---- Damage on purpose ----

void Run::mutate(Datagram& d) {
  if (w.mutation == Mutation::kNone) return;
  TrpHeader h;
  DdpSegment s;
  if (!decode_trp(d, h) || h.opcode != USIW_TRP_DATA ||
      decode_ddp(std::span(d).subspan(kTrpBytes), s) != DdpDecode::kOk)
    return;
  const bool payload = s.len != 0 && (s.tagged || s.qn == USIW_DDP_QN_SEND);
  if (w.mutation == Mutation::kFlipWire && payload && w.rng.chance(10)) {
    d[d.size() - 1 - w.rng.below(s.len)] ^= std::byte{1};
    ++w.mutated;
  }
  if (w.mutation != Mutation::kPlaceEarly && w.mutation != Mutation::kFlipPlaced) return;
  for (auto& a : attempts_) {
    if (a->finished) continue;
    for (int i : {0, 1}) {
      Lane& lane = *a->lane[i];
      if (w.mutation == Mutation::kFlipPlaced && w.mutated == 0 && lane.recv.size > 8 && w.rng.chance(20)) {
        for (Block* b : {&lane.src, &lane.sink, &lane.recv, &lane.target, &lane.source})
          b->bytes[w.rng.below(b->bytes.size())] ^= std::byte{0x80};
        ++w.mutated;
      }
      if (w.mutation == Mutation::kPlaceEarly && s.tagged && s.stag == lane.target.stag && !s.last && s.len != 0) {
        // Places the last byte of a WRITE together with its first segment.
        for (size_t n = 0; n < lane.send.posted; ++n) {
          const Op& op = lane.op(n);
          if (op.plan->opcode != WrOpcode::kRdmaWrite || op.remote_addr != s.to) continue;
          lane.target.bytes[op.remote[0].offset + op.plan->size - 1] = pattern_byte(op.data, op.plan->size - 1);
          ++w.mutated;
        }
      }
    }
  }
}

}  // namespace usiw::sim
