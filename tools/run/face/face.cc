// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/face/face.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "cm/object/usiw_device_attr.h"
#include "cm/object/usiw_face_states.h"
#include "cm/object/usiw_limits.h"
#include "cm/usiw_face.h"
#include "tools/run/conn/admission.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/gid_table.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/random.h"
#include "tools/run/libc/desc_file.h"

namespace usiw::run {
namespace {

/// The faces by their sockets, to which the datagrams come.
using Faces = std::map<const UdpSocket*, Face*>;
Faces& faces() { return never_destroyed<Faces>(); }

/// Returns true if a peer of the GID @p local may have the address @p remote: a unicast address of the same family. An
/// address of lo has only peers there.
bool may_be_peer(const Gid& local, const Endpoint& remote) {
  Endpoint own;
  own.addr = local.gid;
  return remote.unicast() && remote.ipv4() == own.ipv4() && remote.loopback() == own.loopback();
}

/// Finds the addresses of both ends, and the route, for an address vector. The ports of @p local and @p peer are 0.
/// Returns 0, or -errno: an address that is not possible, or to which there is no route.
int resolve(const ib_uverbs_qp_dest& av, Endpoint& local, Endpoint& peer, Route& route) {
  const std::vector<Gid> gids = gid_table().entries;
  if (av.is_global == 0 || av.sgid_index >= gids.size() || !gids[av.sgid_index].there) return -EINVAL;
  const Gid& own = gids[av.sgid_index];
  peer = {};
  std::memcpy(&peer.addr, av.dgid, sizeof av.dgid);
  if (!may_be_peer(own, peer)) return -EINVAL;
  if (own.made_up) {
    if (std::memcmp(&peer.addr, &own.gid, sizeof own.gid) != 0) return -ENETUNREACH;
    peer = own.at;
  }
  local = own.at;
  if (IN6_IS_ADDR_LINKLOCAL(&peer.addr)) peer.scope = local.scope;
  return route_to(local, peer, route);
}

}  // namespace

std::shared_ptr<Face> Face::open(int& error) {
  const std::shared_ptr<UdpSocket> sock = Conn::open_port_of_qp({.receive = receive, .icmp = icmp, .ignored = ignored},
                                                                error);
  return sock ? std::shared_ptr<Face>(new Face(sock)) : nullptr;
}

Face::Face(const std::shared_ptr<UdpSocket>& sock) : sock_(sock) {
  usiw_face_init(&face_, usiw_face_qpn(ntohs(sock->local().port), random_u32()), random_u32());
  sock_->add_id();
  faces()[sock_.get()] = this;
}

Face::~Face() { close(); }

void Face::close() {
  if (!sock_) return;
  leave();
  faces().erase(sock_.get());
  sock_->remove_id();
  sock_.reset();
}

void Face::abandon_all() { faces().clear(); }

// ---- modify_qp and query_qp -------------------------------------------------------------

usiw_qp_state Face::moves_from(const Qp& qp) const {
  if (qp.state != USIW_QPS_ERR) return qp.state;
  const bool of_cm = moved_to_ == USIW_QPS_RTR && usiw_face_is_of_cm(qp.attrs.dest_qp_num) != 0;
  return moved_to_ == USIW_QPS_INIT || of_cm ? moved_to_ : USIW_QPS_ERR;
}

int Face::check_move(usiw_qp_state from, const ib_uverbs_modify_qp& cmd) {
  const uint32_t mask = cmd.attr_mask, to = (mask & USIW_QP_STATE) != 0 ? cmd.qp_state : uint32_t{from};
  if ((mask & USIW_QP_CUR_STATE) != 0 && cmd.cur_qp_state != from) return -EINVAL;
  return usiw_face_check_move(from, to, mask);
}

int Face::check_address(const ib_uverbs_modify_qp& cmd) {
  if ((cmd.attr_mask & USIW_QP_AV) == 0) return 0;
  // The kernel requires the port in the address vector, too.
  if (cmd.dest.port_num != 1) return -EINVAL;
  // Only two moves have an address vector: INIT to RTR, and SQD to SQD. The path of a connection does not change.
  if ((cmd.attr_mask & USIW_QP_PATH_MTU) == 0) return -EOPNOTSUPP;
  if (usiw_face_port(cmd.dest_qp_num) == 0) return -EINVAL;
  if (usiw_face_is_of_cm(cmd.dest_qp_num) != 0) return 0;
  return find_path(cmd);
}

/// Finds the 4-tuple and the MTU of the path to the peer. Returns 0, or -errno: an address that is not possible, or to
/// which there is no route.
int Face::find_path(const ib_uverbs_modify_qp& cmd) {
  Endpoint local, peer;
  Route route;
  if (const int ret = resolve(cmd.dest, local, peer, route); ret != 0) return ret;
  local.port = sock_->local().port;
  peer.port = htons(usiw_face_port(cmd.dest_qp_num));
  path_ = {.tuple = {local, peer},
           .mtu = usiw_face_mtu(cmd.path_mtu, usiw_mtu_named(link_info().mtu), route.mtu, local.ipv4()),
           .tos = cmd.dest.traffic_class};
  return 0;
}

int Face::check_handle(const ib_uverbs_ah_attr& attr) {
  if (attr.port_num != 1 || attr.sl > USIW_MAX_SL) return -EINVAL;
  ib_uverbs_qp_dest av{};
  av.is_global = attr.is_global;
  av.sgid_index = attr.grh.sgid_index;
  std::memcpy(av.dgid, attr.grh.dgid, sizeof av.dgid);
  Endpoint local, peer;
  Route route;
  return resolve(av, local, peer, route);
}

void Face::moved(const std::shared_ptr<Qp>& qp, const ib_uverbs_modify_qp& cmd) {
  const uint32_t mask = cmd.attr_mask;
  if ((mask & USIW_QP_PKEY_INDEX) != 0) pkey_index_ = cmd.pkey_index;
  if ((mask & USIW_QP_PATH_MTU) != 0) path_mtu_ = cmd.path_mtu;
  if ((mask & USIW_QP_AV) != 0) av_ = cmd.dest;
  // usiw_keep_qp_attrs() leaves the depths of a connected QP, on which both ends of an rdma_cm connection have agreed.
  // On the RoCE face each program sets its own, also in SQD.
  if (usiw_face_is_of_cm(qp->attrs.dest_qp_num) == 0) {
    if ((mask & USIW_QP_MAX_QP_RD_ATOMIC) != 0) qp->attrs.ord = cmd.max_rd_atomic;
    if ((mask & USIW_QP_MAX_DEST_RD_ATOMIC) != 0) qp->attrs.ird = cmd.max_dest_rd_atomic;
  }
  if ((mask & USIW_QP_STATE) == 0) return;
  moved_to_ = static_cast<usiw_qp_state>(cmd.qp_state);
  switch (cmd.qp_state) {
    case USIW_QPS_RTR: connect(qp); break;
    case USIW_QPS_RTS:
      if ((mask & USIW_QP_SQ_PSN) != 0) usiw_face_set_sq_psn(&face_, cmd.sq_psn);
      qp->state.accepted();
      break;
    default: break;
  }
}

void Face::leave() {
  usiw_face_forget_peer(&face_);
  if (const std::shared_ptr<Conn> conn = std::move(conn_)) conn->forget_user();
}

void Face::failed(Qp& qp, const usiw_qp_report& report) {
  if (report.conn_id == 0 ? report.error != -ETIMEDOUT : conn_ && conn_->number() == report.conn_id) return;
  if (!conn_ && qp.conn) return;                                     // rdma_cm has connected the QP
  if (qp.state != USIW_QPS_RTS && qp.state != USIW_QPS_SQD) return;  // it was reset
  leave();
  if (const std::shared_ptr<Conn> conn = qp.conn) conn->abort(USIW_ABORT_LOCAL);
  qp.state = USIW_QPS_ERR;
}

void Face::fill(const Qp& qp, ib_uverbs_query_qp_resp& attr) const {
  attr.dest = av_;
  attr.dest.port_num = attr.port_num;
  attr.pkey_index = pkey_index_;
  // rdma_cm sets no path MTU.
  if (path_mtu_ != 0 || !qp.conn) attr.path_mtu = path_mtu_;
  if (qp.state == USIW_QPS_RESET) attr.qp_state = attr.cur_qp_state = USIW_QPS_RESET;
}

// ---- The connection ---------------------------------------------------------------------

/// The program gives its max_rd_atomic only at RTS, when the connection may exist already. So the connection permits as
/// many READs as the peer serves, and the provider limits them.
ConnParam Face::param(const Qp& qp) const {
  return {.ird = qp.attrs.ird, .ord = USIW_MAX_ORD, .pd = &ask_, .pd_len = 0};
}

/// The QP is in RTR now. A QP that rdma_cm connects, or is about to connect, goes on as it is.
void Face::connect(const std::shared_ptr<Qp>& qp) {
  if (qp->conn || qp->state != USIW_QPS_RTR || usiw_face_is_of_cm(qp->attrs.dest_qp_num) != 0) return;
  const usiw_cm_tuple ends = cm_tuple(path_.tuple);
  usiw_face_set_peer(&face_, ends.local, ends.remote, ends.scope, qp->attrs.dest_qp_num, qp->attrs.rq_psn);
  const usiw_face_part part = usiw_face_role(&face_);
  if (part == USIW_FACE_ANSWERS) {
    uint8_t buf[USIW_CM_MAX_DATAGRAM];
    const uint32_t len = usiw_face_challenge(&face_, Admission::secret(), now_us(), buf);
    if (len != 0) sock_->send(kept_from_.local, kept_from_.remote, 0, buf, len);
    return;
  }
  usiw_face_build_ask(&face_, &ask_);
  ConnParam with_ask = param(*qp);
  with_ask.pd_len = sizeof ask_;
  Conn::ask(sock_, path_, with_ask, part, qp, this, conn_);
  if (conn_ && usiw_cm_is_over(&conn_->state()) != 0) conn_.reset();
}

/// Accepts the REQ that has arrived.
void Face::answer(const std::shared_ptr<Qp>& qp) {
  const usiw_face_req* req = usiw_face_take(&face_);
  if (req == nullptr) return;
  Conn::take_request(sock_, path_, *req, param(*qp), qp, this, conn_);
  if (conn_ && usiw_cm_is_over(&conn_->state()) != 0) conn_.reset();
}

void Face::receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len) {
  const auto found = faces().find(sock.get());
  if (found == faces().end()) return;
  Face& face = *found->second;
  const uint32_t verdict = Conn::receive_for_qp(face.face_, *sock, tuple, data, len);
  const usiw_cm_tuple ends = cm_tuple(tuple);
  if (face.face_.req.kept != 0 && std::memcmp(&face.face_.req.tuple, &ends, sizeof ends) == 0) face.kept_from_ = tuple;
  if (verdict == USIW_FACE_V_DROP) ignored(*sock);
  if (verdict != USIW_FACE_V_TAKE) return;
  const std::shared_ptr<Qp> qp = qp_by_number(face.qpn());
  if (!qp) return;
  if (const std::shared_ptr<Conn> conn = face.conn_; conn && qp->conn == conn) {
    // The peer has not confirmed this connection, and has begun anew. The engine gets the new one in its place.
    conn->yield();
    qp->events->cancel(*conn);
    face.conn_.reset();
  }
  if (!qp->conn) face.answer(qp);
}

void Face::ignored(UdpSocket& sock) {
  const auto found = faces().find(&sock);
  if (found == faces().end()) return;
  if (const std::shared_ptr<Qp> qp = qp_by_number(found->second->qpn())) qp->state.count_ignored();
}

/// A QP has one connection, so the table of all connections need not be searched. With thousands of QPs that ask a host
/// where no QP answers, a search for each ICMP message would take all the time of this thread.
void Face::icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len) {
  const auto found = faces().find(&sock);
  if (found == faces().end()) return;
  if (const std::shared_ptr<Conn> conn = found->second->conn_) conn->handle_icmp(to, answer, quoted, len);
}

/// A silent connection ends when the engine has given up, and then the program knows. If the engine could not have it
/// at all, the program has posted work that would wait for ever: it is flushed, and the program gets an event.
void Face::on_event(uint32_t event, int status, const usiw_cm_conn&) {
  // The end that answers gets ESTABLISHED in place of REPLY.
  const bool begins = event == USIW_CM_A_EV_REPLY || event == USIW_CM_A_EV_ESTABLISHED;
  if (begins ? status == 0 : event != USIW_CM_A_EV_CLOSE) return;
  const std::shared_ptr<Conn> conn = std::move(conn_);
  usiw_face_forget_peer(&face_);
  const std::shared_ptr<Qp> qp = qp_by_number(qpn());
  if (status == 0 || !qp || qp->destroying) return;
  if (begins) qp->async->push({qp->user_handle, IBV_EVENT_QP_FATAL, 0}, qp->async_events);
}

}  // namespace usiw::run
