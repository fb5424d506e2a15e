// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Endpoints that librdmacm makes by itself: rdma_getaddrinfo, rdma_create_ep, rdma_get_request, and synchronous ids.
#include <rdma/rdma_verbs.h>

#include <thread>

#include "by_verbs.h"
#include "cm_tools.h"

namespace {

/// What rdma_getaddrinfo() finds.
class Found {
 public:
  Found(const std::string& node, const std::string& service, int flags, int ps = RDMA_PS_TCP, int family = 0) {
    rdma_addrinfo hints = {};
    hints.ai_flags = flags;
    hints.ai_port_space = ps;
    hints.ai_family = family;
    error_ = rdma_getaddrinfo(node.c_str(), service.c_str(), &hints, &info_) ? errno : 0;
  }
  ~Found() {
    if (info_) rdma_freeaddrinfo(info_);
  }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
  rdma_addrinfo* get() const { return info_; }
  rdma_addrinfo* operator->() const { return info_; }
  bool found() const { return info_ != nullptr; }

 private:
  rdma_addrinfo* info_ = nullptr;
  int error_;
};

ibv_qp_init_attr qp_attr() {
  ibv_qp_init_attr attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  attr.cap = {8, 8, 1, 1, 16};
  return attr;
}

/// A synchronous endpoint, destroyed with this.
class Ep {
 public:
  Ep() = default;
  ~Ep() {
    if (id) rdma_destroy_ep(id);
  }
  Ep(const Ep&) = delete;
  Ep& operator=(const Ep&) = delete;
  void create(rdma_addrinfo* info, bool with_qp = true) {
    ibv_qp_init_attr attr = qp_attr();
    CHECK_CALL(rdma_create_ep(&id, info, nullptr, with_qp ? &attr : nullptr));
  }
  rdma_cm_id* id = nullptr;
};

/// What a thread has failed with is the case's failure.
class Client {
 public:
  explicit Client(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          try {
            body();
          } catch (const tap::Failure& failure) {
            failure_ = failure.what();
          }
        }) {}
  ~Client() {
    if (thread_.joinable()) thread_.join();
  }
  void join() {
    thread_.join();
    if (!failure_.empty()) FAIL("at the client: %s", failure_.c_str());
  }

 private:
  std::string failure_;
  std::thread thread_;
};

std::string port_of(rdma_cm_id* id) { return std::to_string(ntohs(rdma_get_src_port(id))); }

/// A message by librdmacm's own calls.
void receive_text(rdma_cm_id* id, const char* wanted) {
  char text[64] = {};
  ibv_mr* const mr = rdma_reg_msgs(id, text, sizeof text);
  if (!mr) FAIL("rdma_reg_msgs: %s", std::strerror(errno));
  CHECK_CALL(rdma_post_recv(id, nullptr, text, sizeof text, mr));
  ibv_wc wc = {};
  CHECK_EQ(rdma_get_recv_comp(id, &wc), 1);
  CHECK_EQ(wc.status, IBV_WC_SUCCESS);
  CHECK(std::string(text) == wanted);
  CHECK_EQ(rdma_dereg_mr(mr), 0);
}

void send_text(rdma_cm_id* id, std::string text) {
  CHECK_CALL(rdma_post_send(id, nullptr, text.data(), text.size(), nullptr, IBV_SEND_INLINE));
  ibv_wc wc = {};
  CHECK_EQ(rdma_get_send_comp(id, &wc), 1);
  CHECK_EQ(wc.status, IBV_WC_SUCCESS);
}

}  // namespace

CASE(ep_both, "ep/create-connect-and-get-request", .seconds = 60, .core = true) {
  for (int round = 0; round < 3; ++round) {
    Found here(site_b().ip, "0", RAI_PASSIVE | RAI_NUMERICHOST);
    CHECK(here.found());
    Ep listener;
    listener.create(here.get());
    CHECK_CALL(rdma_listen(listener.id, 4));
    const std::string port = port_of(listener.id);
    Client client([&] {
      Found there(site_b().ip, port, RAI_NUMERICHOST);
      CHECK(there.found());
      Ep ep;
      ep.create(there.get());
      CHECK(ep.id->qp != nullptr && ep.id->send_cq != nullptr && ep.id->pd != nullptr);
      CHECK_CALL(rdma_connect(ep.id, nullptr));
      send_text(ep.id, "from the client");
      receive_text(ep.id, "from the server");
      CHECK_CALL(rdma_disconnect(ep.id));
    });
    Ep server;
    CHECK_CALL(rdma_get_request(listener.id, &server.id));
    CHECK(server.id->qp != nullptr);  // as the listener was told
    CHECK(server.id->event != nullptr && server.id->event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK_CALL(rdma_accept(server.id, nullptr));
    receive_text(server.id, "from the client");
    send_text(server.id, "from the server");
    client.join();
    CHECK_CALL(rdma_disconnect(server.id));
  }
}

// Without a QP's attributes it is the program that makes the QP, before it accepts.
CASE(ep_own_qp, "ep/own-qp-of-a-request") {
  Found here(site_b().ip, "0", RAI_PASSIVE);
  Ep listener;
  listener.create(here.get(), false);
  CHECK_CALL(rdma_listen(listener.id, 4));
  const std::string port = port_of(listener.id);
  Client client([&] {
    Found there(site_b().ip, port, 0);
    Ep ep;
    ep.create(there.get());
    CHECK_CALL(rdma_connect(ep.id, nullptr));
    send_text(ep.id, "hello");
  });
  Ep server;
  CHECK_CALL(rdma_get_request(listener.id, &server.id));
  CHECK(server.id->qp == nullptr);
  ibv_qp_init_attr attr = qp_attr();
  CHECK_CALL(rdma_create_qp(server.id, nullptr, &attr));
  CHECK_CALL(rdma_accept(server.id, nullptr));
  receive_text(server.id, "hello");
  client.join();
}

// Synchronous calls return what asynchronous ones tell by an event.
CASE(ep_sync, "ep/synchronous-id", .core = true) {
  rdma_cm_id* id;
  CHECK_CALL(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP));
  uint16_t port;
  { port = Listener(site_b().ip).port(); }
  const Address from(site_a().ip, 0), to(site_b().ip, port), nobody("203.0.113.7", 0);
  CHECK_EQ(rdma_resolve_addr(id, nobody.get(), to.get(), 2000), -1);
  CHECK_EQ(errno, EADDRNOTAVAIL);
  CHECK_CALL(rdma_resolve_addr(id, from.get(), to.get(), 2000));
  CHECK_CALL(rdma_resolve_route(id, 2000));
  ibv_qp_init_attr attr = qp_attr();
  CHECK_CALL(rdma_create_qp(id, nullptr, &attr));
  rdma_conn_param param = conn_param({});
  CHECK_EQ(rdma_connect(id, &param), -1);
  CHECK_EQ(errno, ECONNREFUSED);
  rdma_destroy_qp(id);
  CHECK_CALL(rdma_destroy_id(id));
}

CASE(ep_info, "ep/getaddrinfo", .core = true) {
  {
    Found passive(site_b().ip, "7471", RAI_PASSIVE | RAI_NUMERICHOST);
    CHECK(passive.found());
    CHECK_EQ(passive->ai_family, AF_INET);
    CHECK_EQ(passive->ai_port_space, RDMA_PS_TCP);
    CHECK_EQ(passive->ai_qp_type, IBV_QPT_RC);
    CHECK(passive->ai_src_addr != nullptr);
    CHECK_EQ(passive->ai_src_len, sizeof(sockaddr_in));
    CHECK_EQ(ntohs(reinterpret_cast<sockaddr_in*>(passive->ai_src_addr)->sin_port), 7471);
  }
  {
    Found active(site_b().ip, "7471", RAI_NUMERICHOST | RAI_NOROUTE);
    CHECK(active.found());
    CHECK(active->ai_dst_addr != nullptr);
    CHECK_EQ(active->ai_dst_len, sizeof(sockaddr_in));
  }
  Found datagrams(site_b().ip, "7471", RAI_NUMERICHOST, RDMA_PS_UDP);
  CHECK(datagrams.found());
  CHECK_EQ(datagrams->ai_qp_type, IBV_QPT_UD);
  Found name("a.name.of.nobody.invalid", "7471", RAI_NUMERICHOST);
  CHECK(!name.found());
  Found six(ip6_of("B"), "7471", RAI_NUMERICHOST | RAI_FAMILY, RDMA_PS_TCP, AF_INET6);
  CHECK(six.found());
  CHECK_EQ(six->ai_family, AF_INET6);
  Found other_family(site_b().ip, "7471", RAI_NUMERICHOST | RAI_FAMILY, RDMA_PS_TCP, AF_INET6);
  CHECK(!other_family.found());
}

// Two requests, one refused by the listener's program with and one without words.
CASE(ep_reject, "ep/reject-with-reason", .core = true) {
  const char words[] = "no room";
  for (int kind = 0; kind < 3; ++kind) {
    Endpoint a;
    const Address from(site_a().ip, 0);
    resolve(a, &from, Address(site_b().ip, shared_listener().port()));
    a.create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_connect(a.id, &param));
    const CmEvent request = shared_listener().wait_request();
    if (kind == 0) CHECK_CALL(rdma_reject(request.id, words, sizeof words));
    if (kind == 1) CHECK_CALL(rdma_reject(request.id, nullptr, 0));
    if (kind == 2) CHECK_CALL(rdma_reject_ece(request.id, words, sizeof words));
    const CmEvent event = a.events.expect(RDMA_CM_EVENT_REJECTED);
    CHECK_EQ(event.status, rejected_by_program());
    CHECK_EQ(event.private_data.size(), kind == 1 ? 0 : sizeof words);
    if (kind != 1) CHECK(std::memcmp(event.private_data.data(), words, sizeof words) == 0);
    // What has been answered cannot be answered again.
    CHECK_EQ(rdma_reject(request.id, nullptr, 0), -1);
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(rdma_reject(a.id, nullptr, 0), -1);  // nor by who has asked
    CHECK_EQ(errno, EINVAL);
    CHECK_CALL(rdma_destroy_id(request.id));
  }
}

// Of InfiniBand: enhanced connections, notifications, multicast. Asked for, they do no harm.
CASE(ep_infiniband, "ep/of-infiniband-only", .core = true) {
  Pair pair;
  CHECK_CALL(rdma_notify(pair.a.id, IBV_EVENT_COMM_EST));
  CHECK_CALL(rdma_notify(pair.b.id, IBV_EVENT_COMM_EST));
  ibv_ece ece = {};
  CHECK_EQ(rdma_get_remote_ece(pair.a.id, &ece), -1);  // of a QP that librdmacm has made
  CHECK_EQ(errno, EINVAL);
  // The connection is established already: linux refuses it, usiw-run does nothing.
  if (rdma_establish(pair.a.id)) CHECK_EQ(errno, EINVAL);
  CHECK_EQ(rdma_join_multicast(pair.a.id, Address("224.1.2.3", 0).get(), nullptr), -1);
  CHECK_EQ(errno, EINVAL);
  exercise(pair);
  pair.close();
  EventChannel events;
  rdma_cm_id* const idle = events.create_id();
  CHECK_EQ(rdma_notify(idle, IBV_EVENT_COMM_EST), -1);
  CHECK_EQ(errno, EINVAL);
  CHECK_EQ(rdma_establish(idle), -1);
  CHECK_CALL(rdma_destroy_id(idle));
}

// Both families, and the device that an address or a route names.
CASE(ep_devices, "ep/device-by-address-and-by-route", .core = true) {
  for (const Site& site : {site_a(), site_b()}) {
    Endpoint bound, routed;
    bound.id = bound.events.create_id();
    uint16_t port;
    { port = Listener(site.ip).port(); }
    CHECK_CALL(rdma_bind_addr(bound.id, Address(site.ip, port).get()));
    CHECK(bound.id->verbs != nullptr);
    CHECK(site.device == ibv_get_device_name(bound.id->verbs->device));
    CHECK_EQ(ntohs(rdma_get_src_port(bound.id)), port);
    const auto* local = reinterpret_cast<const sockaddr_in*>(rdma_get_local_addr(bound.id));
    CHECK(local->sin_addr.s_addr == ipv4(site.ip, 0).sin_addr.s_addr);
    // Bound, and resolved from there.
    resolve(bound, nullptr, Address((site.ip == site_a().ip ? site_b() : site_a()).ip, 4000));
    CHECK(site.device == ibv_get_device_name(bound.id->verbs->device));
    CHECK_EQ(ntohs(rdma_get_dst_port(bound.id)), 4000);
  }
  Endpoint any;
  any.id = any.events.create_id();
  CHECK_CALL(rdma_bind_addr(any.id, Address("0.0.0.0", 0).get()));
  CHECK(any.id->verbs == nullptr);  // of no device
  CHECK(ntohs(rdma_get_src_port(any.id)) != 0);
}

CASE(ep_ipv6, "ep/ipv6", .core = true) {
  for (const std::string& where : {ip6_of("B"), std::string("::")}) {
    EventChannel events;
    rdma_cm_id* const listener = events.create_id();
    CHECK_CALL(rdma_bind_addr(listener, Address(where, 0).get()));
    CHECK_CALL(rdma_listen(listener, 4));
    {
      Endpoint client, server;
      const Address from(ip6_of("A"), 0);
      resolve(client, &from, Address(ip6_of("B"), ntohs(rdma_get_src_port(listener))));
      connect(client, server, events);
      for (size_t length : {1, 100, 100000}) greet(client, server, length);
      CHECK_EQ(rdma_get_peer_addr(server.id)->sa_family, AF_INET6);
      CHECK_EQ(rdma_get_dst_port(server.id), rdma_get_src_port(client.id));
    }
    CHECK_CALL(rdma_destroy_id(listener));
  }
}
