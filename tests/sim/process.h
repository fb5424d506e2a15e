// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file process.h
/// A process that uses the provider. It has the real engine, with one or two ports on the simulated wire. Process
/// itself does the work of provider/runtime/ and provider/verbs/qp.cc between engine and kernel.
#ifndef USIW_TESTS_SIM_PROCESS_H
#define USIW_TESTS_SIM_PROCESS_H

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "port/moves.h"
#include "lent_windows.h"
#include "shared_queue.h"
#include "shared_words.h"
#include "uapi/usiw_abi.h"
#include "watch.h"
#include "world.h"

namespace usiw::sim {

class Kernel;
struct KEvent;

constexpr uint16_t kListenPort = 4791;

/// A port with a receive ring, as an AF_PACKET socket has. The rules of the wire see each datagram that the engine
/// gives to the port.
class HostPort final : public SimPort, Reporter {
 public:
  /// @p which: 0 for raw packets, 1 for the socket.
  HostPort(World& w, Watch& watch, const Kernel& kernel, int side, int which, const HostPlan& plan)
      : SimPort(w.wire, side, 9216 - 28, plan.buffers, which == 1 || w.sc.seed % 2 == 1),
        Reporter(w, side),
        watch_(watch),
        kernel_(kernel),
        side_(side),
        which_(which),
        ring_size_(plan.ring) {
    tx_limit = plan.tx_limit;
  }
  size_t tx(std::span<TxBuf> bufs) override;
  void arrive(Datagram d, const FlowKey& flow, bool ce);
  bool pending() const { return !ring_.empty(); }
  void lose_buffer() { take(); }
  bool reports_wait = false;  ///< reports of the process have not reached the kernel yet

 private:
  bool next(Datagram& d, FlowKey& flow, bool& ce) override;
  Watch& watch_;
  const Kernel& kernel_;
  int side_, which_;
  size_t ring_size_;
  struct Arrived {
    Datagram data;
    FlowKey flow;
    bool ce;
  };
  std::deque<Arrived> ring_;
};

class Process final : public EngineEvents, Reporter {
 public:
  /// @p stags: the first of four STags for memory that its connections share.
  Process(World& world, Watch& watch, Kernel& kernel, int side, uint32_t& next_qpn, uint32_t stags);
  ~Process() override;

  // ---- Calls of a program ----
  uint32_t create_qp(QpAttr attr);
  void destroy_qp(uint32_t qpn);
  void error_qp(uint32_t qpn);
  void reset_qp(uint32_t qpn);
  Qp* qp(uint32_t qpn) const;
  /// Called with each polled completion.
  std::function<void(Process&, const Cqe&)> on_cqe;
  std::function<void(Process&, uint32_t qpn)> on_drained;

  // ---- Calls of the simulation ----
  void arrive(const Datagram& d, const FlowKey& flow, bool ce);
  void wake_events();
  /// Runs the engine and polls the CQs. Returns the work done.
  unsigned run();
  uint64_t next_deadline() const;
  /// Checks, after all QPs are destroyed, that no buffer, flow or timer is left.
  void check_empty();

  void cq_ready(Cq&) override {}
  void cq_overrun(Cq&) override { w_.fail("overrun", "a CQ has overrun"); }
  void qp_peer_closed(Qp& qp) override;
  void qp_closed(Qp& qp) override;
  void qp_failed(Qp& qp, int error, AsyncEvent event) override;
  void qp_last_wqe(Qp& qp) override;
  void qp_drained(Qp& qp) override { on_drained(*this, qp.qpn()); }
  void srq_limit(Srq& srq) override { static_cast<SharedQueue*>(srq.owner())->on_limit(); }
  PortAnswer qp_which_port(Qp& qp, const PortAsked& asked) override;

  struct PQp {
    uint32_t qpn = 0;
    Qp* qp = nullptr;
    uint32_t conn_id = 0;
    uint16_t port = 0;  ///< UDP port in the packet filter; 0: none
    FlowKey flow{};
    int failures = 0, closes = 0, peer_closes = 0;
    Cq* recv_cq = nullptr;
    bool shared = false;  ///< takes its receives from the SRQ
    int last_wqe = 0;     ///< events that it takes nothing more from the SRQ
    bool quiet = false;   ///< all completions before that event have been polled
    PortMoves moves;
    bool told_socket = false;  ///< the latest USIW_REPORT_PORT named the socket
    AsyncEvent event = AsyncEvent::kNone;
    int error = 0;
  };
  const PQp& state(uint32_t qpn) const { return *qps_.at(qpn); }

  const Life life = std::make_shared<int>(0);
  bool frozen = false;
  std::vector<Cq*> cqs;
  std::array<uint64_t, USIW_CNT_MAX> counters{};

 private:
  void close_port(PQp& q);
  void read_events();
  void on_event(const KEvent& e);
  void note(PQp& q, uint32_t kind, int error);
  void flush();
  void poll();

  Watch& watch_;
  Kernel& kernel_;
  const int side_;
  const HostPlan& plan_;
  uint32_t& next_qpn_;
  HostPort port_, socket_;

 public:
  std::unique_ptr<Engine> engine;
  std::unique_ptr<SharedQueue> shared;  ///< nullptr: the host has no SRQ
  std::shared_ptr<SharedWords> words;   ///< nullptr: no atomics contend
  std::unique_ptr<LentWindows> lent;    ///< nullptr: connections use their own windows only

 private:
  int number(const PQp& q) const { return q.moves.present().kind == PortKind::kPacket ? port_no_ : socket_no_; }
  int port_no_, socket_no_ = -1;
  std::map<uint32_t, std::unique_ptr<PQp>> qps_;
  std::map<uint16_t, int> filter_;  ///< number of QPs per local UDP port that the process receives
  struct Report {
    uint32_t qpn, kind, conn_id;
    int error;
  };
  std::deque<Report> reports_;
  bool reading_ = false, flushing_ = false;
  unsigned connecting_ = 0;  ///< answers to CONNECT that the kernel has not got yet
  std::vector<uint64_t> poll_at_;
  std::vector<FlowKey> flows_;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_PROCESS_H
