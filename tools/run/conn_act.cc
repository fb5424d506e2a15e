// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn_act.cc
/// What the connection machine asks for: datagrams, records for the provider, and events of
/// rdma_cm. iw_cm's CLOSE is rdma_cm's DISCONNECTED; iw_cm's DISCONNECT is not shown to users.
#include <cerrno>
#include <cstring>

#include "conn.h"
#include "event_stream.h"
#include "qp.h"
#include "watch.h"

namespace usiw::run {

/// Ties the connection to the QP and to the user's id.
int Conn::attach(const std::shared_ptr<Qp>& qp, ConnUser* user) {
  if (qp->destroying || qp->state > IBV_QPS_RTR) return -EINVAL;
  if (qp->conn) return -EISCONN;
  qp->conn = shared_from_this();
  qp_ = qp;
  user_ = user;
  return 0;
}

// ---- The user ---------------------------------------------------------------------------

void Conn::established() {
  if (cm_.state == USIW_CM_ESTABLISHED && qp_) qp_->state = IBV_QPS_RTS;
}

void Conn::tell_reply(int status) {
  if (user_ == nullptr || told_reply_ || told_failure_) return;
  (status != 0 ? told_failure_ : told_reply_) = true;
  user_->on_reply(status, cm_);
}

void Conn::tell_established() {
  if (user_ == nullptr || !accepted_ || told_established_) return;
  told_established_ = true;
  user_->on_established(cm_);
}

void Conn::tell_close() {
  if (user_ == nullptr || !(told_reply_ || told_established_) || told_close_) return;
  told_close_ = true;
  user_->on_close();
}

/// Lets go of the user and of the QP, after what the user is still owed.
void Conn::release() {
  if (cm_.initiator != 0)
    tell_reply(-ECONNABORTED);
  else
    tell_established();
  tell_close();
  user_ = nullptr;
  leave_packets();
  watch_remove(watch_entry_);
  watch_entry_ = -1;
  if (std::shared_ptr<Qp> qp = std::move(qp_)) {
    qp_.reset();
    // The engine has flushed it, or will when it reads KILL.
    if (announced_) qp->state = IBV_QPS_ERR;
    if (qp->conn.get() == this) qp->conn.reset();
  }
}

// ---- The engine -------------------------------------------------------------------------

uint32_t Conn::announce() {
  Endpoint remote = tuple_.remote;
  std::memset(&info_, 0, sizeof info_);
  std::memcpy(info_.local_addr, &tuple_.local.addr, sizeof info_.local_addr);
  std::memcpy(info_.remote_addr, &remote.addr, sizeof info_.remote_addr);
  info_.local_port = tuple_.local.port;
  info_.remote_port = remote.port;
  if (cm_.initiator != 0) info_.flags |= USIW_CONN_F_INITIATOR;
  if (!tuple_.local.ipv4()) info_.flags |= USIW_CONN_F_IPV6;
  info_.snd_psn = cm_.local_isn;
  info_.rcv_psn = cm_.peer_isn;
  info_.snd_window = cm_.peer_window;
  info_.ird = cm_.ird;
  info_.ord = cm_.ord;
  info_.mtu = cm_.mtu;
  info_.hop_limit = 64;
  info_.tos = tos_;
  info_.features = cm_.features;
  announce_packets();
  qp_->ird = cm_.ird;
  qp_->ord = cm_.ord;
  announced_ = true;
  watch_entry_ = watch_add(tuple_, cm_.local_isn, cm_.peer_isn);
  qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_CONNECT);
  return 0;
}

// ---- Actions ----------------------------------------------------------------------------

uint32_t Conn::act_one(uint32_t action) {
  switch (action) {
    case USIW_CM_A_INSTALL:
      return announce();
    case USIW_CM_A_GRACE:
      qp_->state = IBV_QPS_SQD;
      qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_DISCONNECT);
      return 0;
    case USIW_CM_A_KILL:
      if (!announced_ || !qp_) return 0;
      // Ahead of the event: a provider that did not see CONNECT asks for the state.
      qp_->state = IBV_QPS_ERR;
      qp_->events->kill(shared_from_this(), qp_->qpn, static_cast<usiw_kill_reason>(cm_.kill_reason));
      return 0;
    case USIW_CM_A_PROBE:
      qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_PROBE);
      return 0;
    case USIW_CM_A_TX: {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      uint32_t len = usiw_cm_build(&cm_, buf);
      sock_->send(tuple_.local, tuple_.remote, buf, len);
      return 0;
    }
    case USIW_CM_A_EV_REPLY:
      established();
      tell_reply(cm_.status);
      return 0;
    case USIW_CM_A_EV_ESTABLISHED:
      established();
      tell_established();
      return 0;
    case USIW_CM_A_EV_CLOSE:
      tell_close();
      return 0;
    case USIW_CM_A_RELEASE:
      release();
      return 0;
    case USIW_CM_A_DEAD:
      unhash();
      return 0;
    default:
      return 0;
  }
}

/// Carries out the machine's actions in the order of their bits.
void Conn::act(uint32_t actions) {
  std::shared_ptr<Conn> alive = shared_from_this();
  while (actions != 0) {
    uint32_t action = actions & -actions;
    actions &= ~action;
    actions |= act_one(action);
  }
  arm();
}

}  // namespace usiw::run
