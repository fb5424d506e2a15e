// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_listen.c, in its order.
#include "listen.h"

namespace kuser {
namespace {

// iw_cm drops requests that it has not handled. The next REQ of the peer is for the next listener.
TEST_F(Listen, destroy__requests_hold_no_place) {
  ASSERT_EQ(active.connect(*client, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  settle({client.get(), server.get()});
  ASSERT_EQ(listener.requests.size(), 1u);
  auto* old = static_cast<usiw_listener*>(listener.id.provider_data);
  kref_get(&old->kref);
  ASSERT_EQ(old->places.open, 1u);
  ASSERT_EQ(listener.id.device->ops->iw_destroy_listen(&listener.id), 0);
  mock_run();
  EXPECT_EQ(old->places.open, 0u);
  usiw_listener_put(old);
  // A program can still accept a request that it has got.
  EXPECT_EQ(listener.requests[0]->accept(*server), 0);
  settle({client.get(), server.get()});
  EXPECT_TRUE(active.established());
}

// rdma_cm listens on all devices, including those of other namespaces. It does so also when a process of any namespace
// adds a device later.
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

// rdma_cm finds the device by its MAC, which a netdev of another namespace may have as well.
TEST_F(Listen, create__an_address_of_another_netns_is_refused) {
  net other{.hash_mix = 9, .loopback_dev = nullptr};
  CmId foreign, own;
  foreign.user.route.addr.dev_addr.net = &other;
  const int before = mock_sockets;
  EXPECT_EQ(foreign.listen(server->device, ipv4("192.0.2.2"), 7302), -ENETUNREACH);
  EXPECT_EQ(mock_sockets, before);
  EXPECT_EQ(own.listen(server->device, ipv4("192.0.2.2"), 7302), 0);
}

TEST_F(Listen, create__port_in_use_here_does_not_concern_another_netns) {
  net other{.hash_mix = 9, .loopback_dev = nullptr};
  CmId foreign;
  foreign.user.route.addr.dev_addr.net = &other;
  mock_foreign_port = 7301;
  EXPECT_EQ(foreign.listen(server->device, ipv4("0.0.0.0"), 7301), 0);
}

// ---- The admission's host: kmod/usiw_admission.c ----

TEST_F(Listen, request__who_has_proven_its_address_gets_the_other_half) {
  arrive_all(1, 3);
  EXPECT_EQ(listener.requests.size(), 2u);
  EXPECT_EQ(state()->places.queued, 1u);
  EXPECT_EQ(mock_sent(), 1u);  // PENDING
  arrive_proven(3);
  EXPECT_EQ(latest(), 3);
  EXPECT_EQ(state()->places.open, 3u);
  EXPECT_EQ(state()->places.queued, 0u);
  drop_sent();
}

TEST_F(Listen, request__connection_has_the_isn_that_pending_told) {
  fill();
  mock_datagram req = request(1), pending, accepted;
  deliver(req);
  mock_run();
  ASSERT_TRUE(mock_take(&pending));
  EXPECT_EQ(pending.len, sizeof(usiw_trp_hdr));
  listener.requests[0]->reject();
  listener.requests[1]->reject();
  listener.requests[2]->reject();  // the fourth slot is the first of the half for all
  mock_run();
  ASSERT_EQ(latest(), 1);
  drop_sent();
  ASSERT_EQ(listener.requests.back()->reject(), 0);
  mock_run();
  ASSERT_TRUE(mock_take(&accepted));
  EXPECT_EQ(memcmp(accepted.data, pending.data, 4), 0);
}

TEST_F(Listen, request__waiting_ones_are_bounded) {
  for (u32 i = 0; i < USIW_CM_MAX_QUEUED + 100; i++) arrive(i & 0xff, 9000 + i / 256);
  EXPECT_EQ(state()->places.queued, USIW_CM_MAX_QUEUED);
  drop_sent();
}

TEST_F(Listen, request__counted_when_there_is_no_room) {
  atomic64_t* full = &to_usiw_dev(server->device)->kcounters[USIW_KCNT_CM_BACKLOG_FULL];
  fill();
  const auto before = atomic64_read(full);
  arrive_all(1, 3);
  EXPECT_EQ(atomic64_read(full), before + 3);
  drop_sent();
}

// A REQ that waits for the worker does not get the slot.
TEST_F(Listen, return_place__is_for_who_waits) {
  fill();
  arrive_proven(5);
  for (u8 host = 6; host <= 20; host++) deliver(request(host));
  listener.requests[0]->reject();
  mock_run();
  ASSERT_EQ(listener.requests.size(), 5u);
  EXPECT_EQ(latest(), 5);
  EXPECT_EQ(state()->places.open, 4u);
  drop_sent();
}

TEST_F(Listen, return_place__listener_leaves_before_it_is_used) {
  fill();
  arrive_proven(5);
  listener.requests[0]->reject();
  listener.destroy();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 4u);
  drop_sent();
}

TEST_F(Listen, expire__who_has_gone_without_a_word_is_forgotten) {
  fill();
  arrive_all(5, 9);
  EXPECT_EQ(state()->places.queued, 5u);
  mock_advance_ms(2 * USIW_CM_STALE_US / 1000);
  EXPECT_EQ(state()->places.queued, 0u);
  listener.requests[0]->reject();
  mock_run();
  EXPECT_EQ(listener.requests.size(), 4u);
  drop_sent();
}

TEST_F(Listen, withdraw__who_waits_gives_up) {
  fill();
  mock_datagram req = request(5), pending;
  deliver(req);
  mock_run();
  ASSERT_TRUE(mock_take(&pending));
  mock_datagram reset = req;
  reset.len = sizeof(usiw_trp_hdr);
  memcpy(reset.data + 4, pending.data, 4);
  reset.data[8] = USIW_TRP_RESET << 4;
  reset.data[9] = 0;
  mock_datagram forged = reset;
  forged.data[7] ^= 1;
  deliver(forged);
  mock_run();
  EXPECT_EQ(state()->places.queued, 1u);
  deliver(reset);
  mock_run();
  EXPECT_EQ(state()->places.queued, 0u);
}

TEST_F(Listen, purge__waiting_requests_go_with_the_port) {
  fill();
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

// rdma_cm repeats its listeners on a new device, and loses the device if one fails. Here rdma_cm was loaded after the
// module, whose own client has the device already.
TEST_F(Listen, create__port_is_taken_where_a_device_is_added) {
  static CmId* there;
  CmId any, one;
  mock_foreign_port = 7001;
  there = &any;
  mock_on_registered = [] {
    EXPECT_EQ(there->listen(mock_device("lo"), ipv4("0.0.0.0"), 7001), 0);
  };
  ASSERT_EQ(mock_link_ops->newlink("usiw2", mock_netdev("lo")), 0);
  any.destroy();
  EXPECT_EQ(any.listen(mock_device("lo"), ipv4("0.0.0.0"), 7001), -EADDRINUSE);
  mock_unregister(mock_device("lo"));

  mutex& moving = server->device->unregistration_lock;
  moving.dep.held = 1;  // by another thread, in `rdma dev set netns`
  EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7001), 0);
  EXPECT_EQ(one.listen(server->device, ipv4("192.0.2.2"), 7001), -EADDRINUSE);
  moving.dep.held = 0;
  const in6_addr local = ipv4("192.0.2.2");
  EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(7001)));
  any.destroy();
  EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7001), -EADDRINUSE);
}

// The process that adds the device may lack a right or resource of the program: CAP_NET_BIND_SERVICE, memory, or a
// cgroup that lets it bind.
TEST_F(Listen, create__port_is_refused_where_a_device_is_added) {
  mutex& moving = server->device->unregistration_lock;
  for (int n = 0; n < 2; n++) {
    CmId any;
    mock_errors[MOCK_SOCKET] = u64{1} << n;
    moving.dep.held = 1;
    EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7001), 0) << n;
    moving.dep.held = 0;
    mock_errors[MOCK_SOCKET] = 0;
    if (any.id.provider_data) any.destroy();
  }
}

// The listener had the socket of one family already, and must release it.
TEST_F(Listen, create__second_family_is_taken_where_a_device_is_added) {
  mutex& moving = client->device->unregistration_lock;
  CmId first, both;
  ASSERT_EQ(first.listen(client->device, ipv4("0.0.0.0"), 7100), 0);
  moving.dep.held = 1;
  EXPECT_EQ(both.listen(client->device, in6addr_any, 7100), 0);
  moving.dep.held = 0;
  EXPECT_EQ(static_cast<usiw_listener*>(both.id.provider_data)->us, nullptr);
  first.destroy();
  both.destroy();
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
  static constexpr int kHoldMs = USIW_CM_HOLD_US / 1000;
  void SetUp() override {
    Listen::SetUp();
    leave(listener);
  }
  void TearDown() override {
    again.destroy();
    for (usiw_sock* us : kept_) usiw_sock_put(us, true);
    Listen::TearDown();
  }
  /// @p id stops listening. Its port stays, as if a connection used it.
  void leave(CmId& id) {
    us_ = static_cast<usiw_listener*>(id.id.provider_data)->us;
    refcount_inc(&us_->users[1]);
    kept_.push_back(us_);
    id.destroy();
  }
  /// Returns the number of refusals sent. Each of them must be "no listener".
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
  /// Returns the hosts whose requests @p again has got.
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
  EXPECT_EQ(us_->admission.held.count, 3u);
  deliver(request(4));
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort, 16), 0);
  deliver(request(5));
  mock_run();
  EXPECT_EQ(hosts(), (std::vector<int>{1, 2, 3, 4, 5}));
  EXPECT_EQ(us_->admission.held.count, 0u);
  EXPECT_EQ(us_->rx_len, 0u);
  mock_advance_ms(kHoldMs);
  EXPECT_EQ(hosts().size(), 5u);
  drop_sent();
}

// rdma_cm listens on all addresses with one listener after another, one for each device.
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
  EXPECT_EQ(us_->admission.held.count, 1u);
  ASSERT_EQ(again.listen(server->device, ipv4("0.0.0.0"), kPort + 1), 0);
  mock_run();
  EXPECT_EQ(hosts(), std::vector<int>{2});
  EXPECT_EQ(mock_sent(), 0u);
}

TEST_F(Deserted, hold__nobody_comes) {
  arrive(1);
  mock_advance_ms(kHoldMs - 1);
  EXPECT_EQ(refused(), 0u);
  mock_advance_ms(2);
  EXPECT_EQ(refused(), 1u);
  EXPECT_EQ(us_->admission.held.count, 0u);
  arrive(1);
  EXPECT_EQ(refused(), 1u);
}

TEST_F(Deserted, hold__listener_comes_too_late) {
  arrive(1);
  mock_advance_ms(kHoldMs + 1);
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  mock_run();
  EXPECT_TRUE(again.requests.empty());
  EXPECT_EQ(refused(), 1u);
}

// The second listener leaves as well, so the REQ waits for another interval.
TEST_F(Deserted, hold__longer_when_the_next_listener_leaves_too) {
  arrive(1);
  mock_advance_ms(kHoldMs / 2);
  ASSERT_EQ(again.listen(server->device, ipv4("192.0.2.2"), kPort), 0);
  again.destroy();
  mock_run();
  mock_advance_ms(kHoldMs - 1);
  EXPECT_EQ(refused(), 0u);
  mock_advance_ms(2);
  EXPECT_EQ(refused(), 1u);
}

TEST_F(Deserted, hold__is_bounded) {
  for (int i = 0; i < int{USIW_CM_MAX_HELD} + 10; i++) arrive(1, 9100 + i);
  EXPECT_EQ(us_->admission.held.count, USIW_CM_MAX_HELD);
  EXPECT_EQ(refused(), 10u);
  mock_advance_ms(kHoldMs + 1);
  EXPECT_EQ(refused(), USIW_CM_MAX_HELD);
}

TEST_F(Deserted, purge__held_requests_go_with_the_socket) {
  arrive_all(1, 9);
  EXPECT_EQ(us_->admission.held.count, 9u);
}

// The free slots of the netns are divided. Each listener has some of its own, whatever others take.
TEST_F(Listen, request__others_cannot_take_the_reserved_places_of_a_listener) {
  usiw_cm_pool& shared = usiw_net_admission(&init_net)->half_open;
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
  EXPECT_EQ(state->places.open, 20u);
  EXPECT_EQ(shared.used, 20 - USIW_CM_RESERVED);
  // Others have taken nearly all slots. With one more, the listener would have more than it leaves free.
  shared.used += USIW_CM_NET_HALF_OPEN - 8;
  arrive_big(21);
  EXPECT_EQ(big.requests.size(), 20u);
  EXPECT_EQ(state->places.queued, 1u);
  // A listener with slots of its own gets them all: the backlog of the fixture's listener.
  fill();
  shared.used -= USIW_CM_NET_HALF_OPEN - 8;
  drop_sent();
}

// A namespace has one object for a port, whatever the family. So a listener has one backlog.
TEST_F(Listen, join__one_backlog_for_both_families) {
  CmId both;
  ASSERT_EQ(both.listen(server->device, in6addr_any, 7100), 0);
  auto* state = static_cast<usiw_listener*>(both.id.provider_data);
  mock_datagram four = request(1);
  four.to_port = cpu_to_be16(7100);
  deliver(four);
  mock_datagram six = request(2);
  six.from = ipv6("2001:db8::9");
  six.to = ipv6("2001:db8::2");
  six.to_port = cpu_to_be16(7100);
  deliver(six);
  mock_run();
  EXPECT_EQ(both.requests.size(), 2u);
  EXPECT_EQ(state->places.open, 2u);
  drop_sent();
}

usiw_sock* left;

/// The listener of @p left leaves on another processor. It was the last user of its family's socket, so that processor
/// closes the socket and waits for this worker.
void leave() {
  mock_on_route = mock_on_alloc = nullptr;
  left->users[1].value--;
}

// The worker has found the listener, which leaves before the worker goes on. The last reference to the socket goes with
// it, and the worker must not take a new one.
TEST_F(Listen, request__listener_leaves_meanwhile) {
  deliver(request(1));
  left = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  mock_on_route = leave;
  mock_run();
  EXPECT_EQ(left->users[1].value, 0);
  left->users[1].value = 1;
  EXPECT_TRUE(listener.requests.empty());
  drop_sent();
}

// The same without memory for a connection. The reference that the worker then drops must not be the last one, because
// the thread that drops the last one waits for the worker.
TEST_F(Listen, request__listener_leaves_while_memory_is_short) {
  deliver(request(1));
  left = static_cast<usiw_listener*>(listener.id.provider_data)->us;
  mock_on_alloc = [] {
    leave();
    mock_errors[MOCK_ALLOC] = 1;
  };
  mock_run();
  EXPECT_EQ(left->users[1].value, 0);
  left->users[1].value = 1;
  EXPECT_TRUE(listener.requests.empty());
  drop_sent();
}

}  // namespace
}  // namespace kuser
