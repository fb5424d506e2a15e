// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The backlog: how many requests wait for the program, and what becomes of the others.
#include <climits>

#include "cm_tools.h"

namespace {

using Endpoints = std::vector<std::unique_ptr<Endpoint>>;

/// @p count clients that have asked.
Endpoints ask(Listener& listener, int count) {
  Endpoints clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<Endpoint>());
    const Address from(site_a().ip, 0);
    resolve(*clients.back(), &from, Address(site_b().ip, listener.port()));
    clients.back()->create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_connect(clients.back()->id, &param));
  }
  return clients;
}

/// Takes the requests that are there, until none comes for @p ms.
void take(Listener& listener, Endpoints& servers, int ms) {
  while (listener.events().ready(ms)) {
    servers.push_back(std::make_unique<Endpoint>());
    servers.back()->adopt(listener.wait_request().id);
  }
}

void accept(Endpoint& server) {
  server.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_accept(server.id, &param));
  server.events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

}  // namespace

// As many as the backlog says are with the program; the others wait, and come as it answers. Nobody is refused
// meanwhile.
CASE(backlog_exact, "backlog/exactly-as-many-as-asked", .seconds = 90) {
  constexpr size_t kBacklog = 3, kClients = 7;
  Listener listener(site_b().ip, kBacklog);
  const Endpoints clients = ask(listener, kClients);
  Endpoints servers;
  take(listener, servers, 1500);
  CHECK_EQ(servers.size(), kBacklog);
  size_t accepted = 0;
  for (; accepted < kClients; ++accepted) {
    if (accepted + kBacklog <= kClients) CHECK_EQ(servers.size(), accepted + kBacklog);
    accept(*servers.at(accepted));
    const size_t wanted = std::min(accepted + 1 + kBacklog, kClients);
    while (servers.size() < wanted) {
      servers.push_back(std::make_unique<Endpoint>());
      servers.back()->adopt(listener.wait_request().id);
    }
    CHECK(!listener.events().ready(200));
  }
  for (const auto& c : clients) c->events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

// A place is free again when the request is refused, or has been given up by who asked.
CASE(backlog_again, "backlog/refused-and-given-up", .seconds = 60) {
  Listener listener(site_b().ip, 1);
  Endpoints clients = ask(listener, 3), servers;
  take(listener, servers, 1000);
  CHECK_EQ(servers.size(), 1);
  CHECK_CALL(rdma_reject(servers[0]->id, nullptr, 0));
  take(listener, servers, 2000);
  CHECK_EQ(servers.size(), 2);
  servers[1]->destroy();  // which refuses it
  take(listener, servers, 2000);
  CHECK_EQ(servers.size(), 3);
  accept(*servers[2]);
  size_t established = 0, rejected = 0;
  for (const auto& c : clients) {
    const CmEvent event = c->events.wait();
    established += event.type == RDMA_CM_EVENT_ESTABLISHED;
    rejected += event.type == RDMA_CM_EVENT_REJECTED;
  }
  CHECK_EQ(established, 1);
  CHECK_EQ(rejected, 2);
}

// 0 and what is more than the system's limit mean that limit (net.rdma_ucm.max_backlog, 1024).
CASE(backlog_odd, "backlog/none-negative-and-huge", .seconds = 90) {
  for (int backlog : {0, -1, INT_MAX}) {
    Listener listener(site_b().ip, backlog);
    constexpr size_t kClients = 12;
    const Endpoints clients = ask(listener, kClients);
    Endpoints servers;
    while (servers.size() < kClients) {
      servers.push_back(std::make_unique<Endpoint>());
      servers.back()->adopt(listener.wait_request().id);
    }
    for (const auto& s : servers) accept(*s);
    for (const auto& c : clients) c->events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}
