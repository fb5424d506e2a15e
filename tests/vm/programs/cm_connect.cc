// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Resolving, listening, connecting, refusing.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "by_verbs.h"
#include "cm_tools.h"
#include "hostile.h"

namespace {

/// Connects to @p listener, exchanges data, closes.
void connect_and_use(Listener& listener, const std::string& from, const std::string& to) {
  Endpoint a, b;
  Options options;
  connect_pair(a, b, listener, from, to, options, options);
  Region source(a.pd, 3000), sink(b.pd, 3000);
  source.fill(1);
  b.recv(1, {sink.sge()});
  a.send({.wr_id = 1, .sges = {source.sge()}});
  expect_wc(a.send_cq, 1);
  expect_wc(b.recv_cq, 1);
  sink.check(1, 0, 3000);
  CHECK_CALL(rdma_disconnect(a.id));
  b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
}

/// Starts a connection to @p port of B's address and returns the event that ends the attempt.
CmEvent attempt(const std::string& to, uint16_t port, int timeout_ms) {
  Endpoint a;
  Options options;
  a.resolve(site_a().ip, to, port);
  a.create_qp(options);
  rdma_conn_param param = conn_param(options);
  CHECK_CALL(rdma_connect(a.id, &param));
  return a.events.wait(timeout_ms);
}

std::string ip_of(const sockaddr* address) {
  char text[INET_ADDRSTRLEN];
  inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof text);
  return text;
}

}  // namespace

CASE(resolve_device, "resolve/device-of-the-route", .core = true) {
  Endpoint a;
  a.resolve(site_a().ip, site_b().ip, 4000);
  CHECK(a.id->verbs != nullptr);
  CHECK(site_a().device == ibv_get_device_name(a.id->verbs->device));
  CHECK_EQ(a.id->port_num, 1);
  CHECK(ip_of(rdma_get_local_addr(a.id)) == site_a().ip);
  CHECK(ip_of(rdma_get_peer_addr(a.id)) == site_b().ip);
}

// A source without an address is bound to its port on all addresses, before anything is resolved. So an id that has the
// port at one address is in its way.
CASE(resolve_taken, "resolve/from-a-port-that-is-taken", .core = true) {
  Listener listener(site_b().ip);
  const auto error_of = [](const char* from, uint16_t port) {
    Endpoint a;
    a.id = a.events.create_id();
    sockaddr_in source = ipv4(from, port), sink = ipv4(site_b().ip, 4000);
    errno = 0;
    if (rdma_resolve_addr(a.id, reinterpret_cast<sockaddr*>(&source), reinterpret_cast<sockaddr*>(&sink), 5000) != 0)
      return errno;
    a.events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(port == 0 || rdma_get_src_port(a.id) == htons(port));
    return 0;
  };
  CHECK_EQ(error_of("0.0.0.0", listener.port()), EADDRNOTAVAIL);
  CHECK_EQ(error_of("0.0.0.0", 0), 0);
  CHECK_EQ(error_of(site_b().ip.c_str(), listener.port()), EADDRINUSE);
  Listener everywhere("0.0.0.0");
  CHECK_EQ(error_of("0.0.0.0", everywhere.port()), EADDRNOTAVAIL);
  CHECK_EQ(error_of(site_a().ip.c_str(), everywhere.port()), EADDRNOTAVAIL);
}

// An IPv4 address as an IPv6 one is no address of any interface, and nowhere to go: rdma_cm has no sockets of both
// families.
CASE(resolve_mapped, "resolve/IPv4-as-IPv6") {
  const auto mapped = [](const std::string& ip, uint16_t port) { return Address("::ffff:" + ip, port); };
  EventChannel events;
  rdma_cm_id* id = events.create_id();
  CHECK_EQ(rdma_bind_addr(id, mapped(site_b().ip, 0).get()), -1);
  CHECK_EQ(errno, EADDRNOTAVAIL);
  CHECK_EQ(rdma_resolve_addr(id, mapped(site_a().ip, 0).get(), mapped(site_b().ip, 4000).get(), 2000), -1);
  CHECK_EQ(errno, EADDRNOTAVAIL);
  // The call fails, or, where a default route of IPv6 takes it, the event tells.
  if (rdma_resolve_addr(id, nullptr, mapped(site_b().ip, 4000).get(), 2000) == 0)
    events.expect(RDMA_CM_EVENT_ADDR_ERROR);
  else
    CHECK_EQ(errno, ENETUNREACH);
  CHECK_CALL(rdma_destroy_id(id));
}

CASE(listen_address, "listen/on-an-address", .core = true) {
  Listener listener(site_b().ip);
  CHECK(listener.port() != 0);
  connect_and_use(listener, site_a().ip, site_b().ip);
  connect_and_use(listener, site_a().ip, site_b().ip);
}

CASE(listen_any, "listen/on-0.0.0.0", .core = true) {
  Listener listener("0.0.0.0");
  connect_and_use(listener, site_a().ip, site_b().ip);
  // And the other way round: it listens on every device.
  connect_and_use(listener, site_b().ip, site_a().ip);
}

CASE(listen_port, "listen/port-is-taken", .core = true) {
  auto first = std::make_unique<Listener>(site_b().ip);
  const uint16_t port = first->port();
  bool refused = false;
  try {
    Listener second(site_b().ip, 8, port);
  } catch (const tap::Failure&) {
    refused = true;
  }
  CHECK(refused);
  connect_and_use(*first, site_a().ip, site_b().ip);
  first.reset();
  Listener again(site_b().ip, 8, port);  // free again at once
  connect_and_use(again, site_a().ip, site_b().ip);
}

// The same host, by its own address: both ends on one device.
CASE(same_host, "connect/to-the-own-address", .core = true) {
  for (const Site& site : {site_a(), site_b()}) {
    Listener listener(site.ip);
    connect_and_use(listener, site.ip, site.ip);
  }
}

CASE(closed_port, "connect/closed-port-is-REJECTED", .core = true) {
  uint16_t port;
  { port = Listener(site_b().ip).port(); }
  for (int i = 0; i < 3; ++i) {
    const CmEvent event = attempt(site_b().ip, port, kWaitMs);
    if (event.type != RDMA_CM_EVENT_REJECTED) FAIL("%s (status %d)", rdma_event_str(event.type), event.status);
    CHECK_EQ(event.status, rejected_by_nobody());
  }
}

// No answer comes from SILENT_IP (the test driver sees to that): UNREACHABLE in bounded time.
CASE(silent_host, "connect/silent-host-is-UNREACHABLE", .seconds = 60) {
  const char* silent = std::getenv("SILENT_IP");
  if (!silent) FAIL("SILENT_IP is not set: an address routed to the wire that nobody has");
  const uint64_t start = tap::now_ms();
  const CmEvent event = attempt(silent, 4000, 2 * kWaitMs);
  const uint64_t took = tap::now_ms() - start;
  if (event.type != RDMA_CM_EVENT_UNREACHABLE) FAIL("%s (status %d)", rdma_event_str(event.type), event.status);
  CHECK_EQ(event.status, -ETIMEDOUT);
  if (took > 15000 * tap::patience()) FAIL("it took %llu ms", static_cast<unsigned long long>(took));
}

// Giving up while the peer is silent, or while it has not decided, leaves nothing and takes no time.
CASE(abandon, "connect/abandoned", .seconds = 60, .core = true) {
  Listener listener(site_b().ip);
  for (int kind = 0; kind < 2; ++kind) {
    auto a = std::make_unique<Endpoint>();
    Options options;
    a->resolve(site_a().ip, site_b().ip, listener.port());
    a->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(a->id, &param));
    Endpoint b;
    if (kind) b.adopt(listener.wait_request().id);
    const uint64_t start = tap::now_ms();
    a->destroy();
    if (tap::now_ms() - start > 10000 * tap::patience())
      FAIL("destroying took %llu ms", static_cast<unsigned long long>(tap::now_ms() - start));
    if (kind) {
      b.create_qp(options);
      // Accepting a connection that has gone fails now or later, but does not hang.
      if (rdma_accept(b.id, &param) == 0) {
        const CmEvent event = b.events.wait(40000);
        if (event.type == RDMA_CM_EVENT_ESTABLISHED) b.events.expect(RDMA_CM_EVENT_DISCONNECTED, 40000);
      }
    } else if (listener.events().ready(1000)) {
      const CmEvent event = listener.events().wait();
      if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        Endpoint late;
        late.adopt(event.id);
      }
    }
  }
  connect_and_use(listener, site_a().ip, site_b().ip);
}

// The accepting end posts as soon as rdma_accept() has returned, long before ESTABLISHED (Ceph's messenger sends its
// banner there).
CASE(post_after_accept, "connect/post-right-after-accept", .seconds = 60, .core = true) {
  Options options;
  options.send_ops = IBV_QP_EX_WITH_SEND;
  rdma_conn_param param = conn_param(options);
  for (int round = 0; round < 20; ++round) {
    Endpoint a, b;
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp({});
    Region at_a(a.pd, 64), at_b(pd_b(), 64);
    for (uint64_t i = 0; i < 3; ++i) a.recv(i, {at_a.sge()});
    CHECK_EQ(a.try_send({.wr_id = 1, .sges = {at_a.sge()}}), EINVAL);
    CHECK_CALL(rdma_connect(a.id, &param));
    b.adopt(shared_listener().wait_request().id);
    b.create_qp(options);
    CHECK_EQ(b.try_send({.wr_id = 1, .sges = {at_b.sge()}}), EINVAL);
    at_b.fill(static_cast<uint64_t>(round));
    CHECK_CALL(rdma_accept(b.id, &param));
    CHECK_EQ(b.try_send({.wr_id = 1, .sges = {at_b.sge()}}), 0);
    ibv_qp_ex* const ex = ibv_qp_to_qp_ex(b.qp);
    ibv_wr_start(ex);
    ex->wr_id = 2;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(ex);
    ibv_wr_set_sge(ex, at_b.lkey(), at_b.addr(), 64);
    CHECK_EQ(ibv_wr_complete(ex), 0);
    expect_wc(b.send_cq, 1);
    expect_wc(b.send_cq, 2);
    for (uint64_t i = 0; i < 2; ++i) expect_wc(a.recv_cq, i);
    at_a.check(static_cast<uint64_t>(round), 0, 64);
    a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}

namespace {

/// Fails unless the SEND that @p end has posted is flushed. Its QP may then be connected once more, and starts anew.
void expect_flushed(Endpoint& end, const Region& source) {
  const ibv_wc wc = wait_wc(end.send_cq, 40000);
  CHECK_EQ(wc.wr_id, 1);
  CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  CHECK_EQ(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE), 0);
  CHECK_EQ(end.try_send({.wr_id = 2, .sges = {source.sge()}}), EINVAL);
}

}  // namespace

// The peer has gone when its request is accepted. If its RESET has come, rdma_accept() fails. Then librdmacm puts the
// QP into ERROR, or has not touched it, and nothing can be posted. In all other cases what is posted is flushed.
CASE(post_after_vain_accept, "connect/post-after-an-accept-in-vain", .seconds = 60, .core = true) {
  const Options options;
  rdma_conn_param param = conn_param(options);
  Listener listener(site_b().ip);
  auto a = std::make_unique<Endpoint>();
  a->resolve(site_a().ip, site_b().ip, listener.port());
  a->create_qp(options);
  CHECK_CALL(rdma_connect(a->id, &param));
  Endpoint b;
  b.adopt(listener.wait_request().id);
  b.create_qp(options);
  Region at_b(b.pd, 64);
  a->destroy();
  const bool accepted = rdma_accept(b.id, &param) == 0;
  const int rc = b.try_send({.wr_id = 1, .sges = {at_b.sge()}});
  if (!accepted && b.state() != IBV_QPS_ERR) {
    CHECK_EQ(rc, EINVAL);
    return;
  }
  CHECK_EQ(rc, 0);
  expect_flushed(b, at_b);
}

// The peer answers ACCEPT by RESET. It is a UDP socket of the test, which sends nothing before: so rdma_accept()
// succeeds, and what is posted then is always flushed.
CASE(post_before_reset, "connect/post-after-an-accept-that-is-reset", .seconds = 60, .core = true) {
  constexpr uint32_t kIsn = 1000;
  const Options options;
  rdma_conn_param param = conn_param(options);
  Listener listener(site_b().ip);
  const sockaddr_in from = ipv4(site_a().ip, 0), to = ipv4(site_b().ip, listener.port());
  const int peer = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  CHECK(peer >= 0);
  const timeval limit = {10 * static_cast<int>(tap::patience()), 0};
  CHECK_CALL(setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
  CHECK_CALL(bind(peer, reinterpret_cast<const sockaddr*>(&from), sizeof from));
  CHECK_CALL(::connect(peer, reinterpret_cast<const sockaddr*>(&to), sizeof to));
  const auto say = [&](const hostile::Bytes& bytes) {
    CHECK_EQ(::send(peer, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  };
  say(hostile::trp(kIsn, 0, USIW_TRP_REQ, 0, 0, 0, hostile::request(USIW_WIRE_VERSION, 0, 8, 8, 1500, 256, 0, {})));
  Endpoint b;
  b.adopt(listener.wait_request().id);
  b.create_qp(options);
  Region at_b(b.pd, 64);
  CHECK_CALL(rdma_accept(b.id, &param));
  CHECK_EQ(b.try_send({.wr_id = 1, .sges = {at_b.sge()}}), 0);
  usiw_trp_hdr answer = {};
  while (ntohs(answer.opflags) >> USIW_TRP_OPCODE_SHIFT != USIW_TRP_ACCEPT)
    if (recv(peer, &answer, sizeof answer, MSG_TRUNC) < static_cast<ssize_t>(sizeof answer)) FAIL("no ACCEPT");
  say(hostile::trp(kIsn, ntohl(answer.psn), USIW_TRP_RESET, 0, 0, 0));
  const uint64_t start = tap::now_ms();
  expect_flushed(b, at_b);
  // By the RESET, that is; without CONFIRM the attempt would be over after 12.7 s.
  if (tap::now_ms() - start > 5000 * tap::patience()) FAIL("the RESET did not end it");
  close(peer);
}

// A peer that takes its time: the initiator waits.
CASE(slow_accept, "connect/accepted-after-3-s", .seconds = 60) {
  Endpoint a, b;
  Options options;
  a.resolve(site_a().ip, site_b().ip, shared_listener().port());
  a.create_qp(options);
  rdma_conn_param param = conn_param(options);
  CHECK_CALL(rdma_connect(a.id, &param));
  b.adopt(shared_listener().wait_request().id);
  usleep(3000000);
  CHECK(!a.events.ready(0));
  CHECK(!shared_listener().events().ready(0));  // no second request for the same attempt
  b.create_qp(options);
  CHECK_CALL(rdma_accept(b.id, &param));
  a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

// READ depths: each end sees the other's and uses what both can.
CASE(ird_ord, "connect/ird-and-ord", .core = true) {
  struct Depths {
    uint8_t a_ird, a_ord, b_ird, b_ord;
  };
  for (const Depths& d : {Depths{8, 4, 8, 4}, Depths{2, 3, 16, 1}, Depths{16, 1, 1, 16}, Depths{1, 1, 1, 1}}) {
    Endpoint a, b;
    Options of_a, of_b;
    of_a.ird = d.a_ird, of_a.ord = d.a_ord, of_b.ird = d.b_ird, of_b.ord = d.b_ord;
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp(of_a);
    rdma_conn_param param = conn_param(of_a);
    CHECK_CALL(rdma_connect(a.id, &param));
    const CmEvent request = shared_listener().wait_request();
    // rdma_get_cm_event(3): what this side may use at most, i.e. the peer's values crossed over.
    CHECK_EQ(request.responder_resources, d.a_ord);
    CHECK_EQ(request.initiator_depth, d.a_ird);
    b.adopt(request.id);
    b.create_qp(of_b);
    of_b.ord = std::min(d.b_ord, d.a_ird);
    of_b.ird = std::max(d.b_ird, d.a_ord);
    param = conn_param(of_b);
    CHECK_CALL(rdma_accept(b.id, &param));
    const CmEvent established = a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    if (established.initiator_depth > of_b.ird || established.initiator_depth < 1)
      FAIL("initiator depth %u with %u READs accepted", established.initiator_depth, of_b.ird);
    if (established.responder_resources < of_b.ord)
      FAIL("responder resources %u with %u READs wanted", established.responder_resources, of_b.ord);
    // Both ends can READ with it, many at a time.
    Region at_a(a.pd, 16000), at_b(b.pd, 16000);
    at_b.fill(1);
    for (uint64_t i = 0; i < 16; ++i)
      a.send({.wr_id = i,
              .opcode = IBV_WR_RDMA_READ,
              .sges = {at_a.sge(i * 1000, 1000)},
              .remote_addr = at_b.addr() + i * 1000,
              .rkey = at_b.rkey()});
    for (uint64_t i = 0; i < 16; ++i) expect_wc(a.send_cq, i);
    at_a.check(1, 0, 16000);
    at_a.fill(2);
    for (uint64_t i = 0; i < 16; ++i)
      b.send({.wr_id = i,
              .opcode = IBV_WR_RDMA_READ,
              .sges = {at_b.sge(i * 1000, 1000)},
              .remote_addr = at_a.addr() + i * 1000,
              .rkey = at_a.rkey()});
    for (uint64_t i = 0; i < 16; ++i) expect_wc(b.send_cq, i);
    at_b.check(2, 0, 16000);
  }
}

// A server that is too slow to take its requests holds a backlog of them and loses none.
CASE(backlog, "listen/backlog", .seconds = 60) {
  Listener listener(site_b().ip, 4);
  constexpr int kClients = 4;
  Options options;
  std::vector<std::unique_ptr<Endpoint>> clients, servers;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    clients.back()->resolve(site_a().ip, site_b().ip, listener.port());
    clients.back()->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(clients.back()->id, &param));
  }
  usleep(500000);
  for (int i = 0; i < kClients; ++i) {
    servers.push_back(std::make_unique<Endpoint>());
    servers.back()->adopt(listener.wait_request().id);
    servers.back()->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_accept(servers.back()->id, &param));
  }
  for (auto& c : clients) c->events.expect(RDMA_CM_EVENT_ESTABLISHED);
  for (auto& s : servers) s->events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

// Far more clients than the backlog holds: each gets an answer, ESTABLISHED or a refusal, none waits for ever.
CASE(backlog_full, "listen/more-than-the-backlog", .seconds = 90) {
  Listener listener(site_b().ip, 2);
  constexpr int kClients = 12;
  Options options;
  std::vector<std::unique_ptr<Endpoint>> clients, servers;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    clients.back()->resolve(site_a().ip, site_b().ip, listener.port());
    clients.back()->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(clients.back()->id, &param));
  }
  while (listener.events().ready(2000)) {
    const CmEvent request = listener.wait_request();
    servers.push_back(std::make_unique<Endpoint>());
    servers.back()->adopt(request.id);
    servers.back()->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_accept(servers.back()->id, &param));
  }
  size_t established = 0;
  for (auto& c : clients) {
    const CmEvent event = c->events.wait(2 * kWaitMs);
    if (event.type == RDMA_CM_EVENT_ESTABLISHED) ++established;
    else if (event.type != RDMA_CM_EVENT_REJECTED && event.type != RDMA_CM_EVENT_UNREACHABLE)
      FAIL("%s (status %d)", rdma_event_str(event.type), event.status);
  }
  CHECK(established >= 2);
  CHECK_EQ(established, servers.size());
  tap::note("%zu of %d clients were connected with a backlog of 2", established, kClients);
}
