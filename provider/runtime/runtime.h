// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime.h
/// What all contexts of one process on one device share: engine, ports, progress thread,
/// counters. Made with the first context, ends with the last. DPDK and the thread come to
/// life with the first QP, so that programs that only look (ibv_devinfo) stay cheap and
/// need no rights.
///
/// Lock order. A thread that holds one of these takes only those further down; base/lock_rank.h aborts a debug build
/// that does not.
///   0 turn      spinlock  the consumers' and producers' turns on a CQ or on one side of a QP (base/turn.h): the
///                         program may hold one while it calls anything
///   1 bring-up  mutex     one thread at a time makes the first port and starts the progress thread; the trace
///   2 registry  mutex     the process's runtimes and their contexts (Process, ContextSet); held across fork(2)
///   3 regions   mutex     an STag index changes in the kernel and in the engine as one
///   4 ports     mutex     the ports, and which one a QP has (PortSet)
///   5 qps       mutex     QPs by number
///   6 reports   mutex     one thread at a time talks to the kernel, so that reports keep their order (Reports)
///   7 engine    token     the engine, and every port's data path (EngineGate). Letting go of it may take 6, and the
///                         token again: with 1 to 5 held, but never with 6 or with one of the leaves
///   8 pending, link  leaves: the list of reports (spinlock), the link's state (mutex)
/// Whoever waits for events in flight (unwatch(), settle(), remove_qp()) holds none of 1 to 7: the thread that it
/// waits for may need them.
#ifndef USIW_RUNTIME_RUNTIME_H
#define USIW_RUNTIME_RUNTIME_H

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/lock_rank.h"
#include "progress/clock.h"
#include "progress/progress.h"
#include "runtime/context.h"
#include "runtime/contexts.h"
#include "runtime/engine_gate.h"
#include "runtime/objects.h"
#include "runtime/port_set.h"
#include "runtime/process.h"
#include "runtime/reports.h"
#include "runtime/trace_file.h"

namespace usiw {

class Runtime final : private EngineDriver {
 public:
  Runtime(std::string device, const usiw_link_info& link, uint32_t port_kind);
  ~Runtime() override = default;

  /// True in a child of fork(): the engine and its thread are the parent's, and nothing of
  /// it may be touched.
  bool dead() const { return generation_ != Process::generation(); }
  /// False once the device was removed: one of the same name is another one.
  bool serves(const char* device, uint32_t ifindex) const {
    return device_ == device && ifindex_ == ifindex && !gone_.load(std::memory_order_relaxed);
  }

  /// Brings DPDK, the netdev's port and the progress thread up. 0 or an errno value, and a
  /// line on stderr.
  int bring_up();

  /// The engine, for as long as the result lives.
  [[nodiscard]] EngineGate::Held hold() { return gate_.hold(); }
  EngineGate& gate() { return gate_; }
  Progress& progress() { return gate_.progress(); }
  ContextSet& contexts() { return contexts_; }  ///< under the registry's lock
  PortSet& ports() { return ports_; }
  auto& region_lock() { return region_lock_; }
  uint32_t next_pd() { return next_pd_.fetch_add(1, std::memory_order_relaxed); }

  void add_qp(VQp& qp);
  /// After it no event reaches the QP, which has no connection and no work; nothing of it is pinned.
  void remove_qp(VQp& qp);

  /// [progress thread] An event of the kernel.
  void on_event(Context& context, const usiw_event& event);
  /// At the process's end, ahead of the kernel's RESETs.
  void acknowledge_all();

 private:
  // What Progress drives.
  unsigned drive() override { return gate_.drive(); }
  uint64_t next_deadline_ns() override { return gate_.next_deadline_ns(); }
  bool arm() override { return ports_.arm(); }
  void released() override { reports_.flush(); }

  void on_never_connected(const EngineGate::Held& held, VQp& qp);
  bool keeps_connection(VQp& qp);
  void on_connect(VQp& qp, const usiw_event& event);
  void on_path(VQp& qp, const usiw_event& event);
  void open_packets_for(const usiw_event& connect);
  void packets_are_open(std::unique_ptr<NetPort> port, const std::string& why);
  void on_link(const usiw_link_info& link);
  void reconsider(const EngineGate::Held& held, VQp& qp);
  VQp* pin(uint32_t qpn);
  void open_trace();
  void abort_all();

  const std::string device_;
  const uint32_t ifindex_;
  const uint32_t generation_;  ///< Process::generation() when this was made
  std::atomic<bool> gone_{false};  ///< the device was removed

  RankedMutex<LockRank::kBringUp> bring_up_lock_;
  bool up_ = false;                   ///< under bring_up_lock_
  std::unique_ptr<TraceFile> trace_;  ///< under bring_up_lock_; the engine writes into it

  RankedMutex<LockRank::kRegions> region_lock_;
  std::atomic<uint32_t> next_pd_{1};

  RankedMutex<LockRank::kQps> qps_lock_;
  std::unordered_map<uint32_t, VQp*> qps_;

  std::mutex late_lock_;
  std::vector<usiw_event> late_;  ///< under late_lock_, a leaf: connections that begin by sockets until there is a port

  MonotonicClock clock_;
  ContextSet contexts_;
  Reports reports_;
  PortSet ports_;
  EngineGate gate_;      ///< its thread ends first, then the engine, then what they use
  PacketOpener opener_;  ///< last: its thread uses all of these
};

}  // namespace usiw

#endif  // USIW_RUNTIME_RUNTIME_H
