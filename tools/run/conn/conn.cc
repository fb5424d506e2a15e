// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn.cc
/// Table, clock and input of connections. conn_act.cc has the calls of cm/ to its host.
#include "tools/run/conn/conn.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "cm/usiw_cm_input.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/qp.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/random.h"

namespace usiw::run {
namespace {

struct Before {
  bool operator()(const usiw_cm_tuple& a, const usiw_cm_tuple& b) const { return std::memcmp(&a, &b, sizeof a) < 0; }
};
using ConnTable = std::map<usiw_cm_tuple, std::shared_ptr<Conn>, Before>;

ConnTable& conn_table() {
  static auto& conns = *new ConnTable;
  return conns;
}

/// Those with a deadline, the next one first.
std::set<std::pair<uint64_t, Conn*>>& conn_clock() {
  static auto& list = *new std::set<std::pair<uint64_t, Conn*>>;
  return list;
}

uint32_t next_conn_id() {
  static uint32_t last = 0;
  if (++last == 0) last = 1;
  return last;
}

std::shared_ptr<Conn> lookup_conn(const Tuple& tuple) {
  auto it = conn_table().find(cm_tuple(tuple));
  return it == conn_table().end() ? nullptr : it->second;
}

}  // namespace

Conn::Conn(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple) : usiw_cm_end{}, tuple_(tuple), sock_(sock) {
  const usiw_cm_tuple ends = cm_tuple(tuple);
  usiw_cm_end_init(this, &host_calls, next_conn_id(), &ends);
}

int Conn::insert() {
  if (!conn_table().try_emplace(cm_tuple(tuple_), shared_from_this()).second) return -EADDRINUSE;
  hashed_ = true;
  keeps_socket_ = true;
  sock_->add_conn();
  return 0;
}

void Conn::let_socket_go() {
  if (!keeps_socket_) return;
  keeps_socket_ = false;
  sock_->remove_conn();
}

void Conn::unhash() {
  if (!hashed_) return;
  hashed_ = false;
  leave_packets();
  if (armed_us_ != 0) conn_clock().erase({armed_us_, this});
  armed_us_ = 0;
  conn_table().erase(cm_tuple(tuple_));
  let_socket_go();
}

void conns_end_lingering(const UdpSocket& sock) {
  std::vector<std::shared_ptr<Conn>> ending;
  for (auto& [key, conn] : conn_table())
    if (conn->sock_.get() == &sock) ending.push_back(conn);
  for (const std::shared_ptr<Conn>& conn : ending) usiw_cm_end_drop(conn.get());
}

void Conn::arm() {
  uint64_t at = hashed_ ? usiw_cm_end_deadline(this) : 0;
  if (at == armed_us_) return;
  uint64_t before = conn_next_deadline_us();
  if (armed_us_ != 0) conn_clock().erase({armed_us_, this});
  armed_us_ = at;
  if (at != 0) conn_clock().insert({at, this});
  if (at != 0 && (before == 0 || at < before)) cm_thread_kick();
}

uint64_t conn_next_deadline_us() { return conn_clock().empty() ? 0 : conn_clock().begin()->first; }

void conn_run_timers() {
  uint64_t now = now_us();
  while (!conn_clock().empty() && conn_clock().begin()->first <= now) {
    std::shared_ptr<Conn> conn = conn_clock().begin()->second->shared_from_this();
    conn_clock().erase(conn_clock().begin());
    conn->armed_us_ = 0;
    usiw_cm_end_tick(conn.get(), now);
  }
}

void conns_abandon() {
  conn_clock().clear();
  // Leaked on purpose: the parent's.
  static auto& leaked = *new ConnTable;
  leaked.merge(conn_table());
  conn_table().clear();
}

// ---- Calls of the user and of the provider ----------------------------------------------

int Conn::connect(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, uint16_t ird, uint16_t ord,
                  uint16_t mtu, uint8_t tos, const void* pd, uint16_t pd_len, const std::shared_ptr<Qp>& qp,
                  ConnUser* user, std::shared_ptr<Conn>& out) {
  std::shared_ptr<Conn> conn(new Conn(sock, tuple));
  int ret = usiw_cm_init_active(&conn->cm, random_u32(), ird, ord, mtu, USIW_TRP_FIRST_WINDOW, pd, pd_len);
  if (ret != 0) return ret;
  // The old connection of this 4-tuple may only be lingering, for the sake of its peer.
  if (std::shared_ptr<Conn> old = lookup_conn(tuple); old && old->cm.state == USIW_CM_LINGER)
    usiw_cm_end_drop(old.get());
  ret = conn->insert();
  if (ret != 0) return ret;
  conn->tos = tos;
  ret = conn->attach(qp, user);
  if (ret != 0) {
    conn->unhash();
    return ret;
  }
  out = conn;
  usiw_cm_end_connect(conn.get(), now_us());
  return 0;
}

int Conn::accept(uint16_t ird, uint16_t ord, const void* pd, uint16_t pd_len, const std::shared_ptr<Qp>& qp,
                 ConnUser* user) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  int ret = qp_ ? -ECONNRESET : usiw_cm_end_may_accept(this);
  if (ret == 0) ret = attach(qp, user);
  if (ret == 0) ret = usiw_cm_end_accept(this, ird, ord, pd, pd_len, now_us());
  if (ret == 0) {
    qp->state.accepted();
    return 0;
  }
  forget_user();  // an error is the end of the request, and the user has it already
  usiw_cm_end_abort(this, USIW_ABORT_LOCAL, now_us());
  return ret;
}

void Conn::reject(const void* pd, uint16_t pd_len) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  usiw_cm_end_reject(this, pd, pd_len, now_us());
}

void Conn::disconnect() {
  const std::shared_ptr<Conn> alive = shared_from_this();
  usiw_cm_end_disconnect(this, now_us());
}

void Conn::abort(usiw_abort_reason reason) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  usiw_cm_end_abort(this, reason, now_us());
}

void Conn::report(const usiw_qp_report& report) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  usiw_cm_end_report(this, &report, now_us());
  // Raw packets were tried in vain. None are offered any more, so that later handshakes may offer MERGED.
  if (report.kind == USIW_REPORT_PORT && report.conn_id == id && port_why == USIW_PORT_WHY_BROKEN) packets_give_up();
}

// ---- The network ------------------------------------------------------------------------

Listener* listener_at(const UdpSocket& sock, const Endpoint& local) {
  if (sock.listener != nullptr) return sock.listener;
  // The socket of one address may stand beside one for all, where the listener is.
  Endpoint any = endpoint_any(local.ipv4());
  any.port = local.port;
  std::shared_ptr<UdpSocket> wild = UdpSocket::find(any);
  return wild ? wild->listener : nullptr;
}

int Conn::open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, uint32_t isn,
               const std::shared_ptr<Backlog>& backlog, Listener& listener) {
  Route route;
  std::shared_ptr<Conn> conn(new Conn(sock, tuple));
  conn->backlog_ = backlog;
  conn->tos = listener.tos();
  int reason = 0;
  if (route_to(tuple.local, tuple.remote, route) == 0) {
    const auto mtu = static_cast<uint16_t>(route.mtu);
    reason = usiw_cm_init_passive(&conn->cm, &req, isn, mtu, USIW_TRP_FIRST_WINDOW, now_us());
    if (reason == 0 && conn->insert() == 0) {
      listener.on_request(conn);
      conn->arm();
      return 0;
    }
  }
  conn->leave_backlog();
  return reason;
}

/// The peer has confirmed, or the connection has ended.
void Conn::leave_backlog() {
  if (std::shared_ptr<Backlog> backlog = std::move(backlog_)) backlog->give_back();
}

void conn_receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                  Admission::Entry* entry) {
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  std::shared_ptr<Conn> conn = lookup_conn(tuple);
  if (conn)
    usiw_cm_end_input(conn.get(), &v, data, len, buf, now_us());
  else
    usiw_cm_input(&v, nullptr, data, len, now_us(), buf);
  if (v.kind == USIW_CM_V_ADMIT) return sock->admission().request(sock, tuple, v.pkt, data, len, entry);
  if (v.kind == USIW_CM_V_WITHDRAW) sock->admission().withdraw(tuple, v.pkt);
  if (v.kind == USIW_CM_V_ANSWER) sock->send(tuple.local, tuple.remote, conn ? conn->tos : uint8_t{0}, buf, v.len);
  if (entry != nullptr) sock->admission().discard(entry);
}

void conn_icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_heard heard, const void* quoted, uint32_t len) {
  for (auto& [key, conn] : conn_table()) {
    if (conn->sock_.get() != &sock || !(conn->tuple_.remote == to)) continue;
    if (!usiw_cm_quotes(&conn->cm, quoted, len)) continue;
    std::shared_ptr<Conn> held = conn;
    usiw_cm_end_icmp(held.get(), heard, now_us());
    return;
  }
}

}  // namespace usiw::run
