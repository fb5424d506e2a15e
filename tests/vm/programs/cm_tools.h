// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file cm_tools.h
/// Addresses of both families for the cases of rdma_cm.
#ifndef USIW_TESTS_CM_TOOLS_H
#define USIW_TESTS_CM_TOOLS_H

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstdlib>
#include <string>

#include "rig.h"

/// An address of text, IPv4 or IPv6, maybe with an interface: "fe80::1%va".
class Address {
 public:
  Address(const std::string& ip, uint16_t port) {
    const size_t percent = ip.find('%');
    const std::string plain = ip.substr(0, percent);
    if (inet_pton(AF_INET, plain.c_str(), &in_.sin_addr) == 1) {
      in_.sin_family = AF_INET;
      in_.sin_port = htons(port);
      return;
    }
    in6_ = {};
    if (inet_pton(AF_INET6, plain.c_str(), &in6_.sin6_addr) != 1) FAIL("%s is no address", ip.c_str());
    in6_.sin6_family = AF_INET6;
    in6_.sin6_port = htons(port);
    if (percent != std::string::npos) in6_.sin6_scope_id = if_nametoindex(ip.c_str() + percent + 1);
  }
  /// rdma_cm's functions take what they do not change as non-const.
  sockaddr* get() const { return const_cast<sockaddr*>(&any_); }
  bool is_ipv6() const { return any_.sa_family == AF_INET6; }

 private:
  union {
    sockaddr_storage room_ = {};
    sockaddr any_;
    sockaddr_in in_;
    sockaddr_in6 in6_;
  };
};

/// A_IP6 or B_IP6.
inline std::string ip6_of(const char* end) {
  const char* const text = std::getenv((std::string(end) + "_IP6").c_str());
  if (!text || !*text) FAIL("%s_IP6 is not set (see scripts/vm)", end);
  return text;
}

/// Address and route, from @p from unless that is null; an id is made if there is none.
inline void resolve(Endpoint& e, const Address* from, const Address& to) {
  if (!e.id) e.id = e.events.create_id();
  CHECK_CALL(rdma_resolve_addr(e.id, from ? from->get() : nullptr, to.get(), 5000));
  e.events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_CALL(rdma_resolve_route(e.id, 5000));
  e.events.expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/// @p client, which has been resolved, connects to the listener at @p listener; @p server is the other end.
inline void connect(Endpoint& client, Endpoint& server, EventChannel& listener, const Options& options = {}) {
  if (!client.qp) client.create_qp(options);
  rdma_conn_param param = conn_param(options);
  CHECK_CALL(rdma_connect(client.id, &param));
  server.adopt(listener.expect(RDMA_CM_EVENT_CONNECT_REQUEST).id);
  server.create_qp(options);
  CHECK_CALL(rdma_accept(server.id, &param));
  client.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  server.events.expect(RDMA_CM_EVENT_ESTABLISHED);
}

/// A message each way, verified.
inline void greet(Endpoint& a, Endpoint& b, size_t length = 3000) {
  for (Endpoint* from : {&a, &b}) {
    Endpoint& to = from == &a ? b : a;
    Region source(from->pd, length), sink(to.pd, length);
    source.fill(length);
    to.recv(1, {sink.sge()});
    from->send({.wr_id = 2, .sges = {source.sge()}});
    expect_wc(to.recv_cq, 1);
    expect_wc(from->send_cq, 2);
    sink.check(length, 0, length);
  }
}

#endif  // USIW_TESTS_CM_TOOLS_H
