// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/conn.h"

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "tools/run/host/never_destroyed.h"

namespace usiw::run {
namespace {

struct Before {
  bool operator()(const usiw_cm_tuple& a, const usiw_cm_tuple& b) const { return std::memcmp(&a, &b, sizeof a) < 0; }
};
using ConnTable = std::map<usiw_cm_tuple, std::shared_ptr<Conn>, Before>;

ConnTable& conn_table() { return never_destroyed<ConnTable>(); }

uint32_t next_conn_id() {
  static uint32_t last = 0;
  if (++last == 0) last = 1;
  return last;
}

}  // namespace

Conn::Conn(const usiw_cm_host& calls, const std::shared_ptr<UdpSocket>& at, const Tuple& tuple)
    : ConnRecords(next_conn_id(), at), usiw_cm_end{}, tuple_(tuple) {
  const usiw_cm_tuple ends = cm_tuple(tuple);
  usiw_cm_end_init(this, &calls, conn_id, &ends);
}

std::shared_ptr<Conn> Conn::find(const Tuple& tuple) {
  auto it = conn_table().find(cm_tuple(tuple));
  return it == conn_table().end() ? nullptr : it->second;
}

int Conn::insert() {
  if (!conn_table().try_emplace(cm_tuple(tuple_), shared_from_this()).second) return -EADDRINUSE;
  hashed_ = true;
  keeps_socket_ = true;
  sock->add_conn();
  return 0;
}

void Conn::let_socket_go() {
  if (std::exchange(keeps_socket_, false)) sock->remove_conn();
}

void Conn::unhash() {
  if (!std::exchange(hashed_, false)) return;
  timer_.set(0);
  conn_table().erase(cm_tuple(tuple_));
  let_socket_go();
}

/// Gives the connection's slot, if it has one, back to the backlog. Called when the peer has confirmed, when the
/// connection has ended, or when open() has failed.
void Conn::leave_backlog() {
  if (std::shared_ptr<Backlog> backlog = std::move(backlog_)) backlog->give_back();
}

void Conn::icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len) {
  for (auto& [key, conn] : conn_table())
    if (conn->sock.get() == &sock && conn->handle_icmp(to, answer, quoted, len)) return;
}

bool Conn::handle_icmp(const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len) {
  if (!(tuple_.remote == to) || !usiw_cm_quotes(&cm, quoted, len)) return false;
  run(usiw_cm_end_icmp, answer);
  return true;
}

void Conn::end_lingering(const UdpSocket& sock) {
  std::vector<std::shared_ptr<Conn>> ending;
  for (auto& [key, conn] : conn_table())
    if (conn->sock.get() == &sock) ending.push_back(conn);
  for (const std::shared_ptr<Conn>& conn : ending) usiw_cm_end_drop(conn.get());
}

void Conn::abandon_all() {
  // Leak the connections, because their destructors would act on objects of the parent.
  new ConnTable(std::move(conn_table()));
  conn_table().clear();
}

}  // namespace usiw::run
