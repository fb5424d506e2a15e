// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn.cc
/// Table, clock and input of connections. What the machine asks for is in conn_act.cc.
#include "conn.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "cm/usiw_cm_input.h"
#include "cm_thread.h"
#include "packets.h"
#include "qp.h"
#include "random.h"
#include "world.h"

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

/// Beside those of every end.
uint32_t own_features(const Tuple& tuple) { return packets_reach(tuple) ? 0 : USIW_FEATURE_MERGED; }

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

Conn::Conn(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple)
    : id_(next_conn_id()), tuple_(tuple), sock_(sock) {}

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
  for (const std::shared_ptr<Conn>& conn : ending) conn->unhash();
}

void Conn::arm() {
  uint64_t at = hashed_ ? cm_.deadline_us : 0;
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
    conn->act(usiw_cm_timer(&conn->cm_, now));
  }
}

void conns_abandon() {
  conn_clock().clear();
  // Leaked on purpose: the parent's.
  static auto& kept = *new ConnTable;
  kept.merge(conn_table());
  conn_table().clear();
}

// ---- Calls of the user and of the provider ----------------------------------------------

int Conn::connect(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, uint16_t ird, uint16_t ord,
                  uint16_t mtu, uint8_t tos, const void* pd, uint16_t pd_len, const std::shared_ptr<Qp>& qp,
                  ConnUser* user, std::shared_ptr<Conn>& out) {
  std::shared_ptr<Conn> conn(new Conn(sock, tuple));
  int ret = usiw_cm_init_active(&conn->cm_, random_u32(), ird, ord, mtu, USIW_TRP_FIRST_WINDOW, pd, pd_len);
  if (ret != 0) return ret;
  conn->cm_.features |= own_features(tuple);
  // The old connection of this 4-tuple may only be lingering, for the sake of its peer.
  if (std::shared_ptr<Conn> old = lookup_conn(tuple); old && old->cm_.state == USIW_CM_LINGER) old->unhash();
  ret = conn->insert();
  if (ret != 0) return ret;
  ret = conn->attach(qp, user);
  if (ret != 0) {
    conn->unhash();
    return ret;
  }
  conn->tos_ = tos;
  usiw_cm_ledger_connected(&conn->ledger_);
  out = conn;
  conn->act(usiw_cm_connect(&conn->cm_, now_us()));
  return 0;
}

int Conn::accept(uint16_t ird, uint16_t ord, const void* pd, uint16_t pd_len, const std::shared_ptr<Qp>& qp,
                 ConnUser* user) {
  int ret = cm_.state == USIW_CM_REQ_RCVD && !qp_ ? 0 : -ECONNRESET;
  if (ret == 0) ret = attach(qp, user);
  if (ret == 0) {
    uint32_t actions = usiw_cm_accept(&cm_, ird, ord, pd, pd_len, now_us(), &ret);
    if (ret == 0) {
      usiw_cm_ledger_accepted(&ledger_);
      qp->state.accepted();
      act(actions);
      return 0;
    }
  }
  forget_user();  // an error is the end of the request, and the user has it already
  abort(USIW_KILL_LOCAL);
  return ret;
}

void Conn::reject(const void* pd, uint16_t pd_len) { act(usiw_cm_reject(&cm_, pd, pd_len, now_us())); }
void Conn::disconnect() { act(usiw_cm_disconnect(&cm_, now_us())); }
void Conn::abort(usiw_kill_reason reason) { act(usiw_cm_abort(&cm_, static_cast<uint8_t>(reason), now_us())); }

void Conn::report(const usiw_qp_report& report) {
  // On another connection than the QP's present one it is out of date; and who has not been
  // given the connection cannot say anything about it.
  if (report.conn_id != id_ || !announced_) return;
  if (report.kind == USIW_REPORT_PORT) return told_port(report.port_why);
  act(usiw_cm_report(&cm_, report.kind, report.error, now_us()));
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
               const std::shared_ptr<Places>& places, Listener& listener) {
  Route route;
  std::shared_ptr<Conn> conn(new Conn(sock, tuple));
  conn->places_ = places;
  conn->tos_ = listener.tos();
  int reason = 0;
  if (route_to(tuple.local, tuple.remote, route) == 0) {
    const auto mtu = static_cast<uint16_t>(route.mtu);
    reason = usiw_cm_init_passive(&conn->cm_, &req, isn, mtu, USIW_TRP_FIRST_WINDOW, now_us());
    conn->cm_.features |= req.features & own_features(tuple);
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
  if (std::shared_ptr<Places> places = std::move(places_)) places->give_back();
}

void conn_receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                  Gate::Kept* kept) {
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  std::shared_ptr<Conn> conn = lookup_conn(tuple);
  usiw_cm_input(&v, conn ? &conn->cm_ : nullptr, data, len, now_us(), buf);
  if (conn) conn->act(v.actions);
  if (v.kind == USIW_CM_V_ADMIT) return sock->gate().request(sock, tuple, v.pkt, data, len, kept);
  if (v.kind == USIW_CM_V_WITHDRAW) sock->gate().withdraw(tuple, v.pkt);
  if (v.kind == USIW_CM_V_ANSWER) sock->send(tuple.local, tuple.remote, conn ? conn->tos_ : 0, buf, v.len);
  if (kept != nullptr) sock->gate().discard(kept);
}

void conn_icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_heard heard, const void* quoted, uint32_t len) {
  for (auto& [key, conn] : conn_table()) {
    if (conn->sock_.get() != &sock || !(conn->tuple_.remote == to)) continue;
    if (!usiw_cm_quotes(&conn->cm_, quoted, len)) continue;
    std::shared_ptr<Conn> held = conn;
    held->act(usiw_cm_icmp(&held->cm_, heard, now_us()));
    return;
  }
}

}  // namespace usiw::run
