// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "rig.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) FAIL("%s is not set (see scripts/vm)", name);
  return value;
}

bool fd_ready(int fd, int timeout_ms) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(timeout_ms);
  for (;;) {
    pollfd p = {fd, POLLIN, 0};
    const uint64_t now = tap::now_ms();
    const int n = poll(&p, 1, now < end ? static_cast<int>(end - now) : 0);
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Site site_a() { return {from_environment("A_DEV"), from_environment("A_IP")}; }
Site site_b() { return {from_environment("B_DEV"), from_environment("B_IP")}; }

ibv_context* context_of(const std::string& device) {
  static int count = 0;
  static ibv_context** const all = rdma_get_devices(&count);
  for (int i = 0; all && i < count; ++i)
    if (device == ibv_get_device_name(all[i]->device)) return all[i];
  FAIL("rdma_get_devices() knows no device %s", device.c_str());
}

ibv_pd* pd_of(ibv_context* context) {
  static std::mutex lock;
  static std::map<ibv_context*, ibv_pd*> pds;
  const std::lock_guard<std::mutex> hold(lock);
  ibv_pd*& pd = pds[context];
  if (!pd && !(pd = ibv_alloc_pd(context))) FAIL("ibv_alloc_pd: %s", std::strerror(errno));
  return pd;
}

ibv_pd* pd_a() { return pd_of(context_of(site_a().device)); }
ibv_pd* pd_b() { return pd_of(context_of(site_b().device)); }

sockaddr_in ipv4(const std::string& ip, uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (inet_pton(AF_INET, ip.c_str(), &address.sin_addr) != 1) FAIL("%s is no IPv4 address", ip.c_str());
  return address;
}

sockaddr_storage address_of(const std::string& ip, uint16_t port) {
  sockaddr_storage address = {};
  auto& sin6 = reinterpret_cast<sockaddr_in6&>(address);
  if (inet_pton(AF_INET6, ip.c_str(), &sin6.sin6_addr) != 1) {
    reinterpret_cast<sockaddr_in&>(address) = ipv4(ip, port);
    return address;
  }
  sin6.sin6_family = AF_INET6;
  sin6.sin6_port = htons(port);
  return address;
}

// ---- Connection manager ----

EventChannel::EventChannel() : channel_(rdma_create_event_channel()) {
  if (!channel_) FAIL("rdma_create_event_channel: %s", std::strerror(errno));
}

EventChannel::~EventChannel() { rdma_destroy_event_channel(channel_); }

rdma_cm_id* EventChannel::create_id(void* context) {
  rdma_cm_id* id;
  CHECK_CALL(rdma_create_id(channel_, &id, context, RDMA_PS_TCP));
  return id;
}

bool EventChannel::ready(int timeout_ms) const { return fd_ready(channel_->fd, timeout_ms); }

CmEvent EventChannel::wait(int timeout_ms) {
  if (!ready(timeout_ms)) FAIL("no connection event in %d ms", timeout_ms);
  rdma_cm_event* event;
  CHECK_CALL(rdma_get_cm_event(channel_, &event));
  const rdma_conn_param& param = event->param.conn;
  CmEvent copy = {event->event, event->status, event->id, param.responder_resources,
                  param.initiator_depth, {}};
  const auto* data = static_cast<const uint8_t*>(param.private_data);
  if (data) copy.private_data.assign(data, data + param.private_data_len);
  CHECK_CALL(rdma_ack_cm_event(event));
  return copy;
}

CmEvent EventChannel::expect(rdma_cm_event_type type, int timeout_ms) {
  CmEvent event = wait(timeout_ms);
  if (event.type != type)
    FAIL("%s (status %d) instead of %s", rdma_event_str(event.type), event.status, rdma_event_str(type));
  return event;
}

void make_event(rdma_cm_id* id) {
  sockaddr_in to = ipv4(site_b().ip, 9);
  CHECK_CALL(rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&to), 1000));
}

Listener::Listener(const std::string& ip, int backlog, uint16_t port) {
  sockaddr_storage address = address_of(ip, port);
  id_ = events_.create_id(this);
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) || rdma_listen(id_, backlog)) {
    const int error = errno;
    rdma_destroy_id(id_);
    FAIL("listening on %s port %u: %s", ip.c_str(), port, std::strerror(error));
  }
  port_ = ntohs(rdma_get_src_port(id_));
}

Listener::~Listener() { rdma_destroy_id(id_); }

CmEvent Listener::wait_request(int timeout_ms) {
  return events_.expect(RDMA_CM_EVENT_CONNECT_REQUEST, timeout_ms);
}

Listener& shared_listener() {
  static Listener* const listener = new Listener(site_b().ip);
  return *listener;
}

// ---- Endpoint ----

Endpoint::~Endpoint() { destroy(); }

void Endpoint::resolve(const std::string& from, const std::string& to, uint16_t port) {
  sockaddr_storage source = address_of(from, 0), target = address_of(to, port);
  id = events.create_id(this);
  CHECK_CALL(rdma_resolve_addr(id, reinterpret_cast<sockaddr*>(&source),
                               reinterpret_cast<sockaddr*>(&target), 5000));
  events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_CALL(rdma_resolve_route(id, 5000));
  events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void Endpoint::adopt(rdma_cm_id* of_request) {
  id = of_request;
  CHECK_CALL(rdma_migrate_id(id, events.get()));
}

void Endpoint::create_qp(const Options& o) {
  pd = o.pd ? o.pd : pd_of(id->verbs);
  if (o.cq) {
    send_cq = recv_cq = o.cq;
  } else {
    own_cqs_ = true;
    if (o.with_channel) {
      send_channel = ibv_create_comp_channel(id->verbs);
      recv_channel = ibv_create_comp_channel(id->verbs);
      CHECK(send_channel && recv_channel);
    }
    const int send_cqe = o.send_cqe ? o.send_cqe : static_cast<int>(o.send_wr);
    const int recv_cqe = o.recv_cqe ? o.recv_cqe : static_cast<int>(o.recv_wr);
    send_cq = ibv_create_cq(id->verbs, send_cqe, this, send_channel, 0);
    if (!send_cq) FAIL("ibv_create_cq: %s", std::strerror(errno));
    recv_cq = ibv_create_cq(id->verbs, recv_cqe, this, recv_channel, 0);
    if (!recv_cq) FAIL("ibv_create_cq: %s", std::strerror(errno));
  }
  ibv_qp_init_attr attr = {};
  attr.qp_context = this;
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.srq = o.srq;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = o.sig_all;
  attr.cap = {o.send_wr, o.recv_wr, o.send_sge, o.recv_sge, o.inline_data};
  if (o.send_ops != 0) {
    ibv_qp_init_attr_ex ex = {};
    std::memcpy(static_cast<void*>(&ex), &attr, offsetof(ibv_qp_init_attr_ex, comp_mask));
    ex.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    ex.pd = pd;
    ex.send_ops_flags = o.send_ops;
    CHECK_CALL(rdma_create_qp_ex(id, &ex));
  } else {
    CHECK_CALL(rdma_create_qp(id, pd, &attr));
  }
  qp = id->qp;
}

int Endpoint::try_send(const SendWr& w) {
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  std::vector<ibv_sge> sges = w.sges;
  wr.wr_id = w.wr_id;
  wr.opcode = w.opcode;
  wr.send_flags = w.flags;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  wr.imm_data = w.imm_data;
  if (w.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic = {.remote_addr = w.remote_addr, .compare_add = w.compare_add, .swap = w.swap, .rkey = w.rkey};
  } else {
    wr.wr.rdma.remote_addr = w.remote_addr;
    wr.wr.rdma.rkey = w.rkey;
  }
  const int error = ibv_post_send(qp, &wr, &bad);
  if (error && bad != &wr) FAIL("ibv_post_send failed (%d) without naming the work request", error);
  return error;
}

int Endpoint::try_recv(uint64_t wr_id, std::vector<ibv_sge> sges) {
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.wr_id = wr_id;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  const int error = ibv_post_recv(qp, &wr, &bad);
  if (error && bad != &wr) FAIL("ibv_post_recv failed (%d) without naming the work request", error);
  return error;
}

void Endpoint::send(const SendWr& wr) {
  if (int error = try_send(wr)) FAIL("ibv_post_send: %s", std::strerror(error));
}

void Endpoint::recv(uint64_t wr_id, std::vector<ibv_sge> sges) {
  if (int error = try_recv(wr_id, std::move(sges))) FAIL("ibv_post_recv: %s", std::strerror(error));
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  if (int error = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
    FAIL("ibv_query_qp: %s", std::strerror(error));
  return attr.qp_state;
}

void Endpoint::destroy_qp() {
  if (!qp) return;
  rdma_destroy_qp(id);
  qp = nullptr;
}

void Endpoint::destroy() {
  destroy_qp();
  if (own_cqs_) {
    for (ibv_cq* cq : {send_cq, recv_cq})
      if (cq && ibv_destroy_cq(cq)) tap::note("ibv_destroy_cq failed");
    for (ibv_comp_channel* channel : {send_channel, recv_channel})
      if (channel && ibv_destroy_comp_channel(channel)) tap::note("ibv_destroy_comp_channel failed");
  }
  send_cq = recv_cq = nullptr;
  send_channel = recv_channel = nullptr;
  own_cqs_ = false;
  if (id) rdma_destroy_id(id);
  id = nullptr;
}

rdma_conn_param conn_param(const Options& o) {
  rdma_conn_param param = {};
  param.responder_resources = o.ird;
  param.initiator_depth = o.ord;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  return param;
}

void connect_pair(Endpoint& a, Endpoint& b, Listener& listener, const std::string& from,
                  const std::string& to, const Options& of_a, const Options& of_b) {
  a.resolve(from, to, listener.port());
  a.create_qp(of_a);
  rdma_conn_param param = conn_param(of_a);
  CHECK_CALL(rdma_connect(a.id, &param));
  b.adopt(listener.wait_request().id);
  b.create_qp(of_b);
  param = conn_param(of_b);
  CHECK_CALL(rdma_accept(b.id, &param));
  a.established = a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  b.established = b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

Pair::Pair(const Options& of_a, const Options& of_b) {
  connect_pair(a, b, shared_listener(), site_a().ip, site_b().ip, of_a, of_b);
}

void Pair::close() {
  CHECK_CALL(rdma_disconnect(a.id));
  b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  (void)rdma_disconnect(b.id);  // InfiniBand's way of closing needs it, iWARP's may refuse it
  a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  a.destroy();
  b.destroy();
}

// ---- Completions ----

namespace {

/// Pauses of a loop that polls: the loop first yields only, which is the fastest. After kYieldMs it sleeps between polls,
/// because most long waits are for a time-out, and the machine has other programs to run.
class Pauses {
 public:
  void next() {
    if (tap::now_ms() < start_ + kYieldMs)
      sched_yield();
    else
      usleep(1000);
  }

 private:
  static constexpr uint64_t kYieldMs = 50;
  const uint64_t start_ = tap::now_ms();
};

}  // namespace

ibv_wc wait_wc(ibv_cq* cq, int timeout_ms) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(timeout_ms);
  ibv_wc wc = {};
  for (Pauses pauses;;) {
    const int n = ibv_poll_cq(cq, 1, &wc);
    if (n == 1) return wc;
    if (n < 0) FAIL("ibv_poll_cq returned %d", n);
    if (tap::now_ms() > end) FAIL("no completion in %d ms", timeout_ms);
    pauses.next();
  }
}

std::vector<ibv_wc> wait_wcs(ibv_cq* cq, size_t count, int timeout_ms) {
  std::vector<ibv_wc> all;
  while (all.size() < count) all.push_back(wait_wc(cq, timeout_ms));
  return all;
}

ibv_wc expect_wc(ibv_cq* cq, uint64_t wr_id, ibv_wc_status status) {
  const ibv_wc wc = wait_wc(cq);
  if (wc.wr_id != wr_id || wc.status != status)
    FAIL("completion of work request %llu with '%s' instead of %llu with '%s'",
         static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status),
         static_cast<unsigned long long>(wr_id), ibv_wc_status_str(status));
  return wc;
}

void expect_no_wc(ibv_cq* cq, int ms) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(ms);
  ibv_wc wc;
  Pauses pauses;
  do {
    if (ibv_poll_cq(cq, 1, &wc))
      FAIL("unexpected completion of work request %llu: %s", static_cast<unsigned long long>(wc.wr_id),
           ibv_wc_status_str(wc.status));
    pauses.next();
  } while (tap::now_ms() < end);
}

bool wait_cq_event(ibv_comp_channel* channel, int timeout_ms) {
  if (!fd_ready(channel->fd, timeout_ms)) return false;
  ibv_cq* cq;
  void* context;
  CHECK_CALL(ibv_get_cq_event(channel, &cq, &context));
  ibv_ack_cq_events(cq, 1);
  return true;
}

void expect_async(ibv_context* context, ibv_event_type type, const void* object, int timeout_ms) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(timeout_ms);
  for (;;) {
    const uint64_t now = tap::now_ms();
    if (now >= end || !fd_ready(context->async_fd, static_cast<int>(end - now)))
      FAIL("no async event '%s' in %d ms", ibv_event_type_str(type), timeout_ms);
    ibv_async_event event;
    CHECK_CALL(ibv_get_async_event(context, &event));
    const bool match = event.event_type == type &&
                       (!object || object == event.element.qp || object == event.element.cq);
    if (!match) tap::note("another async event: %s", ibv_event_type_str(event.event_type));
    ibv_ack_async_event(&event);
    if (match) return;
  }
}

void drain_async(ibv_context* context) {
  while (fd_ready(context->async_fd, 0)) {
    ibv_async_event event;
    if (ibv_get_async_event(context, &event)) return;
    ibv_ack_async_event(&event);
  }
}

void exercise(Pair& p) {
  constexpr size_t kLength = 5000;
  Region from_a(p.a.pd, kLength), at_b(p.b.pd, kLength);
  for (int way = 0; way < 2; ++way) {
    Endpoint& x = way ? p.b : p.a;
    Endpoint& y = way ? p.a : p.b;
    Region& source = way ? at_b : from_a;
    Region& sink = way ? from_a : at_b;
    source.fill(way);
    sink.clear();
    y.recv(7, {sink.sge()});
    x.send({.wr_id = 8, .sges = {source.sge()}});
    expect_wc(x.send_cq, 8);
    CHECK_EQ(expect_wc(y.recv_cq, 7).byte_len, kLength);
    sink.check(way, 0, kLength);
  }
  from_a.fill(2);
  p.a.send({.wr_id = 9, .opcode = IBV_WR_RDMA_WRITE, .sges = {from_a.sge()},
            .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 9);
  from_a.clear();
  p.a.send({.wr_id = 10, .opcode = IBV_WR_RDMA_READ, .sges = {from_a.sge()},
            .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 10);
  from_a.check(2, 0, kLength);
  from_a.check_guards();
  at_b.check_guards();
}

void wait_until(const char* what, const std::function<bool()>& done, int timeout_ms) {
  const uint64_t end = tap::now_ms() + static_cast<uint64_t>(timeout_ms);
  for (Pauses pauses; !done();) {
    if (tap::now_ms() > end) FAIL("not in %d ms: %s", timeout_ms, what);
    pauses.next();
  }
}
