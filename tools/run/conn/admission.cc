// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/admission.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/random.h"

namespace usiw::run {

struct Admission::Entry : usiw_cm_req {
  Entry() : usiw_cm_req{} {}
  std::weak_ptr<UdpSocket> sock;
  Tuple ends;
  std::vector<std::byte> data;
};

namespace {

/// The limits are those of this process, which has no other namespace.
usiw_cm_admission_net* admission_net() {
  static usiw_cm_admission_net& once = *[] {
    auto* net = new usiw_cm_admission_net;
    const auto word = [] { return static_cast<__u64>(random_u32()) << 32 | random_u32(); };
    const __u64 key[2] = {word(), word()};
    usiw_cm_admission_net_init(net, key);
    return net;
  }();
  return &once;
}

std::map<in_port_t, std::weak_ptr<Admission>>& all_admissions() {
  static auto& admissions = *new std::map<in_port_t, std::weak_ptr<Admission>>;
  return admissions;
}

/// Ports at which a REQ waits.
std::set<in_port_t>& busy_ports() {
  static auto& ports = *new std::set<in_port_t>;
  return ports;
}

std::shared_ptr<Admission> find_admission(in_port_t port) {
  auto it = all_admissions().find(port);
  return it == all_admissions().end() ? nullptr : it->second.lock();
}

}  // namespace

void Backlog::give_back() {
  if (usiw_cm_admission_return(this, now_us())) cm_thread_kick();
}

Admission::Admission(in_port_t port) : port_(port) { admission_.net = admission_net(); }

std::shared_ptr<Admission> Admission::of(in_port_t port) {
  if (std::shared_ptr<Admission> known = find_admission(port)) return known;
  std::shared_ptr<Admission> admission(new Admission(port));
  all_admissions()[port] = admission;
  return admission;
}

Admission::~Admission() {
  while (admission_.first != nullptr) {
    usiw_cm_req* req = admission_.first;
    usiw_cm_admission_discard(&admission_, req, now_us());
    delete static_cast<Entry*>(req);
  }
  busy_ports().erase(port_);
  auto it = all_admissions().find(port_);
  if (it != all_admissions().end() && it->second.expired()) all_admissions().erase(it);
}

void Admission::drop(usiw_cm_req* chain) {
  while (chain != nullptr) delete static_cast<Entry*>(std::exchange(chain, chain->next));
}

void Admission::join(Backlog& backlog, uint32_t slots) {
  usiw_cm_admission_join(&admission_, &backlog, slots);
  run();
}

void Admission::leave(Backlog& backlog) { drop(usiw_cm_admission_leave(&backlog, now_us())); }

void Admission::request(const std::shared_ptr<UdpSocket>& sock, const Tuple& tuple, const usiw_cm_packet& req,
                        const void* data, uint32_t len, Entry* entry) {
  if (entry == nullptr) {
    entry = new Entry;
    entry->tuple = cm_tuple(tuple);
    entry->ends = tuple;
    entry->sock = sock;
    entry->data.assign(static_cast<const std::byte*>(data), static_cast<const std::byte*>(data) + len);
  }
  Listener* listener = listener_at(*sock, tuple.local);
  const std::shared_ptr<Backlog> backlog = listener != nullptr ? listener->backlog() : nullptr;
  usiw_cm_admission_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_admission_request(&v, &admission_, backlog.get(), entry, &req, now_us());
  drop(v.out);
  int reason = 0;
  switch (v.kind) {
    case USIW_CM_G_KEPT:
      if (busy_ports().insert(port_).second) cm_thread_kick();
      break;
    case USIW_CM_G_ADMIT: reason = Conn::open(sock, tuple, req, v.isn, backlog, *listener); break;
    case USIW_CM_G_REFUSE: reason = USIW_REJECT_NO_LISTENER; break;
    default: break;
  }
  uint32_t answer = 0;
  if (reason != 0)
    answer = usiw_cm_build_refusal(&req, static_cast<uint8_t>(reason), buf);
  else if (v.pending)
    answer = usiw_cm_build_pending(&req, v.isn, buf);
  if (answer != 0) sock->send(tuple.local, tuple.remote, listener != nullptr ? listener->tos() : 0, buf, answer);
  if (v.kind != USIW_CM_G_KEPT) delete entry;  // last: req may point into it
}

void Admission::withdraw(const Tuple& tuple, const usiw_cm_packet& reset) {
  const usiw_cm_tuple key = cm_tuple(tuple);
  delete static_cast<Entry*>(usiw_cm_admission_withdraw(&admission_, &key, &reset));
}

void Admission::discard(Entry* entry) {
  // If another entry gets the slot by this, run(), which is the caller, goes on with that one.
  usiw_cm_admission_discard(&admission_, entry, now_us());
  delete entry;
}

void Admission::run() {
  drop(usiw_cm_admission_expire(&admission_, now_us()));
  while (usiw_cm_req* req = usiw_cm_admission_next(&admission_, now_us())) {
    auto* entry = static_cast<Entry*>(req);
    if (std::shared_ptr<UdpSocket> sock = entry->sock.lock())
      conn_receive(sock, entry->ends, entry->data.data(), static_cast<uint32_t>(entry->data.size()), entry);
    else
      discard(entry);
  }
  if (admission_.first == nullptr) busy_ports().erase(port_);
}

uint64_t admissions_next_deadline_us() {
  uint64_t next = 0;
  for (in_port_t port : busy_ports()) {
    std::shared_ptr<Admission> admission = find_admission(port);
    const uint64_t at = admission ? usiw_cm_admission_deadline(&admission->admission_) : 0;
    if (at != 0 && (next == 0 || at < next)) next = at;
  }
  return next;
}

void admissions_run() {
  for (in_port_t port : std::vector<in_port_t>(busy_ports().begin(), busy_ports().end()))
    if (std::shared_ptr<Admission> admission = find_admission(port)) admission->run();
}

void admissions_abandon() {
  all_admissions().clear();
  busy_ports().clear();
}

}  // namespace usiw::run
