// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file kernel.h
/// The control half of one simulated host, in the place of kmod/. cm/ takes all decisions about connections. Kernel is
/// a host of cm/: it supplies the calls of struct usiw_cm_host. It also has the table of connections, the listener, the
/// kernel's copies of the QPs, and the records for the processes.
#ifndef USIW_TESTS_SIM_KERNEL_H
#define USIW_TESTS_SIM_KERNEL_H

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cm/usiw_cm_end.h"
#include "cm/usiw_cm_admission.h"
#include "tests/support/cm_contract.h"
#include "uapi/usiw_abi.h"
#include "world.h"

namespace usiw::sim {

class Process;
struct KConn;

/// A cm_id: receives the events that iw_cm and rdma_cm report to a program about one connection.
class CmUser {
 public:
  virtual ~CmUser() = default;
  virtual void on_reply(int status, std::span<const uint8_t> pd) = 0;
  virtual void on_established() = 0;
  virtual void on_disconnected(int status) = 0;
  virtual void on_closed() = 0;
};

/// A record of the context's event file.
struct KEvent {
  uint32_t type, qpn, conn_id;
  FlowKey tuple;
  ConnAttr attr;
  usiw_not_packet not_packet;
};

class Kernel : Reporter {
 public:
  Kernel(World& world, int side);
  ~Kernel();

  // ---- The network ----
  void receive(std::span<const std::byte> d, const FlowKey& flow);
  void icmp_unreachable(const FlowKey& flow, std::span<const std::byte> quoted);
  void run_timers();
  uint64_t next_deadline() const;

  // ---- rdma_cm ----
  /// Makes @p process listen; on_request gets the requests. nullptr ends listening.
  void listen(Process* process);
  std::function<void(uint32_t conn_id, std::span<const uint8_t> pd)> on_request;
  struct Params {
    uint16_t ird, ord, mtu;
    std::span<const uint8_t> pd;
  };
  /// Starts a connection. Returns 0, -EINVAL, -EISCONN or -EADDRINUSE.
  int connect(CmUser* user, uint32_t qpn, const FlowKey& tuple, uint32_t isn, const Params& params);
  int accept(CmUser* user, uint32_t conn_id, uint32_t qpn, const Params& params);
  void reject(uint32_t conn_id, std::span<const uint8_t> pd);
  /// Asks the QP for SQD, as iw_cm does for rdma_disconnect(). That ends the connection in order.
  void disconnect(uint32_t qpn);
  /// Destroys the cm_id: @p user gets no more events.
  void forget(CmUser* user);

  // ---- uverbs ----
  void qp_create(uint32_t qpn, Process* process);
  void qp_destroy(uint32_t qpn);
  bool qp_in_error(uint32_t qpn) { return qp(qpn) != nullptr && qp(qpn)->state == USIW_QPS_ERR; }
  void qp_error(uint32_t qpn) { qp_end(qpn, USIW_QPS_ERR); }
  void qp_reset(uint32_t qpn) { qp_end(qpn, USIW_QPS_INIT); }
  /// Reports an event of the engine for a QP, as the ioctl method QP_REPORT does. In a USIW_REPORT_PORT, @p error is
  /// the number of the port.
  void qp_report(uint32_t qpn, uint32_t kind, uint32_t conn_id, int error);
  void process_died(Process* process);
  /// Takes the next record for @p process. Returns false if there is none.
  bool read_event(Process* process, KEvent& event);

  /// Sets the ISN and the MTU of a passive end from the scenario.
  std::function<void(const FlowKey& tuple, uint32_t& isn, uint16_t& mtu)> passive;

  // ---- Paths ----
  /// Changes all routes. @p not_packet: why raw packets cannot be used, if so. @p max_payload: the largest UDP payload
  /// of the path, bytes.
  void path_changes(usiw_not_packet not_packet, size_t max_payload);
  void path_changes(usiw_not_packet not_packet) { path_changes(not_packet, max_payload_); }
  void path_changes(size_t max_payload) { path_changes(not_packet_, max_payload); }
  /// Returns true if the process has reported that the connection uses its socket.
  bool goes_by_socket(const FlowKey& tuple) const;
  /// Returns true if, in addition, the process has read the record that forbids raw packets.
  bool must_go_by_socket(const FlowKey& tuple) const;

  // ---- For the rules ----
  size_t connections() const { return conns_.size(); }
  size_t qps() const { return qps_.size(); }
  std::string describe() const;

 private:
  friend struct KConn;
  struct Host;  ///< the calls of cm/
  struct KQp {
    Process* process;
    usiw_qp_state state;
    std::shared_ptr<KConn> conn;
  };
  usiw_not_packet not_packet_ = USIW_NOT_PACKET_NONE;
  size_t max_payload_ = SIZE_MAX;
  using Conn = std::shared_ptr<KConn>;

  Conn lookup(const FlowKey& tuple) const;
  Conn by_id(uint32_t id) const;
  KQp* qp(uint32_t qpn);
  Conn make_conn(const FlowKey& tuple);
  bool has_socket(uint16_t port) const;
  void rx_work(const std::vector<std::byte>& d, const FlowKey& flow);
  bool rx_data(std::span<const std::byte> d, const FlowKey& flow);
  struct Kept;
  void work_off(std::span<const std::byte> d, const FlowKey& flow, Kept* kept);
  void request(std::span<const std::byte> d, const FlowKey& flow, const usiw_cm_packet& pkt, Kept* kept);
  int open(const FlowKey& flow, const usiw_cm_packet& pkt, uint32_t isn, bool known);
  void work_off_admission();
  void drop(usiw_cm_req* chain);
  void transmit(const FlowKey& flow, const void* data, uint32_t len);
  int attach(const Conn& conn, uint32_t qpn, CmUser* user);
  void cancel_events(const Conn& conn);
  void qp_end(uint32_t qpn, usiw_qp_state state);
  uint64_t due_ns(uint64_t deadline_us) const;
  uint64_t now_us() const { return w_.clock.now / 1000; }
  void reap();

  const int side_;
  Life life_ = std::make_shared<int>(0);
  Process* listener_ = nullptr;
  std::list<Conn> conns_;  ///< all connections that are not freed yet
  std::map<uint32_t, KQp> qps_;
  std::map<Process*, std::list<Conn>> events_;
  uint32_t next_id_ = 1;
  usiw_cm_admission_net net_{};
  usiw_cm_admission admission_{};  ///< for the port at which programs listen
  usiw_cm_listener places_{};
  bool admission_due_ = false;
  __u64 stray_next_ = 0;
  uint64_t rx_at_ = 0;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_KERNEL_H
