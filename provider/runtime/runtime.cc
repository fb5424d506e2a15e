// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file runtime.cc
/// Life of a runtime, and its QPs by number.
#include "runtime/runtime.h"

#include <cstdlib>
#include <cstring>

#include "base/backoff.h"
#include "base/say.h"
#include "runtime/patience.h"

namespace usiw {

Runtime::Runtime(std::string device, const usiw_link_info& link, uint32_t port_kind)
    : device_(std::move(device)),
      ifindex_(link.ifindex),
      generation_(Process::generation()),
      ports_(gate_, device_, link, port_kind),
      gate_(*this, clock_, reports_, contexts_.counters()) {}

int Runtime::bring_up() {
  std::lock_guard lock(bring_up_lock_);
  if (up_) return 0;
  bool sockets;
  {
    // Nobody has read the kernel's events yet: the link may have changed since the open.
    std::lock_guard registered(Process::registry_lock());
    contexts_.read_events();
    sockets = contexts_.take_sockets();
  }
  const usiw_link_info link = ports_.link();
  if (int rc = ports_.open_first(sockets); rc != 0) return rc;
  if (int rc = progress().start(); rc != 0) {
    say_once(device_ + ": the progress thread could not be started: " + strerror(rc));
    return rc;
  }
  open_trace();
  hold()->set_patience(patience_ns());
  if (link.up == 0) {
    const std::string ifname = link.ifname;
    say_once(device_ + ": netdev " + ifname + " is down; no connection will come about until 'ip link set " +
             ifname + " up'");
  }
  up_ = true;
  return 0;
}

/// Before the first QP; a program without a trace runs as well. A program with more
/// rights than its user does not let that user say where it makes files.
void Runtime::open_trace() {
  const TraceSpec spec = TraceSpec::parse(secure_getenv("USIW_TRACE"));
  if (!spec.complaint.empty()) say_once(spec.complaint);
  std::string why;
  trace_ = TraceFile::create(spec, device_, why);
  if (trace_ == nullptr) {
    if (!spec.directory.empty()) say_once(device_ + ": " + why);
    return;
  }
  hold()->trace_into(trace_->memory());
}

// ---- QPs by number ------------------------------------------------------------------------

void Runtime::add_qp(VQp& qp) {
  std::lock_guard lock(qps_lock_);
  qps_[qp.ibv.qp_num] = &qp;
}

void Runtime::remove_qp(VQp& qp) {
  lock_rank::assert_none_up_to(LockRank::kEngine);
  {
    std::lock_guard lock(qps_lock_);
    qps_.erase(qp.ibv.qp_num);
  }
  {
    const EngineGate::Held held = hold();
    held->qp_acknowledge(qp.qp);  // ahead of the kernel's RESET
    held->qp_reset(qp.qp);
    qp.conn_id = 0;
  }
  for (Backoff backoff; qp.pins.load(std::memory_order_acquire) != 0;) backoff.wait();
  if (qp.qp->state() != QpState::kIdle) hold()->qp_reset(qp.qp);  // an event found it in between
  ports_.release(qp);
}

VQp* Runtime::pin(uint32_t qpn) {
  std::lock_guard lock(qps_lock_);
  auto it = qps_.find(qpn);
  if (it == qps_.end()) return nullptr;
  it->second->pins.fetch_add(1, std::memory_order_relaxed);
  return it->second;
}

/// The kernel's RESETs follow.
void Runtime::acknowledge_all() {
  std::unique_lock lock(qps_lock_, std::try_to_lock);
  if (!lock) return;
  const EngineGate::Held held = hold();
  for (auto& [qpn, qp] : qps_)
    if (qp->qp != nullptr) held->qp_acknowledge(qp->qp);
}

}  // namespace usiw
