// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/admission.h"

#include <map>
#include <utility>
#include <vector>

#include "tools/run/host/clock.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/random.h"

namespace usiw::run {

struct Admission::Entry : usiw_cm_req {
  Entry() : usiw_cm_req{} {}
  std::weak_ptr<UdpSocket> sock;
  Tuple ends;
  std::vector<std::byte> data;
};

namespace {

/// The secret key, and the limits that all ports share. The module has one such object for each network namespace, and
/// usiw-run one in each process.
struct AdmissionNet : usiw_cm_admission_net {
  AdmissionNet() {
    const auto word = [] { return static_cast<__u64>(random_u32()) << 32 | random_u32(); };
    const __u64 secret[2] = {word(), word()};
    usiw_cm_admission_net_init(this, secret);
  }
};

using Admissions = std::map<in_port_t, std::weak_ptr<Admission>>;

/// Returns the listener for REQs that arrive at @p sock with the destination @p local, or null.
Listener* listener_at(const UdpSocket& sock, const Endpoint& local) {
  if (sock.listener != nullptr) return sock.listener;
  // @p sock may be bound to a single address, while a listener of the same port is bound to the wildcard address.
  const std::shared_ptr<UdpSocket> wild = UdpSocket::find(endpoint_any(local.ipv4(), local.port));
  return wild ? wild->listener : nullptr;
}

}  // namespace

void Backlog::give_back() {
  if (usiw_cm_admission_return(this, now_us())) static_cast<Admission*>(admission)->arm();
}

Admission::Admission(in_port_t port, Deliver deliver) : usiw_cm_admission{}, port_(port), deliver_(deliver) {
  net = &never_destroyed<AdmissionNet>();
}

std::shared_ptr<Admission> Admission::of(in_port_t port, Deliver deliver) {
  std::weak_ptr<Admission>& known = never_destroyed<Admissions>()[port];
  std::shared_ptr<Admission> admission = known.lock();
  if (!admission) known = admission = std::shared_ptr<Admission>(new Admission(port, deliver));
  return admission;
}

const __u64* Admission::secret() { return never_destroyed<AdmissionNet>().key; }

void Admission::abandon_all() { never_destroyed<Admissions>().clear(); }

Admission::~Admission() {
  drop(usiw_cm_admission_purge(this));
  const auto it = never_destroyed<Admissions>().find(port_);
  if (it != never_destroyed<Admissions>().end() && it->second.expired()) never_destroyed<Admissions>().erase(it);
}

void Admission::drop(usiw_cm_req* chain) {
  while (chain != nullptr) delete static_cast<Entry*>(std::exchange(chain, chain->next));
}

void Admission::join(Backlog& backlog, uint32_t slots) {
  usiw_cm_admission_join(this, &backlog, slots);
  run();
}

void Admission::leave(Backlog& backlog) {
  drop(usiw_cm_admission_leave(&backlog, now_us()));
  arm();
}

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
  usiw_cm_admission_verdict v;
  uint8_t buf[USIW_CM_MAX_DATAGRAM];
  usiw_cm_admission_request(&v, this, listener != nullptr ? listener->backlog().get() : nullptr, entry, &req, now_us());
  drop(v.out);
  int reason = v.kind == USIW_CM_ADM_REFUSE ? USIW_REJECT_NO_LISTENER : 0;
  if (v.kind == USIW_CM_ADM_ADMIT) reason = listener->open(sock, tuple, req, v.isn);
  uint32_t answer = 0;
  if (reason != 0)
    answer = usiw_cm_build_refusal(&req, static_cast<uint8_t>(reason), buf);
  else if (v.pending)
    answer = usiw_cm_build_pending(&req, v.isn, buf);
  if (answer != 0) sock->send(tuple.local, tuple.remote, listener != nullptr ? listener->tos() : 0, buf, answer);
  if (v.kind != USIW_CM_ADM_KEPT) delete entry;  // last, because req may point into the entry
  arm();
}

void Admission::withdraw(const Tuple& tuple, const usiw_cm_packet& reset) {
  const usiw_cm_tuple key = cm_tuple(tuple);
  delete static_cast<Entry*>(usiw_cm_admission_withdraw(this, &key, &reset));
  arm();
}

void Admission::discard(Entry* entry) {
  // Ignore the return value, which reports that another entry is due. run(), which has delivered this entry, continues
  // with the entries that are due.
  usiw_cm_admission_discard(this, entry, now_us());
  delete entry;
}

/// [big lock] Drops stale entries, and delivers all entries that are due, except those whose socket is gone.
void Admission::run() {
  drop(usiw_cm_admission_expire(this, now_us()));
  while (usiw_cm_req* req = usiw_cm_admission_next(this, now_us())) {
    auto* entry = static_cast<Entry*>(req);
    if (std::shared_ptr<UdpSocket> sock = entry->sock.lock())
      deliver_(sock, entry->ends, entry->data.data(), static_cast<uint32_t>(entry->data.size()), entry);
    else
      discard(entry);
  }
  arm();
}

}  // namespace usiw::run
