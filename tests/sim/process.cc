// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "process.h"

#include <algorithm>

#include "engine/qp_context.h"
#include "kernel.h"

namespace usiw::sim {

// ---- The port ----

size_t HostPort::tx(std::span<TxBuf> bufs) {
  fragments = which_ == 1 && w_.mtu_known;
  for (size_t i = 0; i < bufs.size(); ++i) {
    TxBuf& b = bufs[i];
    join(b);
    TrpHeader h;
    if (w_.mutation == Mutation::kAckFuture && decode_trp({b.data, b.len}, h) && h.opcode == USIW_TRP_SACK &&
        b.len == kTrpBytes && ++w_.mutated % 8 == 1) {
      store_be32(b.data, h.psn + 1);
      store_be32(b.data + 4, h.ack_psn + 1);
    }
    watch_.offered(side_, b.path->flow, {b.data, b.len});
    if (which_ == 0 && !reports_wait && kernel_.must_go_by_socket(b.path->flow))
      fail("move", "a raw packet of a connection that must not, and says that it does not");
    if (i >= tx_limit) watch_.lost(side_, b.path->flow, {b.data, b.len});
    if (w_.mutation == Mutation::kRepeatDatagrams && decode_trp({b.data, b.len}, h) && h.opcode == USIW_TRP_DATA) {
      std::vector<std::byte> again(b.data, b.data + b.len);
      again[9] |= std::byte{USIW_TRP_F_RETRANS};
      for (int n = 0; n < 20; ++n) watch_.offered(side_, b.path->flow, again), ++w_.mutated;
    }
    if (w_.tracing()) trace("engine> %s%s", describe({b.data, b.len}).c_str(), i < tx_limit ? "" : " (not taken)");
  }
  if (w_.mutation == Mutation::kLeakBuffer && w_.mutated == 0 && free_buffers() > 0) lose_buffer(), ++w_.mutated;
  if (w_.dead[side_][which_][0]) {
    for (const TxBuf& b : bufs) watch_.lost(side_, b.path->flow, {b.data, b.len});
    tx_free(bufs);
    return bufs.size();
  }
  return SimPort::tx(bufs);
}

void HostPort::arrive(Datagram d, const FlowKey& flow, bool ce) {
  if (ring_.size() >= ring_size_)
    return watch_.lost(SimWire::side_of(flow.remote_addr), SimWire::reversed(flow), d);
  ring_.push_back({std::move(d), flow, ce});
}

bool HostPort::next(Datagram& d, FlowKey& flow, bool& ce) {
  if (ring_.empty()) return false;
  d = std::move(ring_.front().data);
  flow = ring_.front().flow;
  ce = ring_.front().ce;
  ring_.pop_front();
  watch_.delivered(side_, flow, d);
  return true;
}

// ---- The process ----

Process::Process(World& world, Watch& watch, Kernel& kernel, int side, uint32_t& next_qpn, uint32_t stags)
    : Reporter(world, side),
      watch_(watch),
      kernel_(kernel),
      side_(side),
      plan_(world.sc.hosts[side]),
      next_qpn_(next_qpn),
      port_(world, watch, kernel, side, 0, plan_),
      socket_(world, watch, kernel, side, 1, plan_),
      engine(std::make_unique<Engine>(world.clock, *this, counters.data())),
      port_no_(engine->add_port(port_)) {
  for (unsigned i = 0; i < plan_.cqs; ++i) cqs.push_back(engine->cq_create(4096, nullptr));
  poll_at_.resize(cqs.size());
  if (w_.sc.two_ports) socket_no_ = engine->add_port(socket_);
  if (plan_.srq.wr != 0) shared = std::make_unique<SharedQueue>(world, *engine, side, plan_.srq, stags, life);
  if (w_.sc.has(kWord)) {
    words = std::make_shared<SharedWords>(world, side, stags + 1);
    if (engine->mr_add(words->block().attr()) != 0) w_.fail("setup", "mr_add");
  }
  if (w_.sc.has(kForeign)) lent = std::make_unique<LentWindows>(world, *engine, side, stags + 2);
}

/// A process that dies sends nothing. Its engine is destroyed first, because the engine may call back until then
/// (EngineEvents).
Process::~Process() { engine.reset(); }

uint32_t Process::create_qp(QpAttr attr) {
  auto q = std::make_unique<PQp>();
  q->qpn = attr.qpn = next_qpn_++;
  attr.owner = q.get();
  q->recv_cq = attr.recv_cq;
  q->shared = attr.srq != nullptr;
  kernel_.qp_create(attr.qpn, this);
  q->qp = engine->qp_create(attr);
  if (q->qp == nullptr) w_.fail("setup", "qp_create");
  qps_[attr.qpn] = std::move(q);
  return attr.qpn;
}

Qp* Process::qp(uint32_t qpn) const {
  auto it = qps_.find(qpn);
  return it == qps_.end() ? nullptr : it->second->qp;
}

void Process::destroy_qp(uint32_t qpn) {
  PQp& q = *qps_.at(qpn);
  if (q.shared && q.last_wqe == 0) shared->given_back();
  engine->qp_destroy(q.qp);
  if (q.shared && w_.mutation == Mutation::kLoseReceive) shared->lose_one();
  flush();
  close_port(q);
  qps_.erase(qpn);
  kernel_.qp_destroy(qpn);
}

void Process::close_port(PQp& q) {
  if (q.port != 0 && --filter_[q.port] == 0) filter_.erase(q.port);
  q.port = 0;
}

void Process::error_qp(uint32_t qpn) {
  kernel_.qp_error(qpn);
  engine->qp_abort(qp(qpn));
}

void Process::reset_qp(uint32_t qpn) {
  kernel_.qp_reset(qpn);
  PQp& q = *qps_.at(qpn);
  engine->qp_reset(q.qp);
  q.last_wqe = 0;
  q.quiet = false;
  q.conn_id = 0;
  close_port(q);
  q.failures = q.closes = q.peer_closes = 0;
}

/// Passes a datagram to the ports. The port for raw packets sees each datagram, unless the datagram arrives by another
/// netdev or in fragments. The kernel gives the socket every datagram that this port cannot have seen. While the
/// process has reported that a connection uses the socket, the socket gets all datagrams of the connection.
void Process::arrive(const Datagram& d, const FlowKey& flow, bool ce) {
  if (!filter_.contains(flow.local_port)) return;
  const bool seen = !w_.dead[side_][0][1] && d.size() <= w_.wire.faults.max_payload;
  if (seen || !w_.sc.two_ports) port_.arrive(d, flow, ce);
  if (!w_.sc.two_ports || (seen && !kernel_.goes_by_socket(flow))) return;
  if (!w_.dead[side_][1][1])
    socket_.arrive(d, flow, ce);
  else if (!seen)
    watch_.lost(SimWire::side_of(flow.remote_addr), SimWire::reversed(flow), d);
}

// ---- From the kernel ----

void Process::wake_events() {
  if (reading_) return;
  reading_ = true;
  w_.after(w_.rng.below(plan_.kernel_pause + 1), life, [this] { read_events(); });
}

void Process::read_events() {
  reading_ = false;
  if (frozen) {
    reading_ = true;
    return w_.after(1'000'000, life, [this] { read_events(); });
  }
  KEvent e;
  while (kernel_.read_event(this, e)) on_event(e);
}

void Process::on_event(const KEvent& e) {
  auto it = qps_.find(e.qpn);
  if (it == qps_.end()) return;  // destroyed in the meantime, which the kernel knows
  PQp& q = *it->second;
  trace("process: event %u of conn %u", e.type, e.conn_id);
  if (e.type == USIW_EVENT_CONNECT) {
    close_port(q);
    const Path path{e.tuple, {}, {}, 64, 0};
    const PortFacts facts{e.not_packet, true, false, w_.sc.two_ports, false};
    q.moves.begin(PortWish::kAuto, facts, choose_port(PortWish::kAuto, facts), e.attr.mtu, e.attr.merges);
    const int error = engine->qp_connect(q.qp, number(q), path, e.attr);
    if (error == 0) {
      if (w_.sc.two_ports) {
        if (engine->qp_also(q.qp, number(q) == port_no_ ? socket_no_ : port_no_) != 0) w_.fail("setup", "qp_also");
        engine->qp_path(q.qp, path, e.attr.mtu);
      }
      q.conn_id = e.conn_id;
      q.port = e.tuple.local_port;
      q.flow = e.tuple;
      flows_.push_back(e.tuple);
      ++filter_[q.port];
      watch_.open(side_, e.tuple, e.attr);
    }
    if (error == 0 && w_.sc.two_ports)
      kernel_.qp_report(e.qpn, USIW_REPORT_PORT, e.conn_id,
                        number(q) == port_no_ ? USIW_PORT_PACKET : USIW_PORT_SOCKET);
    ++connecting_;
    w_.after(w_.rng.below(plan_.kernel_pause / 4 + 1), life, [this, qpn = e.qpn, id = e.conn_id, error] {
      kernel_.qp_report(qpn, error == 0 ? USIW_REPORT_READY : USIW_REPORT_REFUSED, id, -error);
      if (--connecting_ == 0 && !flushing_) flush();
    });
    return;
  }
  if (q.conn_id != e.conn_id) {
    if (e.type == USIW_EVENT_ABORT && q.qp->state() == QpState::kIdle && kernel_.qp_in_error(e.qpn))
      engine->qp_abort(q.qp);
    return;
  }
  switch (e.type) {
    case USIW_EVENT_DISCONNECT: return engine->qp_shutdown(q.qp);
    case USIW_EVENT_ABORT: return engine->qp_abort(q.qp);
    case USIW_EVENT_PROBE: return engine->qp_probe(q.qp);
    case USIW_EVENT_PATH: {
      engine->qp_path(q.qp, {e.tuple, {}, {}, 64, 0}, e.attr.mtu);
      q.moves.path(e.not_packet, e.attr.mtu);
      return engine->qp_move(q.qp, qp_which_port(*q.qp, engine->qp_ways(q.qp)));
    }
    default: return;
  }
}

// ---- From the engine ----

void Process::note(PQp& q, uint32_t kind, int error) {
  trace("engine: qp %u report %u, error %d", q.qpn, kind, error);
  for (Report& r : reports_) {
    if (r.qpn == q.qpn && r.kind == kind) {
      r = {q.qpn, kind, q.conn_id, error};
      return;
    }
  }
  reports_.push_back({q.qpn, kind, q.conn_id, error});
  if (flushing_) return;
  flushing_ = true;
  w_.after(w_.rng.chance(80) ? 0 : w_.rng.below(plan_.kernel_pause + 1), life, [this] { flush(); });
}

/// Gives the kernel all reports in order. READY has been queued before them, so they wait for it.
void Process::flush() {
  flushing_ = false;
  if (connecting_ != 0) return;
  while (!reports_.empty()) {
    const Report r = reports_.front();
    reports_.pop_front();
    kernel_.qp_report(r.qpn, r.kind, r.conn_id, r.error);
    const auto it = qps_.find(r.qpn);
    if (it != qps_.end() && r.kind == USIW_REPORT_PORT) it->second->told_socket = r.error == USIW_PORT_SOCKET;
  }
}

void Process::qp_peer_closed(Qp& qp) {
  auto& q = *static_cast<PQp*>(qp.owner());
  ++q.peer_closes;
  if (w_.mutation == Mutation::kSwallowEvent) return void(++w_.mutated);
  note(q, USIW_REPORT_PEER_CLOSED, 0);
}
void Process::qp_closed(Qp& qp) {
  auto& q = *static_cast<PQp*>(qp.owner());
  ++q.closes;
  note(q, USIW_REPORT_CLOSED, 0);
}
void Process::qp_failed(Qp& qp, int error, AsyncEvent event) {
  auto& q = *static_cast<PQp*>(qp.owner());
  ++q.failures;
  q.event = event;
  q.error = error;
  note(q, USIW_REPORT_FAILED, error > 0 ? -error : error);
}

void Process::qp_last_wqe(Qp& qp) {
  auto& q = *static_cast<PQp*>(qp.owner());
  trace("engine: qp %u takes nothing more from the SRQ", q.qpn);
  if (w_.mutation == Mutation::kSwallowLastWqe) return void(++w_.mutated);
  if (!q.shared || ++q.last_wqe > 1 || qp.state() != QpState::kError)
    fail("srq", "QP %u reports its last receive, times: %d", q.qpn, q.last_wqe);
}

EngineEvents::PortAnswer Process::qp_which_port(Qp& qp, const PortAsked& asked) {
  auto& q = *static_cast<PQp*>(qp.owner());
  if (w_.mutation == Mutation::kStayPut) return ++w_.mutated, PortAnswer{};
  q.moves.kernel_knows(q.told_socket);
  const PortChoice before = q.moves.present(),
                   now = q.moves.decide(asked.silent, asked.longest, asked.now, asked.long_messages);
  if (now.kind != before.kind) {
    ++w_.totals[kMoves];
    trace("engine: qp %u goes on by port %d, %s", q.qpn, number(q), asked.silent ? "silence" : "told");
  }
  if (now != before) {
    q.told_socket = false;
    note(q, USIW_REPORT_PORT, number(q) == port_no_ ? USIW_PORT_PACKET : USIW_PORT_SOCKET);
  }
  return {number(q), q.moves.review_at(asked.now), q.moves.merging(), q.moves.hears_socket_only()};
}

// ---- Running ----

unsigned Process::run() {
  if (frozen) return 0;
  port_.reports_wait = !reports_.empty();
  const unsigned work = engine->progress();
  if (shared != nullptr)
    shared->check([this](const Qp* qp) {
      return std::any_of(qps_.begin(), qps_.end(), [qp](const auto& q) {
        const Lifecycle& phase = static_cast<const QpContext*>(q.second->qp)->life;
        return q.second->qp == qp && phase.connected() && !phase.is(Phase::kTerminating);
      });
    });
  if (lent != nullptr && work != 0) lent->check();
  if (words != nullptr && work != 0 && w_.rng.chance(1)) words->add();
  poll();
  return work;
}

void Process::poll() {
  for (size_t i = 0; i < cqs.size(); ++i) {
    if (cqs[i]->empty() || w_.clock.now < poll_at_[i]) continue;
    std::array<Cqe, 16> out;
    const size_t n = cqs[i]->poll(out);
    for (size_t k = 0; k < n; ++k) {
      if (const auto q = qps_.find(out[k].qpn);
          (out[k].wr_id & SharedQueue::kWrId) != 0 && q != qps_.end() && q->second->quiet)
        fail("srq", "QP %u takes a receive behind its last", out[k].qpn);
      const auto once = [&] { return w_.mutated == 0 && k == n - 1 && w_.rng.chance(20); };
      if (w_.mutation == Mutation::kSwallowCompletion && once()) {
        ++w_.mutated;
        continue;
      }
      if (w_.mutation == Mutation::kRepeatCompletion && once()) ++w_.mutated, on_cqe(*this, out[k]);
      if (w_.mutation == Mutation::kSwapCompletions && w_.mutated == 0 && k + 1 < n && out[k].qpn == out[k + 1].qpn &&
          out[k].opcode == out[k + 1].opcode)
        ++w_.mutated, std::swap(out[k], out[k + 1]);
      on_cqe(*this, out[k]);
    }
    for (auto& [qpn, q] : qps_) q->quiet |= q->last_wqe != 0 && q->recv_cq == cqs[i] && cqs[i]->empty();
    if (plan_.poll_pause != 0) poll_at_[i] = w_.clock.now + w_.rng.below(plan_.poll_pause);
  }
}

uint64_t Process::next_deadline() const {
  if (frozen) return UINT64_MAX;
  if (port_.pending() || socket_.pending()) return 0;
  uint64_t at = engine->next_deadline_ns();
  for (size_t i = 0; i < cqs.size(); ++i)
    if (!cqs[i]->empty()) at = std::min(at, poll_at_[i]);
  return at;
}

void Process::check_empty() {
  if (!qps_.empty()) return fail("leak", "%zu QPs left", qps_.size());
  // The engine may keep one batch of transmit buffers and nothing else.
  while (port_.pending() || socket_.pending()) engine->progress();
  engine->progress();
  if (engine->next_deadline_ns() != UINT64_MAX) fail("leak", "a timer without a QP");
  for (const HostPort* p : {&port_, &socket_})
    if (p->total_buffers() - p->free_buffers() > 32)
      fail("leak", "%zu port buffers kept", p->total_buffers() - p->free_buffers());
  // If the flow table is empty, the engine counts a datagram of each earlier connection as one of no connection.
  for (const FlowKey& flow : flows_) {
    const uint64_t before = counters[USIW_CNT_DROP_NO_CONN];
    port_.arrive(Datagram(40), flow, false);
    engine->progress();
    if (counters[USIW_CNT_DROP_NO_CONN] != before + 1) fail("leak", "a flow without a QP");
  }
  if (shared != nullptr) shared->check_end();
  if (lent != nullptr) lent->check_end();
  if (words != nullptr && !w_.sc.has(kRaw)) words->check();
  engine.reset();
  for (const HostPort* p : {&port_, &socket_})
    if (p->total_buffers() != p->free_buffers())
      fail("leak", "%zu port buffers lost", p->total_buffers() - p->free_buffers());
}

}  // namespace usiw::sim
