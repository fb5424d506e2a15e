// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_admission.c: the listeners of one port, and the lock of each port. Tests of REQs that wait are in
// listen_test.cc.
#include <algorithm>
#include <set>

#include "listen.h"
#include "mock/state.h"

namespace kuser {
namespace {

class PortListeners : public Listen {
 protected:
  void TearDown() override {
    mock_on_alloc = nullptr;
    others_.clear();
    drop_sent();
    Listen::TearDown();
  }
  /// Makes @p n listeners on the device of the server, at addresses of kPort that no other test uses.
  void listen_beside(unsigned n) {
    for (unsigned i = others_.size(); i < n; i++) {
      char addr[32];
      snprintf(addr, sizeof(addr), "10.0.%u.%u", i / 256, i % 256);
      others_.push_back(std::make_unique<CmId>());
      ASSERT_EQ(others_.back()->listen(server->device, ipv4(addr), kPort), 0);
    }
  }
  std::vector<std::unique_ptr<CmId>> others_;
};

// ---- Cost ----

// A list of all listeners would have 257 entries.
TEST_F(PortListeners, find__cost_is_the_same_whoever_listens_at_other_addresses) {
  fill();
  for (const unsigned others : {0u, 16u, 256u}) {
    listen_beside(others);
    unsigned long most = 0;
    for (u8 host = 20; host < 120; host++) {
      mock_walked = 0;
      arrive(host, 9000 + others);
      most = std::max(most, mock_walked);
    }
    EXPECT_LE(most, 40u) << others;
    drop_sent();
  }
}

TEST_F(PortListeners, join__cost_is_the_same_whoever_listens_at_other_addresses) {
  for (const unsigned others : {0u, 16u, 256u}) {
    listen_beside(others);
    CmId free, taken, any;
    const std::tuple<CmId&, const char*, int> all[] = {
        {free, "192.0.2.77", 0}, {taken, "192.0.2.2", -EADDRINUSE}, {any, "0.0.0.0", -EADDRINUSE}};
    for (const auto& [id, addr, ret] : all) {
      mock_walked = 0;
      EXPECT_EQ(id.listen(server->device, ipv4(addr), kPort), ret) << addr;
      EXPECT_LE(mock_walked, 60u) << others << " beside " << addr;
    }
  }
}

// ---- Conflicts ----

struct Where {
  const char* addr;
  bool only = false;  ///< the wildcard is IPv6 only
  int scope = 0;
};

int listen_at(CmId& id, ib_device* device, const Where& where, u16 port) {
  id.scope = where.scope;
  return id.listen(device, strchr(where.addr, ':') ? ipv6(where.addr) : ipv4(where.addr), port, 1024, where.only);
}

constexpr Where kAll[] = {{"192.0.2.1"},         {"192.0.2.2"},   {"0.0.0.0"},         {"2001:db8::1"}, {"2001:db8::2"},
                          {"::", true, 0},       {"::"},          {"fe80::1", false, 2}, {"fe80::1", false, 3},
                          {"fe80::2", false, 2}};
constexpr int kV4A = 0, kV4B = 1, kV4Any = 2, kV6A = 3, kV6B = 4, kV6Only = 5, kBoth = 6, kLinkA2 = 7, kLinkA3 = 8,
              kLinkB2 = 9;

/// Pairs of listeners that conflict on one device, beside each listener with itself.
const std::set<std::pair<int, int>> kConflicts = {
    {kV4A, kV4Any},    {kV4B, kV4Any},    {kV4A, kBoth},    {kV4B, kBoth},    {kV4Any, kBoth},
    {kV6A, kV6Only},   {kV6B, kV6Only},   {kV6A, kBoth},    {kV6B, kBoth},    {kV6Only, kBoth},
    {kV6Only, kLinkA2}, {kV6Only, kLinkA3}, {kV6Only, kLinkB2}, {kBoth, kLinkA2}, {kBoth, kLinkA3},
    {kBoth, kLinkB2}};

TEST_F(PortListeners, join__conflicts_of_each_pair) {
  for (int first = 0; first < int{std::size(kAll)}; first++) {
    for (int second = 0; second < int{std::size(kAll)}; second++) {
      CmId one, same, other;
      const bool conflict = first == second || kConflicts.count(std::minmax(first, second));
      ASSERT_EQ(listen_at(one, server->device, kAll[first], 7400), 0);
      EXPECT_EQ(listen_at(other, client->device, kAll[second], 7400), 0) << kAll[first].addr << kAll[second].addr;
      EXPECT_EQ(listen_at(same, server->device, kAll[second], 7400), conflict ? -EADDRINUSE : 0)
          << kAll[first].addr << " beside " << kAll[second].addr;
    }
  }
}

TEST_F(PortListeners, join__wildcard_waits_for_the_last_address_of_its_device) {
  CmId a, b, elsewhere, any;
  ASSERT_EQ(a.listen(server->device, ipv4("192.0.2.2"), 7400), 0);
  ASSERT_EQ(b.listen(server->device, ipv4("192.0.2.7"), 7400), 0);
  ASSERT_EQ(elsewhere.listen(client->device, ipv4("192.0.2.1"), 7400), 0);
  EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7400), -EADDRINUSE);
  a.destroy();
  EXPECT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7400), -EADDRINUSE);
  b.destroy();
  ASSERT_EQ(any.listen(server->device, ipv4("0.0.0.0"), 7400), 0);
  CmId again;
  EXPECT_EQ(again.listen(server->device, ipv4("192.0.2.2"), 7400), -EADDRINUSE);
  any.destroy();
  EXPECT_EQ(again.listen(server->device, ipv4("192.0.2.2"), 7400), 0);
}

// ---- Who gets a REQ ----

/// RandomListeners join and leave one port at random, and the test compares with a plain list of them.
class RandomListeners : public PortListeners {
 protected:
  struct Entry {
    CmId id;
    usiw_listener* state() const { return static_cast<usiw_listener*>(id.id.provider_data); }
  };
  static bool conflict(const usiw_listener* a, const usiw_listener* b) {
    return a->dev == b->dev && a->families & b->families &&
           (a->any || b->any || (a->scope == b->scope && ipv6_addr_equal(&a->addr, &b->addr)));
  }
  /// Returns the oldest listener of the best device.
  Entry* best(const usiw_tuple& tuple, int ifindex) const {
    Entry* found = nullptr;
    auto best = USIW_ADDR_OTHERS;
    for (const auto& entry : list_) {
      const usiw_listener* l = entry->state();
      const bool hears = l->any || (ipv6_addr_equal(&l->addr, &tuple.local) && (!l->scope || l->scope == tuple.scope));
      if (!hears || !(l->families & BIT(usiw_tuple_is_ipv4(&tuple))) || !usiw_addr_comes_by(l->dev, ifindex)) continue;
      const auto owner = usiw_addr_owner(l->dev, &tuple);
      if (owner > best || (owner == best && found && usiw_device_is_before(l->dev, found->state()->dev))) {
        best = owner;
        found = entry.get();
      }
    }
    return found;
  }
  void join(ib_device* device, const Where& where) {
    auto entry = std::make_unique<Entry>();
    const int ret = listen_at(entry->id, device, where, kAt);
    // Makes a listener at another port, to get everything that a comparison needs.
    Entry shape;
    ASSERT_EQ(listen_at(shape.id, device, where, kAt + 1), 0);
    bool expected = false;
    for (const auto& other : list_) expected |= conflict(other->state(), shape.state());
    EXPECT_EQ(ret, expected ? -EADDRINUSE : 0) << where.addr;
    if (!ret) list_.push_back(std::move(entry));
  }
  void leave(size_t n) {
    list_.erase(list_.begin() + n);
    mock_advance_ms(USIW_CM_HOLD_US / 1000 + 1);  // a REQ without a listener is refused
  }
  void ask(const char* to, const char* by, u16 port) {
    mock_datagram d = request(1, port);
    const bool v6 = strchr(to, ':');
    d.to = v6 ? ipv6(to) : ipv4(to);
    if (v6) d.from = ipv6(port % 2 ? "2001:db8::99" : "fe80::99");
    d.to_port = cpu_to_be16(kAt);
    d.via = mock_netdev(by);
    usiw_tuple tuple{.local = d.to, .remote = d.from, .local_port = d.to_port, .remote_port = d.from_port, .scope = 0};
    if (usiw_tuple_is_link_local(&tuple)) tuple.scope = d.via->ifindex;
    const Entry* expected = best(tuple, d.via->ifindex);
    deliver(d);
    mock_run();
    for (const auto& entry : list_) {
      EXPECT_EQ(entry->id.requests.size(), size_t{entry.get() == expected}) << to << " by " << by;
      entry->id.drop_requests();
    }
    asked_ += expected != nullptr;
    mock_run();
    drop_sent();
  }
  void TearDown() override {
    list_.clear();
    PortListeners::TearDown();
  }
  static constexpr u16 kAt = 7400;
  std::vector<std::unique_ptr<Entry>> list_;
  unsigned asked_ = 0;  ///< REQs that reached a listener
};

TEST_F(RandomListeners, find__the_same_one_as_in_a_list_of_all) {
  auto random = [seed = 1u]() mutable { return (seed = seed * 1664525 + 1013904223) >> 8; };
  const auto pick = [&](const auto& of) -> const auto& { return of[random() % std::size(of)]; };
  const Where wheres[] = {{"192.0.2.1"}, {"192.0.2.2"}, {"127.0.0.1"}, {"10.0.0.1"},
                          {"2001:db8::1"}, {"2001:db8::2"}, {"::1"}, {"fe80::1"},
                          {"fe80::1", false, 2}, {"fe80::1", false, 3}, {"fe80::2", false, 3},
                          {"0.0.0.0"}, {"::", true, 0}, {"::"}};
  constexpr int kAddrs = 11;  // entries of wheres at one address; the others are wildcards
  const char* const tos[] = {"192.0.2.1",   "192.0.2.2", "127.0.0.1", "2001:db8::1",
                             "2001:db8::2", "fe80::1",   "fe80::2",   "::1"};
  const char* const bys[] = {"eth0", "eth1", "lo", "eth0.3"};
  mock_netdev("eth1")->addrs[3] = ipv6("fe80::1");
  for (u16 step = 0; step < 3000; step++) {
    if (random() % 3 || list_.empty())
      join(random() % 2 ? server->device : client->device,
           wheres[random() % (random() % 4 ? kAddrs : std::size(wheres))]);
    else
      leave(random() % list_.size());
    for (int n = 0; n < 3; n++) ask(pick(tos), pick(bys), 10000 + 3 * step + n);
    if (HasFailure()) return;
  }
  EXPECT_GT(asked_, 500u);
}

// ---- Locks ----

const mock_lock* lock_seen;

// REQs are copied under the lock of their port. A hash table of locks would have one lock for two of these ports.
TEST_F(PortListeners, lock__no_two_ports_share_one) {
  constexpr u16 kFirst = 20000, kPorts = 600;
  std::set<const mock_lock*> locks;
  std::vector<std::unique_ptr<CmId>> ids;
  for (u16 port = kFirst; port < kFirst + kPorts; port++) {
    ids.push_back(std::make_unique<CmId>());
    ASSERT_EQ(ids.back()->listen(server->device, ipv4("192.0.2.2"), port), 0);
    mock_datagram d = request(1);
    d.to_port = cpu_to_be16(port);
    deliver(d);
    lock_seen = nullptr;
    mock_on_alloc = [] {
      if (mock::context.spin && !mock::context.softirq && !lock_seen) lock_seen = mock::held.back();
    };
    mock_run();
    mock_on_alloc = nullptr;
    ASSERT_NE(lock_seen, nullptr);
    locks.insert(lock_seen);
  }
  EXPECT_EQ(locks.size(), size_t{kPorts});
  drop_sent();
}

// The connection that a REQ became is the last user of the port. It returns its slot, and the port is freed.
TEST_F(PortListeners, return_place__by_the_last_user_of_the_port) {
  const in6_addr local = ipv4("192.0.2.2");
  CmId id;
  ASSERT_EQ(id.listen(server->device, local, 7400), 0);
  mock_datagram d = request(1);
  d.to_port = cpu_to_be16(7400);
  deliver(d);
  mock_run();
  ASSERT_EQ(id.requests.size(), 1u);
  auto* state = static_cast<usiw_listener*>(id.id.provider_data);
  kref_get(&state->kref);
  ASSERT_EQ(server->device->ops->iw_destroy_listen(&id.id), 0);
  EXPECT_EQ(state->us, nullptr);
  EXPECT_EQ(state->places.open, 1u);
  EXPECT_TRUE(mock_port_is_open(&local, cpu_to_be16(7400)));
  mock_run();
  EXPECT_EQ(state->places.open, 0u);
  id.requests[0]->reject();
  id.drop_requests();
  mock_advance_ms(60000);
  mock_grace_period();
  EXPECT_FALSE(mock_port_is_open(&local, cpu_to_be16(7400)));
  usiw_listener_put(state);
  drop_sent();
}

// The slot is returned when the memory of the connection is freed, when the listener has gone.
TEST_F(PortListeners, return_place__listener_has_gone_while_the_worker_works_for_it) {
  static CmId* leaving;
  CmId id;
  ASSERT_EQ(id.listen(server->device, ipv4("192.0.2.2"), 7400), 0);
  auto* state = static_cast<usiw_listener*>(id.id.provider_data);
  kref_get(&state->kref);
  mock_datagram d = request(1);
  d.to_port = cpu_to_be16(7400);
  deliver(d);
  leaving = &id;
  usiw_sock* us = state->us;
  refcount_inc(&us->users[1]);  // the thread that closes the port waits for its worker, which the mock cannot do
  mock_on_route = [] {
    mock_on_route = nullptr;
    leaving->id.device->ops->iw_destroy_listen(&leaving->id);
  };
  mock_run();
  EXPECT_EQ(state->places.open, 0u);
  EXPECT_EQ(state->places.admission, nullptr);
  usiw_listener_put(state);
  usiw_sock_put(us, true);
  id.drop_requests();
  drop_sent();
}

}  // namespace
}  // namespace kuser
