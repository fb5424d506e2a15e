// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Many connections, at once and one after another.
#include <set>

#include "rig.h"

// 100 connections at once: all requested before the first is accepted, all used, all closed.
CASE(at_once, "many/100-at-once", .seconds = 120) {
  constexpr int kCount = 100;
  Listener listener(site_b().ip, kCount);
  Options options;
  options.send_wr = options.recv_wr = 4;
  std::vector<std::unique_ptr<Endpoint>> clients, servers;
  for (int i = 0; i < kCount; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    clients.back()->resolve(site_a().ip, site_b().ip, listener.port());
    clients.back()->create_qp(options);
  }
  for (auto& c : clients) {
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_connect(c->id, &param));
  }
  Region source(pd_a(), kCount * 100), sink(pd_b(), kCount * 100);
  source.fill(1);
  for (int i = 0; i < kCount; ++i) {
    servers.push_back(std::make_unique<Endpoint>());
    servers.back()->adopt(listener.wait_request().id);
    servers.back()->create_qp(options);
    rdma_conn_param param = conn_param(options);
    CHECK_CALL(rdma_accept(servers.back()->id, &param));
  }
  for (auto& c : clients) c->events.expect(RDMA_CM_EVENT_ESTABLISHED, 2 * kWaitMs);
  for (auto& s : servers) s->events.expect(RDMA_CM_EVENT_ESTABLISHED, 2 * kWaitMs);
  std::set<uint16_t> ports;
  for (auto& c : clients) ports.insert(rdma_get_src_port(c->id));
  CHECK_EQ(ports.size(), kCount);
  for (int i = 0; i < kCount; ++i) servers[i]->recv(i, {sink.sge(i * 100, 100)});
  for (int i = 0; i < kCount; ++i)
    clients[i]->send({.wr_id = static_cast<uint64_t>(i), .sges = {source.sge(i * 100, 100)}});
  for (int i = 0; i < kCount; ++i) expect_wc(clients[i]->send_cq, i);
  for (int i = 0; i < kCount; ++i) CHECK_EQ(wait_wc(servers[i]->recv_cq).status, IBV_WC_SUCCESS);
  for (auto& c : clients) CHECK_CALL(rdma_disconnect(c->id));
  for (auto& s : servers) s->events.expect(RDMA_CM_EVENT_DISCONNECTED, 2 * kWaitMs);
  for (auto& c : clients) c->events.expect(RDMA_CM_EVENT_DISCONNECTED, 2 * kWaitMs);
}

namespace {

void one_after_another(int count, const std::string& from, const std::string& to) {
  Listener listener(to);
  Options options;
  options.send_wr = options.recv_wr = 4;
  for (int i = 0; i < count; ++i) {
    Endpoint a, b;
    connect_pair(a, b, listener, from, to, options, options);
    if (i % 50 == 0) {
      Region source(a.pd, 100), sink(b.pd, 100);
      source.fill(i);
      b.recv(1, {sink.sge()});
      a.send({.wr_id = 1, .sges = {source.sge()}});
      expect_wc(b.recv_cq, 1);
      sink.check(i, 0, 100);
      expect_wc(a.send_cq, 1);
    }
    Endpoint& closer = i % 2 ? a : b;
    CHECK_CALL(rdma_disconnect(closer.id));
    a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  }
}

}  // namespace

CASE(sequential_50, "many/50-one-after-another", .seconds = 60, .core = true) {
  one_after_another(50, site_a().ip, site_b().ip);
}
CASE(sequential_1000, "many/1000-one-after-another", .seconds = 240) {
  one_after_another(1000, site_a().ip, site_b().ip);
}
CASE(sequential_local, "many/50-to-the-own-address", .seconds = 60) {
  one_after_another(50, site_a().ip, site_a().ip);
}
