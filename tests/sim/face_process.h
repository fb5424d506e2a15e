// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_process.h
/// A process under usiw-run that shows the RoCE face. The engine and cm/ are those that ship. FaceProcess emulates the
/// code between them: the class Face of tools/run/face/, which hosts cm/usiw_face.h, the event stream, and those parts
/// of provider/verbs/ and provider/runtime/ that move a QP.
#ifndef USIW_TESTS_SIM_FACE_PROCESS_H
#define USIW_TESTS_SIM_FACE_PROCESS_H

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "cm/usiw_face.h"
#include "engine/engine.h"
#include "face_plan.h"
#include "uapi/usiw_abi.h"
#include "world.h"

namespace usiw::sim {

/// A port with a ring of its own, because the datagrams of a host are for its process and its kernel.
class FacePort final : public SimPort {
 public:
  FacePort(SimWire& wire, int side) : SimPort(wire, side, 9216 - 28, 2048) {}
  void arrive(const Datagram& d, const FlowKey& flow) { ring_.emplace_back(d, flow); }
  bool pending() const { return !ring_.empty(); }

 private:
  bool next(Datagram& d, FlowKey& flow, bool& ce) override;
  std::deque<std::pair<Datagram, FlowKey>> ring_;
};

class FaceProcess final : public EngineEvents, Reporter {
 public:
  FaceProcess(World& world, const FacePlan& plan, int side);
  ~FaceProcess() override;

  // ---- modify_qp ----
  void create(uint32_t qpn, Cq* cq, uint32_t access);
  void destroy(uint32_t qpn);
  void init(uint32_t qpn) { qps_.at(qpn)->state = USIW_QPS_INIT; }
  struct Peer {
    std::array<uint8_t, 16> local, remote;
    uint32_t qpn, rq_psn;
  };
  void rtr(uint32_t qpn, const Peer& peer);
  void rts(uint32_t qpn, uint32_t sq_psn, const QpLimits& limits);
  void sqd(uint32_t qpn);
  void leave_sqd(uint32_t qpn);
  void error(uint32_t qpn);
  void reset(uint32_t qpn);

  Qp* qp(uint32_t qpn) const { return qps_.at(qpn)->qp; }
  usiw_qp_state state(uint32_t qpn) const { return qps_.at(qpn)->state; }

  /// A connection that the engine has.
  struct Installed {
    uint32_t local_isn = 0, peer_isn = 0;
    bool there = false;
  };
  Installed installed(uint32_t qpn) const;
  std::function<void(uint32_t qpn, const Installed&)> on_installed;
  std::function<void(uint32_t qpn)> on_failed;   ///< the engine has put the QP into ERROR by itself
  std::function<void(uint32_t qpn)> on_drained;  ///< all that was posted before SQD has completed

  // ---- The network ----
  bool has_port(uint16_t port) const;
  void arrive(const Datagram& d, const FlowKey& flow);
  void unreachable(const FlowKey& flow, std::span<const std::byte> quoted);

  // ---- Running ----
  unsigned run();
  uint64_t next_deadline() const;
  /// Ends the connection of a QP as if a RESET of its peer could do so. A mutation.
  void obey_reset(uint32_t qpn);
  /// Checks, when all QPs are destroyed, that nothing is left.
  void check_empty();
  std::string describe() const;

  void cq_ready(Cq&) override {}
  void cq_overrun(Cq&) override { fail("overrun", "a CQ has overrun"); }
  void qp_peer_closed(Qp& qp) override { ended(qp, USIW_REPORT_PEER_CLOSED, 0); }
  void qp_closed(Qp& qp) override { ended(qp, USIW_REPORT_CLOSED, 0); }
  void qp_failed(Qp& qp, int error, AsyncEvent event) override;
  void qp_drained(Qp& qp) override { on_drained(qp.qpn()); }

  const Life life = std::make_shared<int>(0);
  bool frozen = false;
  std::array<uint64_t, USIW_CNT_MAX> counters{};

 private:
  struct Conn;
  struct Host;  ///< the calls of cm/
  using ConnRef = std::shared_ptr<Conn>;
  struct FQp {
    uint32_t qpn = 0;
    usiw_qp_state state = USIW_QPS_RESET;
    usiw_face face{};
    usiw_face_ask ask{};
    ConnRef conn;  ///< the connection of the QP, or null
    Qp* qp = nullptr;
    uint32_t conn_id = 0;  ///< the connection that the provider knows; 0: none
    Installed has;         ///< the same, with conn_id != 0
  };

  ConnRef lookup(const usiw_cm_tuple& tuple) const;
  FQp* by_port(uint16_t port) const;
  ConnRef make_conn(FQp& q);
  void attach(FQp& q, const ConnRef& conn);
  void leave(FQp& q);
  void challenge(FQp& q);
  void answer(FQp& q);
  void failed(FQp& q, uint32_t conn_id);
  void on_user_event(const ConnRef& conn, uint32_t event);
  void handshake(const Datagram& d, const FlowKey& flow);
  void prove(Datagram& d, const usiw_cm_tuple& tuple) const;
  void transmit(const FlowKey& flow, const void* data, uint32_t len);
  void run_timers();
  void reap();
  void wake_events();
  void read_events();
  void on_record(const ConnRef& conn, const usiw_event& record);
  void ended(Qp& qp, uint32_t kind, int error);
  void note(FQp& q, uint32_t kind, uint32_t conn_id, int error);
  void flush();
  uint64_t now_us() const { return w_.clock.now / 1000; }
  uint64_t due_ns(uint64_t us) const { return us == 0 ? UINT64_MAX : us * 1000 + w_.sc.hosts[side_].timer_slop; }

  const FacePlan& plan_;
  const int side_;
  __u64 key_[2];  ///< the secret of the ISNs of PENDINGs
  FacePort port_;

 public:
  std::unique_ptr<Engine> engine;

 private:
  int port_no_;
  std::map<uint32_t, std::unique_ptr<FQp>> qps_;
  std::list<ConnRef> conns_;
  std::list<ConnRef> events_;
  struct Report {
    uint32_t qpn, kind, conn_id;
    int error;
  };
  std::deque<Report> reports_;
  bool reading_ = false, flushing_ = false;
  unsigned connecting_ = 0;
  uint32_t next_id_ = 1;
  uint64_t rx_at_ = 0;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FACE_PROCESS_H
