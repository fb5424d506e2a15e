// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// rdma_set_option(3): what each does, and what is refused with which errno.
#include <infiniband/sa.h>

#include "cm_tools.h"

namespace {

/// The errno value of rdma_set_option(); 0: it was taken.
int set_option(rdma_cm_id* id, int level, int name, const void* value, size_t length) {
  return rdma_set_option(id, level, name, const_cast<void*>(value), length) ? errno : 0;
}

int set_flag(rdma_cm_id* id, int name, int value) { return set_option(id, RDMA_OPTION_ID, name, &value, sizeof value); }

int try_bind(rdma_cm_id* id, const std::string& ip, uint16_t port) {
  return rdma_bind_addr(id, Address(ip, port).get()) ? errno : 0;
}

/// An id that is destroyed with this.
class Id {
 public:
  explicit Id(EventChannel& events) : id_(events.create_id()) {}
  ~Id() { rdma_destroy_id(id_); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator rdma_cm_id*() const { return id_; }
  uint16_t port() const { return ntohs(rdma_get_src_port(id_)); }

 private:
  rdma_cm_id* id_;
};

/// The listener that gets a client's request to @p to, which is refused. Null: nobody listens there.
rdma_cm_id* ask(EventChannel& listeners, Endpoint& client, const Address& to) {
  resolve(client, nullptr, to);
  client.create_qp({});
  rdma_conn_param param = conn_param({});
  CHECK_CALL(rdma_connect(client.id, &param));
  wait_until("a request or a refusal", [&] { return listeners.ready(0) || client.events.ready(0); });
  if (client.events.ready(0)) {
    client.events.expect(RDMA_CM_EVENT_REJECTED);
    return nullptr;
  }
  rdma_cm_event* event;
  CHECK_CALL(rdma_get_cm_event(listeners.get(), &event));
  CHECK_EQ(event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const listener = event->listen_id;
  rdma_cm_id* const request = event->id;
  CHECK_CALL(rdma_ack_cm_event(event));
  CHECK_CALL(rdma_reject(request, nullptr, 0));
  CHECK_CALL(rdma_destroy_id(request));
  client.events.expect(RDMA_CM_EVENT_REJECTED);
  return listener;
}

}  // namespace

CASE(option_lengths, "option/lengths-and-names", .core = true) {
  EventChannel events;
  Id id(events);
  const uint64_t zero[2] = {};
  for (int name : {RDMA_OPTION_ID_TOS, RDMA_OPTION_ID_ACK_TIMEOUT}) {
    CHECK_EQ(set_option(id, RDMA_OPTION_ID, name, zero, 1), 0);
    for (size_t length : {0, 2, 4}) CHECK_EQ(set_option(id, RDMA_OPTION_ID, name, zero, length), EINVAL);
  }
  for (int name : {RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_AFONLY}) {
    CHECK_EQ(set_option(id, RDMA_OPTION_ID, name, zero, sizeof(int)), 0);
    for (size_t length : {0, 1, 8}) CHECK_EQ(set_option(id, RDMA_OPTION_ID, name, zero, length), EINVAL);
  }
  for (int name : {4, 77, -1}) CHECK_EQ(set_option(id, RDMA_OPTION_ID, name, zero, 4), ENOSYS);
  for (int name : {0, 2, -1}) CHECK_EQ(set_option(id, RDMA_OPTION_IB, name, zero, 4), ENOSYS);
  for (int level : {2, 77, -1}) CHECK_EQ(set_option(id, level, RDMA_OPTION_ID_TOS, zero, 1), ENOSYS);
}

// A path of InfiniBand's is none for an id without a device; nor is what is no record of a path.
CASE(option_path, "option/infiniband-path-is-refused") {
  EventChannel events;
  Id id(events);
  ibv_path_data path = {};
  path.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  CHECK_EQ(set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path), EINVAL);
  CHECK_EQ(set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 0), EINVAL);
  CHECK_EQ(set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path - 1), EINVAL);
  path.flags = 0;
  CHECK_EQ(set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof path), EINVAL);
}

CASE(option_reuse, "option/reuse-address", .core = true) {
  EventChannel events;
  Id first(events), second(events), third(events), fourth(events);
  CHECK_EQ(set_flag(first, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  CHECK_EQ(try_bind(first, site_b().ip, 0), 0);
    CHECK_EQ(try_bind(second, site_b().ip, first.port()), EADDRINUSE);  // one side alone is not enough
  CHECK_EQ(set_flag(second, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  CHECK_EQ(try_bind(second, site_b().ip, first.port()), 0);
  CHECK_EQ(second.port(), first.port());
  CHECK_EQ(set_flag(second, RDMA_OPTION_ID_REUSEADDR, 0), EINVAL);  // it is bound
  // Two may be bound to one address; but where two are bound nobody listens.
  CHECK_EQ(rdma_listen(first, 1), -1);
  CHECK_EQ(errno, EADDRINUSE);
  // On all addresses it would be beside both.
  CHECK_EQ(try_bind(third, "0.0.0.0", first.port()), EADDRNOTAVAIL);
  // Of an id that listens the port is nobody else's, whatever it has said before.
  CHECK_EQ(set_flag(fourth, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  CHECK_EQ(try_bind(fourth, site_b().ip, 0), 0);
  CHECK_CALL(rdma_listen(fourth, 1));
  CHECK_EQ(set_flag(third, RDMA_OPTION_ID_REUSEADDR, 1), 0);
  CHECK_EQ(try_bind(third, site_b().ip, fourth.port()), EADDRINUSE);
  CHECK_EQ(set_flag(fourth, RDMA_OPTION_ID_REUSEADDR, 1), EINVAL);  // it listens
}

// A client's port for several connections, to different listeners; to one of them it has one at a time.
CASE(option_reuse_connect, "option/reuse-address-to-connect-twice") {
  Listener one(site_b().ip), two(site_b().ip);
  Endpoint clients[2], servers[2];
  uint16_t port = 0;
  for (int i = 0; i < 2; ++i) {
    Endpoint& c = clients[i];
    c.id = c.events.create_id();
    CHECK_EQ(set_flag(c.id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    CHECK_EQ(try_bind(c.id, site_a().ip, port), 0);
    port = ntohs(rdma_get_src_port(c.id));
    Listener& listener = i ? two : one;
    resolve(c, nullptr, Address(site_b().ip, listener.port()));
    c.create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_connect(c.id, &param));
    servers[i].adopt(listener.wait_request().id);
    CHECK_EQ(ntohs(rdma_get_dst_port(servers[i].id)), port);
    servers[i].create_qp({});
    CHECK_CALL(rdma_accept(servers[i].id, &param));
    c.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    servers[i].events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
  {
    Endpoint again;
    again.id = again.events.create_id();
    CHECK_EQ(set_flag(again.id, RDMA_OPTION_ID_REUSEADDR, 1), 0);
    CHECK_EQ(try_bind(again.id, site_a().ip, port), 0);
    resolve(again, nullptr, Address(site_b().ip, one.port()));
    again.create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_EQ(rdma_connect(again.id, &param), -1);
    CHECK_EQ(errno, EADDRINUSE);
  }
  for (int i = 0; i < 2; ++i) {
    Region source(clients[i].pd, 100), sink(servers[i].pd, 100);
    source.fill(7 + i);
    servers[i].recv(1, {sink.sge()});
    clients[i].send({.wr_id = 2, .sges = {source.sge()}});
    expect_wc(servers[i].recv_cq, 1);
    expect_wc(clients[i].send_cq, 2);
    sink.check(7 + i, 0, 100);
  }
}

CASE(option_family, "option/address-family-only", .core = true) {
  EventChannel events;
  Id six(events);
  CHECK_EQ(set_flag(six, RDMA_OPTION_ID_AFONLY, 1), 0);
  CHECK_EQ(try_bind(six, "::", 0), 0);
  const uint16_t port = six.port();
  const Address to4(site_b().ip, port), to6(ip6_of("B"), port);
  CHECK_CALL(rdma_listen(six, 4));
  CHECK_EQ(set_flag(six, RDMA_OPTION_ID_AFONLY, 0), EINVAL);  // it listens
  {
    // IPv4 is nobody's yet.
    Endpoint client, other;
    CHECK(ask(events, client, to4) == nullptr);
    CHECK(ask(events, other, to6) == six);
  }
  Id four(events);
  CHECK_EQ(try_bind(four, "0.0.0.0", port), 0);
  CHECK_CALL(rdma_listen(four, 4));
  for (int round = 0; round < 3; ++round) {
    Endpoint client, other;
    CHECK(ask(events, client, to4) == four);
    CHECK(ask(events, other, to6) == six);
  }
}

// A program that tries one address after another.
CASE(option_family_after_a_try, "option/both-families-after-a-try-at-ipv4") {
  EventChannel events;
  Id taken(events), id(events);
  CHECK_EQ(try_bind(taken, site_b().ip, 0), 0);
  CHECK_EQ(try_bind(id, site_b().ip, taken.port()), EADDRINUSE);
  CHECK_EQ(try_bind(id, "::", 0), 0);
  CHECK_CALL(rdma_listen(id, 4));
  Endpoint client;
  CHECK(ask(events, client, Address(site_b().ip, id.port())) == id);
}

// Without the option an IPv6 wildcard is one of IPv4, too (as long as net.ipv6.bindv6only is 0).
CASE(option_both_families, "option/both-families") {
  EventChannel events;
  Id both(events), four(events);
  CHECK_EQ(try_bind(both, "::", 0), 0);
  CHECK_CALL(rdma_listen(both, 4));
  const Address to4(site_b().ip, both.port()), to6(ip6_of("B"), both.port());
  CHECK_EQ(try_bind(four, "0.0.0.0", both.port()), EADDRNOTAVAIL);
  Endpoint client, other;
  CHECK(ask(events, client, to4) == both);
  CHECK(ask(events, other, to6) == both);
}

// Of use to a transport whose time-outs are the user's; the connection is as any other.
CASE(option_ack, "option/ack-timeout") {
  EventChannel events;
  for (uint8_t value : {0, 1, 14, 31, 255}) {
    Endpoint a, b;
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    CHECK_EQ(set_option(a.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 1), 0);
    a.create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_connect(a.id, &param));
    b.adopt(shared_listener().wait_request().id);
    CHECK_EQ(set_option(b.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &value, 1), 0);
    b.create_qp({});
    CHECK_CALL(rdma_accept(b.id, &param));
    a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
  }
}
