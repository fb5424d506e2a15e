// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of cm/usiw_cm_admission.c and cm/usiw_cm_cookie.c: which REQs are admitted, wait, or have to go.
#include "cm/usiw_cm_admission.h"

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "cm/usiw_cm_cookie.h"
#include "fixture.h"

namespace {

constexpr __u64 kKey[2] = {0x0706050403020100ull, 0x0f0e0d0c0b0a0908ull};

usiw_cm_tuple tuple_of(uint32_t peer) {
  usiw_cm_tuple t{};
  t.local[10] = t.local[11] = t.remote[10] = t.remote[11] = 0xff;
  for (int i = 0; i < 4; i++) t.remote[12 + i] = static_cast<uint8_t>(peer >> (24 - 8 * i));
  t.local_port = 7174;
  t.remote_port = 9000;
  return t;
}

/// A port with its host, which owns the entries and handles those that are due.
class Port {
 public:
  explicit Port(usiw_cm_admission_net& net) { admission.net = &net; }
  ~Port() { free_chain(usiw_cm_admission_purge(&admission)); }
  Port(const Port&) = delete;

  /// Returns the verdict on a REQ of @p peer. @p ack: the ISN that the REQ brings back.
  usiw_cm_admission_verdict req(usiw_cm_listener* l, uint32_t peer, uint32_t ack = 0, uint32_t isn = kPeerIsn) {
    auto* e = new usiw_cm_req{};
    e->tuple = tuple_of(peer);
    return decide(l, e, ack, isn);
  }
  /// The same for a REQ that brings back the cookie of a PENDING.
  usiw_cm_admission_verdict proven(usiw_cm_listener* l, uint32_t peer) { return req(l, peer, cookie(peer)); }
  uint32_t cookie(uint32_t peer) {
    const usiw_cm_tuple t = tuple_of(peer);
    return usiw_cm_cookie(admission.net->key, &t, kPeerIsn, static_cast<uint32_t>(now >> 26));
  }
  /// Handles the entries that are due, with listener @p l. Returns the peers that were admitted, in order.
  std::vector<uint32_t> due(usiw_cm_listener* l) {
    std::vector<uint32_t> admitted;
    free_chain(usiw_cm_admission_expire(&admission, now));
    while (usiw_cm_req* e = usiw_cm_admission_next(&admission, now)) {
      uint32_t peer = 0;
      for (int i = 12; i < 16; i++) peer = peer << 8 | e->tuple.remote[i];
      const usiw_cm_admission_verdict v = decide(l, e, 0, kPeerIsn);
      if (v.kind == USIW_CM_ADM_ADMIT) admitted.push_back(peer);
      if (v.kind == USIW_CM_ADM_REFUSE) refused++;
    }
    return admitted;
  }
  void free_chain(usiw_cm_req* e) {
    while (e) {
      usiw_cm_req* next = e->next;
      delete e;
      e = next;
      freed++;
    }
  }
  unsigned entries() const { return admission.all.count; }

  usiw_cm_admission admission{};
  uint64_t now = kStart;
  unsigned refused = 0, freed = 0;

 private:
  usiw_cm_admission_verdict decide(usiw_cm_listener* l, usiw_cm_req* e, uint32_t ack, uint32_t isn) {
    usiw_cm_packet pkt = packet(USIW_TRP_REQ);
    pkt.psn = isn;
    pkt.ack_psn = ack;
    usiw_cm_admission_verdict v;
    usiw_cm_admission_request(&v, &admission, l, e, &pkt, now);
    if (v.kind != USIW_CM_ADM_KEPT) delete e;
    free_chain(v.out);
    return v;
  }
};

class Admission : public testing::Test {
 protected:
  Admission() { usiw_cm_admission_net_init(&net, kKey); }
  void SetUp() override { usiw_cm_admission_join(&port.admission, &l, 4); }
  void fill() {
    for (uint32_t peer = 1; peer <= 4; peer++) EXPECT_EQ(port.proven(&l, peer).kind, unsigned{USIW_CM_ADM_ADMIT});
  }

  usiw_cm_admission_net net;
  usiw_cm_listener l{};
  Port port{net};
};

TEST(Cookie, is_siphash_of_what_names_the_attempt) {
  // SipHash-2-4 of 48 bytes with this key, as `openssl mac` computes it: 00 01 .. 2f.
  usiw_cm_tuple t;
  auto* bytes = reinterpret_cast<uint8_t*>(&t);
  for (uint8_t i = 0; i < sizeof t; i++) bytes[i] = i;
  const uint32_t one = usiw_cm_cookie(kKey, &t, 0x28292a2bu, 0x2c2d2e2fu);
  EXPECT_EQ(one, 0x9ecba951u);
  std::set<uint32_t> all{one};
  all.insert(usiw_cm_cookie(kKey, &t, 0x28292a2cu, 0x2c2d2e2fu));
  all.insert(usiw_cm_cookie(kKey, &t, 0x28292a2bu, 0x2c2d2e30u));
  bytes[0] ^= 1;
  all.insert(usiw_cm_cookie(kKey, &t, 0x28292a2bu, 0x2c2d2e2fu));
  const __u64 other[2] = {kKey[0], kKey[1] ^ 1};
  all.insert(usiw_cm_cookie(other, &t, 0x28292a2bu, 0x2c2d2e2fu));
  EXPECT_EQ(all.size(), 5u);
}

TEST_F(Admission, request__admitted_while_there_is_room_and_then_kept) {
  EXPECT_EQ(port.req(&l, 1).kind, unsigned{USIW_CM_ADM_ADMIT});
  EXPECT_EQ(port.req(&l, 2).kind, unsigned{USIW_CM_ADM_ADMIT});
  const usiw_cm_admission_verdict v = port.req(&l, 3);  // half of the backlog is for proven REQs
  EXPECT_EQ(v.kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_TRUE(v.pending);
  EXPECT_EQ(v.isn, port.cookie(3));
  EXPECT_EQ(l.open, 2u);
  EXPECT_EQ(l.queued, 1u);
}

TEST_F(Admission, request__who_brings_the_cookie_back_gets_the_other_half) {
  port.req(&l, 1);
  port.req(&l, 2);
  const uint32_t isn = port.req(&l, 3).isn;
  EXPECT_EQ(port.req(&l, 4, isn).kind, unsigned{USIW_CM_ADM_KEPT});  // the cookie of another peer
  const usiw_cm_admission_verdict v = port.proven(&l, 5);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_ADM_ADMIT});
  EXPECT_EQ(v.isn, port.cookie(5));
}

// The REQ is queued first and answered by PENDING. With the proof it gets a slot at once, without a returned one.
TEST_F(Admission, request__who_waits_and_brings_the_cookie_back_gets_the_other_half) {
  for (uint32_t peer = 1; peer <= 5; peer++) port.req(&l, peer);
  EXPECT_EQ(l.open, 2u);
  for (uint32_t peer : {4, 3, 5}) EXPECT_EQ(port.proven(&l, peer).kind, unsigned{USIW_CM_ADM_DROP});
  EXPECT_EQ(usiw_cm_admission_deadline(&port.admission), 1u);
  EXPECT_EQ(port.due(&l), (std::vector<uint32_t>{3, 4}));
  EXPECT_EQ(l.open, 4u);
  EXPECT_EQ(l.queued, 1u);
  EXPECT_GT(usiw_cm_admission_deadline(&port.admission), port.now);
}

TEST_F(Admission, request__a_cookie_is_good_for_an_epoch_and_the_next) {
  port.req(&l, 1);
  port.req(&l, 2);
  const uint32_t isn = port.cookie(3);
  port.now += 1u << 26;
  EXPECT_EQ(port.req(&l, 3, isn).kind, unsigned{USIW_CM_ADM_ADMIT});
  port.now += 1u << 26;
  EXPECT_EQ(port.req(&l, 3, isn).kind, unsigned{USIW_CM_ADM_KEPT});
}

TEST_F(Admission, pending_carries_the_isn_that_the_connection_will_have) {
  fill();
  const usiw_cm_admission_verdict first = port.req(&l, 9);
  EXPECT_TRUE(first.pending);
  EXPECT_NE(first.isn, 0u);
  const usiw_cm_packet req = packet(USIW_TRP_REQ);
  Datagram d;
  d.len = usiw_cm_build_pending(&req, first.isn, d.bytes);
  d.decode();
  EXPECT_EQ(d.rc, 0);
  EXPECT_EQ(d.pkt.psn, first.isn);
  EXPECT_EQ(d.pkt.flags, USIW_TRP_F_PENDING);
  EXPECT_EQ(port.proven(&l, 9).isn, first.isn);
  ASSERT_TRUE(usiw_cm_admission_return(&l, port.now));
  usiw_cm_req* e = usiw_cm_admission_next(&port.admission, port.now);
  ASSERT_NE(e, nullptr);
  usiw_cm_admission_verdict v;
  usiw_cm_admission_request(&v, &port.admission, &l, e, &req, port.now);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_ADM_ADMIT});
  EXPECT_EQ(v.isn, first.isn);
  delete e;
}

TEST_F(Admission, return__the_first_that_is_proven_goes_first) {
  fill();
  for (uint32_t peer = 10; peer < 14; peer++) port.req(&l, peer);
  port.proven(&l, 12);
  port.proven(&l, 11);
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{11});
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{12});
  EXPECT_FALSE(usiw_cm_admission_return(&l, port.now));  // REQs that are not proven may have half of the slots only
  EXPECT_FALSE(usiw_cm_admission_return(&l, port.now));
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{10});
}

TEST_F(Admission, return__not_to_one_who_has_gone_without_a_word) {
  fill();
  port.proven(&l, 10);
  port.now += USIW_CM_STALE_US - 1;
  port.proven(&l, 11);
  port.now += 1;
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{11});
  EXPECT_EQ(l.queued, 0u);  // stale entries were removed
}

// A stale entry gets no slot when one is returned. It gets the slot when its REQ is repeated.
TEST_F(Admission, return__to_one_who_comes_again) {
  fill();
  port.proven(&l, 10);
  port.now += USIW_CM_STALE_US;
  EXPECT_FALSE(usiw_cm_admission_return(&l, port.now));
  port.req(&l, 10);
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{10});
}

TEST_F(Admission, flood__of_forged_reqs_leaves_half_of_the_backlog_and_the_first_turn) {
  for (uint32_t peer = 1000; peer < 21000; peer++) port.req(&l, peer);
  EXPECT_EQ(l.open, 2u);
  EXPECT_EQ(l.queued, USIW_CM_MAX_QUEUED);
  EXPECT_EQ(port.entries(), USIW_CM_MAX_QUEUED);
  EXPECT_EQ(port.proven(&l, 1).kind, unsigned{USIW_CM_ADM_ADMIT});
  EXPECT_EQ(port.proven(&l, 2).kind, unsigned{USIW_CM_ADM_ADMIT});
  EXPECT_EQ(port.proven(&l, 3).kind, unsigned{USIW_CM_ADM_KEPT});
  for (uint32_t peer = 21000; peer < 22000; peer++) port.req(&l, peer);
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{3});
}

TEST_F(Admission, flood__of_proven_reqs_drives_out_the_least_recently_repeated) {
  fill();
  for (uint32_t peer = 0; peer < USIW_CM_MAX_QUEUED; peer++) {
    port.now++;
    port.proven(&l, 100 + peer);
  }
  port.now++;
  port.proven(&l, 100);  // repeated: now 101 is the one not repeated for longest
  EXPECT_EQ(port.req(&l, 5000).kind, unsigned{USIW_CM_ADM_DROP});
  EXPECT_EQ(port.proven(&l, 5001).kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_EQ(port.freed, 1u);
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{100});
  EXPECT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{102});
}

TEST_F(Admission, a_full_listener_does_not_keep_another_from_its_reserved_share) {
  // The listeners of one user: enough to take all that is shared, each with the longest backlog.
  std::vector<std::unique_ptr<usiw_cm_listener>> greedy;
  std::vector<std::unique_ptr<Port>> ports;  // destroyed before the listeners, because its entries refer to them
  uint32_t peer = 100;
  for (int i = 0; i < 64; i++) {
    ports.push_back(std::make_unique<Port>(net));
    greedy.push_back(std::make_unique<usiw_cm_listener>());
    usiw_cm_admission_join(&ports.back()->admission, greedy.back().get(), 1024);
    for (int n = 0; n < 3000; n++) ports.back()->proven(greedy.back().get(), ++peer);
  }
  EXPECT_LE(net.half_open.used, net.half_open.limit);
  EXPECT_LE(net.queued.used, net.queued.limit);
  // The listener of another user gets its reserved slots and its reserved waiting entries.
  usiw_cm_listener victim{};
  Port other(net);
  usiw_cm_admission_join(&other.admission, &victim, 64);
  for (uint32_t n = 0; n < 64; n++) other.proven(&victim, 10 + n);
  EXPECT_GE(victim.open, USIW_CM_RESERVED);
  EXPECT_GE(victim.queued, USIW_CM_RESERVED);
  // Other listeners can take a slot that one returns.
  while (greedy[0]->open) {
    usiw_cm_admission_return(greedy[0].get(), ports[0]->now);
    ports[0]->due(greedy[0].get());
    if (greedy[0]->queued == 0) break;
  }
  for (auto& g : greedy) {
    while (g->open) usiw_cm_admission_return(g.get(), kStart + USIW_CM_STALE_US * 2);
  }
  EXPECT_LE(net.half_open.used, victim.open);
}

TEST_F(Admission, a_full_namespace_does_not_affect_another) {
  for (uint32_t peer = 100; peer < 9000; peer++) port.proven(&l, peer);
  usiw_cm_admission_net second;
  usiw_cm_admission_net_init(&second, kKey);
  EXPECT_EQ(second.half_open.used, 0u);
  Port other(second);
  usiw_cm_listener theirs{};
  usiw_cm_admission_join(&other.admission, &theirs, 1024);
  for (uint32_t peer = 1; peer <= 1024; peer++)
    EXPECT_EQ(other.proven(&theirs, peer).kind, unsigned{USIW_CM_ADM_ADMIT});
}

TEST_F(Admission, leave__what_waits_is_held_for_the_next_listener_in_order) {
  fill();
  for (uint32_t peer = 10; peer < 13; peer++) port.proven(&l, peer);
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
  EXPECT_EQ(port.req(nullptr, 13).kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_EQ(port.admission.held.count, 4u);
  EXPECT_EQ(l.queued, 0u);
  EXPECT_TRUE(port.due(nullptr).empty());
  usiw_cm_listener next{};
  usiw_cm_admission_join(&port.admission, &next, 16);
  EXPECT_EQ(port.due(&next), (std::vector<uint32_t>{10, 11, 12, 13}));
  for (int i = 0; i < 4; i++) usiw_cm_admission_return(&l, port.now);  // slots of a listener that has left
  EXPECT_EQ(l.open, 0u);
}

// The newcomer arrives after a listener has joined and before the host handles the entries that are due.
TEST_F(Admission, join__newcomer_does_not_overtake_who_was_held) {
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
  port.req(nullptr, 1);
  port.req(nullptr, 2);
  usiw_cm_listener next{};
  usiw_cm_admission_join(&port.admission, &next, 16);
  EXPECT_EQ(port.req(&next, 3).kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_EQ(port.req(&next, 1).kind, unsigned{USIW_CM_ADM_DROP});
  EXPECT_EQ(port.due(&next), (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(port.entries(), 0u);
}

TEST_F(Admission, leave__who_nobody_comes_for_is_refused_in_time) {
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
  EXPECT_EQ(port.req(nullptr, 1).kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_FALSE(port.req(nullptr, 1).pending);  // a repetition: needs no answer
  EXPECT_EQ(usiw_cm_admission_deadline(&port.admission), port.now + USIW_CM_HOLD_US);
  port.now += USIW_CM_HOLD_US;
  port.due(nullptr);
  EXPECT_EQ(port.refused, 1u);
  EXPECT_EQ(port.entries(), 0u);
  EXPECT_EQ(usiw_cm_admission_deadline(&port.admission), 0u);
  EXPECT_EQ(port.req(nullptr, 1).kind, unsigned{USIW_CM_ADM_REFUSE});
}

TEST_F(Admission, leave__what_is_held_is_bounded) {
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
  for (uint32_t peer = 0; peer < USIW_CM_MAX_HELD; peer++)
    EXPECT_EQ(port.req(nullptr, peer).kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_EQ(port.req(nullptr, 1000).kind, unsigned{USIW_CM_ADM_REFUSE});
}

TEST_F(Admission, leave__while_the_host_works_one_off) {
  fill();
  port.proven(&l, 10);
  ASSERT_TRUE(usiw_cm_admission_return(&l, port.now));
  usiw_cm_req* e = usiw_cm_admission_next(&port.admission, port.now);
  ASSERT_NE(e, nullptr);
  EXPECT_EQ(l.open, 4u);
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
  EXPECT_EQ(l.open, 3u);
  EXPECT_EQ(e->listener, nullptr);
  EXPECT_FALSE(usiw_cm_admission_discard(&port.admission, e, port.now));
  EXPECT_EQ(port.entries(), 0u);
  delete e;
}

TEST_F(Admission, discard__the_place_goes_to_the_next_one) {
  fill();
  port.proven(&l, 10);
  port.proven(&l, 11);
  ASSERT_TRUE(usiw_cm_admission_return(&l, port.now));
  usiw_cm_req* e = usiw_cm_admission_next(&port.admission, port.now);
  EXPECT_TRUE(usiw_cm_admission_discard(&port.admission, e, port.now));
  delete e;
  EXPECT_EQ(port.due(&l), std::vector<uint32_t>{11});
  EXPECT_EQ(l.open, 4u);
}

// When the host handles the entry, its REQ is for another listener. Its slot goes to an entry that waits for the first
// listener.
TEST_F(Admission, request__offered_one_that_is_for_another_listener_by_now) {
  usiw_cm_listener second{};
  usiw_cm_admission_join(&port.admission, &second, 4);
  fill();
  port.proven(&l, 10);
  port.proven(&l, 11);
  ASSERT_TRUE(usiw_cm_admission_return(&l, port.now));
  EXPECT_EQ(port.due(&second), (std::vector<uint32_t>{10, 11}));
  EXPECT_EQ(l.open, 3u);
  EXPECT_EQ(second.open, 2u);
}

TEST_F(Admission, request__another_attempt_of_the_same_peer_takes_over_if_it_may) {
  fill();
  port.proven(&l, 10);
  const usiw_cm_admission_verdict forged = port.req(&l, 10, 0, kPeerIsn + 1);
  EXPECT_EQ(forged.kind, unsigned{USIW_CM_ADM_DROP});  // it is not proven
  EXPECT_TRUE(forged.pending);                       // but it can be
  const usiw_cm_admission_verdict v = port.req(&l, 10, forged.isn, kPeerIsn + 1);
  EXPECT_EQ(v.kind, unsigned{USIW_CM_ADM_KEPT});
  EXPECT_EQ(port.freed, 1u);
  EXPECT_EQ(port.entries(), 1u);
}

TEST_F(Admission, equal_link_local_ends_on_two_links_are_two_connections) {
  const usiw_cm_packet pkt = [] {
    usiw_cm_packet p = packet(USIW_TRP_REQ);
    p.psn = kPeerIsn;
    return p;
  }();
  fill();
  for (uint32_t scope : {1, 2}) {
    auto* e = new usiw_cm_req{};
    e->tuple = tuple_of(10);
    e->tuple.scope = scope;
    usiw_cm_admission_verdict v;
    usiw_cm_admission_request(&v, &port.admission, &l, e, &pkt, port.now);
    EXPECT_EQ(v.kind, unsigned{USIW_CM_ADM_KEPT});
  }
  EXPECT_EQ(l.queued, 2u);
}

TEST_F(Admission, withdraw__with_both_isns_only) {
  fill();
  const uint32_t isn = port.proven(&l, 10).isn;
  const usiw_cm_tuple t = tuple_of(10), other = tuple_of(11);
  usiw_cm_packet reset = packet(USIW_TRP_RESET);
  reset.ack_psn = isn + 1;
  EXPECT_EQ(usiw_cm_admission_withdraw(&port.admission, &t, &reset), nullptr);
  reset.ack_psn = isn;
  EXPECT_EQ(usiw_cm_admission_withdraw(&port.admission, &other, &reset), nullptr);
  usiw_cm_req* e = usiw_cm_admission_withdraw(&port.admission, &t, &reset);
  ASSERT_NE(e, nullptr);
  delete e;
  EXPECT_EQ(l.queued, 0u);
}

/// Returns the maximum number of entries that the admission reads for one of many forged REQs. The port has this number
/// of listeners, and each has all its waiting entries in use. @p proven: all waiting REQs are proven.
uint64_t most_looked_at(unsigned listeners, bool proven) {
  usiw_cm_admission_net net;
  usiw_cm_admission_net_init(&net, kKey);
  Port port(net);
  std::vector<usiw_cm_listener> all(listeners);
  uint32_t peer = 0;
  for (auto& l : all) usiw_cm_admission_join(&port.admission, &l, 4);
  for (unsigned round = 0; round < USIW_CM_MAX_QUEUED + 8; round++)
    for (auto& l : all) proven ? port.proven(&l, ++peer) : port.req(&l, ++peer);
  EXPECT_GE(port.entries(), USIW_CM_MAX_QUEUED);
  EXPECT_GE(port.entries(), listeners * USIW_CM_RESERVED);
  uint64_t most = 0;
  for (unsigned n = 0; n < 2000; n++) {
    const uint64_t before = port.admission.entries_read;
    EXPECT_NE(port.req(&all[n % listeners], ++peer).kind, unsigned{USIW_CM_ADM_ADMIT});
    most = std::max<uint64_t>(most, port.admission.entries_read - before);
  }
  for (auto& l : all) port.free_chain(usiw_cm_admission_leave(&l, port.now));
  return most;
}

// A linear list would have 256 entries with one listener, and 8,000 with 256 listeners.
TEST(AdmissionCost, forged_requests_cost_the_same_whoever_listens_beside) {
  for (const bool proven : {false, true})
    for (const unsigned listeners : {1u, 16u, 256u})
      EXPECT_LE(most_looked_at(listeners, proven), 40u) << listeners << " listeners" << (proven ? ", proven" : "");
}

// If several tuples have the same hash, each of them is found and can be removed.
TEST(AdmissionCost, many_entries_come_and_go_in_any_order) {
  usiw_cm_admission_net net;
  usiw_cm_admission_net_init(&net, kKey);
  Port port(net);
  usiw_cm_listener l{};
  usiw_cm_admission_join(&port.admission, &l, 1);
  uint32_t random = 1;
  std::set<uint32_t> waiting;
  for (int step = 0; step < 20000; step++) {
    random = random * 1664525u + 1013904223u;
    const uint32_t peer = 1 + (random >> 16) % 250;
    if (random & 1 << 14) {
      const usiw_cm_admission_verdict v = port.req(&l, peer);
      if (v.kind == USIW_CM_ADM_KEPT) {
        EXPECT_TRUE(waiting.insert(peer).second) << "kept twice";
      } else if (v.kind == USIW_CM_ADM_DROP) {
        EXPECT_TRUE(waiting.contains(peer)) << "known, but it does not wait";
      }
      continue;
    }
    usiw_cm_packet reset = packet(USIW_TRP_RESET);
    reset.psn = kPeerIsn;
    reset.ack_psn = port.cookie(peer);
    const usiw_cm_tuple t = tuple_of(peer);
    usiw_cm_req* gone = usiw_cm_admission_withdraw(&port.admission, &t, &reset);
    EXPECT_EQ(gone != nullptr, waiting.erase(peer) == 1);
    delete gone;
    EXPECT_EQ(port.entries(), waiting.size());
  }
  port.free_chain(usiw_cm_admission_leave(&l, port.now));
}

}  // namespace
