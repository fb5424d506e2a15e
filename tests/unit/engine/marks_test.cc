// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file marks_test.cc
/// Congestion marks (ECN): who tells of them, who asks for them, and what a sender makes of those that it is told of.
#include "engine/marks.h"

#include "played_peer.h"

namespace usiw::sim {
namespace {

constexpr uint16_t kTells = USIW_TRP_F_TELLS_CE;
constexpr uint16_t told(unsigned count) { return static_cast<uint16_t>(kTells | count << USIW_TRP_CE_SHIFT); }

TEST(Marks, each_header_tells_once_of_all_that_came_before_it) {
  Marks m;
  m.start(true);
  EXPECT_EQ(told(0), m.flags());
  for (unsigned n = 1; n < 20; ++n) {
    for (unsigned i = 0; i < n; ++i) m.came();
    EXPECT_EQ(told(n % 8), m.flags());
    EXPECT_EQ(told(n % 8), m.flags()) << "nothing new";
  }
}

TEST(Marks, a_port_that_sees_none_tells_nothing_and_asks_for_nothing) {
  Marks m;
  m.start(false);
  m.came();
  EXPECT_EQ(0, m.flags());
  EXPECT_TRUE(m.hear(told(1)));
  m.begin(10);
  EXPECT_FALSE(m.asks());
}

TEST(Marks, what_is_heard_late_or_again_is_not_news) {
  Marks m;
  m.start(true);
  EXPECT_FALSE(m.hear(told(0)));
  EXPECT_TRUE(m.known(told(0) | USIW_TRP_F_ACK_REQ)) << "other flags do not matter";
  EXPECT_TRUE(m.hear(told(1)));
  EXPECT_FALSE(m.hear(told(1)));
  EXPECT_TRUE(m.hear(told(4))) << "headers in between were lost";
  EXPECT_FALSE(m.hear(told(2))) << "overtaken";
  EXPECT_FALSE(m.hear(0)) << "of a peer that does not tell";
  EXPECT_TRUE(m.hear(told(7)));
  EXPECT_TRUE(m.hear(told(1))) << "modulo 8";
}

TEST(Marks, whether_merged_datagrams_are_taken_is_told_beside_them) {
  Marks m;
  m.start(true);
  EXPECT_TRUE(m.merge(true));
  EXPECT_FALSE(m.merge(true)) << "nothing new";
  EXPECT_EQ(told(0) | USIW_TRP_F_MERGED, m.flags());
  for (unsigned n = 1; n < 10; ++n) {
    m.came();
    EXPECT_EQ(told(n % 8) | USIW_TRP_F_MERGED, m.flags()) << "the count does not run into it";
  }
  EXPECT_TRUE(m.merge(false));
  EXPECT_EQ(told(1), m.flags());
}

TEST(Marks, whether_merged_datagrams_are_taken_is_heard_of_ends_that_tell_marks_and_of_others) {
  Marks m;
  m.start(true);
  EXPECT_FALSE(m.peer_merges());
  EXPECT_FALSE(m.hear(USIW_TRP_F_MERGED));
  EXPECT_TRUE(m.known(USIW_TRP_F_MERGED));
  EXPECT_TRUE(m.peer_merges());
  m.begin(10);
  EXPECT_FALSE(m.asks()) << "it does not tell of marks";
  EXPECT_FALSE(m.hear(0));
  EXPECT_FALSE(m.peer_merges());
  EXPECT_TRUE(m.hear(told(3) | USIW_TRP_F_MERGED));
  EXPECT_TRUE(m.peer_merges());
  EXPECT_FALSE(m.hear(told(2))) << "overtaken";
  EXPECT_TRUE(m.peer_merges());
  EXPECT_FALSE(m.hear(told(3)));
  EXPECT_FALSE(m.peer_merges());
}

class Asking : public ::testing::Test {
 protected:
  Asking() {
    m.start(true);
    m.hear(told(0));
    EXPECT_TRUE(begin(10));
  }
  /// What happens, and whether it asks then.
  bool begin(uint32_t nxt) { return m.begin(nxt), m.asks(); }
  bool arrived(uint32_t una, uint32_t nxt) { return m.arrived(una, nxt), m.asks(); }
  Marks m;
};

TEST_F(Asking, goes_on_after_outages) {
  for (uint32_t psn = 20; psn != 100; psn += 10) {
    m.timed_out();
    EXPECT_FALSE(m.asks());
    EXPECT_FALSE(begin(psn)) << "not until something has arrived";
    EXPECT_TRUE(arrived(psn, psn));
    EXPECT_TRUE(arrived(psn + 1, psn + 10)) << "sent since";
  }
}

TEST_F(Asking, waits_ever_longer_where_all_of_it_is_lost) {
  uint32_t psn = 10;
  for (int n = 0; n < 2; ++n, psn += 10) {
    EXPECT_TRUE(arrived(psn, psn + 10)) << "sent before";
    m.timed_out();
  }
  EXPECT_TRUE(arrived(psn, psn));
  for (uint32_t hold = 8192; hold <= 1u << 30; hold *= 2) {
    m.timed_out();
    EXPECT_FALSE(arrived(psn + 1, psn + 1));
    EXPECT_FALSE(m.hear(told(0)));
    EXPECT_FALSE(begin(psn + hold - 1));
    psn += hold;
    EXPECT_TRUE(arrived(psn, psn));
  }
  m.timed_out();
  EXPECT_TRUE(arrived(psn + (1 << 30), psn + (1 << 30))) << "no longer than that";
}

TEST_F(Asking, goes_on_as_before_once_some_has_arrived) {
  for (uint32_t psn = 10; psn != 50; psn += 10) {
    m.timed_out();
    arrived(psn, psn);
  }
  EXPECT_TRUE(arrived(60'000, 60'000));
  EXPECT_TRUE(arrived(60'001, 60'010));
  EXPECT_TRUE(m.settled());
}

TEST_F(Asking, a_pause_is_no_refusal) {
  m.pause();
  EXPECT_FALSE(begin(20));
  EXPECT_TRUE(arrived(20, 20));
}

// ---- With a played peer ----

class PlayedMarks : public Protocol {
 protected:
  /// What the engine's next SACK tells.
  uint16_t tells() {
    inject(trp(USIW_TRP_SACK, kSnd, kSnd, USIW_TRP_F_ACK_REQ));
    const auto out = settle();
    return out.empty() ? 0 : header(out.back()).flags & (kTells | USIW_TRP_F_CE_COUNT);
  }
};

TEST_F(PlayedMarks, only_datagrams_of_the_window_count) {
  EXPECT_EQ(told(0), tells());
  w.wire.inject(0, data(kRcv + 5000, write_seg(0, true), bytes("x")), flow, 0, true);
  w.wire.inject(0, Datagram(3), flow, 0, true);
  w.wire.inject(0, trp(USIW_TRP_DATA, kRcv, kSnd + 1), flow, 0, true);
  settle();
  EXPECT_EQ(told(0), tells());
  w.wire.inject(0, data(kRcv, write_seg(0, true), bytes("x")), flow, 0, true);
  settle();
  EXPECT_EQ(told(1), tells());
  EXPECT_EQ(1u, w.a.count(USIW_CNT_RX_CE));
}

// ---- Two engines ----

class MarkingWire : public EngineTest {
 protected:
  MarkingWire() {
    w.wire.faults.per_packet = 12'000;
    w.wire.faults.delay = 50'000;
    from = w.a.region(65536);
    to = w.b.region(65536);
    std::tie(qa, qb) = w.connect();
  }
  /// Microseconds that so many WRITEs of 64 KB take.
  uint64_t stream(uint64_t messages) {
    const uint64_t start = w.clock.now, end = done + messages;
    const Sge sge = from->sge(0, 65536);
    w.run([&] {
      for (; posted < done + 2 && posted < end; ++posted)
        EXPECT_EQ(0, qa->post_send({posted, WrOpcode::kRdmaWrite, kWrSignaled, to->addr(), to->stag},
                                   std::span(&sge, 1)));
      qa->ring_send();
      for (const Cqe& c : w.a.poll(w.a.send_cq)) {
        EXPECT_EQ(WcStatus::kSuccess, c.status);
        ++done;
      }
      return done == end;
    }, 20 * kSec);
    EXPECT_EQ(end, done);
    return (w.clock.now - start) / 1000;
  }
  Region *from, *to;
  Qp *qa, *qb;
  uint64_t posted = 0, done = 0;
};

TEST_F(MarkingWire, marks_are_answered_by_a_smaller_window) {
  const uint64_t usual = stream(20);
  EXPECT_EQ(0u, w.b.count(USIW_CNT_RX_CE));
  w.wire.faults.mark = 1;
  EXPECT_GT(stream(20), usual * 3 / 2);
  EXPECT_GT(w.b.count(USIW_CNT_RX_CE), 500u);
  EXPECT_GT(w.a.count(USIW_CNT_TX_CE), 500u);
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
  w.wire.faults.mark = 0;
  stream(60);
  EXPECT_LE(stream(20), usual * 3 / 2);
}

/// RFC 3168, 6.1: there are routers that drop all that can be marked. A connection loses few time-outs to them.
TEST_F(MarkingWire, a_way_that_drops_what_can_be_marked) {
  const uint64_t usual = stream(20);
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
  w.wire.faults.drops_ect = true;
  stream(20);
  const uint64_t timed_out = w.a.count(USIW_CNT_RTO) + w.b.count(USIW_CNT_RTO);
  EXPECT_GE(timed_out, 1u);
  EXPECT_LE(stream(20), usual * 3 / 2);
  EXPECT_EQ(timed_out, w.a.count(USIW_CNT_RTO) + w.b.count(USIW_CNT_RTO));
}

/// Back and forth, each end gets what the other repeats before its own time-out.
TEST_F(MarkingWire, both_ways_drop_what_can_be_marked) {
  w.wire.faults.drops_ect = true;
  uint64_t rtos = 0;
  for (int i = 0; i < 400; ++i) {
    if (i == 200) rtos = w.a.count(USIW_CNT_RTO) + w.b.count(USIW_CNT_RTO);
    post_recv(qa, {from->sge(0, 100)});
    post_recv(qb, {to->sge(0, 100)});
    send(qa, from->sge(0, 100));
    EXPECT_EQ(std::vector{WcStatus::kSuccess}, statuses(w.b, w.b.recv_cq, 1));
    send(qb, to->sge(0, 100));
    EXPECT_EQ(std::vector{WcStatus::kSuccess}, statuses(w.a, w.a.recv_cq, 1));
    w.a.poll(w.a.send_cq);
    w.b.poll(w.b.send_cq);
  }
  EXPECT_EQ(rtos, w.a.count(USIW_CNT_RTO) + w.b.count(USIW_CNT_RTO));
}

/// Tries at a receiver that is not ready have no time-out, nor have its answers and probes of an idle connection.
TEST_F(MarkingWire, a_way_that_begins_to_drop_it_while_the_receiver_is_not_ready) {
  stream(20);
  send(qa, from->sge(0, 100));
  w.run_for(50 * kMs);
  w.wire.faults.drops_ect = true;
  w.run_for(8 * kSec);
  post_recv(qb, {to->sge(0, 100)});
  EXPECT_EQ(std::vector{WcStatus::kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kSec));
  EXPECT_EQ(std::vector{WcStatus::kSuccess}, statuses(w.b, w.b.recv_cq, 1, 1 * kSec));
}

TEST_F(MarkingWire, a_way_that_begins_to_drop_it_while_nothing_is_sent) {
  stream(20);
  w.wire.faults.drops_ect = true;
  w.run_for(60 * kSec);
  EXPECT_GT(w.a.count(USIW_CNT_PROBES) + w.b.count(USIW_CNT_PROBES), 2u);
  EXPECT_TRUE(w.a.events.failed.empty());
  EXPECT_TRUE(w.b.events.failed.empty());
  stream(20);
}

}  // namespace
}  // namespace usiw::sim
