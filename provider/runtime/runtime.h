// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime.h
/// What all contexts of one process on one device share: engine, ports, progress thread,
/// counters. Made with the first context, ends with the last. DPDK and the thread come to
/// life with the first QP, so that programs that only look (ibv_devinfo) stay cheap and
/// need no rights.
#ifndef USIW_RUNTIME_RUNTIME_H
#define USIW_RUNTIME_RUNTIME_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "port/choice.h"
#include "port/net_port.h"
#include "progress/clock.h"
#include "progress/progress.h"
#include "runtime/context.h"
#include "runtime/objects.h"
#include "runtime/trace_file.h"

namespace usiw {

class Runtime final : private EngineEvents, private Driven, private Watcher {
 public:
  /// Finds or makes the runtime of the context's device. 0 or an errno value.
  static int attach(Context& context, const usiw_link_info& link);
  static void detach(Context& context);

  /// True in a child of fork(): the engine and its thread are the parent's, and nothing of
  /// it may be touched.
  bool dead() const { return fork_generation_ != g_fork_generation.load(std::memory_order_relaxed); }

  /// Brings DPDK, the netdev's port and the progress thread up. 0 or an errno value, and a
  /// line on stderr.
  int bring_up();

  Engine& engine() { return *engine_; }  ///< with the engine held
  Progress& progress() { return *progress_; }
  std::mutex& mr_lock() { return mr_lock_; }
  uint32_t next_pd() { return next_pd_.fetch_add(1, std::memory_order_relaxed); }

  void add_qp(VQp& qp);
  /// After it no event reaches the QP; nothing of it is pinned.
  void remove_qp(VQp& qp);
  /// Lets go of the QP's local port.
  void release_port(VQp& qp);
  /// Waits until no event of the CQ is on its way to the kernel.
  void settle(VCq& cq);

  /// [progress thread] An event of the kernel.
  void on_event(Context& context, const usiw_event& event);

 private:
  /// What a port reaches.
  enum class Reach { kNetdev, kLoopback, kSockets, kMemory };
  struct PortSlot {
    std::unique_ptr<NetPort> port;
    int number;  ///< the engine's
    Reach reach;
  };

  /// Ports' control descriptors.
  struct PortControl final : Watcher {
    explicit PortControl(Runtime& r) : runtime(r) {}
    bool ready(int fd, short revents) override;
    Runtime& runtime;
  };

  Runtime(std::string device, const usiw_link_info& link, uint32_t port_kind);
  ~Runtime() override;

  // Engine reports: note down, act in released().
  void cq_ready(Cq& cq) override;
  void cq_overrun(Cq& cq) override;
  void qp_peer_closed(Qp& qp) override;
  void qp_closed(Qp& qp) override;
  void qp_failed(Qp& qp, int error, AsyncEvent event) override;
  void note(Pending& pending);
  void flush_pending();

  // What Progress drives.
  unsigned drive() override { return engine_->progress(); }
  uint64_t next_deadline_ns() override { return engine_->next_deadline_ns(); }
  bool arm() override;
  void released() override {
    if (have_pending_.load(std::memory_order_seq_cst)) flush_pending();
  }

  /// Packet sockets.
  bool ready(int fd, short revents) override;

  static usiw_link_info usable(usiw_link_info link);
  PortSlot* port_for(Reach reach, uint32_t mtu, int& error, std::string& why);
  int make_first_port(bool sockets, bool loopback, uint32_t mtu);
  PortSlot* port_of(const usiw_conn_info& conn, PortChoice& choice, int& error);
  PortChoice choose(const usiw_conn_info& conn) const;
  Reach packet_reach(bool local);
  void on_never_connected(VQp& qp);
  static void tell_port(VQp& qp, PortChoice choice);
  std::unique_ptr<NetPort> make_port(Reach reach, uint32_t mtu, int& error, std::string& why);
  static std::unique_ptr<NetPort> make_socket_port(bool memory, int& error, std::string& why);
  std::unique_ptr<NetPort> make_packet_port(bool loopback, uint32_t mtu, int& error, std::string& why);
  void on_connect(VQp& qp, const usiw_event& event);
  VQp* pin(uint32_t qpn);
  void point_counters();
  void open_trace();
  void abort_all();
  void acknowledge_all();

  static void before_fork();
  static void after_fork_parent();
  static void after_fork_child();
  static void at_exit();
  static std::atomic<uint32_t> g_fork_generation;

  const std::string device_;
  const uint32_t fork_generation_;
  const uint32_t ifindex_;
  const uint32_t port_kind_;  ///< enum usiw_port_kind
  PortWish wish_ = PortWish::kAuto;
  std::mutex link_lock_;
  usiw_link_info link_;  ///< under link_lock_
  std::atomic<uint32_t> link_mtu_;  ///< link_.mtu, for the ports
  std::atomic<bool> gone_{false};  ///< the device was removed

  MonotonicClock clock_;
  uint64_t* counters_ = nullptr;  ///< a page: a context's, or anonymous
  std::vector<Context*> contexts_;  ///< under the registry's lock; the first owns the page

  std::mutex mr_lock_;  ///< an STag index in the kernel and in the engine change as one
  std::atomic<uint32_t> next_pd_{1};

  std::mutex ports_lock_;
  std::vector<PortSlot> ports_;
  std::vector<NetPort*> to_arm_;  ///< of ports_; engine held
  PortControl port_control_{*this};
  bool up_ = false;  ///< under ports_lock_
  bool packets_broken_ = false;  ///< under ports_lock_: a raw port could not be made
  std::unique_ptr<TraceFile> trace_;  ///< under ports_lock_; the engine writes into it

  std::mutex qps_lock_;
  std::unordered_map<uint32_t, VQp*> qps_;

  Spinlock pending_lock_;
  Pending* pending_head_ = nullptr;
  Pending** pending_tail_ = &pending_head_;
  std::atomic<bool> have_pending_{false};
  std::mutex flush_lock_;  ///< one at a time: keeps the order of reports

  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Progress> progress_;  ///< last: its thread ends first
};

}  // namespace usiw

#endif  // USIW_RUNTIME_RUNTIME_H
