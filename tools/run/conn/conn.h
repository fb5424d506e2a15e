// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn.h
/// Connections: a host of cm/usiw_cm_end.h, as the module is one. Its users are rdma_cm ids of this process.
#ifndef USIW_RUN_CONN_H
#define USIW_RUN_CONN_H

#include <cstdint>
#include <cstring>
#include <memory>

#include "cm/usiw_cm_end.h"
#include "cm/usiw_cm_records.h"
#include "tools/run/conn/admission.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/host.h"
#include "tools/run/host/next_hop.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

class Conn;
class Qp;

/// The same ends as cm/ sees them.
inline usiw_cm_tuple cm_tuple(const Tuple& t) {
  usiw_cm_tuple out{};
  std::memcpy(out.local, &t.local.addr, sizeof out.local);
  std::memcpy(out.remote, &t.remote.addr, sizeof out.remote);
  out.local_port = t.local.port;
  out.remote_port = t.remote.port;
  out.scope = t.local.scope != 0 ? t.local.scope : t.remote.scope;
  return out;
}

/// The rdma_cm id of a connection. All calls [big lock].
class ConnUser {
 public:
  virtual ~ConnUser() = default;
  /// The answer to connect, once. The depths and private data are in @p cm.
  virtual void on_reply(int status, const usiw_cm_conn& cm) = 0;
  virtual void on_established(const usiw_cm_conn& cm) = 0;
  virtual void on_close() = 0;
};

/// Who takes requests.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void on_request(const std::shared_ptr<Conn>& conn) = 0;
  virtual const std::shared_ptr<Backlog>& backlog() = 0;
  /// What its connections and answers are sent with.
  virtual uint8_t tos() const = 0;
};

class Conn : public std::enable_shared_from_this<Conn>, private usiw_cm_end {
 public:
  /// [big lock] Starts a connection, which notifies @p user until forget_user(). Returns 0 or -errno: -EADDRINUSE,
  /// -EISCONN, -EINVAL.
  static int connect(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, uint16_t ird, uint16_t ord,
                     uint16_t mtu, uint8_t tos, const void* pd, uint16_t pd_len,
                     const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out);
  /// [big lock] 0 or -errno; after 0 there will be one ESTABLISHED.
  int accept(uint16_t ird, uint16_t ord, const void* pd, uint16_t pd_len, const std::shared_ptr<Qp>& qp,
             ConnUser* user);
  /// [big lock] Makes a connection of a request that was admitted, which has its slot of the backlog, and reports it to
  /// @p listener. Returns 0, or the reason to refuse the request with.
  static int open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req, uint32_t isn,
                  const std::shared_ptr<Backlog>& backlog, Listener& listener);
  void reject(const void* pd, uint16_t pd_len);
  void disconnect();
  void abort(usiw_abort_reason reason);
  void report(const usiw_qp_report& report);
  /// [big lock] The user goes, and is not notified any more.
  void forget_user() { usiw_cm_end_leave(this); }

  const Tuple& tuple() const { return tuple_; }
  const usiw_cm_conn& state() const { return cm; }
  uint32_t number() const { return id; }
  const std::shared_ptr<UdpSocket>& sock() const { return sock_; }
  /// [big lock] Records that the engine has not read yet; EventStream's.
  usiw_cm_records unread{};
  /// [big lock] Returns whether the MAC that the kernel has reported for a neighbour changes this connection's path.
  bool is_news(const NextHop& reported) const;

 private:
  friend void conn_receive(const std::shared_ptr<UdpSocket>&, const Tuple&, const void*, uint32_t, Admission::Entry*);
  friend void conn_icmp(UdpSocket&, const Endpoint&, usiw_cm_heard, const void*, uint32_t);
  friend void conn_run_timers();
  friend void conns_end_lingering(const UdpSocket&);
  friend void conns_follow();
  friend void conns_use_next_hops();

  struct Host;
  static const usiw_cm_host host_calls;  ///< the calls of cm/ to this host
  Conn(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple);
  int insert();
  void unhash();
  void let_socket_go();
  int attach(const std::shared_ptr<Qp>& qp, ConnUser* user);
  void arm();
  int look_up_route(usiw_cm_route& route);
  void follow_packets(const usiw_cm_route& route);
  void leave_packets();
  void use_next_hop();
  void leave_backlog();

  const Tuple tuple_;
  const std::shared_ptr<UdpSocket> sock_;
  std::shared_ptr<Qp> qp_;
  std::shared_ptr<Backlog> backlog_;  ///< a request holds a slot of it until the peer confirms
  ConnUser* user_ = nullptr;
  uint64_t armed_us_ = 0;
  int watch_entry_ = -1;
  NextHop hop_;  ///< where raw packets go first, by the last route that was one for them
  bool hashed_ = false;
  bool keeps_socket_ = false;  ///< from being closed when descriptors run out: until it lingers
};

/// [big lock] A datagram of the handshake, or a stray one. If it is a REQ that has waited, takes over its @p entry.
void conn_receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                  Admission::Entry* entry = nullptr);
/// [big lock] Who listens for @p local, or null.
Listener* listener_at(const UdpSocket& sock, const Endpoint& local);
/// [big lock] ICMP about what was sent to @p to. @p quoted: what it has of the datagram's payload.
void conn_icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_heard heard, const void* quoted, uint32_t len);
/// [big lock] 0: none.
uint64_t conn_next_deadline_us();
/// [big lock]
void conn_run_timers();
/// [big lock] Forgets the connections at this socket, all of which linger.
void conns_end_lingering(const UdpSocket& sock);
/// [big lock] Connections by raw packets: where their next hops are by now.
void conns_follow();
/// [big lock] The kernel is made to use their neighbours.
void conns_use_next_hops();
/// [big lock] In a child of fork(): forgets all without a word.
void conns_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_CONN_H
