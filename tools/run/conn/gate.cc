// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/gate.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/host/random.h"
#include "tools/run/host/clock.h"

namespace usiw::run {

struct Gate::Kept : usiw_cm_req {
  Kept() : usiw_cm_req{} {}
  std::weak_ptr<UdpSocket> sock;
  Tuple ends;
  std::vector<std::byte> data;
};

namespace {

/// The limits are this process's: it has no other namespace.
usiw_cm_gate_net* gate_net() {
  static usiw_cm_gate_net& once = *[] {
    auto* net = new usiw_cm_gate_net;
    const auto word = [] { return static_cast<__u64>(random_u32()) << 32 | random_u32(); };
    const __u64 key[2] = {word(), word()};
    usiw_cm_gate_net_init(net, key);
    return net;
  }();
  return &once;
}

std::map<in_port_t, std::weak_ptr<Gate>>& all_gates() {
  static auto& gates = *new std::map<in_port_t, std::weak_ptr<Gate>>;
  return gates;
}

/// Those at which somebody waits.
std::set<in_port_t>& busy_gates() {
  static auto& ports = *new std::set<in_port_t>;
  return ports;
}

std::shared_ptr<Gate> find_gate(in_port_t port) {
  auto it = all_gates().find(port);
  return it == all_gates().end() ? nullptr : it->second.lock();
}

}  // namespace

void Places::give_back() {
  if (usiw_cm_gate_return(this, now_us())) cm_thread_kick();
}

Gate::Gate(in_port_t port) : port_(port) { gate_.net = gate_net(); }

std::shared_ptr<Gate> Gate::of(in_port_t port) {
  if (std::shared_ptr<Gate> known = find_gate(port)) return known;
  std::shared_ptr<Gate> gate(new Gate(port));
  all_gates()[port] = gate;
  return gate;
}

Gate::~Gate() {
  while (gate_.first != nullptr) {
    usiw_cm_req* req = gate_.first;
    usiw_cm_gate_discard(&gate_, req, now_us());
    delete static_cast<Kept*>(req);
  }
  busy_gates().erase(port_);
  if (auto it = all_gates().find(port_); it != all_gates().end() && it->second.expired()) all_gates().erase(it);
}

void Gate::drop(usiw_cm_req* chain) {
  while (chain != nullptr) delete static_cast<Kept*>(std::exchange(chain, chain->next));
}

void Gate::join(Places& places, uint32_t backlog) {
  usiw_cm_gate_join(&gate_, &places, backlog);
  run();
}

void Gate::leave(Places& places) { drop(usiw_cm_gate_leave(&places, now_us())); }

void Gate::request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                   const void* data, uint32_t len, Kept* kept) {
  if (kept == nullptr) {
    kept = new Kept;
    kept->tuple = cm_tuple(tuple);
    kept->ends = tuple;
    kept->sock = sock;
    kept->data.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + len);
  }
  Listener* listener = listener_at(*sock, tuple.local);
  const std::shared_ptr<Places> places = listener != nullptr ? listener->places() : nullptr;
  usiw_cm_gate_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_gate_request(&v, &gate_, places.get(), kept, &req, now_us());
  drop(v.out);
  int reason = 0;
  switch (v.kind) {
    case USIW_CM_G_KEPT:
      if (busy_gates().insert(port_).second) cm_thread_kick();
      break;
    case USIW_CM_G_ADMIT:
      reason = Conn::open(sock, tuple, req, v.isn, places, *listener);
      break;
    case USIW_CM_G_REFUSE:
      reason = USIW_REJECT_NO_LISTENER;
      break;
    default:
      break;
  }
  uint32_t answer = 0;
  if (reason != 0)
    answer = usiw_cm_build_refusal(&req, static_cast<uint8_t>(reason), buf);
  else if (v.pending)
    answer = usiw_cm_build_pending(&req, v.isn, buf);
  if (answer != 0) sock->send(tuple.local, tuple.remote, listener != nullptr ? listener->tos() : 0, buf, answer);
  if (v.kind != USIW_CM_G_KEPT) delete kept;  // last: req may point into it
}

void Gate::withdraw(const Tuple& tuple, const usiw_cm_packet& reset) {
  const usiw_cm_tuple key = cm_tuple(tuple);
  delete static_cast<Kept*>(usiw_cm_gate_withdraw(&gate_, &key, &reset));
}

void Gate::discard(Kept* kept) {
  usiw_cm_gate_discard(&gate_, kept, now_us());  // who gets its place is due in run(), which has called this
  delete kept;
}

void Gate::run() {
  drop(usiw_cm_gate_expire(&gate_, now_us()));
  while (usiw_cm_req* req = usiw_cm_gate_next(&gate_, now_us())) {
    auto* kept = static_cast<Kept*>(req);
    if (std::shared_ptr<UdpSocket> sock = kept->sock.lock())
      conn_receive(sock, kept->ends, kept->data.data(), static_cast<uint32_t>(kept->data.size()), kept);
    else
      discard(kept);
  }
  if (gate_.first == nullptr) busy_gates().erase(port_);
}

uint64_t gates_next_deadline_us() {
  uint64_t next = 0;
  for (in_port_t port : busy_gates()) {
    std::shared_ptr<Gate> gate = find_gate(port);
    const uint64_t at = gate ? usiw_cm_gate_deadline(&gate->gate_) : 0;
    if (at != 0 && (next == 0 || at < next)) next = at;
  }
  return next;
}

void gates_run() {
  for (in_port_t port : std::vector<in_port_t>(busy_gates().begin(), busy_gates().end()))
    if (std::shared_ptr<Gate> gate = find_gate(port)) gate->run();
}

void gates_abandon() {
  all_gates().clear();
  busy_gates().clear();
}

}  // namespace usiw::run
