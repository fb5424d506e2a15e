// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn_act.cc
/// The functions of struct usiw_cm_host, through which cm/ acts on user, QP, network and the tables of usiw-run.
#include <arpa/inet.h>

#include <cerrno>
#include <set>
#include <string>
#include <utility>

#include "cm/usiw_cm_hint.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/qp.h"
#include "tools/run/conn/watch.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/libc/print_line.h"

namespace usiw::run {
namespace {

std::string text_of(const Endpoint& to) {
  char address[INET6_ADDRSTRLEN];
  inet_ntop(to.family(), to.bytes(), address, sizeof address);
  return std::string(address) + " port " + std::to_string(ntohs(to.port));
}

struct PrintedLines : std::set<std::string> {};

/// Prints @p line, unless an earlier call had the same @p key. A process prints at most kMost lines.
void print_once(const std::string& key, const std::string& line) {
  constexpr size_t kMost = 20;
  auto& printed = never_destroyed<PrintedLines>();
  if (printed.size() >= kMost || !printed.insert(key).second) return;
  print_line(line);
}

}  // namespace

/// Attaches the connection to @p qp and to @p user.
void Conn::attach(const std::shared_ptr<Qp>& qp, ConnUser* user) {
  qp->conn = shared_from_this();
  qp_ = qp;
  qpn = qp->qpn;
  user_ = user;
  usiw_cm_end_attach(this, USIW_CM_SOCKET | USIW_CM_MOVES | USIW_CM_PACKETS);
  if (!packets_reach(tuple_)) usiw_cm_offer(&cm, USIW_FEATURE_MERGED);
  if (qp->merges) usiw_cm_offer(&cm, USIW_FEATURE_MERGES);
}

const usiw_cm_host Conn::host_calls = {
    // ---- The network ----
    .send =
        [](usiw_cm_end* end, const void* data, uint32_t len) {
          const Conn& conn = of(end);
          return conn.sock->send(conn.tuple_.local, conn.tuple_.remote, end->tos, data, len);
        },

    // ---- The user ----
    .notify =
        [](usiw_cm_end* end, uint32_t event, int status) {
          of(end).user_->on_event(event, status, end->cm);
          return 0;
        },
    .release_user = [](usiw_cm_end* end) { of(end).user_ = nullptr; },

    // ---- The QP and its engine ----
    .set_qp_state =
        [](usiw_cm_end* end, usiw_qp_state state) {
          const std::shared_ptr<Qp>& qp = of(end).qp_;
          if (qp && !(qp->moved_by_program && state == USIW_QPS_RTS)) qp->state = state;
        },
    .release_qp =
        [](usiw_cm_end* end) {
          Conn& conn = of(end);
          watch_remove(conn.watch_entry_);
          conn.watch_entry_ = -1;
          if (const std::shared_ptr<Qp> qp = std::move(conn.qp_); qp && qp->conn.get() == &conn) qp->conn.reset();
          conn.let_socket_go();
        },
    .record =
        [](usiw_cm_end* end, usiw_event_type type) {
          Conn& conn = of(end);
          if (!conn.qp_) return;
          if (type == USIW_EVENT_CONNECT && end->cm.silent == 0) {
            conn.qp_->attrs.ird = static_cast<uint8_t>(end->cm.ird);
            conn.qp_->attrs.ord = static_cast<uint8_t>(end->cm.ord);
            conn.watch_entry_ = watch_add(conn.tuple_, end->cm.local_isn, end->cm.peer_isn);
          }
          conn.qp_->events->push(conn.shared_from_this(), type, end->info);
        },

    // ---- The path ----
    .route = [](usiw_cm_end* end, usiw_cm_route* found) { return of(end).look_up_route(*found); },
    .follow =
        [](usiw_cm_end* end, const usiw_cm_route* route) {
          route != nullptr ? of(end).follow_packets(*route) : of(end).leave_packets();
        },
    // The connections of a port share its data socket, which stays open until the port is closed, so no request needs
    // an action. Always returns 1 to USIW_CM_DATA_IS_OPEN, even if the data socket could not be opened. If raw packets
    // become forbidden for such a connection, it ends after USIW_MOVE_MS at the latest.
    .data = [](usiw_cm_end*, usiw_cm_data) { return 1; },

    // ---- The backlog, the table and the clock ----
    .leave_backlog = [](usiw_cm_end* end) { of(end).leave_backlog(); },
    .forget =
        [](usiw_cm_end* end) {
          of(end).leave_packets();
          of(end).unhash();
        },
    .arm = [](usiw_cm_end* end) { of(end).arm(); },

    // Prints the reason why a connection has failed, because events of rdma_cm have no such text.
    .log =
        [](usiw_cm_end* end, usiw_cm_log what, const char* text) {
          const std::string peer = text_of(of(end).tuple_.remote), key = peer + " " + std::to_string(end->cm.answer);
          if (what == USIW_CM_LOG_NO_CONNECTION)
            print_once(key, "usiw-run: no connection to " + peer + ": " + text + "\n");
          if (what == USIW_CM_LOG_FORBIDDEN)
            print_once(peer + " forbidden",
                       "usiw-run: the connection to " + peer + " ends: raw packets would bypass a tunnel now\n");
        },
    .acting = nullptr,
};

}  // namespace usiw::run
