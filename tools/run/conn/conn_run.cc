// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn_run.cc
/// Functions of Conn that rdma_cm, the provider and the network call. They call cm/usiw_cm_end.h, which runs the state
/// machine and carries out its actions through the functions of conn_act.cc.
#include <cerrno>

#include "cm/usiw_cm_input.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/qp.h"
#include "tools/run/host/random.h"

namespace usiw::run {
// ---- rdma_cm and the provider -----------------------------------------------------------

namespace {

/// Returns 0 if rdma_cm may connect @p qp; -EINVAL if the QP is in a wrong state; -EISCONN if it has a connection.
int may_connect(const Qp& qp) {
  if (qp.destroying || qp.state > (qp.moved_by_program ? USIW_QPS_RTS : USIW_QPS_RTR)) return -EINVAL;
  return qp.conn ? -EISCONN : 0;
}

}  // namespace

/// Sets up a new connection of an initiator, and adds it to the table. Returns 0 or -errno.
int Conn::initiate(bool silent, const ConnPath& way, const ConnParam& param, const std::shared_ptr<Qp>& qp,
                   ConnUser* user) {
  int ret = usiw_cm_init_active(&cm, random_u32(), param.ird, param.ord, way.mtu, USIW_TRP_FIRST_WINDOW, param.pd,
                                param.pd_len);
  if (ret != 0) return ret;
  if (silent) {
    usiw_cm_set_silent(&cm);
    usiw_cm_offer(&cm, USIW_FEATURE_FACE);
  }
  // Remove an old connection of the same 4-tuple if it is in LINGER, because the table has one entry for each 4-tuple.
  if (std::shared_ptr<Conn> old = find(way.tuple); old && old->cm.state == USIW_CM_LINGER) usiw_cm_end_drop(old.get());
  ret = insert();
  if (ret != 0) return ret;
  tos = way.tos;
  attach(qp, user);
  return 0;
}

int Conn::connect(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const ConnParam& param,
                  const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out) {
  std::shared_ptr<Conn> conn(new Conn(host_calls, sock, path.tuple));
  int ret = may_connect(*qp);
  if (ret == 0) ret = conn->initiate(false, path, param, qp, user);
  if (ret != 0) return ret;
  out = conn;
  usiw_cm_end_connect(conn.get(), now_us());
  return 0;
}

int Conn::ask(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const ConnParam& param, usiw_face_part part,
              const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out) {
  std::shared_ptr<Conn> conn(new Conn(host_calls, sock, path.tuple));
  if (const int ret = conn->initiate(true, path, param, qp, user); ret != 0) return ret;
  out = conn;
  if (part == USIW_FACE_ITSELF)
    usiw_cm_end_connect_itself(conn.get(), now_us());
  else
    usiw_cm_end_connect(conn.get(), now_us());
  return 0;
}

int Conn::take_request(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const usiw_face_req& req,
                       const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user,
                       std::shared_ptr<Conn>& out) {
  std::shared_ptr<Conn> conn(new Conn(host_calls, sock, path.tuple));
  if (usiw_cm_init_passive(&conn->cm, &req.pkt, req.isn, path.mtu, USIW_TRP_FIRST_WINDOW, now_us()) != 0)
    return -EPROTO;
  usiw_cm_set_silent(&conn->cm);
  if (const int ret = conn->insert(); ret != 0) return ret;
  conn->tos = path.tos;
  conn->attach(qp, user);
  out = conn;
  return usiw_cm_end_accept(conn.get(), param.ird, param.ord, param.pd, param.pd_len, now_us());
}

int Conn::accept(const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  int ret = qp_ ? -ECONNRESET : usiw_cm_end_may_accept(this);
  if (ret == 0) ret = may_connect(*qp);
  if (ret == 0) attach(qp, user);
  if (ret == 0) ret = usiw_cm_end_accept(this, param.ird, param.ord, param.pd, param.pd_len, now_us());
  if (ret == 0) {
    qp->state.accepted();
    return 0;
  }
  forget_user();  // the return value already shows the error to the user
  usiw_cm_end_abort(this, USIW_ABORT_LOCAL, now_us());
  return ret;
}

void Conn::report(const usiw_qp_report& report) {
  const std::shared_ptr<Conn> alive = shared_from_this();
  usiw_cm_end_report(this, &report, now_us());
  // If raw packets have failed, exclude later connections of this process from them. The handshakes of these
  // connections may then offer MERGED.
  if (report.kind == USIW_REPORT_PORT && report.conn_id == id && port_why == USIW_PORT_WHY_BROKEN) packets_give_up();
}

// ---- The network ------------------------------------------------------------------------

std::shared_ptr<UdpSocket> Conn::open_port(const Endpoint& local, bool shared, int& error) {
  static constexpr SocketCalls kCalls = {
      .receive = [](const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data,
                    uint32_t len) { receive(sock, tuple, data, len, nullptr); },
      .icmp = icmp,
      .end_lingering = end_lingering,
  };
  const std::shared_ptr<UdpSocket> sock = UdpSocket::open(local, shared, kCalls, error);
  if (sock) sock->admission = Admission::of(sock->local().port, receive);
  return sock;
}

std::shared_ptr<UdpSocket> Conn::open_port_of_qp(SocketCalls calls, int& error) {
  calls.end_lingering = [](const UdpSocket&) {};
  return UdpSocket::open_for_qp(calls, error);
}

uint32_t Conn::receive_for_qp(usiw_face& face, UdpSocket& sock, const Tuple& tuple, const void* data, uint32_t len) {
  usiw_face_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  const usiw_cm_tuple ends = cm_tuple(tuple);
  const std::shared_ptr<Conn> conn = find(tuple);
  usiw_face_input(&v, &face, conn.get(), &ends, Admission::secret(), data, len, now_us(), buf);
  if (v.kind == USIW_FACE_V_ANSWER) sock.send(tuple.local, tuple.remote, 0, buf, v.len);
  return v.kind;
}

std::shared_ptr<Conn> Conn::open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                                 uint32_t isn, const std::shared_ptr<Backlog>& backlog, uint8_t tos, int& reason) {
  Route route;
  std::shared_ptr<Conn> conn(new Conn(host_calls, sock, tuple));
  conn->backlog_ = backlog;
  conn->tos = tos;
  reason = 0;
  if (route_to(tuple.local, tuple.remote, route) == 0) {
    const auto mtu = static_cast<uint16_t>(route.mtu);
    reason = usiw_cm_init_passive(&conn->cm, &req, isn, mtu, USIW_TRP_FIRST_WINDOW, now_us());
    if (reason == 0 && conn->insert() == 0) {
      conn->arm();
      return conn;
    }
  }
  conn->leave_backlog();
  return nullptr;
}

/// Handles a datagram of the handshake, or another datagram that may be stray. If the datagram is a REQ that has
/// waited, @p entry is the entry of that REQ, and this function takes ownership of the entry. Else @p entry is null.
void Conn::receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                   Admission::Entry* entry) {
  usiw_cm_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  const std::shared_ptr<Conn> conn = find(tuple);
  if (conn)
    usiw_cm_end_input(conn.get(), &v, data, len, buf, now_us());
  else
    usiw_cm_input(&v, nullptr, data, len, now_us(), buf);
  if (v.kind == USIW_CM_V_ADMIT) return sock->admission->request(sock, tuple, v.pkt, data, len, entry);
  if (v.kind == USIW_CM_V_WITHDRAW) sock->admission->withdraw(tuple, v.pkt);
  if (v.kind == USIW_CM_V_ANSWER) sock->send(tuple.local, tuple.remote, conn ? conn->tos : uint8_t{0}, buf, v.len);
  if (entry != nullptr) sock->admission->discard(entry);
}

}  // namespace usiw::run
