// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime_events.cc
/// Events both ways: from the kernel to the engine (connections, link), and from the engine
/// to the kernel (completion events, reports about QPs).
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "uapi/usiw_wire.h"
#include "runtime/kernel_methods.h"
#include "runtime/runtime.h"

namespace usiw {
namespace {

/// Enough for what a port holds.
constexpr unsigned kRunsBeforeKill = 64;

/// Holds a QP that Runtime::pin() found.
class Pin {
 public:
  explicit Pin(VQp* qp) : qp_(qp) {}
  ~Pin() {
    if (qp_ != nullptr) qp_->pins.fetch_sub(1, std::memory_order_release);
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  VQp* get() const { return qp_; }

 private:
  VQp* qp_;
};

std::array<uint8_t, 6> mac(const __u8 (&m)[6]) { return std::to_array(m); }

Path path_of(const usiw_conn_info& c) {
  Path p{};
  std::memcpy(p.flow.local_addr.data(), c.local_addr, 16);
  std::memcpy(p.flow.remote_addr.data(), c.remote_addr, 16);
  p.flow.local_port = c.local_port;
  p.flow.remote_port = c.remote_port;
  p.local_mac = mac(c.local_mac);
  p.remote_mac = mac(c.remote_mac);
  p.hop_limit = c.hop_limit;
  p.tos = c.tos;
  p.merge = (c.features & USIW_FEATURE_MERGED) != 0;
  return p;
}

ConnAttr attr_of(const usiw_conn_info& c) {
  return {.snd_psn = c.snd_psn,
          .rcv_psn = c.rcv_psn,
          .snd_window = c.snd_window,
          .ird = c.ird,
          .ord = c.ord,
          .mtu = c.mtu,
          .initiator = (c.flags & USIW_CONN_F_INITIATOR) != 0};
}

/// The descriptor that came with CONNECT, or a negative number.
int data_socket(const usiw_conn_info& conn) { return (conn.flags & USIW_CONN_F_SOCKET) != 0 ? conn.data_fd : -1; }

}  // namespace

// ---- From the kernel ---------------------------------------------------------------------

void Runtime::on_event(Context& context, const usiw_event& event) {
  (void)context;
  switch (event.type) {
    case USIW_EVENT_LINK: {
      std::lock_guard hold(link_lock_);
      link_ = usable(event.link);
      link_mtu_.store(link_.mtu, std::memory_order_relaxed);
      return;
    }
    case USIW_EVENT_DEVICE_GONE:
      abort_all();
      return;
    default:
      break;
  }

  Pin pinned(pin(event.qpn));
  VQp* qp = pinned.get();
  if (qp == nullptr) {  // destroyed meanwhile, and the kernel knows
    if (event.type == USIW_EVENT_CONNECT && data_socket(event.conn) >= 0) close(event.conn.data_fd);
    return;
  }
  if (event.type == USIW_EVENT_CONNECT) {
    on_connect(*qp, event);
    return;
  }
  Progress::Hold held(*progress_);
  if (qp->qp == nullptr) return;
  if (qp->conn_id != event.conn_id) {
    if (event.type == USIW_EVENT_KILL) on_never_connected(*qp);
    return;
  }
  switch (event.type) {
    case USIW_EVENT_DISCONNECT:
      engine_->qp_shutdown(qp->qp);
      break;
    case USIW_EVENT_KILL:
      // RESET has overtaken what the peer sent before it, and that may be an acknowledgement.
      for (unsigned runs = 0; runs < kRunsBeforeKill && engine_->progress() != 0; runs++) {
      }
      engine_->qp_abort(qp->qp);
      break;
    case USIW_EVENT_PROBE:
      engine_->qp_probe(qp->qp);
      break;
    case USIW_EVENT_NEIGH:
      engine_->qp_set_macs(qp->qp, mac(event.conn.local_mac), mac(event.conn.remote_mac));
      break;
  }
}

/// In the page of the QP, for those who look at it.
void Runtime::tell_port(VQp& qp, PortChoice choice) {
  if (qp.stats == nullptr) return;
  std::atomic_ref(qp.stats->gauges[USIW_GAUGE_PORT]).store(static_cast<uint64_t>(choice.kind), std::memory_order_relaxed);
  std::atomic_ref(qp.stats->gauges[USIW_GAUGE_PORT_WHY]).store(choice.why, std::memory_order_relaxed);
}

/// [engine held] A connection has ended that this end was never given. Its QP is in ERR and
/// to be flushed, unless the program has reset it meanwhile: then the kernel knows, or will
/// before the program's call gets the engine.
void Runtime::on_never_connected(VQp& qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (qp.qp->state() == QpState::kIdle && usiw_cmd_query_qp(&qp.ibv, &attr, IBV_QP_STATE, &init) == 0 &&
      attr.qp_state == IBV_QPS_ERR)
    engine_->qp_abort(qp.qp);
}

void Runtime::on_connect(VQp& qp, const usiw_event& event) {
  const usiw_conn_info& conn = event.conn;
  int error = 0, fd = data_socket(conn);
  release_port(qp);
  int number = -1;
  {
    std::lock_guard hold(ports_lock_);
    PortChoice choice{};
    PortSlot* slot = port_of(conn, choice, error);
    if (slot != nullptr) {
      const bool by_socket = choice.kind != PortKind::kPacket;
      Progress::Hold held(*progress_);
      qp.path = path_of(conn);
      error = slot->port->add_flow(qp.path, by_socket ? conn.data_fd : -1);
      if (by_socket) fd = -1;  // the port's
      if (error == 0) {
        qp.port = slot->port.get();
        number = slot->number;
      }
    }
    tell_port(qp, error == 0 ? choice : PortChoice{PortKind::kNone, choice.why});
  }
  if (fd >= 0) close(fd);
  if (error == 0) {
    Progress::Hold held(*progress_);
    error = qp.qp == nullptr ? ENOENT
                             : engine_->qp_connect(qp.qp, number, qp.path, attr_of(conn));
    if (error == 0) qp.conn_id = event.conn_id;
  }
  if (error != 0) release_port(qp);
  kernel_qp_report(qp.context->cmd_fd, qp.ibv.handle,
                   {.kind = error == 0 ? USIW_REPORT_READY : USIW_REPORT_REFUSED,
                    .conn_id = event.conn_id,
                    .error = -error,
                    .async_event = 0});
}

void Runtime::abort_all() {
  std::lock_guard hold(qps_lock_);
  gone_.store(true, std::memory_order_relaxed);
  Progress::Hold held(*progress_);
  for (auto& [qpn, qp] : qps_)
    if (qp->qp != nullptr) engine_->qp_abort(qp->qp);
}

// ---- From the engine (held) -----------------------------------------------------------------

void Runtime::cq_ready(Cq& cq) {
  auto* v = static_cast<VCq*>(cq.owner());
  if (v->ibv.channel != nullptr) note(v->completion);
}

void Runtime::cq_overrun(Cq& cq) { note(static_cast<VCq*>(cq.owner())->overrun); }

void Runtime::qp_peer_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->peer_closed.report = {USIW_REPORT_PEER_CLOSED, v->conn_id, 0, 0};
  note(v->peer_closed);
}

void Runtime::qp_closed(Qp& qp) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->closed.report = {USIW_REPORT_CLOSED, v->conn_id, 0, 0};
  note(v->closed);
}

void Runtime::qp_failed(Qp& qp, int error, AsyncEvent event) {
  auto* v = static_cast<VQp*>(qp.owner());
  v->failed.report = {USIW_REPORT_FAILED, v->conn_id, error > 0 ? -error : error,
                      event == AsyncEvent::kNone ? 0u : static_cast<uint32_t>(event)};
  note(v->failed);
}

/// Queues @p p, and pins what it belongs to, unless it is queued. An event of a CQ that was
/// armed again before the first one was raised needs no second one: both would be raised
/// behind the completions that caused them.
void Runtime::note(Pending& p) {
  pending_lock_.lock();
  if (!p.queued) {
    p.queued = true;
    p.next = nullptr;
    *pending_tail_ = &p;
    pending_tail_ = &p.next;
    (p.cq != nullptr ? p.cq->pins : p.qp->pins).fetch_add(1, std::memory_order_relaxed);
  }
  have_pending_.store(true, std::memory_order_relaxed);
  pending_lock_.unlock();
}

/// Tells the kernel what was noted down, in order. A thread that finds another one here
/// waits for it, so that it never returns before its own reports are made.
void Runtime::flush_pending() {
  std::lock_guard flushing(flush_lock_);
  for (;;) {
    pending_lock_.lock();
    Pending* p = pending_head_;
    if (p == nullptr) {
      have_pending_.store(false, std::memory_order_relaxed);
      pending_lock_.unlock();
      return;
    }
    pending_head_ = p->next;
    if (pending_head_ == nullptr) pending_tail_ = &pending_head_;
    p->queued = false;
    usiw_qp_report report = p->report;
    pending_lock_.unlock();

    // Errors are ignored: the object, or the whole device, is on its way out.
    if (p->cq != nullptr) {
      kernel_cq_event(p->cq->context->cmd_fd, p->cq->ibv.handle, p->kind);
      p->cq->pins.fetch_sub(1, std::memory_order_release);
    } else {
      kernel_qp_report(p->qp->context->cmd_fd, p->qp->ibv.handle, report);
      p->qp->pins.fetch_sub(1, std::memory_order_release);
    }
  }
}

void Runtime::settle(VCq& cq) {
  while (cq.pins.load(std::memory_order_acquire) != 0) sched_yield();
}

}  // namespace usiw
