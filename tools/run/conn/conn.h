// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn.h
/// Connections. cm/usiw_cm_end.h decides what happens to a connection, and usiw-run is a host of it, as the module is.
/// The class is split by what its parts need:
///
/// - conn.cc: the table of connections, and their timers. It needs nothing of the others.
/// - packets.cc: routes for raw packets.
/// - conn_act.cc: the calls of cm/ to its host.
/// - conn_run.cc: the calls of rdma_cm, of the provider and of the network. It is on top.
#ifndef USIW_RUN_CONN_H
#define USIW_RUN_CONN_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_end.h"
#include "tools/run/conn/admission.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/udp_socket.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/host.h"
#include "tools/run/host/next_hop.h"
#include "uapi/usiw_abi.h"

namespace usiw::run {

struct Qp;

/// The user of a connection: an rdma_cm id of this process. All calls [big lock].
class ConnUser {
 public:
  virtual ~ConnUser() = default;
  /// @p event is USIW_CM_A_EV_REPLY (once, with the result of connect as its @p status), _ESTABLISHED, _DISCONNECT or
  /// _CLOSE. The depths and private data are in @p cm.
  virtual void on_event(uint32_t event, int status, const usiw_cm_conn& cm) = 0;
};

/// Parameters of connect and accept, as rdma_cm has them.
struct ConnParam {
  uint16_t ird, ord;
  const void* pd;  ///< private data
  uint16_t pd_len;
};

/// All calls [big lock].
class Conn : public std::enable_shared_from_this<Conn>, public ConnRecords, private usiw_cm_end {
 public:
  // ---- Calls of rdma_cm and of the provider: conn_run.cc ----

  /// Opens a UDP port for connections: UdpSocket::open().
  static std::shared_ptr<UdpSocket> open_port(const Endpoint& local, bool shared, int& error);
  /// Starts a connection, which notifies @p user until forget_user(). Returns 0 or -errno: -EADDRINUSE, -EISCONN,
  /// -EINVAL.
  static int connect(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const ConnParam& param, uint16_t mtu,
                     uint8_t tos, const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out);
  /// Makes a connection of a REQ that was admitted: Listener::open(). Returns null, and sets @p reason, if that fails.
  static std::shared_ptr<Conn> open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple,
                                    const usiw_cm_packet& req, uint32_t isn, const std::shared_ptr<Backlog>& backlog,
                                    uint8_t tos, int& reason);
  /// Returns 0 or -errno. After 0, @p user is notified of ESTABLISHED once.
  int accept(const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user);
  void reject(const void* pd, uint16_t pd_len) { run(usiw_cm_end_reject, pd, pd_len); }
  void disconnect() { run(usiw_cm_end_disconnect); }
  void abort(usiw_abort_reason reason) { run(usiw_cm_end_abort, reason); }
  void report(const usiw_qp_report& report);
  /// The user goes away, and is not notified any more.
  void forget_user() { usiw_cm_end_leave(this); }

  const Tuple& tuple() const { return tuple_; }
  const usiw_cm_conn& state() const { return cm; }

  /// In a child of fork(): forgets all connections without a datagram.
  static void abandon_all();

 private:
  friend struct Packets;
  static const usiw_cm_host host_calls;
  static Conn& of(usiw_cm_end* end) { return *static_cast<Conn*>(end); }
  /// Calls a function of cm/usiw_cm_end.h, which may forget the connection.
  template <typename Call, typename... Arguments>
  void run(Call call, Arguments... arguments) {
    const std::shared_ptr<Conn> alive = shared_from_this();
    call(this, arguments..., now_us());
  }

  // conn.cc
  Conn(const usiw_cm_host& calls, const std::shared_ptr<UdpSocket>& at, const Tuple& tuple);
  static std::shared_ptr<Conn> find(const Tuple& tuple);
  static void icmp(UdpSocket& sock, const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len);
  static void end_lingering(const UdpSocket& sock);
  int insert();
  void unhash();
  void let_socket_go();
  void arm() { timer_.set(hashed_ ? usiw_cm_end_deadline(this) : 0); }
  void leave_backlog();
  // packets.cc
  int look_up_route(usiw_cm_route& route);
  void follow_packets(const usiw_cm_route& route);
  void leave_packets();
  void use_next_hop();
  // conn_act.cc
  int attach(const std::shared_ptr<Qp>& qp, ConnUser* user);
  // conn_run.cc
  static void receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                      Admission::Entry* entry);

  const Tuple tuple_;
  std::shared_ptr<Qp> qp_;
  std::shared_ptr<Backlog> backlog_;  ///< the connection holds a slot of it until the peer confirms
  ConnUser* user_ = nullptr;
  CmTimer timer_{[this] { run(usiw_cm_end_tick); }};
  int watch_entry_ = -1;
  NextHop hop_;  ///< next hop of raw packets, by the newest route that is one for them
  bool hashed_ = false;
  bool keeps_socket_ = false;  ///< the socket is not closed for want of descriptors; until the connection lingers
};

}  // namespace usiw::run

#endif  // USIW_RUN_CONN_H
