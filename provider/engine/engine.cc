// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine.cc
/// The public face of the engine and the order of one run.
#include "engine/engine.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "engine/engine_impl.h"

namespace usiw {

namespace {

QpContext& context(Qp* qp) { return *static_cast<QpContext*>(qp); }

}  // namespace

Engine::Impl::Impl(Clock& clock, EngineEvents& events, __u64* counters)
    : clock_(clock),
      events_(events),
      counters_(counters),
      now_(clock.now_ns()),
      flows_(now_ ^ reinterpret_cast<uintptr_t>(this)) {
  for (size_t i = 0; i < held_free_.size(); ++i) held_free_[i] = static_cast<uint16_t>(i);
}

Engine::Impl::~Impl() {
  while (!qps_.empty()) qp_destroy(*qps_.back());
  while (!srqs_.empty()) srq_destroy(*srqs_.back());
  while (!cqs_.empty()) {
    CqAccess::destroy(cqs_.back(), polled_);
    cqs_.pop_back();
  }
  for (PortState& p : ports_)
    p.port->tx_free(std::span(p.bufs).subspan(p.filled, p.allocated - p.filled));
}

unsigned Engine::Impl::take_doorbells() {
  // The list is newest first: turn it round, so that QPs are served in the order of ringing.
  Doorbell* newest = doorbells_.take_all();
  Doorbell* oldest = nullptr;
  while (newest != nullptr) {
    Doorbell* bell = newest;
    newest = bell->next;
    bell->next = oldest;
    oldest = bell;
  }
  unsigned n = 0;
  for (Doorbell* bell = oldest; bell != nullptr; ++n) {
    Doorbell* next = bell->next;
    // acq_rel: work posted before a ring that found it still set is seen below.
    bell->queued.exchange(false, std::memory_order_acq_rel);
    if (bell->qp != nullptr) [[likely]]
      take_posted(*static_cast<QpContext*>(bell->qp));
    else
      serve_waiting(*static_cast<SrqContext*>(bell->srq));
    bell = next;
  }
  return n;
}

/// The QP's producers have rung.
void Engine::Impl::take_posted(QpContext& qp) {
  if (qp.life.is(Phase::kDead)) return flush(qp, qp.sq.head(), WcStatus::kWrFlushErr);
  if (qp.rq.told() && qp.rq.take(qp.rq.msn()) != nullptr) {
    qp.rq.serve();
    ack_at_once(qp);
  }
  if (qp.life.is(Phase::kIdle)) return expect_connection(qp);
  activate(qp);
}

[[gnu::flatten]] unsigned Engine::Impl::progress() {
  now_ = clock_.now_ns();
  tracing_ = tracer_.on();
  unsigned work = take_doorbells();
  // What was posted goes out ahead of the look at the ports: a system call, with sockets, and most often in vain. There
  // is one round of sending in a run, and a second one where something was heard: it may have opened windows.
  const bool early = work != 0 && !port_full_ && !active_.empty();
  if (early) {
    work += send_turns();
    for (PortState& p : ports_) tx_flush(p);
  }
  const unsigned unheard = work;

  more_rx_ = false;
  int number = 0;
  for (PortState& port : ports_) work += receive_burst(port, number++);

  // Behind the receive burst, so that an acknowledgement that was only waiting for this
  // thread to run does not count as lost; but not for ever, when bursts never end.
  if (!more_rx_ || ++timers_skipped_ >= kMaxTimerSkips) {
    timers_skipped_ = 0;
    while (TimerNode* node = timers_.pop(now_)) {
      on_timer(*static_cast<QpContext*>(node));
      ++work;
    }
  }

  // What fills the port is other QPs' data: acknowledgements would always be what is left over.
  if (port_full_) run_acks();
  if (!active_.empty() && (!early || work != unheard)) {
    if (work != 0) now_ = clock_.now_ns();
    work += send_turns();
  }
  if (acks_.due(now_)) run_acks();
  bool full = false;
  for (PortState& p : ports_) {
    tx_flush(p);
    full |= p.blocked;
    p.blocked = false;
  }
  port_full_ = full;
  if (!full || took_) [[likely]]
    stuck_runs_ = 0;
  else if (stuck_runs_ <= kMaxStuckRuns)
    ++stuck_runs_;
  took_ = false;
  if (overrun_) handle_overruns();
  return work;
}

/// The active QPs send; those that become active again meanwhile wait for the next run. Returns how many.
unsigned Engine::Impl::send_turns() {
  // Each run costs a look at the ports and at the clock, whoever sends in it.
  if (active_.has_one() && !port_full_) [[likely]] {
    send_turn(*active_.front(), kLoneQuantum);
    return 1;
  }
  QpList turn;
  take_turns(turn);
  const unsigned quantum = turn.has_one() ? kLoneQuantum : kQuantum;
  unsigned n = 0;
  for (sent_ = 0; sent_ < kRunBudget && !turn.empty(); ++n) send_turn(*turn.front(), quantum);
  if (!turn.empty()) {  // who has not had its turn is the first next time
    turn.take(active_);
    active_.take(turn);
  }
  return n;
}

void Engine::Impl::send_turn(QpContext& qp, unsigned quantum) {
  qp.active_hook.unlink();
  look_at_share(qp);
  // Only a SACK's echo tells the peer whether it is the repetition that has arrived.
  if (qp.ack.repetition_at_once()) send_sack(qp, 0);
  if (qp.longs.due()) [[unlikely]] look_for_long(qp);
  if (transmit(qp, quantum)) activate(qp);
}

uint64_t Engine::Impl::next_deadline() const {
  if (overrun_ || more_rx_ || !doorbells_.empty()) return 0;
  const uint64_t at = std::min(timers_.next(), acks_.next());
  if (active_.empty()) return at;
  return stuck_runs_ > kMaxStuckRuns ? std::min(at, now_ + kStuckNs) : 0;
}

void Engine::Impl::handle_overruns() {
  overrun_ = false;
  for (Cq* cq : cqs_) {
    if (!cq->dead()) continue;
    for (QpContext* qp : qps_) {
      if (qp->attr.send_cq != cq && qp->attr.recv_cq != cq) continue;
      if (qp->connected()) fail(*qp, qp->sq.head(), WcStatus::kWrFlushErr, -EOVERFLOW, AsyncEvent::kQpFatal);
    }
  }
}

void Engine::Impl::poll_drops(PortState& p) {
  const Port::Drops d = p.port->drops();
  count(USIW_CNT_DROP_MALFORMED, d.malformed - p.drops.malformed);
  count(USIW_CNT_DROP_CHECKSUM, d.checksum - p.drops.checksum);
  count(USIW_CNT_DROP_NO_BUFFER, d.no_buffer - p.drops.no_buffer);
  p.drops = d;
}

// ---- Public face ----

Engine::Engine(Clock& clock, EngineEvents& events, uint64_t* counters)
    : impl_(std::make_unique<Impl>(clock, events, reinterpret_cast<__u64*>(counters))) {}
Engine::~Engine() = default;

void Engine::trace_into(std::span<std::byte> memory) {
  impl_->tracer_.attach(memory);
  impl_->tracing_ = impl_->tracer_.on();
}

void Engine::set_patience(uint64_t ns) { impl_->patience_ = ns; }

int Engine::add_port(Port& port) {
  try {
    impl_->ports_.push_back(
        {.port = &port, .refers = port.takes_references(), .bufs = {}, .tags = {}, .drops = port.drops()});
  } catch (const std::bad_alloc&) {
    return -1;
  }
  return static_cast<int>(impl_->ports_.size()) - 1;
}

void Engine::remove_last_port() { impl_->ports_.pop_back(); }

int Engine::mr_add(const MrAttr& attr) { return impl_->mrs_.add(attr); }
int Engine::mr_add_null(uint32_t stag, uint32_t pd) { return impl_->mrs_.add_null(stag, pd); }
int Engine::mr_close(uint32_t stag) { return impl_->mrs_.close(stag); }
void Engine::mr_reopen(uint32_t stag) { impl_->mrs_.reopen(stag); }
int Engine::mr_change(uint32_t stag, const MrAttr& now) { return impl_->mrs_.change(stag, now); }
int Engine::mr_remove(uint32_t stag) { return impl_->mrs_.remove(stag); }
std::byte* Engine::mr_find(uint32_t stag, uint32_t pd, uint32_t access, uint64_t to, uint32_t len,
                           MrFault& fault) const {
  return impl_->mrs_.resolve(stag, pd, access, to, len, fault).address();
}
int Engine::mw_add(const WindowAttr& attr) { return impl_->mrs_.add_window(attr); }
int Engine::mw_remove(uint32_t stag) { return impl_->mrs_.remove_window(stag); }

Cq* Engine::cq_create(uint32_t capacity, void* owner, const CqOptions& options) {
  Cq* cq = CqAccess::create(capacity, owner, options);
  if (cq == nullptr) return nullptr;
  try {
    impl_->cqs_.push_back(cq);
  } catch (const std::bad_alloc&) {
    CqAccess::destroy(cq, impl_->polled_);
    return nullptr;
  }
  return cq;
}

int Engine::cq_resize(Cq* cq, uint32_t capacity, std::byte* memory) { return CqAccess::resize(*cq, capacity, memory); }

void Engine::cq_forget(Cq* cq, uint32_t qpn) { CqAccess::forget(*cq, qpn); }

void Engine::cq_destroy(Cq* cq) {
  std::erase(impl_->cqs_, cq);
  for (SrqContext* srq : impl_->srqs_) srq->forget(*cq);
  CqAccess::destroy(cq, impl_->polled_);
}

Srq* Engine::srq_create(const SrqAttr& attr) {
  try {
    return impl_->srq_create(attr);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
int Engine::srq_resize(Srq* srq, uint32_t max_wr) {
  return impl_->srq_resize(*static_cast<SrqContext*>(srq), max_wr);
}
void Engine::srq_arm(Srq* srq, uint32_t limit) { static_cast<SrqContext*>(srq)->arm(limit); }
uint32_t Engine::srq_limit(const Srq* srq) const { return static_cast<const SrqContext*>(srq)->limit(); }
void Engine::srq_destroy(Srq* srq) { impl_->srq_destroy(*static_cast<SrqContext*>(srq)); }

Qp* Engine::qp_create(const QpAttr& attr) {
  try {
    return impl_->qp_create(attr);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
Engine::RingBytes Engine::ring_bytes(const QpAttr& attr) {
  return {.send = WqeRing<SendWqe>::bytes(attr.max_send_wr, Impl::send_tail(attr)),
          .recv = attr.srq != nullptr ? 0 : WqeRing<RecvWqe>::bytes(attr.max_recv_wr, Impl::recv_tail(attr))};
}
void Engine::qp_destroy(Qp* qp) { impl_->qp_destroy(context(qp)); }

int Engine::qp_connect(Qp* qp, int port, const Path& path, const ConnAttr& conn) {
  try {
    return impl_->qp_connect(context(qp), port, path, conn);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
}
void Engine::qp_limit(Qp* qp, const QpLimits& limits) { impl_->qp_limit(context(qp), limits); }
void Engine::qp_permit(Qp* qp, uint32_t access) { context(qp).permit(access); }
uint32_t Engine::qp_access(const Qp* qp) const { return static_cast<const QpContext*>(qp)->access; }
void Engine::qp_pause(Qp* qp, bool tell) { impl_->qp_pause(context(qp), tell); }
void Engine::qp_resume(Qp* qp) { impl_->qp_resume(context(qp)); }
bool Engine::qp_draining(Qp* qp) const { return context(qp).sq.stopped() && !context(qp).sq.drained(); }
void Engine::qp_shutdown(Qp* qp) { impl_->qp_shutdown(context(qp)); }
void Engine::qp_abort(Qp* qp) { impl_->qp_abort(context(qp)); }
void Engine::qp_reset(Qp* qp) { impl_->qp_reset(context(qp)); }
bool Engine::qp_keeps_connection(Qp* qp) const { return Impl::keeps_connection(context(qp)); }
void Engine::qp_acknowledge(Qp* qp) { impl_->qp_acknowledge(context(qp)); }
void Engine::qp_probe(Qp* qp) { impl_->qp_probe(context(qp)); }
int Engine::qp_also(Qp* qp, int port) { return impl_->qp_also(context(qp), port); }
void Engine::qp_move(Qp* qp, const EngineEvents::PortAnswer& to) { impl_->qp_move(context(qp), to); }
void Engine::qp_path(Qp* qp, const Path& path, uint32_t mtu) { impl_->qp_path(context(qp), path, mtu); }
EngineEvents::PortAsked Engine::qp_ways(Qp* qp) const { return impl_->ways(context(qp), impl_->clock_.now_ns()); }

unsigned Engine::progress() { return impl_->progress(); }
uint64_t Engine::next_deadline_ns() const { return impl_->next_deadline(); }

}  // namespace usiw
