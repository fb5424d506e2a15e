// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime_events.cc
/// Events from the kernel to the engine: connections, the link, the device's end.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/runtime.h"
#include "uapi/usiw_wire.h"

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
  p.scope = c.scope;
  p.merge = (c.features & USIW_FEATURE_MERGED) != 0;
  p.other_host = (c.flags & (USIW_CONN_F_PACKET | USIW_CONN_F_LOCAL)) == USIW_CONN_F_PACKET;
  return p;
}

ConnAttr attr_of(const usiw_conn_info& c) {
  return {.snd_psn = c.snd_psn,
          .rcv_psn = c.rcv_psn,
          .snd_window = c.snd_window,
          .ird = c.ird,
          .ord = c.ord,
          .mtu = c.mtu,
          .initiator = (c.flags & USIW_CONN_F_INITIATOR) != 0,
          .merges = merges_at_times(c),
          .handshake_mtu = c.handshake_mtu,
          .silent = (c.flags & USIW_CONN_F_SILENT) != 0};
}

/// The descriptor that came with CONNECT, or a negative number.
int data_socket(const usiw_conn_info& conn) { return (conn.flags & USIW_CONN_F_SOCKET) != 0 ? conn.data_fd : -1; }

}  // namespace

// ---- From the kernel ---------------------------------------------------------------------

void Runtime::on_event(Context& context, const usiw_event& event) {
  (void)context;
  switch (event.type) {
    case USIW_EVENT_LINK:
      on_link(event.link);
      return;
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
  if (event.type == USIW_EVENT_PATH) {
    on_path(*qp, event);
    return;
  }
  const EngineGate::Held held = hold();
  if (qp->qp == nullptr) return;
  if (qp->conn_id != event.conn_id) {
    if (event.type == USIW_EVENT_ABORT) on_never_connected(held, *qp);
    return;
  }
  switch (event.type) {
    case USIW_EVENT_DISCONNECT:
      held->qp_shutdown(qp->qp);
      break;
    case USIW_EVENT_ABORT:
      // RESET has overtaken what the peer sent before it, and that may be an acknowledgement.
      for (unsigned runs = 0; runs < kRunsBeforeKill && held->progress() != 0; runs++) {
      }
      held->qp_abort(qp->qp);
      break;
    case USIW_EVENT_PROBE:
      held->qp_probe(qp->qp);
      break;
  }
}

/// A connection has ended that this end was never given. Its QP is in ERR and
/// to be flushed, unless the program has reset it meanwhile: then the kernel knows, or will
/// before the program's call gets the engine.
void Runtime::on_never_connected(const EngineGate::Held& held, VQp& qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  if (qp.qp->state() == QpState::kIdle && usiw_cmd_query_qp(&qp.ibv, &attr, IBV_QP_STATE, &init) == 0 &&
      attr.qp_state == IBV_QPS_ERR)
    held->qp_abort(qp.qp);
}

/// The peer of a silent connection has begun anew, and messages have passed on this end's connection. As on RoCE, the
/// QP does not change until its program resets it, or until the next SEND fails. The control half gets no answer, so
/// its new connection waits.
bool Runtime::keeps_connection(VQp& qp) {
  const EngineGate::Held held = hold();
  return qp.qp != nullptr && held->qp_keeps_connection(qp.qp);
}

/// The first message of a silent connection must not wait for a raw port, so it begins by its socket and moves. With
/// rdma_cm it is the connect that waits.
void Runtime::on_connect(VQp& qp, const usiw_event& event) {
  if ((event.conn.flags & USIW_CONN_F_SILENT) != 0 && keeps_connection(qp)) {
    if (data_socket(event.conn) >= 0) close(event.conn.data_fd);
    return;
  }
  usiw_conn_info conn = event.conn;
  const bool later = (conn.flags & USIW_CONN_F_SILENT) != 0 && ports_.packets_take_long(qp, conn);
  if (later) {
    conn.flags &= ~USIW_CONN_F_PACKET;
    conn.not_packet = USIW_NOT_PACKET_NETDEV;
  }
  int error = ports_.give(qp, conn, path_of(event.conn));
  if (error == 0) {
    const EngineGate::Held held = hold();
    error = qp.qp == nullptr ? ENOENT : held->qp_connect(qp.qp, qp.by().number, qp.path, attr_of(conn));
    if (error == 0) {
      qp.conn_id = event.conn_id;
      qp.moves.link(ports_.link().up != 0);
      if (qp.other().port != nullptr) held->qp_also(qp.qp, qp.other().number);
      reports_.sends_by(qp);
      reports_.connected(qp, event.conn_id, 0);
    }
  }
  if (error == 0 && later) open_packets_for(event);
  if (error != 0) {
    ports_.release(qp);
    const EngineGate::Held held = hold();
    qp.moves.end();
    reports_.sends_by(qp);
    reports_.connected(qp, event.conn_id, error);
    // No ABORT record follows. With rdma_cm the program learns of the failure, and what it has posted stays. A QP that
    // connects by itself is in RTR or RTS, and goes to ERR.
    if (qp.qp != nullptr && (conn.flags & USIW_CONN_F_SILENT) != 0) held->qp_abort(qp.qp);
  }
}

/// Has a raw port opened, by which the connection is to go on.
void Runtime::open_packets_for(const usiw_event& connect) {
  {
    std::lock_guard lock(late_lock_);
    late_.push_back(connect);
    late_.back().type = USIW_EVENT_PATH;
    if (late_.size() > 1) return;  // it is on its way
  }
  opener_.start(ports_.packet_opener(connect.conn), [this](std::unique_ptr<NetPort> port, const std::string& why) {
    packets_are_open(std::move(port), why);
  });
}

void Runtime::packets_are_open(std::unique_ptr<NetPort> port, const std::string& why) {
  std::vector<usiw_event> late;
  {
    std::lock_guard lock(late_lock_);
    late.swap(late_);
  }
  if (late.empty()) return;
  ports_.adopt_packets(late.front().conn, std::move(port), why);
  for (const usiw_event& event : late) {
    const Pin pinned(pin(event.qpn));
    if (pinned.get() != nullptr) on_path(*pinned.get(), event);
  }
}

/// Next hop, MTU, and whether raw packets may be used.
void Runtime::on_path(VQp& qp, const usiw_event& event) {
  const usiw_conn_info& conn = event.conn;
  const bool moves = (qp.context->caps & USIW_CAP_PORT_MOVE) != 0;
  const bool packets = !moves || (conn.flags & USIW_CONN_F_PACKET) != 0;
  if (moves && packets) ports_.give_packets(qp, event.conn_id, conn);
  const EngineGate::Held held = hold();
  if (qp.qp == nullptr || qp.conn_id != event.conn_id) return;
  if (packets) {
    qp.path.local_mac = mac(conn.local_mac);
    qp.path.remote_mac = mac(conn.remote_mac);
  }
  const uint32_t mtu = conn.mtu != 0 ? conn.mtu : qp.moves.mtu();
  held->qp_path(qp.qp, qp.path, mtu);
  if (!moves) return;
  qp.moves.path(ports_.not_packet(conn), mtu);
  reconsider(held, qp);
}

void Runtime::on_link(const usiw_link_info& link) {
  ports_.set_link(link);
  std::lock_guard lock(qps_lock_);
  const EngineGate::Held held = hold();
  for (auto& [qpn, qp] : qps_) {
    if (qp->qp == nullptr || qp->conn_id == 0) continue;
    qp->moves.link(link.up != 0);
    reconsider(held, *qp);
  }
}

/// Has the connection go on by the port that is the right one now.
void Runtime::reconsider(const EngineGate::Held& held, VQp& qp) {
  held->qp_move(qp.qp, reports_.qp_which_port(*qp.qp, held->qp_ways(qp.qp)));
}

void Runtime::abort_all() {
  std::lock_guard lock(qps_lock_);
  gone_.store(true, std::memory_order_relaxed);
  const EngineGate::Held held = hold();
  for (auto& [qpn, qp] : qps_)
    if (qp->qp != nullptr) held->qp_abort(qp->qp);
}

}  // namespace usiw
