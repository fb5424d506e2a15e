// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Many connections, at once and one after another.
#include <sys/resource.h>

#include <cstdio>
#include <fstream>
#include <set>

#include "cm_tools.h"

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

namespace {

/// The number of IPv4 UDP sockets of this network namespace that are bound to the port.
int udp_sockets_at(uint16_t port) {
  std::ifstream sockets("/proc/net/udp");
  std::string line;
  int found = 0;
  while (std::getline(sockets, line)) {
    unsigned bound;
    if (std::sscanf(line.c_str(), "%*d: %*8[0-9A-F]:%4X", &bound) == 1 && bound == port) ++found;
  }
  return found;
}

/// Below those that clients get by themselves (net.ipv4.ip_local_port_range): none of 1,000 has the same by chance.
constexpr uint16_t kOwnPort = 20049;

}  // namespace

// 1,000 connections to one listener, all at a time. For each datagram UDP walks the sockets of a port, so their number
// must not grow with that of the connections. Data moves on the first connection and on the last.
CASE(at_one_port, "many/1000-at-one-port", .seconds = 240) {
  constexpr int kCount = 1000;
  rlimit descriptors;
  CHECK_CALL(getrlimit(RLIMIT_NOFILE, &descriptors));
  descriptors.rlim_cur = descriptors.rlim_max;
  CHECK_CALL(setrlimit(RLIMIT_NOFILE, &descriptors));
  Listener listener(site_b().ip, 128, kOwnPort);
  const auto cq_of = [](const Site& site) {
    ibv_cq* const cq = ibv_create_cq(context_of(site.device), 64, nullptr, nullptr, 0);
    if (!cq) FAIL("ibv_create_cq: %s", std::strerror(errno));
    return cq;
  };
  Options of_a, of_b;
  of_a.send_wr = of_a.recv_wr = of_b.send_wr = of_b.recv_wr = 4;
  of_a.cq = cq_of(site_a());
  of_b.cq = cq_of(site_b());
  std::vector<std::unique_ptr<Endpoint>> clients, servers;
  int sockets = 0;
  for (int i = 0; i < kCount; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    servers.push_back(std::make_unique<Endpoint>());
    connect_pair(*clients.back(), *servers.back(), listener, site_a().ip, site_b().ip, of_a, of_b);
    if (i == 0) {
      greet(*clients.back(), *servers.back());
      sockets = udp_sockets_at(listener.port());
    }
  }
  CHECK(sockets > 0);
  CHECK_EQ(udp_sockets_at(listener.port()), sockets);
  for (int round = 0; round < 3; ++round) {
    greet(*clients.front(), *servers.front());
    greet(*clients.back(), *servers.back());
  }
  clients.clear();
  servers.clear();
  CHECK_EQ(ibv_destroy_cq(of_a.cq), 0);
  CHECK_EQ(ibv_destroy_cq(of_b.cq), 0);
}
