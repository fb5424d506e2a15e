// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_listen.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Listen : public Connected {
 protected:
  /// A REQ as a host at 198.51.100.N would send it.
  mock_datagram request(u8 host, u16 port = 9000) {
    usiw_cm_conn c{};
    mock_datagram d{};
    EXPECT_EQ(usiw_cm_init_active(&c, isn_ + host, 4, 4, 1500, 64, nullptr, 0), 0);
    usiw_cm_connect(&c, mock_now_us);
    d.from = ipv4("198.51.100.0");
    d.from.s6_addr[15] = host;
    d.from_port = cpu_to_be16(port);
    d.to = ipv4("192.0.2.2");
    d.to_port = cpu_to_be16(kPort);
    d.len = usiw_cm_build(&c, d.data);
    return d;
  }
  void arrive(u8 host, u16 port = 9000) {
    deliver(request(host, port));
    mock_run();
  }
  void arrive_all(u8 first, u8 last) {
    for (u8 host = first; host <= last; host++) arrive(host);
  }
  static void deliver(const mock_datagram& d) { mock_deliver(&d, 64); }
  /// The last byte of the address from which the latest request given to iw_cm came.
  u8 latest() const { return host_of(*listener.requests.back()); }
  static u8 host_of(const CmId& request) {
    const sockaddr_storage& ss = request.id.m_remote_addr;
    return ntohl(reinterpret_cast<const sockaddr_in*>(&ss)->sin_addr.s_addr) & 0xff;
  }
  usiw_listener* state() const { return static_cast<usiw_listener*>(listener.id.provider_data); }
  /// The backlog and all of the room for parked requests, with those of hosts 10 to 13 in the backlog.
  void fill() {
    arrive_all(10, 13);
    for (int i = 0; i < USIW_MAX_PARKED; i++) arrive(20, 9000 + i);
    ASSERT_EQ(listener.requests.size(), 4u);
    ASSERT_EQ(state()->nr_parked, unsigned{USIW_MAX_PARKED});
    drop_sent();
  }
  void drop_sent() {
    mock_datagram d;
    while (mock_take(&d)) {
    }
  }

 private:
  static inline u32 next_isn = 100;
  const u32 isn_ = next_isn += 1000;  ///< the module remembers requests, and is one for all tests
};

// iw_cm drops what it has not worked off; the peer's next REQ is for the next listener.
TEST_F(Listen, destroy__requests_hold_no_place) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  auto* old = static_cast<usiw_listener*>(listener.id.provider_data);
  kref_get(&old->kref);
  ASSERT_EQ(old->waiting, 1u);
  ASSERT_EQ(listener.id.device->ops->iw_destroy_listen(&listener.id), 0);
  mock_run();
  EXPECT_EQ(old->waiting, 0u);
  usiw_listener_put(old);
  // What has been given to a program can still be accepted.
  EXPECT_EQ(listener.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
}

// rdma_cm listens on all devices, those of other namespaces as well, also when one is added later by
// a process of any namespace.
TEST_F(Listen, create__another_netns_takes_nothing) {
  net other{.hash_mix = 9, .loopback_dev = nullptr};
  CmId foreign, own;
  foreign.user.route.addr.dev_addr.net = &other;
  const int before = mock_sockets;
  EXPECT_EQ(foreign.listen(server->device, ipv4("0.0.0.0"), 7300), 0);
  EXPECT_EQ(mock_sockets, before);
  EXPECT_EQ(own.listen(server->device, ipv4("0.0.0.0"), 7300), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), 7300), 0);
  settle({client.get(), server.get()});
  EXPECT_EQ(own.requests.size(), 1u);
  EXPECT_EQ(foreign.requests.size(), 0u);
}

TEST_F(Listen, create__port_in_use_here_does_not_concern_another_netns) {
  net other{.hash_mix = 9, .loopback_dev = nullptr};
  CmId foreign;
  foreign.user.route.addr.dev_addr.net = &other;
  mock_foreign_port = 7301;
  EXPECT_EQ(foreign.listen(server->device, ipv4("0.0.0.0"), 7301), 0);
}

TEST_F(Listen, return_slot__parked_request_gets_its_turn) {
  arrive_all(1, 6);
  EXPECT_EQ(listener.requests.size(), 4u);  // the backlog
  listener.requests[0]->reject();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 5u);
  drop_sent();
}

TEST_F(Listen, park__repetition_is_answered_and_not_counted_twice) {
  arrive_all(1, 5);
  drop_sent();
  arrive(5);
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.len, sizeof(usiw_trp_hdr));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_ACCEPT);
  EXPECT_FALSE(mock_take(&answer));
}

TEST_F(Listen, park__is_bounded) {
  for (int i = 0; i < USIW_MAX_PARKED + 100; i++) arrive(i & 0xff, 9000 + i / 256);
  EXPECT_EQ(state()->nr_parked, unsigned{USIW_MAX_PARKED});
  drop_sent();
}

// All but one were repeated, and that one makes room, wherever it is.
TEST_F(Listen, evict__new_request_takes_the_place_of_one_that_was_not_repeated) {
  fill();
  for (int i = 0; i < USIW_MAX_PARKED - 1; i++) arrive(20, 9000 + i);
  drop_sent();
  EXPECT_EQ(state()->nr_repeated, unsigned{USIW_MAX_PARKED - 1});
  for (u8 host = 100; host < 150; host++) {
    arrive(host);
    EXPECT_EQ(mock_sent(), 0u);
    EXPECT_EQ(state()->nr_repeated, unsigned{USIW_MAX_PARKED - 1});
  }
  arrive(149);  // it is there: so it is answered
  EXPECT_EQ(mock_sent(), 1u);
  EXPECT_EQ(state()->nr_repeated, unsigned{USIW_MAX_PARKED});
  EXPECT_EQ(state()->nr_parked, unsigned{USIW_MAX_PARKED});
  drop_sent();
}

TEST_F(Listen, evict__what_was_repeated_stays) {
  fill();
  for (int i = 0; i < USIW_MAX_PARKED; i++) arrive(20, 9000 + i);
  drop_sent();
  arrive(100);
  EXPECT_EQ(state()->nr_repeated, unsigned{USIW_MAX_PARKED});
  EXPECT_EQ(mock_sent(), 0u);
  mock_advance_ms(USIW_PARKED_MS + 1);
  arrive(101);
  EXPECT_EQ(state()->nr_repeated, unsigned{USIW_MAX_PARKED - 1});
  drop_sent();
}

// A flood drives it out before it is repeated; the repetition is known all the same, and gets the next place.
TEST_F(Listen, park__repetition_is_known_behind_a_flood) {
  fill();
  arrive(100);
  for (int i = 0; i < 4 * USIW_MAX_PARKED; i++) arrive(30 + i % 60, 10000 + i);
  drop_sent();
  arrive(100);
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_ACCEPT);
  for (int i = 0; i < 4 * USIW_MAX_PARKED; i++) arrive(30 + i % 60, 20000 + i);
  listener.requests[0]->reject();
  mock_run();
  ASSERT_EQ(listener.requests.size(), 5u);
  EXPECT_EQ(latest(), 100);
  drop_sent();
}

// What waits for the worker in front of it does not take the place.
TEST_F(Listen, return_slot__is_for_the_parked_one) {
  arrive_all(1, 5);
  for (u8 host = 6; host <= 20; host++) deliver(request(host));
  listener.requests[0]->reject();
  mock_run();
  ASSERT_EQ(listener.requests.size(), 5u);
  EXPECT_EQ(latest(), 5);
  EXPECT_EQ(state()->waiting, 4u);
  drop_sent();
}

// The one that was given the place has become a connection meanwhile: the next one gets it.
TEST_F(Listen, return_slot__goes_on_when_it_is_not_used) {
  arrive_all(1, 6);
  state()->backlog = 5;
  arrive(5);
  ASSERT_EQ(listener.requests.size(), 5u);  // by its repetition, and still parked
  state()->backlog = 4;
  listener.requests[0]->reject();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 6u);
  EXPECT_EQ(latest(), 6);
  drop_sent();
}

TEST_F(Listen, return_slot__listener_leaves_before_it_is_used) {
  arrive_all(1, 6);
  listener.requests[0]->reject();
  listener.destroy();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 4u);
  drop_sent();
}

TEST_F(Listen, park__old_requests_are_dropped) {
  arrive_all(1, 5);
  mock_advance_ms(USIW_PARKED_MS + 1);
  listener.requests[0]->reject();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 4u);
  drop_sent();
}

TEST_F(Listen, leave__parked_requests_are_freed) {
  arrive_all(1, 9);
  listener.destroy();
  drop_sent();
}

TEST_F(Listen, create__bad_addresses) {
  CmId other;
  EXPECT_EQ(other.listen(server->device, ipv4("192.0.2.2"), 0), -EINVAL);
  other.id.local_addr.ss_family = AF_UNIX;
  EXPECT_EQ(server->device->ops->iw_create_listen(&other.id, 1), -EAFNOSUPPORT);
}

TEST_F(Listen, create__port_is_taken) {
  CmId other;
  EXPECT_EQ(other.listen(server->device, ipv4("192.0.2.2"), kPort), -EADDRINUSE);
  mock_foreign_port = 7001;
  EXPECT_EQ(other.listen(server->device, ipv4("192.0.2.2"), 7001), -EADDRINUSE);
}

TEST_F(Listen, create__ipv6_wildcard_takes_ipv4) {
  CmId both, only;
  const in6_addr v4 = ipv4("192.0.2.1"), v6 = ipv6("2001:db8::1");
  ASSERT_EQ(both.listen(client->device, in6addr_any, 7100), 0);
  EXPECT_TRUE(mock_port_is_open(&v4, cpu_to_be16(7100)));
  EXPECT_TRUE(mock_port_is_open(&v6, cpu_to_be16(7100)));
  ASSERT_EQ(only.listen(client->device, in6addr_any, 7200, 4, true), 0);
  EXPECT_FALSE(mock_port_is_open(&v4, cpu_to_be16(7200)));
}

TEST_F(Listen, create__second_family_is_taken) {
  CmId first, both;
  const in6_addr v6 = ipv6("2001:db8::1");
  ASSERT_EQ(first.listen(client->device, ipv4("0.0.0.0"), 7100), 0);
  EXPECT_EQ(both.listen(client->device, in6addr_any, 7100), -EADDRINUSE);
  EXPECT_FALSE(mock_port_is_open(&v6, cpu_to_be16(7100)));
}

TEST_F(Listen, destroy__twice) {
  EXPECT_EQ(server->device->ops->iw_destroy_listen(&listener.id), 0);
  EXPECT_EQ(server->device->ops->iw_destroy_listen(&listener.id), 0);
}

TEST_F(Listen, find__wildcard_beside_an_address) {
  CmId any;
  ASSERT_EQ(any.listen(server->device, ipv4("0.0.0.0"), kPort + 1), 0);
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort + 1), 0);
  pump();
  EXPECT_EQ(any.requests.size(), 1u);
}

TEST_F(Listen, find__by_another_interface) {
  mock_datagram d = request(1);
  d.to = ipv4("192.0.2.1");
  CmId on_eth1;
  ASSERT_EQ(on_eth1.listen(server->device, ipv4("0.0.0.0"), kPort + 2), 0);
  d.to_port = cpu_to_be16(kPort + 2);
  deliver(d);
  mock_run();
  EXPECT_TRUE(on_eth1.requests.empty());
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_REJECT);
}

TEST_F(Listen, open__iw_cm_has_no_room) {
  mock_errors[MOCK_CORE] = 1;
  arrive(1);
  EXPECT_TRUE(listener.requests.empty());
  EXPECT_EQ(mock_sent(), 0u);
  arrive(1);
  EXPECT_EQ(listener.requests.size(), 1u);
  drop_sent();
}

TEST_F(Listen, request__mtu_is_too_small) {
  mock_netdev("eth1")->mtu = USIW_MIN_MTU - 1;
  arrive(1);
  mock_datagram answer;
  ASSERT_TRUE(mock_take(&answer));
  EXPECT_EQ(answer.data[8] >> 4, USIW_TRP_REJECT);
  EXPECT_TRUE(listener.requests.empty());
}

// ---- Between two listeners: kmod/usiw_rx.c ----

class Deserted : public Listen {
 protected:
  void SetUp() override {
    Listen::SetUp();
    leave(listener);
  }
  void TearDown() override {
    again.destroy();
    for (usiw_sock* us : kept_) usiw_sock_put(us);
    Listen::TearDown();
  }
  /// @p id listens no more. Its port stays, as it does when a connection uses it.
  void leave(CmId& id) {
    us_ = static_cast<usiw_listener*>(id.id.provider_data)->nodes[0].us;
    refcount_inc(&us_->refs);
    kept_.push_back(us_);
    id.destroy();
  }
  /// The refusals that have been sent, each of them "no listener".
  unsigned refused() {
    unsigned n = 0;
    for (mock_datagram d; mock_take(&d); n++) {
      EXPECT_EQ(d.data[8] >> 4, USIW_TRP_REJECT);
      usiw_cm_packet pkt;
      EXPECT_EQ(usiw_cm_decode(&pkt, d.data, d.len), 0);
      EXPECT_EQ(pkt.reason, USIW_REJECT_NO_LISTENER);
    }
    return n;
  }
  /// From which hosts @p again has got requests.
  std::vector<int> hosts() const {
    std::vector<int> all;
    for (const auto& request : again.requests) all.push_back(host_of(*request));
    return all;
  }
  CmId again;
  usiw_sock* us_ = nullptr;

 private:
  std::vector<usiw_sock*> kept_;
};

TEST_F(Deserted, hold__next_listener_gets_them_in_their_order) {
  arrive_all(1, 3);
  arrive(1);
  EXPECT_EQ(mock_sent(), 0u);
  EXPECT_EQ(us_->nr_held, 3u);
  deliver(request(4));
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort, 8), 0);
  deliver(request(5));
  mock_run();
  EXPECT_EQ(hosts(), (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(us_->nr_held, 0u);
  EXPECT_EQ(us_->rx_len, 0u);
  mock_advance_ms(USIW_HOLD_MS);
  EXPECT_EQ(hosts().size(), 5u);
  drop_sent();
}

// rdma_cm listens on all addresses by one listener after another, for each device.
TEST_F(Deserted, hold__listener_of_another_device_comes_first) {
  CmId any, of_eth0;
  ASSERT_EQ(any.listen(server->device, ipv4("0.0.0.0"), kPort + 1), 0);
  leave(any);
  mock_datagram d = request(2);
  d.to_port = cpu_to_be16(kPort + 1);
  deliver(d);
  mock_run();
  ASSERT_EQ(of_eth0.listen(client->device, ipv4("0.0.0.0"), kPort + 1), 0);
  mock_run();
  EXPECT_EQ(us_->nr_held, 1u);
  ASSERT_EQ(again.listen(server->device, ipv4("0.0.0.0"), kPort + 1), 0);
  mock_run();
  EXPECT_EQ(hosts(), std::vector<int>{2});
  EXPECT_EQ(mock_sent(), 0u);
}

TEST_F(Deserted, hold__nobody_comes) {
  arrive(1);
  mock_advance_ms(USIW_HOLD_MS - 1);
  EXPECT_EQ(refused(), 0u);
  mock_advance_ms(2);
  EXPECT_EQ(refused(), 1u);
  EXPECT_EQ(us_->nr_held, 0u);
  arrive(1);
  EXPECT_EQ(refused(), 1u);
}

TEST_F(Deserted, hold__listener_comes_too_late) {
  arrive(1);
  mock_advance_ms(USIW_HOLD_MS + 1);
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  mock_run();
  EXPECT_TRUE(again.requests.empty());
  EXPECT_EQ(refused(), 1u);
}

// The second one leaves as well: that is another moment to wait.
TEST_F(Deserted, hold__longer_when_the_next_listener_leaves_too) {
  arrive(1);
  mock_advance_ms(USIW_HOLD_MS / 2);
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  again.destroy();
  mock_run();
  mock_advance_ms(USIW_HOLD_MS - 1);
  EXPECT_EQ(refused(), 0u);
  mock_advance_ms(2);
  EXPECT_EQ(refused(), 1u);
}

TEST_F(Deserted, hold__is_bounded) {
  for (int i = 0; i < USIW_MAX_HELD + 10; i++) arrive(1, 9100 + i);
  EXPECT_EQ(us_->nr_held, unsigned{USIW_MAX_HELD});
  EXPECT_EQ(refused(), 10u);
  mock_advance_ms(USIW_HOLD_MS + 1);
  EXPECT_EQ(refused(), unsigned{USIW_MAX_HELD});
}

TEST_F(Deserted, hold__no_memory) {
  deliver(request(1));
  mock_errors[MOCK_ALLOC] = 1;
  mock_run();
  EXPECT_EQ(us_->nr_held, 0u);
  EXPECT_EQ(refused(), 1u);
}

CmId* joining;
ib_device* joining_at;

// A listener comes when the worker has found none for a request: that one is still behind the older ones.
TEST_F(Deserted, release__listener_comes_meanwhile) {
  arrive_all(1, 2);
  deliver(request(3));
  deliver(request(4));
  joining = &again;
  joining_at = server->device;
  mock_on_alloc = [] {
    mock_on_alloc = nullptr;
    EXPECT_EQ(joining->listen(joining_at, ipv4("192.0.2.2"), kPort), 0);
  };
  mock_run();
  EXPECT_EQ(hosts(), (std::vector<int>{1, 2, 3, 4}));
  drop_sent();
}

TEST_F(Deserted, purge__held_requests_go_with_the_socket) {
  arrive_all(1, 9);
  EXPECT_EQ(us_->nr_held, 9u);
}

// D4: what is left of the netns' places is divided; each listener has some of its own, whatever others take.
TEST_F(Listen, take_slot__d4_others_cannot_take_the_listener_s_own) {
  atomic_t* shared = &usiw_net(&init_net)->half_open;
  CmId big;
  ASSERT_EQ(big.listen(server->device, ipv4("192.0.2.2"), kPort + 1, 64), 0);
  auto* state = static_cast<usiw_listener*>(big.id.provider_data);
  const auto arrive_big = [&](u8 host) {
    mock_datagram d = request(host);
    d.to_port = cpu_to_be16(kPort + 1);
    deliver(d);
    mock_run();
  };
  for (u8 host = 1; host <= 20; host++) arrive_big(host);
  EXPECT_EQ(state->waiting, 20u);
  EXPECT_EQ(atomic_read(shared), 4);
  // Others have taken nearly all: with one more it would have more than it leaves free.
  atomic_add(USIW_MAX_HALF_OPEN - 9, shared);
  arrive_big(21);
  EXPECT_EQ(big.requests.size(), 20u);
  EXPECT_EQ(state->nr_parked, 1u);
  // Who has places of its own gets them all the same: the backlog of the fixture's listener.
  arrive_all(1, 4);
  EXPECT_EQ(listener.requests.size(), 4u);
  atomic_add(9 - USIW_MAX_HALF_OPEN, shared);
  drop_sent();
}

usiw_sock* left;

/// The listener of @p left leaves on another processor, whose socket's last user it was: there the socket is closed, and
/// the closer waits for this worker.
void leave() {
  mock_on_route = mock_on_alloc = nullptr;
  left->refs.value--;
}

// The worker has found the listener, which leaves before the worker goes on. The socket's last
// reference goes with it; the worker must not bring it back to life.
TEST_F(Listen, request__listener_leaves_meanwhile) {
  deliver(request(1));
  left = static_cast<usiw_listener*>(listener.id.provider_data)->nodes[0].us;
  mock_on_route = leave;
  mock_run();
  EXPECT_EQ(left->refs.value, 0);
  left->refs.value = 1;
  EXPECT_TRUE(listener.requests.empty());
  drop_sent();
}

// The same when there is no memory for a connection: what the worker gives up then must not be the last reference, because
// who drops that one waits for the worker.
TEST_F(Listen, request__listener_leaves_while_memory_is_short) {
  deliver(request(1));
  left = static_cast<usiw_listener*>(listener.id.provider_data)->nodes[0].us;
  mock_on_alloc = [] {
    leave();
    mock_errors[MOCK_ALLOC] = 1;
  };
  mock_run();
  EXPECT_EQ(left->refs.value, 0);
  left->refs.value = 1;
  EXPECT_TRUE(listener.requests.empty());
  drop_sent();
}

}  // namespace
}  // namespace kuser
