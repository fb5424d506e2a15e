// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file allowance_test.cc
/// The depth of a queue: a work request counts against it until its end, and until its CQE has been polled if it has
/// one.
#include "fixture.h"

namespace usiw::sim {
namespace {

class AllowanceTest : public EngineTest {
 protected:
  static constexpr uint32_t kDepth = 16;

  void connect(PairOptions o = {.max_send_wr = kDepth, .max_recv_wr = kDepth}) {
    std::tie(qa, qb) = w.connect(o);
    at_a = w.a.region(64);
    at_b = w.b.region(64);
  }
  /// Posts WRITEs until the queue is full, kDepth * 4 at most; returns how many it took.
  uint32_t writes(Qp* qp, uint8_t flags = kWrSignaled) {
    for (uint32_t n = 0; n < 4 * kDepth; ++n) {
      const int rc = qp->post_send({n, WrOpcode::kRdmaWrite, flags, at_b->addr(), at_b->stag},
                                   std::array{at_a->sge(0, 8)});
      if (rc != 0) return expect_full(rc), n;
      qp->ring_send();
    }
    return 4 * kDepth;
  }
  template <typename Queue>
  uint32_t receives(Queue& queue, const Region& into) {
    for (uint32_t n = 0; n < 4 * kDepth; ++n) {
      const int rc = queue.post_recv(n, std::array{into.sge(0, 8)});
      if (rc != 0) return expect_full(rc), n;
      queue.ring_recv();
    }
    return 4 * kDepth;
  }
  static void expect_full(int rc) { EXPECT_EQ(ENOMEM, rc); }
  /// Polls @p n completions.
  static void take(Cq* cq, uint32_t n) {
    std::vector<Cqe> out(n);
    EXPECT_EQ(n, cq->poll(out));
  }
  void work() { w.run_for(1'000'000); }

  Qp *qa, *qb;
  Region *at_a, *at_b;
};

TEST_F(AllowanceTest, signalled_work_counts_until_it_has_been_polled) {
  connect();
  EXPECT_EQ(kDepth, writes(qa));
  work();
  EXPECT_EQ(0u, writes(qa)) << "complete, but not polled";
  take(w.a.send_cq, 5);
  EXPECT_EQ(5u, writes(qa));
  work();
  take(w.a.send_cq, kDepth);
  EXPECT_EQ(kDepth, writes(qa));
}

TEST_F(AllowanceTest, unsignalled_work_counts_until_it_has_succeeded) {
  connect();
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(kDepth, writes(qa, 0));
    work();
  }
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  // One that is signalled takes one place of it, wherever in the ring it is.
  ASSERT_EQ(0, qa->post_send({1, WrOpcode::kRdmaWrite, kWrSignaled, at_b->addr(), at_b->stag},
                             std::array{at_a->sge(0, 8)}));
  qa->ring_send();
  for (int round = 0; round < 5; ++round) {
    work();
    EXPECT_EQ(kDepth - 1, writes(qa, 0));
  }
  work();
  take(w.a.send_cq, 1);
  EXPECT_EQ(kDepth, writes(qa, 0));
}

TEST_F(AllowanceTest, receives_count_until_they_have_been_polled) {
  connect();
  EXPECT_EQ(kDepth, receives(*qb, *at_b));
  for (int i = 0; i < 7; ++i) send(qa, at_a->sge(0, 8));
  work();
  EXPECT_EQ(0u, receives(*qb, *at_b));
  take(w.b.recv_cq, 7);
  EXPECT_EQ(7u, receives(*qb, *at_b));
}

TEST_F(AllowanceTest, batches_count_as_single_posts_do) {
  connect();
  const auto prepare = [&](uint32_t n) {
    return qa->prepare(n, {n, WrOpcode::kRdmaWrite, kWrSignaled, at_b->addr(), at_b->stag},
                       std::array{at_a->sge(0, 8)});
  };
  for (uint32_t n = 0; n < kDepth; ++n) ASSERT_EQ(0, prepare(n));
  qa->publish(kDepth);
  qa->ring_send();
  work();
  EXPECT_EQ(ENOMEM, prepare(0));
  take(w.a.send_cq, 3);
  EXPECT_EQ(0, prepare(0));
  EXPECT_EQ(0, prepare(2));
  EXPECT_EQ(ENOMEM, prepare(3));
}

// A program that posts to a QP in ERR for ever neither overruns its CQ nor harms the other QP of the CQ.
TEST_F(AllowanceTest, posts_to_a_qp_in_error_are_bounded) {
  Cq* const cq = w.a.engine.cq_create(kDepth + 4, nullptr);
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = kDepth;
  attr.send_cq = cq;
  Qp *dead = w.a.qp(attr), *other = w.a.qp(attr);
  at_a = w.a.region(64), at_b = w.b.region(64);
  QpAttr plain{};
  plain.max_send_wr = plain.max_recv_wr = kDepth;
  w.connect(dead, w.b.qp(plain), {});
  w.connect(other, w.b.qp(plain), {});
  w.a.engine.qp_abort(dead);
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(round == 0 ? kDepth : 0u, writes(dead, 0)) << "a flushed work request has a CQE";
    EXPECT_EQ(round == 0 ? kDepth : 0u, receives(*dead, *at_a));
    work();
  }
  EXPECT_FALSE(cq->dead());
  write(other, at_a->sge(0, 8), at_b->addr(), at_b->stag, 77);
  const auto got = wait(w.a, cq, kDepth + 1);
  EXPECT_EQ(77u, got.back().wr_id);
  EXPECT_EQ(kSuccess, got.back().status);
  // Posting and polling go on.
  for (int round = 0; round < 50; ++round) {
    EXPECT_EQ(kDepth, writes(dead));
    EXPECT_EQ(kDepth, wait(w.a, cq, kDepth).size());
  }
  w.a.engine.qp_destroy(dead);
  w.a.engine.qp_destroy(other);
  w.a.engine.cq_destroy(cq);
}

TEST_F(AllowanceTest, completions_that_an_overrun_has_lost_do_not_count) {
  Cq* const cq = w.a.engine.cq_create(4, nullptr, {.ignore_overrun = true});
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = kDepth;
  attr.send_cq = cq;
  Qp* const qp = w.a.qp(attr);
  attr.send_cq = nullptr;
  at_a = w.a.region(64), at_b = w.b.region(64);
  w.connect(qp, w.b.qp(attr), {});
  EXPECT_EQ(kDepth, writes(qp));
  work();
  EXPECT_EQ(kDepth - 4, writes(qp));
  work();
  take(cq, 4);
  EXPECT_EQ(kDepth, writes(qp));
  w.a.engine.qp_destroy(qp);
  w.a.engine.cq_destroy(cq);
}

TEST_F(AllowanceTest, completions_of_an_srq_in_a_cq_that_is_gone_do_not_count) {
  Srq* const srq = w.a.srq(kDepth);
  at_a = w.a.region(64), at_b = w.b.region(64);
  for (int round = 0; round < 3; ++round) {
    Cq* const cq = w.a.engine.cq_create(2 * kDepth, nullptr);
    QpAttr attr{};
    attr.max_send_wr = attr.max_recv_wr = kDepth;
    Qp* const peer = w.b.qp(attr);
    attr.recv_cq = cq;
    attr.srq = srq;
    Qp* const qp = w.a.qp(attr);
    w.connect(qp, peer, {});
    EXPECT_EQ(kDepth, receives(*srq, *at_a));
    for (uint32_t i = 0; i < kDepth; ++i) send(peer, at_b->sge(0, 0));
    work();
    take(cq, 3);
    EXPECT_EQ(3u, receives(*srq, *at_a));
    w.a.engine.qp_destroy(qp);
    EXPECT_EQ(0u, receives(*srq, *at_a)) << "not polled, and their CQ is there";
    w.a.engine.cq_destroy(cq);
    EXPECT_EQ(kDepth - 3, receives(*srq, *at_a));
    // The next QP takes them all.
    w.b.engine.qp_destroy(peer);
    attr = QpAttr();
    attr.max_send_wr = attr.max_recv_wr = kDepth;
    attr.srq = srq;
    Qp* const last = w.a.qp(attr);
    attr.srq = nullptr;
    Qp* const sender = w.b.qp(attr);
    w.connect(last, sender, {});
    for (uint32_t i = 0; i < kDepth; ++i) send(sender, at_b->sge(0, 0));
    EXPECT_EQ(kDepth, wait(w.a, w.a.recv_cq, kDepth).size());
    w.a.engine.qp_destroy(last);
    w.b.engine.qp_destroy(sender);
  }
  w.a.engine.srq_destroy(srq);
}

// Two queues share the CQ. After the resizing each CQE still belongs to its own one.
TEST_F(AllowanceTest, resizing_the_cq_leaves_what_has_not_been_polled) {
  for (const uint32_t to : {2 * kDepth, 8 * kDepth})
    for (const uint32_t offset : {0u, 7u, 4 * kDepth - 10}) {  // the ring wraps with the last
      SCOPED_TRACE(testing::Message() << "resized to " << to << ", offset " << offset);
      Cq* const cq = w.a.engine.cq_create(4 * kDepth, nullptr);
      QpAttr attr{};
      attr.max_send_wr = attr.max_recv_wr = kDepth;
      attr.send_cq = attr.recv_cq = cq;
      Qp* const qp = w.a.qp(attr);
      attr.send_cq = attr.recv_cq = nullptr;
      Qp* const peer = w.b.qp(attr);
      at_a = w.a.region(64), at_b = w.b.region(64);
      w.connect(qp, peer, {});
      for (uint32_t i = 0; i < offset; ++i) {
        write(qp, at_a->sge(0, 8), at_b->addr(), at_b->stag);
        wait(w.a, cq, 1);
      }
      EXPECT_EQ(kDepth, writes(qp));
      work();
      EXPECT_EQ(kDepth, receives(*qp, *at_a));
      for (uint32_t i = 0; i < kDepth; ++i) send(peer, at_a->sge(0, 0));
      work();  // kDepth CQEs of the send queue, then as many of the receive queue
      take(cq, 3);
      EXPECT_EQ(3u, writes(qp));
      work();
      take(cq, 3);
      ASSERT_EQ(0, w.a.engine.cq_resize(cq, to));
      EXPECT_EQ(3u, writes(qp));
      EXPECT_EQ(0u, writes(qp));
      EXPECT_EQ(0u, receives(*qp, *at_a));
      work();
      take(cq, kDepth - 6);  // the rest of the first WRITEs
      EXPECT_EQ(kDepth - 6, writes(qp));
      EXPECT_EQ(0u, receives(*qp, *at_a));
      work();
      take(cq, kDepth);
      EXPECT_EQ(0u, writes(qp));
      EXPECT_EQ(kDepth, receives(*qp, *at_a));
      take(cq, kDepth);
      EXPECT_EQ(kDepth, writes(qp));
      EXPECT_EQ(0u, receives(*qp, *at_a));
      w.a.engine.qp_destroy(qp);
      w.b.engine.qp_destroy(peer);
      w.a.engine.cq_destroy(cq);
    }
}

TEST_F(AllowanceTest, reset_leaves_what_has_not_been_polled) {
  connect();
  EXPECT_EQ(kDepth, writes(qa));
  EXPECT_EQ(kDepth, receives(*qa, *at_a));
  work();
  take(w.a.send_cq, 6);
  w.a.engine.qp_reset(qa);
  w.b.engine.qp_reset(qb);
  EXPECT_EQ(kDepth, receives(*qa, *at_a)) << "nothing had completed";
  w.connect(qa, qb, {});
  EXPECT_EQ(6u, writes(qa)) << "ten completions are in the CQ";
  work();
  take(w.a.send_cq, 16);
  EXPECT_EQ(kDepth, writes(qa));
}

// Completions outlive their QP. They change nothing for the next one that gets its counter.
TEST_F(AllowanceTest, completions_of_a_qp_that_is_gone_are_polled_later) {
  for (int round = 0; round < 40; ++round) {
    connect();
    EXPECT_EQ(kDepth, writes(qa));
    EXPECT_EQ(kDepth, receives(*qb, *at_b));
    work();
    EXPECT_EQ(0u, writes(qa));
    w.a.engine.qp_destroy(qa);
    w.b.engine.qp_destroy(qb);
    if (round % 4 == 3) take(w.a.send_cq, 4 * kDepth - 8), take(w.a.send_cq, 8);
  }
}

TEST_F(AllowanceTest, counter_is_used_again_once_its_completions_are_polled) {
  PolledTable table;
  PolledTable::Unused of;
  PolledTable::Pushed a, b, c;
  ASSERT_TRUE(table.take(of, a));
  const uint32_t first = a.number;
  a.count += 2;
  table.give_back(of, a);
  EXPECT_EQ(PolledTable::kNone, a.number);
  ASSERT_TRUE(table.take(of, b));
  EXPECT_NE(first, b.number);
  count_polled(table.at(first));
  ASSERT_TRUE(table.take(of, c));
  EXPECT_NE(first, c.number);
  count_polled(table.at(first));
  table.give_back(of, b);
  table.give_back(of, c);
  ASSERT_TRUE(table.take(of, a));
  EXPECT_EQ(first, a.number);
  EXPECT_EQ(2u, a.count) << "what it stands at";
  // Another CQ takes what the first one has left.
  PolledTable::Unused second;
  table.give_back(of, a);
  table.give_back_all(of);
  ASSERT_TRUE(table.take(second, a));
  EXPECT_LT(a.number, 16u);
}

/// A program that makes its next QP before it polls what the last one has left needs no more counters with each.
TEST(PolledTable, a_counter_that_is_polled_late_is_used_again) {
  PolledTable table;
  PolledTable::Unused of;
  PolledTable::Pushed now;
  ASSERT_TRUE(table.take(of, now));
  for (int i = 0; i < 1000; ++i) {
    const uint32_t last = now.number;
    now.count += 1;
    table.give_back(of, now);
    ASSERT_TRUE(table.take(of, now));
    ASSERT_LT(now.number, 16u) << "after " << i;
    count_polled(table.at(last));
  }
}

TEST_F(AllowanceTest, receives_of_an_srq_count_until_they_have_been_polled) {
  Srq* const srq = w.b.srq(kDepth);
  Cq* const other_cq = w.b.engine.cq_create(64, nullptr);
  at_a = w.a.region(64), at_b = w.b.region(64);
  QpAttr plain{};
  plain.max_send_wr = plain.max_recv_wr = kDepth;
  Qp *to_first = w.a.qp(plain), *to_second = w.a.qp(plain);
  plain.srq = srq;
  Qp* const first = w.b.qp(plain);
  plain.recv_cq = other_cq;
  Qp* second = w.b.qp(plain);
  w.connect(to_first, first, {});
  w.connect(to_second, second, {});

  EXPECT_EQ(kDepth, receives(*srq, *at_b));
  for (int i = 0; i < 3; ++i) send(to_first, at_a->sge(0, 8));
  for (int i = 0; i < 5; ++i) send(to_second, at_a->sge(0, 8));
  work();
  EXPECT_EQ(0u, receives(*srq, *at_b));
  take(w.b.recv_cq, 1);
  take(other_cq, 2);
  EXPECT_EQ(3u, receives(*srq, *at_b));

  // More room, and what has not been polled takes its share of that, too.
  ASSERT_EQ(0, w.b.engine.srq_resize(srq, 2 * kDepth));
  EXPECT_EQ(kDepth, receives(*srq, *at_b));
  take(w.b.recv_cq, 2);
  EXPECT_EQ(2u, receives(*srq, *at_b));

  // The completions of a CQ that is destroyed count no more; another CQ takes its place.
  w.b.engine.qp_destroy(second);
  EXPECT_EQ(0u, receives(*srq, *at_b));
  w.b.engine.cq_destroy(other_cq);
  EXPECT_EQ(3u, receives(*srq, *at_b));
  Cq* const third_cq = w.b.engine.cq_create(64, nullptr);
  plain.recv_cq = third_cq;
  second = w.b.qp(plain);
  plain = {};
  plain.max_send_wr = plain.max_recv_wr = kDepth;
  Qp* const to_third = w.a.qp(plain);
  w.connect(to_third, second, {});
  for (int i = 0; i < 4; ++i) send(to_third, at_a->sge(0, 8));
  work();
  EXPECT_EQ(0u, receives(*srq, *at_b));
  take(third_cq, 4);
  EXPECT_EQ(4u, receives(*srq, *at_b));
  w.b.engine.qp_destroy(second);
  w.b.engine.cq_destroy(third_cq);
}

// What a CQ that has overrun loses is never polled. It would count against an SRQ that serves other CQs as well.
TEST_F(AllowanceTest, srq_is_whole_again_after_the_overrun_of_one_of_its_cqs) {
  Srq* const srq = w.b.srq(kDepth);
  Cq* const small_cq = w.b.engine.cq_create(2, nullptr);
  at_a = w.a.region(64), at_b = w.b.region(64);
  QpAttr plain{};
  plain.max_send_wr = plain.max_recv_wr = 2 * kDepth;
  Qp *to_small = w.a.qp(plain), *to_other = w.a.qp(plain);
  plain.srq = srq;
  Qp* const other = w.b.qp(plain);
  plain.recv_cq = small_cq;
  Qp* const small = w.b.qp(plain);
  w.connect(to_small, small, {});
  w.connect(to_other, other, {});

  EXPECT_EQ(kDepth, receives(*srq, *at_b));
  for (int i = 0; i < 6; ++i) send(to_small, at_a->sge(0, 8));
  work();
  EXPECT_TRUE(small_cq->dead());
  take(small_cq, 2);
  const uint32_t used = receives(*srq, *at_b);
  EXPECT_GE(used, 3u);
  EXPECT_LE(used, 6u);
  for (uint32_t i = 0; i < kDepth; ++i) send(to_other, at_a->sge(0, 8));
  EXPECT_EQ(kDepth, wait(w.b, w.b.recv_cq, kDepth).size());
  EXPECT_EQ(kDepth, receives(*srq, *at_b));
  w.b.engine.qp_destroy(small);
  w.b.engine.cq_destroy(small_cq);
}

}  // namespace
}  // namespace usiw::sim
