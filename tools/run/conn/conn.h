// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn.h
/// The class Conn: a connection of a program under usiw-run. cm/usiw_cm_end.h decides what happens to a connection, and
/// Conn carries out the decisions, as the module does in the kernel. The class has four source files. Each uses only
/// those before it in this list:
///
/// - conn.cc: the table of connections, and their use of sockets and backlogs.
/// - packets.cc: routes for raw packets.
/// - conn_act.cc: the functions that cm/ calls (struct usiw_cm_host).
/// - conn_run.cc: functions that rdma_cm, the provider and the network call.
#ifndef USIW_RUN_CONN_H
#define USIW_RUN_CONN_H

#include <cstdint>
#include <memory>

#include "cm/usiw_cm_end.h"
#include "cm/usiw_face.h"
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

/// The user of a connection: an rdma_cm id of this process. Its functions need the big lock.
class ConnUser {
 public:
  virtual ~ConnUser() = default;
  /// Handles an event of the connection. @p event is USIW_CM_A_EV_REPLY, _ESTABLISHED, _DISCONNECT or _CLOSE. After
  /// Conn::connect(), REPLY comes once, with the result in @p status. @p cm has the READ depths and the private data.
  virtual void on_event(uint32_t event, int status, const usiw_cm_conn& cm) = 0;
};

/// The parameters of rdma_connect() and rdma_accept() that concern a connection.
struct ConnParam {
  uint16_t ird, ord;
  const void* pd;  ///< private data
  uint16_t pd_len;
};

/// The path of a new connection.
struct ConnPath {
  Tuple tuple;
  uint16_t mtu;  ///< IP MTU, bytes
  uint8_t tos;   ///< IPv4 TOS or IPv6 traffic class
};

/// A connection. All its functions need the big lock.
class Conn : public std::enable_shared_from_this<Conn>, public ConnRecords, private usiw_cm_end {
 public:
  // ---- Calls of rdma_cm and of the provider ----

  /// Opens a UDP socket for connections. Parameters and errors are those of UdpSocket::open().
  static std::shared_ptr<UdpSocket> open_port(const Endpoint& local, bool shared, int& error);
  /// Opens the UDP socket of a QP at a free port, with all of @p calls but end_lingering. Returns null and sets @p
  /// error to -errno if that fails.
  static std::shared_ptr<UdpSocket> open_port_of_qp(SocketCalls calls, int& error);
  /// Handles a datagram that has arrived at the port of a QP. Returns the verdict, an enum usiw_face_verdict_kind,
  /// whose answer has been sent.
  static uint32_t receive_for_qp(usiw_face& face, UdpSocket& sock, const Tuple& tuple, const void* data, uint32_t len);
  /// Starts a connection, and sets @p out to it. The connection notifies @p user until it has ended or forget_user() is
  /// called. Returns 0 or -errno: -EADDRINUSE, -EISCONN, -EINVAL.
  static int connect(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const ConnParam& param,
                     const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out);
  /// Makes a connection for the admitted REQ @p req. The connection takes over the slot of the REQ in @p backlog. If no
  /// connection can be made, gives the slot back, returns null, and sets @p reason to the reason code of a REJECT, or to
  /// 0 if no REJECT is to be sent.
  static std::shared_ptr<Conn> open(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple,
                                    const usiw_cm_packet& req, uint32_t isn, const std::shared_ptr<Backlog>& backlog,
                                    uint8_t tos, int& reason);
  /// Accepts the connection with @p qp. Returns 0 and notifies @p user of ESTABLISHED once, even if the connection ends
  /// before that. On an error, ends the connection without a notice and returns -errno.
  int accept(const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user);
  /// Starts a silent connection of a QP (cm/usiw_face.h): asks the peer, or connects the QP to itself, as @p part
  /// demands. Else like connect().
  static int ask(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const ConnParam& param,
                 usiw_face_part part, const std::shared_ptr<Qp>& qp, ConnUser* user, std::shared_ptr<Conn>& out);
  /// Makes a silent connection for the REQ @p req. Returns 0 or -errno. May notify @p user before it returns.
  static int take_request(const std::shared_ptr<UdpSocket>& sock, const ConnPath& path, const usiw_face_req& req,
                          const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user,
                          std::shared_ptr<Conn>& out);
  void reject(const void* pd, uint16_t pd_len) { run(usiw_cm_end_reject, pd, pd_len); }
  void disconnect() { run(usiw_cm_end_disconnect); }
  void abort(usiw_abort_reason reason) { run(usiw_cm_end_abort, reason); }
  /// Gives way to another silent connection with the same peer: see usiw_cm_end_yield().
  void yield() { run(usiw_cm_end_yield); }
  void report(const usiw_qp_report& report);
  /// Handles an ICMP message about a datagram to @p to. Returns false if the datagram is not of this connection.
  bool handle_icmp(const Endpoint& to, usiw_cm_answer answer, const void* quoted, uint32_t len);
  /// Stops all events to the user.
  void forget_user() { usiw_cm_end_leave(this); }

  uint32_t number() const { return id; }
  const Tuple& tuple() const { return tuple_; }
  const usiw_cm_conn& state() const { return cm; }
  uint8_t tos_of_datagrams() const { return tos; }

  /// In a child of fork(): forgets all connections. Sends nothing, because the connections belong to the parent.
  static void abandon_all();

 private:
  friend struct Packets;
  static const usiw_cm_host host_calls;
  static Conn& of(usiw_cm_end* end) { return *static_cast<Conn*>(end); }
  /// Calls @p call, a function of cm/usiw_cm_end.h. Because the function may remove the connection from the table,
  /// run() holds a reference to the connection until the function returns.
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
  void attach(const std::shared_ptr<Qp>& qp, ConnUser* user);
  // conn_run.cc
  int initiate(bool silent, const ConnPath& way, const ConnParam& param, const std::shared_ptr<Qp>& qp, ConnUser* user);
  static void receive(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const void* data, uint32_t len,
                      Admission::Entry* entry);

  const Tuple tuple_;
  std::shared_ptr<Qp> qp_;
  std::shared_ptr<Backlog> backlog_;  ///< backlog in which the connection has a slot, or null
  ConnUser* user_ = nullptr;
  CmTimer timer_{[this] { run(usiw_cm_end_tick); }};
  int watch_entry_ = -1;
  NextHop hop_;  ///< next hop of raw packets; after CONNECT, unchanged while raw packets cannot use the route
  bool hashed_ = false;
  bool keeps_socket_ = false;  ///< true while this connection counts as a user of its UdpSocket
};

}  // namespace usiw::run

#endif  // USIW_RUN_CONN_H
