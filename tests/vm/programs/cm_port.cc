// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// One port of several ids of a process: each has its own connections, and they carry data.
#include "cm_tools.h"

namespace {

/// An id that listens; destroyed with this.
class Listening {
 public:
  Listening(const std::string& ip, uint16_t port) : id_(events.create_id()) {
    CHECK_CALL(rdma_bind_addr(id_, Address(ip, port).get()));
    CHECK_CALL(rdma_listen(id_, 8));
  }
  ~Listening() { rdma_destroy_id(id_); }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
  uint16_t port() const { return ntohs(rdma_get_src_port(id_)); }

  EventChannel events;

 private:
  rdma_cm_id* id_;
};

}  // namespace

CASE(port_addresses, "port/one-at-two-addresses", .core = true) {
  Listening at_a(site_a().ip, 0), at_b(site_b().ip, at_a.port());
  Endpoint clients[4], servers[4];
  for (int i = 0; i < 4; ++i) {
    Listening& listener = i % 2 ? at_b : at_a;
    resolve(clients[i], nullptr, Address(i % 2 ? site_b().ip : site_a().ip, listener.port()));
    connect(clients[i], servers[i], listener.events);
  }
  for (int i = 3; i >= 0; --i) greet(clients[i], servers[i]);
  // The last connection of one address leaves the other's alone.
  for (int i = 0; i < 4; i += 2) {
    clients[i].destroy();
    servers[i].destroy();
  }
  for (int i = 1; i < 4; i += 2) greet(clients[i], servers[i]);
}

// A listener on all addresses of both families, or one of each.
CASE(port_families, "port/one-of-both-families", .core = true) {
  Listening both("::", 0);
  Endpoint clients[4], servers[4];
  for (int i = 0; i < 4; ++i) {
    resolve(clients[i], nullptr, Address(i % 2 ? site_b().ip : ip6_of("B"), both.port()));
    connect(clients[i], servers[i], both.events);
  }
  for (int i = 0; i < 4; ++i) greet(clients[i], servers[i]);
}
