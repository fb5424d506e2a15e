// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn_act.cc
/// What the connection machine asks for: datagrams, records for the provider, and events of
/// rdma_cm. iw_cm's CLOSE is rdma_cm's DISCONNECTED; iw_cm's DISCONNECT is not shown to users.
#include <arpa/inet.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

#include "cm/usiw_cm_hint.h"
#include "conn.h"
#include "event_stream.h"
#include "qp.h"
#include "real.h"
#include "watch.h"

namespace usiw::run {

/// Ties the connection to the QP and to the user's id.
int Conn::attach(const std::shared_ptr<Qp>& qp, ConnUser* user) {
  if (qp->destroying || qp->state > USIW_QPS_RTR) return -EINVAL;
  if (qp->conn) return -EISCONN;
  qp->conn = shared_from_this();
  qp_ = qp;
  user_ = user;
  if (qp->merges) usiw_cm_offer(&cm_, USIW_FEATURE_MERGES);
  return 0;
}

// ---- The user ---------------------------------------------------------------------------

void Conn::established() {
  if (cm_.state != USIW_CM_ESTABLISHED) return;
  leave_backlog();
  if (qp_) qp_->state = USIW_QPS_RTS;
}

/// Tells the user, unless cm/usiw_cm_notify.c knows that it must not hear of it.
void Conn::tell(uint32_t event, int status) {
  if (!usiw_cm_notify(&ledger_, event, status)) return;
  if (event == USIW_CM_A_EV_REPLY) user_->on_reply(status, cm_);
  if (event == USIW_CM_A_EV_ESTABLISHED) user_->on_established(cm_);
  if (event == USIW_CM_A_EV_CLOSE) user_->on_close();
}

/// Prints why connect has failed, which rdma_cm's event does not say. It prints each peer and reason once, and at most
/// kMost lines for a process.
void Conn::explain() const {
  constexpr size_t kMost = 20;
  static auto& said = *new std::set<std::string>;
  char hint[USIW_CM_HINT_MAX], address[INET6_ADDRSTRLEN];
  if (said.size() >= kMost || !usiw_cm_hint(&cm_, hint)) return;
  const Endpoint& to = tuple_.remote;
  if (to.ipv4()) inet_ntop(AF_INET, &to.addr.s6_addr32[3], address, sizeof address);
  else inet_ntop(AF_INET6, &to.addr, address, sizeof address);
  const std::string peer = std::string(address) + " port " + std::to_string(ntohs(to.port));
  if (!said.insert(peer + " " + std::to_string(cm_.heard)).second) return;
  // The world is locked here, so a full pipe must not block: the line is left out then.
  pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return;
  const std::string line = "usiw-run: no connection to " + peer + ": " + hint + "\n";
  [[maybe_unused]] const ssize_t n = USIW_REAL(write)(STDERR_FILENO, line.data(), line.size());
}

/// Lets go of the user and of the QP, after what the user is still owed.
void Conn::release() {
  leave_backlog();
  const uint32_t owed = usiw_cm_owed(&ledger_, &cm_);
  for (uint32_t event : {USIW_CM_A_EV_REPLY, USIW_CM_A_EV_ESTABLISHED, USIW_CM_A_EV_CLOSE})
    if ((owed & event) != 0) tell(event, event == USIW_CM_A_EV_REPLY ? -ECONNABORTED : 0);
  forget_user();
  leave_packets();
  watch_remove(watch_entry_);
  watch_entry_ = -1;
  if (std::shared_ptr<Qp> qp = std::move(qp_)) {
    qp_.reset();
    // The engine has flushed it, or will when it reads KILL.
    if (announced_) qp->state = USIW_QPS_ERR;
    if (qp->conn.get() == this) qp->conn.reset();
  }
  let_socket_go();
}

// ---- The engine -------------------------------------------------------------------------

void Conn::announce() {
  const usiw_cm_tuple tuple = cm_tuple(tuple_);
  usiw_cm_fill_info(&info_, &cm_, &tuple);
  info_.hop_limit = 64;
  info_.tos = tos_;
  announce_packets();
  qp_->attrs.ird = static_cast<uint8_t>(cm_.ird);
  qp_->attrs.ord = static_cast<uint8_t>(cm_.ord);
  announced_ = true;
  watch_entry_ = watch_add(tuple_, cm_.local_isn, cm_.peer_isn);
  qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_CONNECT);
}

// ---- Actions ----------------------------------------------------------------------------

void Conn::act_one(uint32_t action) {
  switch (action) {
    case USIW_CM_A_INSTALL:
      return announce();
    case USIW_CM_A_GRACE:
      qp_->state = USIW_QPS_CLOSING;
      return qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_DISCONNECT);
    case USIW_CM_A_KILL:
      if (!announced_ || !qp_) return;
      // Ahead of the event: a provider that did not see CONNECT asks for the state.
      qp_->state = USIW_QPS_ERR;
      return qp_->events->kill(shared_from_this(), qp_->qpn, static_cast<usiw_kill_reason>(cm_.kill_reason));
    case USIW_CM_A_PROBE:
      return qp_->events->push(shared_from_this(), qp_->qpn, USIW_EVENT_PROBE);
    case USIW_CM_A_TX: {
      uint8_t buf[USIW_CM_MAX_DATAGRAM];
      return usiw_cm_unsent(&cm_, sock_->send(tuple_.local, tuple_.remote, tos_, buf, usiw_cm_build(&cm_, buf)));
    }
    case USIW_CM_A_EV_REPLY:
      if (usiw_cm_awaited(&ledger_)) explain();
      [[fallthrough]];
    case USIW_CM_A_EV_ESTABLISHED:
      established();
      return tell(action, cm_.status);
    case USIW_CM_A_EV_DISCONNECT:
    case USIW_CM_A_EV_CLOSE:
      return tell(action, cm_.status);
    case USIW_CM_A_RELEASE:
      return release();
    case USIW_CM_A_DEAD:
      return unhash();
    default:
      return;
  }
}

/// Carries out the machine's actions in the order of their bits.
void Conn::act(uint32_t actions) {
  std::shared_ptr<Conn> alive = shared_from_this();
  while (actions != 0) {
    uint32_t action = actions & -actions;
    actions &= ~action;
    act_one(action);
  }
  arm();
}

}  // namespace usiw::run
