// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Shared receive queues: the rings between producer and engine, and QPs that share one.
#include <deque>
#include <map>
#include <random>
#include <set>

#include "engine/engine_impl.h"
#include "played_peer.h"

namespace usiw::sim {
namespace {

// ---- The queue itself ----

class SrqContextTest : public testing::Test {
 protected:
  static constexpr uint32_t kCapacity = 4;
  SrqContextTest() {
    EXPECT_TRUE(srq_.create({Host::kPd, kCapacity, 2, nullptr}, doorbells_, events_));
    completions_ = srq_.open_completions(polled_, *cq_);
  }
  ~SrqContextTest() override { CqAccess::destroy(cq_, polled_); }
  /// Without a CQE that would have to be polled.
  void complete(uint32_t slot) {
    srq_.complete(slot);
    completions_->end_silently();
  }
  int post(uint64_t wr_id) {
    const Sge sge{0, 10, 0};
    return srq_.post_recv(wr_id, {&sge, 1});
  }
  /// The wr_id of the oldest, whose slot is in slot_ then; 0: there is none.
  uint64_t take() {
    RecvWqe* wqe = srq_.take(slot_);
    return wqe != nullptr ? wqe->wr_id : 0;
  }
  DoorbellList doorbells_;
  Events events_;
  PolledTable polled_;
  Cq* const cq_ = CqAccess::create(1, nullptr, {});
  SrqContext srq_;
  Completions* completions_;
  uint32_t slot_ = 0;
};

TEST_F(SrqContextTest, first_in_first_out__slots_come_back_in_any_order) {
  uint64_t next = 1, expected = 1;
  std::vector<uint32_t> taken;
  std::mt19937 rng(1);
  for (int round = 0; round < 1000; ++round) {
    if (rng() % 2 != 0) {
      const int rc = post(next);
      EXPECT_EQ(rc, next - expected + taken.size() == kCapacity ? ENOMEM : 0);
      next += rc == 0;
    } else if (const uint64_t got = take(); got != 0) {
      EXPECT_EQ(got, expected++);
      taken.push_back(slot_);
    } else {
      EXPECT_EQ(next, expected);
    }
    if (!taken.empty() && rng() % 2 != 0) {
      const size_t i = rng() % taken.size();
      complete(taken[i]);
      taken.erase(taken.begin() + static_cast<long>(i));
    }
  }
  EXPECT_GT(expected, 100u);
}

TEST_F(SrqContextTest, has__as_many_as_are_posted) {
  for (uint32_t n = 0; n <= kCapacity; ++n) {
    EXPECT_TRUE(srq_.has(n));
    for (uint32_t more = n + 1; more <= kCapacity + 2; ++more) EXPECT_FALSE(srq_.has(more));
    EXPECT_FALSE(srq_.has(~0u));
    post(n + 1);
  }
}

TEST_F(SrqContextTest, give_back__it_is_the_oldest_again) {
  for (uint64_t i = 1; i <= 4; ++i) post(i);
  EXPECT_EQ(take(), 1u);
  const uint32_t first = slot_;
  EXPECT_EQ(take(), 2u);
  srq_.give_back(slot_);
  srq_.give_back(first);
  EXPECT_TRUE(srq_.has(4));
  EXPECT_FALSE(srq_.has(5));
  EXPECT_EQ(post(5), ENOMEM);
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(take(), i);
  EXPECT_EQ(take(), 0u);
}

TEST_F(SrqContextTest, limit__once_and_at_once_if_it_is_so) {
  for (uint64_t i = 1; i <= 4; ++i) post(i);
  srq_.arm(3);
  EXPECT_EQ(srq_.limit(), 3u);
  take();
  EXPECT_TRUE(events_.srq_limits.empty()) << "3 are left";
  take();
  EXPECT_EQ(events_.srq_limits.size(), 1u);
  EXPECT_EQ(srq_.limit(), 0u);
  take();
  EXPECT_EQ(events_.srq_limits.size(), 1u);
  srq_.arm(2);
  EXPECT_EQ(events_.srq_limits.size(), 2u);
  srq_.arm(0);
  take();
  EXPECT_EQ(events_.srq_limits.size(), 2u);
}

// A model of the queue beside it: sizes change while some are taken and some have come back.
TEST_F(SrqContextTest, resize__order_and_room_are_kept) {
  std::mt19937 rng(1);
  std::deque<uint64_t> queued;
  std::map<uint32_t, uint64_t> taken;
  uint64_t next = 1;
  uint32_t capacity = kCapacity, refused = 0, done = 0;
  for (int round = 0; round < 20000; ++round) {
    switch (rng() % 6) {
      case 0:
      case 1: {
        const bool full = queued.size() + taken.size() == capacity;
        ASSERT_EQ(post(next), full ? ENOMEM : 0);
        if (!full) queued.push_back(next++);
        break;
      }
      case 2: {
        const uint64_t got = take();
        ASSERT_EQ(got, queued.empty() ? 0 : queued.front());
        if (got == 0) break;
        taken[slot_] = got;
        queued.pop_front();
        break;
      }
      case 3:
        if (taken.empty()) break;
        complete(taken.begin()->first);
        taken.erase(taken.begin());
        break;
      case 4:
        if (taken.empty()) break;
        srq_.give_back(taken.rbegin()->first);
        queued.push_front(taken.rbegin()->second);
        taken.erase(std::prev(taken.end()));
        break;
      default: {
        const uint32_t wanted = 1u << rng() % 6;
        ZeroedArray<uint32_t> moved;
        const bool fits = queued.size() + taken.size() <= wanted;
        ASSERT_EQ(srq_.resize(wanted, moved), fits ? 0 : EINVAL);
        ++(fits ? done : refused);
        if (!fits) break;
        capacity = wanted;
        std::map<uint32_t, uint64_t> at;
        for (const auto& [slot, wr_id] : taken) {
          ASSERT_TRUE(at.emplace(moved[slot], wr_id).second);
          ASSERT_EQ(srq_.slot(moved[slot]).wr_id, wr_id);
          ASSERT_EQ(srq_.slot(moved[slot]).num_sge, 1);
        }
        taken = std::move(at);
      }
    }
    ASSERT_EQ(srq_.capacity(), capacity);
    ASSERT_TRUE(srq_.has(static_cast<uint32_t>(queued.size())));
    ASSERT_FALSE(srq_.has(static_cast<uint32_t>(queued.size()) + 1));
  }
  EXPECT_GT(done, 500u);
  EXPECT_GT(refused, 500u);
}

TEST_F(SrqContextTest, post_recv__refusals) {
  const Sge many[3] = {}, huge[2] = {{0, USIW_MAX_MSG_SIZE, 0}, {0, 1, 0}};
  EXPECT_EQ(srq_.post_recv(1, many), EINVAL);
  EXPECT_EQ(srq_.post_recv(1, huge), EINVAL);
  EXPECT_EQ(srq_.post_recv(1, {}), 0);
}

// A producer that breaks the rules: numbers that are none, or twice.
struct Rings : Srq {
  using Srq::posted_;
};

TEST_F(SrqContextTest, hostile_numbers_are_left_out) {
  post(1);
  auto& posted = srq_.*(&Rings::posted_);
  posted[1].store(1);           // the number of the first one again
  posted[2].store(0xffffffff);
  posted[3].store(kCapacity + 1);
  EXPECT_EQ(take(), 1u);
  EXPECT_EQ(take(), 0u);
  for (uint32_t i = 0; i < kCapacity; ++i) posted[i].store(0xfffffff0 + i);
  EXPECT_EQ(take(), 0u) << "and it ends";
}

// ---- QPs that share one ----

class SrqTest : public EngineTest {
 protected:
  static constexpr uint32_t kSlot = 4096;

  void share(unsigned pairs, uint32_t max_wr) {
    srq_ = w.b.srq(max_wr);
    ASSERT_NE(srq_, nullptr);
    sink_ = w.b.region(size_t{max_wr} * kSlot);
    source_ = w.a.region(64 * kSlot);
    fill(source_->bytes, 5);
    PairOptions o;
    o.srq_of_b = srq_;
    for (unsigned i = 0; i < pairs; ++i) {
      auto [qa, qb] = w.connect(o);
      a_.push_back(qa);
      b_.push_back(qb);
    }
  }
  int try_post_srq(uint64_t slot) {
    const Sge sge = sink_->sge(slot * kSlot, kSlot);
    const int rc = srq_->post_recv(slot, {&sge, 1});
    srq_->ring_recv();
    return rc;
  }
  void post_srq(uint64_t slot) { ASSERT_EQ(0, try_post_srq(slot)); }
  void send_on(unsigned pair, uint32_t length, uint64_t wr_id = 1) { send(a_[pair], source_->sge(0, length), wr_id); }
  std::vector<Cqe> received(size_t n, uint64_t ns = 10 * kSec) { return wait(w.b, w.b.recv_cq, n, ns); }
  /// Nothing more comes.
  void expect_none(Host& h, Cq* cq) {
    w.run_for(50 * kMs);
    EXPECT_TRUE(h.poll(cq).empty());
  }

  Srq* srq_ = nullptr;
  Region *sink_ = nullptr, *source_ = nullptr;
  std::vector<Qp*> a_, b_;
};

TEST_F(SrqTest, each_message_takes_the_next_one) {
  share(3, 8);
  for (uint64_t i = 0; i < 8; ++i) post_srq(i);
  EXPECT_EQ(try_post_srq(0), ENOMEM);
  for (unsigned i = 0; i < 8; ++i) {
    send_on(i % 3, 1000 + i);
    const auto got = received(1);
    EXPECT_EQ(got[0].wr_id, i);
    EXPECT_EQ(got[0].status, kSuccess);
    EXPECT_EQ(got[0].byte_len, 1000 + i);
    EXPECT_EQ(got[0].qpn, b_[i % 3]->qpn());
  }
  EXPECT_EQ(0, try_post_srq(3));
}

TEST_F(SrqTest, none_posted__those_who_wait_get_them_in_turn) {
  share(4, 8);
  for (unsigned round = 0; round < 3; ++round)
    for (unsigned i = 0; i < 4; ++i) {
      send_on(i, 100);
      if (round == 0) w.run_for(5 * kMs);
    }
  w.run_for(100 * kMs);
  for (unsigned round = 0; round < 3; ++round)
    for (unsigned i = 0; i < 4; ++i) {
      post_srq(i);
      EXPECT_EQ(received(1)[0].qpn, b_[i]->qpn()) << round;
    }
  EXPECT_GE(w.b.count(USIW_CNT_NOT_READY_TX), 4u);
}

TEST_F(SrqTest, none_posted_ever__bounded_as_with_a_queue_of_ones_own) {
  share(2, 4);
  send_on(0, 100);
  ASSERT_TRUE(failed(w.a) && failed(w.b));
  EXPECT_EQ(statuses(w.a, w.a.send_cq, 1), std::vector<WcStatus>{kRnrRetryExcErr});
  EXPECT_EQ(w.b.events.last_wqe, std::vector<Qp*>{b_[0]});
  post_srq(0);  // the one that has failed takes nothing
  send_on(1, 100);
  EXPECT_EQ(received(1)[0].qpn, b_[1]->qpn());
}

/// Sizes change while messages of several datagrams have begun, are held up by a lost one, or wait for a receive.
TEST_F(SrqTest, resize__under_traffic) {
  w.wire.faults.loss = 0.05;
  w.wire.faults.reorder = 0.1;
  share(3, 64);
  uint64_t posted = 0, taken = 0;
  std::mt19937 rng(7);
  unsigned resized = 0, refused = 0, sent = 0, got = 0;
  std::map<uint32_t, uint64_t> bytes;
  constexpr unsigned kMessages = 600;
  while (got < kMessages) {
    while (posted - taken < 64 && rng() % 8 != 0 && try_post_srq(posted % 64) == 0) ++posted;
    for (unsigned i = 0; i < 3 && sent < kMessages; ++i)
      if (sent - got < 90) send_on(i, 100 + rng() % 3900), ++sent;
    const int rc = w.b.engine.srq_resize(srq_, 1u << rng() % 8);
    ASSERT_TRUE(rc == 0 || rc == EINVAL) << rc;
    ++(rc == 0 ? resized : refused);
    w.run_for(rng() % 200'000);
    for (const Cqe& c : w.b.poll(w.b.recv_cq)) {
      ASSERT_EQ(c.status, kSuccess);
      EXPECT_EQ(std::memcmp(sink_->bytes.data() + c.wr_id * kSlot, source_->bytes.data(), c.byte_len), 0);
      ++got;
      ++taken;
    }
    w.a.poll(w.a.send_cq);
  }
  EXPECT_GT(resized, 20u);
  EXPECT_GT(refused, 20u);
}

TEST_F(SrqTest, reset__no_event_and_the_qp_takes_again) {
  share(1, 4);
  for (uint64_t i = 0; i < 4; ++i) post_srq(i);
  send_on(0, 10);
  received(1);
  w.b.engine.qp_reset(b_[0]);
  w.a.engine.qp_reset(a_[0]);
  EXPECT_TRUE(w.b.events.last_wqe.empty());
  w.a.poll(w.a.send_cq);
  w.connect(a_[0], b_[0], {});
  send_on(0, 20);
  EXPECT_EQ(received(1)[0].wr_id, 1u);
  w.b.engine.qp_abort(b_[0]);
  EXPECT_EQ(w.b.events.last_wqe, std::vector<Qp*>{b_[0]});
}

TEST_F(SrqTest, limit__told_when_fewer_are_left) {
  share(2, 8);
  for (uint64_t i = 0; i < 8; ++i) post_srq(i);
  w.b.engine.srq_arm(srq_, 7);
  send_on(0, 10);
  received(1);
  EXPECT_TRUE(w.b.events.srq_limits.empty());
  EXPECT_EQ(w.b.engine.srq_limit(srq_), 7u);
  send_on(1, 10);
  received(1);
  EXPECT_EQ(w.b.events.srq_limits, std::vector<Srq*>{srq_});
  EXPECT_EQ(w.b.engine.srq_limit(srq_), 0u);
}

// Loss, repetition and reordering: messages of a QP complete in order, each receive once, whoever dies meanwhile.
TEST_F(SrqTest, bad_wire__exactly_once_and_in_order) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.wire.faults.loss = 0.05;
    world.wire.faults.duplicate = 0.02;
    world.wire.faults.reorder = 0.1;
    constexpr unsigned kPairs = 3, kWr = 16;
    constexpr uint32_t kMessages = 60;
    Srq* srq = world.b.srq(kWr);
    sim::Region* sink = world.b.region(kWr * kSlot);
    sim::Region* source = world.a.region(kSlot);
    PairOptions o;
    o.srq_of_b = srq;
    std::vector<std::pair<Qp*, Qp*>> pairs;
    for (unsigned i = 0; i < kPairs; ++i) pairs.push_back(world.connect(o));
    std::set<uint64_t> posted;
    const auto post_one = [&](uint64_t slot) {
      const Sge sge = sink->sge(slot * kSlot, kSlot);
      ASSERT_EQ(0, srq->post_recv(slot, {&sge, 1}));
      EXPECT_TRUE(posted.insert(slot).second);
      srq->ring_recv();
    };
    for (uint64_t i = 0; i < kWr; ++i) post_one(i);
    std::map<uint32_t, uint32_t> next;  // by QPN
    std::vector<uint32_t> sent(kPairs);
    uint32_t done = 0;
    bool killed = false;
    const auto expected = [&] { return (kPairs - killed) * kMessages; };
    const bool finished = world.run([&] {
      for (unsigned i = 0; i < kPairs; ++i)
        for (; sent[i] < kMessages && pairs[i].first->state() == QpState::kRts; ++sent[i]) {
          const Sge sge = source->sge(0, 1 + sent[i] * 61 % kSlot);
          if (pairs[i].first->post_send({sent[i], WrOpcode::kSend, 0, 0, 0}, {&sge, 1}) != 0) break;
          pairs[i].first->ring_send();
        }
      for (const Cqe& c : world.b.poll(world.b.recv_cq)) {
        EXPECT_EQ(posted.erase(c.wr_id), 1u);
        if (c.status == kSuccess) {
          EXPECT_EQ(c.byte_len, 1 + next[c.qpn]++ * 61 % kSlot);
          if (!killed || c.qpn != pairs[0].second->qpn()) ++done;
        } else {
          EXPECT_TRUE(killed && c.qpn == pairs[0].second->qpn());
        }
        post_one(c.wr_id);
      }
      if (const uint32_t of_first = next[pairs[0].second->qpn()]; !killed && of_first >= 20) {
        killed = true;
        done -= of_first;
        world.b.engine.qp_abort(pairs[0].second);
      }
      return killed && done >= expected();
    }, 100 * kSec);
    EXPECT_TRUE(finished) << done << " of " << expected();
    EXPECT_EQ(posted.size(), kWr);
    EXPECT_EQ(world.b.events.last_wqe.size(), 1u);
  }
}

// ---- Peers played by the test ----

class SrqPeers : public Protocol {
 protected:
  /// @p n connections of QPs that share an SRQ with @p posted receives, of @p max_wr.
  void share(unsigned n, uint32_t max_wr, uint64_t posted) {
    srq_ = w.a.srq(max_wr);
    sink_ = w.a.region(64 * kBytes);
    for (unsigned i = 0; i < n; ++i) {
      QpAttr attr{};
      attr.max_send_wr = 4;
      attr.srq = srq_;
      qps_.push_back(w.a.qp(attr));
      flows_.push_back(w.next_flow(false));
      ASSERT_EQ(0, w.a.engine.qp_connect(qps_[i], 0, {flows_[i], {}, {}, 64, 0}, {kSnd, kRcv, 64, 4, 4, 1500, true}));
    }
    for (uint64_t i = 0; i < posted; ++i) ASSERT_EQ(0, post(i));
  }
  int post(uint64_t slot) {
    const Sge sge = sink_->sge(slot * kBytes, kBytes);
    const int rc = srq_->post_recv(slot, {&sge, 1});
    srq_->ring_recv();
    return rc;
  }
  /// A segment of message @p msn of connection @p i, @p ahead of the first PSN.
  void segment_on(unsigned i, uint32_t ahead, uint32_t msn, uint32_t mo, bool last) {
    flow = flows_[i];
    inject(data(kRcv + ahead, send_seg(msn, mo, last), std::vector<std::byte>(100)));
  }
  std::vector<Cqe> completed() {
    settle();
    return w.a.poll(w.a.recv_cq);
  }
  bool not_ready(const std::vector<Datagram>& ds) {
    return !ds.empty() && (header(ds.back()).flags & USIW_TRP_F_NOT_READY) != 0;
  }
  QpContext& context(unsigned i) { return *static_cast<QpContext*>(qps_[i]); }

  static constexpr uint32_t kBytes = 1024;
  Srq* srq_ = nullptr;
  Region* sink_ = nullptr;
  std::vector<Qp*> qps_;
  std::vector<FlowKey> flows_;
};

TEST_F(SrqPeers, slots_are_free_in_the_order_of_completions) {
  share(2, 2, 2);
  segment_on(0, 0, 1, 0, false);
  EXPECT_TRUE(completed().empty());
  segment_on(1, 0, 1, 0, true);
  const auto got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 1u) << "the first one is taken";
  EXPECT_EQ(post(7), 0);
  EXPECT_EQ(post(8), ENOMEM);
  segment_on(0, 1, 1, 100, true);
  ASSERT_EQ(completed().size(), 1u);
  EXPECT_EQ(post(8), 0);
}

TEST_F(SrqPeers, abort__flushes_what_is_taken_and_leaves_the_rest) {
  share(2, 4, 4);
  segment_on(0, 0, 1, 0, false);
  segment_on(0, 2, 3, 0, true);  // early: takes one, too, before message 2
  segment_on(0, 3, 4, 0, false);
  EXPECT_TRUE(completed().empty());
  w.a.engine.qp_abort(qps_[0]);
  auto got = w.a.poll(w.a.recv_cq);
  ASSERT_EQ(got.size(), 2u) << "and half is left to others";
  for (unsigned i = 0; i < 2; ++i) {
    EXPECT_EQ(got[i].status, kWrFlushErr);
    EXPECT_EQ(got[i].wr_id, i);
    EXPECT_EQ(got[i].qpn, qps_[0]->qpn());
  }
  EXPECT_EQ(w.a.events.last_wqe, std::vector<Qp*>{qps_[0]});
  for (unsigned i = 0; i < 2; ++i) {
    segment_on(1, i, i + 1, 0, true);
    got = completed();
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].wr_id, 2 + i);
  }
  w.a.engine.qp_abort(qps_[0]);
  w.a.engine.qp_shutdown(qps_[0]);
  EXPECT_EQ(w.a.events.last_wqe.size(), 1u) << "once";
}

TEST_F(SrqPeers, destroy__what_is_taken_goes_to_who_waits) {
  share(2, 4, 1);
  segment_on(0, 0, 1, 0, false);
  settle();
  segment_on(1, 0, 1, 0, true);
  EXPECT_TRUE(not_ready(settle()));
  w.a.engine.qp_destroy(qps_[0]);
  const auto told = settle();
  ASSERT_FALSE(told.empty());
  EXPECT_FALSE(not_ready(told)) << "come again";
  EXPECT_TRUE(w.a.events.last_wqe.empty());
  segment_on(1, 0, 1, 0, true);
  const auto got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 0u);
  EXPECT_EQ(got[0].qpn, qps_[1]->qpn());
}

// The one that dies while it waits leaves its turn to the next one.
TEST_F(SrqPeers, waiting__who_dies_gives_up_the_turn) {
  share(3, 4, 0);
  for (unsigned i = 0; i < 3; ++i) {
    segment_on(i, 0, 1, 0, true);
    EXPECT_TRUE(not_ready(settle()));
  }
  w.a.engine.qp_abort(qps_[0]);
  w.a.engine.qp_destroy(qps_[1]);
  ASSERT_EQ(post(0), 0);
  EXPECT_FALSE(not_ready(settle()));
  segment_on(2, 0, 1, 0, true);
  EXPECT_EQ(completed().size(), 1u);
}

// What is posted is for those who wait, also if another one's message comes first.
TEST_F(SrqPeers, waiting__nobody_overtakes) {
  share(2, 4, 0);
  segment_on(0, 0, 1, 0, true);
  EXPECT_TRUE(not_ready(settle()));
  const Sge sge = sink_->sge(0, kBytes);
  ASSERT_EQ(0, srq_->post_recv(0, {&sge, 1}));  // not rung yet
  segment_on(1, 0, 1, 0, true);
  settle();
  segment_on(0, 0, 1, 0, true);
  const auto got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].qpn, qps_[0]->qpn());
}

// A message that is skipped (engine/skip.cc) keeps its place: the next receive is parked for it until it comes again.
TEST_F(SrqPeers, waiting__a_message_that_is_skipped_keeps_its_place) {
  constexpr uint16_t kAsks = USIW_TRP_F_RETRANS | USIW_TRP_F_SKIP;
  share(2, 4, 0);
  for (unsigned i = 0; i < 2; ++i) {
    segment_on(i, 0, 1, 0, true);
    EXPECT_TRUE(not_ready(settle()));
  }
  const auto skip = [&](uint32_t ahead) {
    flow = flows_[0];
    inject(data(kRcv + ahead, send_seg(1, 0, true), std::vector<std::byte>(100), kSnd, kAsks));
    const auto out = settle();
    ASSERT_FALSE(out.empty());
    EXPECT_EQ(header(out.back()).ack_psn, kRcv + ahead + 1);
    EXPECT_EQ(header(out.back()).flags & (USIW_TRP_F_SKIPPED | USIW_TRP_F_NOT_READY), USIW_TRP_F_SKIPPED);
  };
  skip(0);
  segment_on(0, 1, 1, 0, true);
  EXPECT_TRUE(not_ready(settle()));
  skip(1);
  ASSERT_EQ(0, post(0));
  settle();
  segment_on(1, 0, 1, 0, true);
  EXPECT_TRUE(not_ready(settle()));
  segment_on(0, 2, 1, 0, true);
  auto got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].qpn, qps_[0]->qpn());
  ASSERT_EQ(0, post(1));
  settle();
  segment_on(1, 0, 1, 0, true);
  got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].qpn, qps_[1]->qpn());
}

// A peer that leaves a gap open takes no more than half of what there is.
TEST_F(SrqPeers, early_messages__half_is_left_to_others) {
  share(2, 16, 16);
  for (uint32_t n = 1; n < 20; ++n) segment_on(0, n, n + 1, 0, true);
  EXPECT_TRUE(completed().empty());
  EXPECT_EQ(context(0).rcv.early_count(), 8u);
  EXPECT_EQ(w.a.count(USIW_CNT_DROP_EARLY), 11u);
  for (uint32_t n = 0; n < 8; ++n) segment_on(1, n, n + 1, 0, true);
  EXPECT_EQ(completed().size(), 8u);
  segment_on(0, 0, 1, 0, true);  // the gap: nothing is left for it
  settle();
  ASSERT_EQ(post(50), 0);
  segment_on(0, 0, 1, 0, true);
  const auto got = completed();
  ASSERT_EQ(got.size(), 9u);
  EXPECT_EQ(got[0].wr_id, 50u);
  for (uint64_t i = 1; i < 9; ++i) EXPECT_EQ(got[i].wr_id, i - 1);
}

// Several peers that leave gaps open do not take what the others need to fill theirs.
TEST_F(SrqPeers, early_messages__the_last_one_is_left) {
  share(3, 2, 2);
  for (unsigned i = 0; i < 2; ++i) segment_on(i, 1, 2, 0, true);
  EXPECT_TRUE(completed().empty());
  EXPECT_EQ(context(0).rcv.early_count(), 1u);
  EXPECT_EQ(context(1).rcv.early_count(), 0u) << "it would be the last";
  EXPECT_EQ(w.a.count(USIW_CNT_DROP_EARLY), 1u);
  segment_on(1, 0, 1, 0, true);
  auto got = completed();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].wr_id, 1u);
  ASSERT_EQ(post(1), 0);
  segment_on(0, 0, 1, 0, true);
  got = completed();
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].wr_id, 1u);
  EXPECT_EQ(got[1].wr_id, 0u) << "the one that was ahead";
}

TEST_F(SrqPeers, early_messages__only_as_far_as_there_are_receives) {
  share(1, 4, 4);
  segment_on(0, 1, 5, 0, true);   // the queue has four
  segment_on(0, 2, 0, 0, true);
  segment_on(0, 3, 0x80000000, 0, true);
  segment_on(0, 4, 4, 0, true);
  EXPECT_TRUE(completed().empty());
  EXPECT_EQ(context(0).rcv.early_count(), 1u);
  w.a.engine.qp_abort(qps_[0]);
  const auto got = w.a.poll(w.a.recv_cq);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].status, kWrFlushErr);
}

}  // namespace
}  // namespace usiw::sim
