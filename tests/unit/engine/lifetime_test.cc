// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lifetime_test.cc
/// How connections wait and end: receiver not ready, orderly close from either side and both,
/// a peer that vanishes, RESET, abort and reuse.
#include <cstdio>

#include "fixture.h"
#include "tests/support/sanitized.h"

namespace usiw::sim {
namespace {

class Lifetime : public EngineTest {
 protected:
  Lifetime() {
    std::tie(qa, qb) = w.connect();
    ra = w.a.region(100'000);
    rb = w.b.region(100'000);
  }
  /// Until the first receive of b is complete; its acknowledgement is not under way yet.
  void a_frozen_until_received() {
    w.a.engine.progress();
    w.a_frozen = true;
    for (int i = 0; i < 1000 && w.b.count(USIW_CNT_RX_PKTS) == 0; i++) w.tick();
    w.a_frozen = false;
    EXPECT_EQ(1u, w.b.count(USIW_CNT_RX_PKTS));
    EXPECT_EQ(0u, w.b.count(USIW_CNT_TX_PKTS));
  }
  Qp *qa, *qb;
  Region *ra, *rb;
};

// ---- Receiver not ready ----

#if !defined(__SANITIZE_ADDRESS__)
/// Memory of this process that is in use, bytes.
size_t resident() {
  long pages = 0;
  if (FILE* f = std::fopen("/proc/self/statm", "r"); f != nullptr) {
    EXPECT_EQ(1, std::fscanf(f, "%*d %ld", &pages));
    std::fclose(f);
  }
  return static_cast<size_t>(pages) * 4096;
}

/// Both ends of a connection that has carried nothing yet take memory for what they use only.
TEST(Idle, connections_are_small) {
  constexpr size_t kPairs = 500, kMostBytes = 20 * 1024;
  World w;
  PairOptions options;
  options.max_send_wr = options.max_recv_wr = 16;
  w.connect(options);
  const size_t before = resident();
  for (size_t i = 0; i < kPairs; ++i) w.connect(options);
  EXPECT_LT(resident() - before, 2 * kPairs * kMostBytes);
}
#endif

TEST_F(Lifetime, send_waits_for_receive) {
  send(qa, ra->sge(0, 5000));
  w.run_for(3 * kSec);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  EXPECT_GT(w.b.count(USIW_CNT_NOT_READY_TX), 0u);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS), 2000u) << "backs off";
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
  const uint64_t t = w.clock.now;
  post_recv(qb, {rb->sge(0, 5000)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_LT(w.clock.now - t, 1 * kMs) << "told at once";
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
}

TEST_F(Lifetime, other_direction_goes_on_while_receiver_is_not_ready) {
  send(qa, ra->sge(0, 8));
  w.run_for(10 * kMs);
  write(qb, rb->sge(0, 60'000), ra->addr(), ra->stag);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1, 100 * kMs));
  post_recv(qa, {ra->sge(0, 64)});
  send(qb, rb->sge(0, 64));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.recv_cq, 1, 100 * kMs));
}

/// READs of the end that has no receive go on: their responses come by the direction in which the SEND waits.
TEST_F(Lifetime, reads_go_on_while_their_end_has_no_receive) {
  qa = w.connect({.max_send_wr = 64, .max_recv_wr = 64}).first;
  for (const double loss : {0.0, 0.02, 0.1}) {
    for (const size_t length : {8u, 5000u, 60'000u}) {
      PairOptions o;
      std::tie(qa, qb) = w.connect(o);
      w.a.engine.qp_permit(qa, kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic);
      fill(ra->bytes, length);
      w.wire.faults.loss = loss;
      w.run_for(10 * kMs);
      send(qa, ra->sge(0, length));
      write(qa, ra->sge(0, 100), rb->addr(), rb->stag, 2);
      w.run_for(20 * kMs);
      const uint64_t started = w.clock.now;
      for (int round = 0; round < 20; ++round) {
        std::fill(rb->bytes.begin(), rb->bytes.end(), std::byte{0});
        read(qb, rb->sge(0, 10), ra->addr(), ra->stag, 1);
        read(qb, rb->sge(1000, 20'000), ra->addr() + 1000, ra->stag, 2);
        read(qb, rb->sge(30'000, 3000), ra->addr() + 30'000, ra->stag, 3);
        const auto got = wait(w.b, w.b.send_cq, 3, 2 * kSec);
        for (size_t i = 0; i < 3; ++i) EXPECT_EQ(i + 1, got[i].wr_id);
        for (const Cqe& c : got) EXPECT_EQ(kSuccess, c.status);
        EXPECT_EQ(0, std::memcmp(ra->bytes.data(), rb->bytes.data(), 10));
        EXPECT_EQ(0, std::memcmp(ra->bytes.data() + 1000, rb->bytes.data() + 1000, 20'000));
        EXPECT_EQ(0, std::memcmp(ra->bytes.data() + 30'000, rb->bytes.data() + 30'000, 3000));
      }
      EXPECT_TRUE(w.a.poll(w.a.send_cq).empty()) << "what was posted behind the SEND waits";
      if (loss == 0) {
        EXPECT_LT(w.clock.now - started, 100 * kMs);
        EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
      }
      post_recv(qb, {rb->sge(0, length)});
      EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2, 5 * kSec));
      EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1, 5 * kSec));
      EXPECT_EQ(0, std::memcmp(ra->bytes.data() + 100, rb->bytes.data() + 100, length > 100 ? length - 100 : 0));
      w.a.engine.qp_destroy(qa);
      w.b.engine.qp_destroy(qb);
    }
  }
}

/// However many SENDs wait: they take up neither what the network may carry nor what the reader's port holds.
TEST_F(Lifetime, reads_go_on_while_many_sends_wait_for_receives) {
  for (const bool first : {true, false}) {
    for (const uint32_t sends : {1u, 7u, 8u, 40u, 63u, 64u, 100u, 500u}) {
      std::tie(qa, qb) = w.connect({.max_send_wr = 512, .max_recv_wr = 512});
      if (!first) {
        for (int i = 0; i < 100; ++i) write(qa, ra->sge(0, 100), rb->addr(), rb->stag);
        EXPECT_EQ(100u, wait(w.a, w.a.send_cq, 100).size());
      }
      for (uint32_t i = 0; i < sends; ++i) send(qa, ra->sge(0, 100), i);
      w.run_for(20 * kMs);
      const uint64_t started = w.clock.now;
      for (int i = 0; i < 10; ++i) {
        read(qb, rb->sge(1000, 20'000), ra->addr() + 1000, ra->stag, 1);
        EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1, 2 * kSec)) << first << ' ' << sends << ' ' << i;
      }
      EXPECT_LT(w.clock.now - started, 50 * kMs) << first << ' ' << sends;
      EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
      for (uint32_t i = 0; i < sends; ++i) post_recv(qb, {rb->sge(0, 100)}, i);
      const auto sent = wait(w.a, w.a.send_cq, sends), got = wait(w.b, w.b.recv_cq, sends);
      for (uint32_t i = 0; i < sends; ++i) {
        EXPECT_EQ(i, sent[i].wr_id);
        EXPECT_EQ(i, got[i].wr_id);
        EXPECT_EQ(kSuccess, got[i].status);
      }
      w.a.engine.qp_destroy(qa);
      w.b.engine.qp_destroy(qb);
    }
  }
}

TEST_F(Lifetime, atomics_go_on_while_their_end_has_no_receive) {
  w.a.engine.qp_permit(qa, kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic);
  Region* const word = w.a.region(8, Host::kAllRights | kAccessRemoteAtomic);
  send(qa, ra->sge(0, 100));
  w.run_for(20 * kMs);
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(0, qb->post_send({.wr_id = i, .opcode = WrOpcode::kFetchAdd, .flags = kWrSignaled,
                                .remote_addr = word->addr(), .rkey = word->stag, .operands = {1, 0}},
                               std::array{rb->sge(0, 8)}));
    qb->ring_send();
    read(qb, rb->sge(8, 8), word->addr(), word->stag, 100 + i);
    EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.b, w.b.send_cq, 2, 100 * kMs));
    uint64_t before, after;
    std::memcpy(&before, rb->bytes.data(), 8);
    std::memcpy(&after, rb->bytes.data() + 8, 8);
    EXPECT_EQ(i, before);
    EXPECT_EQ(i + 1, after);
  }
  post_recv(qb, {rb->sge(0, 100)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

/// The READ is complete, and the reader tells the responder so by a SEND. The ACK PSN of that SEND stops at the
/// message that waits for a receive, so it does not acknowledge the response. The responder then deregisters the
/// source. An old SACK makes it repeat a datagram of the response, whose bytes it can no longer read.
TEST_F(Lifetime, source_of_a_read_that_is_complete_behind_a_send_that_waits) {
  constexpr size_t kLength = 6000;
  Region* const source = w.a.region(kLength);
  send(qa, ra->sge(0, 100));
  w.run_for(20 * kMs);
  post_recv(qa, {}, 7);
  bool told = false;
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h;
    if (side == 0 || !decode_trp(d, h) || h.opcode != USIW_TRP_SACK || told) return true;
    if (w.b.poll(w.b.send_cq).empty()) return false;
    told = true;
    EXPECT_GE(h.psn - h.ack_psn, 5u);
    d[kTrpBytes] &= ~std::byte{2};  // the first datagram of the response, which one from before has not
    EXPECT_EQ(0, w.a.engine.mr_remove(source->stag));
    std::vector<std::byte>().swap(source->bytes);
    return true;
  };
  read(qb, rb->sge(0, kLength), source->addr(), source->stag, 1);
  EXPECT_TRUE(w.run([&] { return told; }));
  w.wire.filter = nullptr;
  send(qb, {0, 0, 0}, 2);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.recv_cq, 1));
  w.run_for(100 * kMs);
  EXPECT_GT(w.a.count(USIW_CNT_RETRANS_FAST), 0u);
  EXPECT_TRUE(w.a.events.failed.empty() && w.b.events.failed.empty());
  post_recv(qb, {rb->sge(0, 100)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
}

/// The window moves past the SEND, as often as it takes.
TEST_F(Lifetime, any_number_of_responses_passes_a_send_that_waits) {
  Region* const from = w.a.region(10'000'000);
  Region* const to = w.b.region(10'000'000);
  fill(from->bytes, 5);
  fill(ra->bytes, 6);
  send(qa, ra->sge(0, 100), 1);
  write(qa, ra->sge(0, 5000), rb->addr() + 20'000, rb->stag, 2);
  send(qa, ra->sge(100, 5000), 3);
  w.run_for(20 * kMs);
  read(qb, to->sge(0, 10'000'000), from->addr(), from->stag, 1);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1, 1 * kSec));
  EXPECT_EQ(from->bytes, to->bytes);
  EXPECT_TRUE(w.a.poll(w.a.send_cq).empty());
  EXPECT_TRUE(w.b.poll(w.b.recv_cq).empty());
  post_recv(qb, {rb->sge(0, 100)});
  EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
  post_recv(qb, {rb->sge(100, 5000)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
  EXPECT_EQ(0, std::memcmp(ra->bytes.data(), rb->bytes.data(), 5100));
  EXPECT_EQ(0, std::memcmp(ra->bytes.data(), rb->bytes.data() + 20'000, 5000));
}

/// The sender must not repeat its whole window with each try of the SEND, a hundred times a second, until it gives up.
TEST_F(Lifetime, reader_vanishes_while_responses_pass_a_send_that_waits) {
  Region* const from = w.a.region(10'000'000);
  Region* const to = w.b.region(10'000'000);
  send(qa, ra->sge(0, 100), 1);
  w.run_for(20 * kMs);
  read(qb, to->sge(0, 10'000'000), from->addr(), from->stag, 1);
  ASSERT_TRUE(w.run([&] { return w.a.count(USIW_CNT_TX_PKTS) > 3000; }));
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  w.run_for(kSec);
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS) - before, 4000u);
  EXPECT_GT(w.a.count(USIW_CNT_TX_PKTS) - before, 90u);
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.send_cq, 1, 1 * kSec));
}

TEST_F(Lifetime, receives_posted_one_by_one) {
  fill(ra->bytes, 1);
  for (int i = 0; i < 20; ++i) send(qa, ra->sge(i * 3000, 3000), i);
  for (int i = 0; i < 20; ++i) {
    w.run_for(1 * kMs);
    post_recv(qb, {rb->sge(i * 3000, 3000)}, i);
  }
  for (const Cqe& c : wait(w.b, w.b.recv_cq, 20)) EXPECT_EQ(kSuccess, c.status);
  EXPECT_EQ(0, std::memcmp(ra->bytes.data(), rb->bytes.data(), 60'000));
}

TEST_F(Lifetime, receiver_is_never_ready) {
  post_recv(qa, {}, 7);
  write(qa, ra->sge(0, 100), rb->addr(), rb->stag, 1);
  send(qa, ra->sge(0, 100), 2);
  write(qa, ra->sge(0, 100), rb->addr(), rb->stag, 3);
  const uint64_t t = w.clock.now;
  EXPECT_EQ((Statuses{kSuccess, kRnrRetryExcErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 3));
  EXPECT_GT(w.clock.now - t, 8 * kSec);
  EXPECT_LT(w.clock.now - t, 13 * kSec);
  expect_failed(w.a, -EREMOTEIO, AsyncEvent::kNone);
  ASSERT_TRUE(failed(w.b));
  expect_failed(w.b, -EPROTO, AsyncEvent::kQpReqErr);
}

TEST_F(Lifetime, peer_vanishes_while_not_ready) {
  send(qa, ra->sge(0, 100));
  w.run_for(100 * kMs);
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1, 6 * kSec));
}

/// The time in which the peer had no receive does not count as time without an answer.
TEST_F(Lifetime, silence_behind_a_long_wait_for_a_receive) {
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  send(qa, ra->sge(0, 100));
  w.run_for(5 * kSec);
  post_recv(qb, {rb->sge(0, 100)});
  w.b.engine.progress();  // has said that it is ready
  w.b_frozen = true;
  w.run_for(1 * kSec);
  w.b_frozen = false;
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kSec));
}

/// Nor does the time in which the sender itself was stopped.
TEST_F(Lifetime, sender_is_stopped_while_the_peer_is_not_ready) {
  send(qa, ra->sge(0, 100));
  w.run_for(100 * kMs);
  w.a_frozen = true;
  w.run_for(5 * kSec);
  w.a_frozen = false;
  w.run_for(20 * kMs);
  post_recv(qb, {rb->sge(0, 100)});
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kSec));
}

// ---- The peer vanishes ----

/// Why nothing arrives can be seen while nothing does.
TEST_F(Lifetime, drops_of_the_port_are_counted_while_nothing_arrives) {
  w.wire.faults.cut[1] = true;
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(1 * kMs);
  w.a.port.drops_ = {.malformed = 1, .checksum = 2, .no_buffer = 3};
  w.run_for(1 * kSec);
  EXPECT_EQ(1u, w.a.count(USIW_CNT_DROP_MALFORMED));
  EXPECT_EQ(2u, w.a.count(USIW_CNT_DROP_CHECKSUM));
  EXPECT_EQ(3u, w.a.count(USIW_CNT_DROP_NO_BUFFER));
}

TEST_F(Lifetime, peer_vanishes_during_writes) {
  for (int i = 0; i < 10; ++i) write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, i);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_RX_PKTS) > 100; }));
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
  const uint64_t t = w.clock.now;
  ASSERT_TRUE(failed(w.a));
  EXPECT_LT(w.clock.now - t, 6 * kSec);
  EXPECT_GT(w.clock.now - t, 3 * kSec);
  expect_failed(w.a, -ETIMEDOUT, AsyncEvent::kNone);
  int retry = 0, flush = 0;
  for (const Cqe& c : w.a.poll(w.a.send_cq)) {
    retry += c.status == kRetryExcErr;
    flush += c.status == kWrFlushErr;
    EXPECT_TRUE(c.status != kSuccess || retry == 0);
  }
  EXPECT_EQ(1, retry);
  EXPECT_GT(flush, 0);
}

TEST_F(Lifetime, peer_was_never_there) {
  w.wire.faults.cut[0] = true;
  send(qa, ra->sge(0, 8));
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1, 6 * kSec));
}

TEST_F(Lifetime, only_acknowledgements_are_lost) {
  w.wire.faults.cut[1] = true;
  write(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1, 6 * kSec));
}

TEST_F(Lifetime, peer_vanishes_between_read_request_and_response) {
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h;
    return side == 0 || !decode_trp(d, h) || h.opcode != USIW_TRP_DATA;  // responses are lost ...
  };
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag);
  w.run_for(50 * kMs);
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;  // ... then everything
  EXPECT_EQ(Statuses{kRetryExcErr}, statuses(w.a, w.a.send_cq, 1, 6 * kSec));
}

TEST_F(Lifetime, short_outages_are_survived) {
  for (int i = 0; i < 5; ++i) {
    write(qa, ra->sge(0, 80'000), rb->addr(), rb->stag, i);
    w.run_for(20'000);
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
    w.run_for(1 * kSec);
    w.wire.faults.cut[0] = w.wire.faults.cut[1] = false;
    EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kSec));
  }
}

TEST_F(Lifetime, peer_that_sleeps_for_milliseconds_costs_little) {
  for (int i = 0; i < 300; ++i) {
    if (i % 4 == 0) {
      w.b_frozen = true;
      w.run_for(3 * kMs);
      w.b_frozen = false;
    }
    write(qa, ra->sge(0, 60'000), rb->addr(), rb->stag, i);
    w.run_for(30'000);
    ASSERT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kSec));
  }
  EXPECT_LT(w.a.count(USIW_CNT_RETRANS_FAST) + w.a.count(USIW_CNT_RETRANS_RTO), 300u * 42 / 20);
}

TEST_F(Lifetime, idle_peer_vanishes) {
  w.run_for(60 * kSec);
  EXPECT_TRUE(w.a.events.failed.empty());
  EXPECT_LT(w.a.count(USIW_CNT_TX_PKTS), 20u);
  w.wire.faults.cut[0] = w.wire.faults.cut[1] = true;
  ASSERT_TRUE(failed(w.a, 20 * kSec));
  expect_failed(w.a, -ETIMEDOUT, AsyncEvent::kNone);
}

TEST_F(Lifetime, probe_finds_out_soon) {
  w.a.engine.qp_probe(qa);
  w.run_for(4 * kSec);
  EXPECT_TRUE(w.a.events.failed.empty()) << "the peer answered";
  w.wire.faults.cut[1] = true;
  w.a.engine.qp_probe(qa);
  ASSERT_TRUE(failed(w.a, 4 * kSec));
}

// ---- Orderly close ----

TEST_F(Lifetime, close_drains_first) {
  for (int i = 0; i < 5; ++i) write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, i);
  read(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, 5);
  post_recv(qb, {}, 1);
  post_recv(qa, {}, 1);
  w.a.engine.qp_shutdown(qa);
  EXPECT_EQ(QpState::kClosing, qa->state());
  ASSERT_TRUE(w.run([&] { return !w.a.events.closed.empty() && !w.b.events.peer_closed.empty(); }, 1 * kSec));
  EXPECT_EQ(Statuses(6, kSuccess), statuses(w.a, w.a.send_cq, 6));
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1));
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.b, w.b.recv_cq, 1));
  EXPECT_EQ(QpState::kError, qa->state());
  EXPECT_EQ(QpState::kError, qb->state());
  EXPECT_TRUE(w.a.events.failed.empty() && w.b.events.failed.empty());
  EXPECT_EQ(0u, w.a.count(USIW_CNT_RTO));
}

TEST_F(Lifetime, close_on_bad_wires) {
  for (uint64_t seed = 1; seed <= (kSanitized ? 12 : 60); ++seed) {
    SCOPED_TRACE(seed);
    World x(seed);
    x.wire.faults.loss = seed % 2 ? 0.3 : 0;
    x.wire.faults.duplicate = 0.2;
    x.wire.faults.jitter = 50'000;
    auto [p, q] = x.connect();
    const bool both = seed % 3 == 0;
    x.a.engine.qp_shutdown(p);
    if (both) x.b.engine.qp_shutdown(q);
    ASSERT_TRUE(x.run([&] {
      return x.a.events.closed.size() == 1 && x.b.events.peer_closed.size() + x.b.events.closed.size() == 1;
    }, 5 * kSec));
    EXPECT_EQ(both ? 1u : 0u, x.b.events.closed.size());
    x.run_for(5 * kSec);
    EXPECT_TRUE(x.a.events.failed.empty() && x.b.events.failed.empty());
  }
}

TEST_F(Lifetime, close_to_a_vanished_peer_is_bounded) {
  w.wire.faults.cut[0] = true;
  w.a.engine.qp_shutdown(qa);
  ASSERT_TRUE(w.run([&] { return !w.a.events.closed.empty(); }, 2 * kSec));
}

/// A SEND for which the peer never posts a receive holds SHUTDOWN back, so the peer has to be told in another way: by
/// the RESET that follows a failure.
TEST_F(Lifetime, close_behind_a_send_that_is_not_received) {
  send(qa, ra->sge(0, 8), 1);
  w.a.engine.qp_shutdown(qa);
  ASSERT_TRUE(w.run([&] { return !w.a.events.failed.empty() || !w.a.events.closed.empty(); }, 3 * kSec));
  ASSERT_EQ(1u, w.a.events.failed.size());
  EXPECT_EQ(-ETIMEDOUT, w.a.events.failed[0].error);
  EXPECT_EQ(AsyncEvent::kNone, w.a.events.failed[0].event);
  EXPECT_TRUE(w.a.events.closed.empty());
  EXPECT_EQ(Statuses{kRnrRetryExcErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(QpState::kError, qa->state());
}

/// The same for a work request that is at fault itself.
TEST_F(Lifetime, close_behind_a_faulty_work_request) {
  write(qa, ra->sge(0, 90'000), rb->addr(), rb->stag, 1);
  Sge bad = ra->sge(0, 8);
  bad.lkey ^= 1;
  write(qa, bad, rb->addr(), rb->stag, 2);
  w.a.engine.qp_shutdown(qa);
  ASSERT_TRUE(w.run([&] { return !w.a.events.failed.empty() || !w.a.events.closed.empty(); }, 1 * kSec));
  ASSERT_EQ(1u, w.a.events.failed.size());
  EXPECT_TRUE(w.a.events.closed.empty());
}

TEST_F(Lifetime, close_of_peer_flushes_work_in_flight) {
  post_recv(qb, {}, 1);
  w.wire.faults.per_packet = 1000;
  for (int i = 0; i < 60; ++i) read(qb, rb->sge(0, 90'000), ra->addr(), ra->stag, i);
  w.run_for(100'000);
  w.a.engine.qp_shutdown(qa);
  ASSERT_TRUE(w.run([&] { return !w.b.events.peer_closed.empty(); }, 2 * kSec));
  const auto got = wait(w.b, w.b.send_cq, 60);
  EXPECT_EQ(kWrFlushErr, got.back().status);
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.b, w.b.recv_cq, 1));
}

/// A SHUTDOWN is the last of its direction: what the peer had sent before it heard of it, and is wrong, draws no
/// Terminate.
TEST_F(Lifetime, close_against_a_faulty_segment) {
  unsigned terminates = 0;
  w.wire.filter = [&](int side, Datagram& d) {
    TrpHeader h;
    DdpSegment seg;
    terminates += side == 0 && decode_trp(d, h) && h.opcode == USIW_TRP_DATA &&
                  decode_ddp(std::span(d).subspan(kTrpBytes), seg) == DdpDecode::kOk && !seg.tagged &&
                  seg.qn == USIW_DDP_QN_TERMINATE;
    return true;
  };
  write(qb, rb->sge(0, 8), ra->addr(), ra->stag ^ 1);
  w.b.engine.progress();
  w.a.engine.qp_shutdown(qa);
  EXPECT_TRUE(w.run([&] { return !w.a.events.closed.empty() && !w.b.events.peer_closed.empty(); }, 1 * kMs));
  EXPECT_EQ(0u, terminates);
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.b, w.b.send_cq, 1, 1 * kMs));
}

TEST_F(Lifetime, close_without_connection) {
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = 4;
  Qp* q = w.a.qp(attr);
  post_recv(q, {}, 1);
  w.a.engine.qp_shutdown(q);
  EXPECT_EQ(1u, w.a.events.closed.size());
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1));
  w.a.engine.qp_shutdown(q);
  EXPECT_EQ(2u, w.a.events.closed.size());
}

// ---- Abort, reset, reuse ----

TEST_F(Lifetime, abort_is_silent_and_flushes) {
  post_recv(qa, {}, 1);
  write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, 2);
  w.a.engine.progress();
  const uint64_t sent = w.wire.sent;
  w.a.engine.qp_abort(qa);
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.send_cq, 1, 1 * kMs));
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1, 1 * kMs));
  w.b_frozen = true;
  w.run_for(1 * kSec);
  EXPECT_EQ(sent, w.wire.sent);
  EXPECT_TRUE(w.a.events.failed.empty() && w.a.events.closed.empty());
}

/// What the program at the other end has seen is complete here, however soon it lets go of its QP.
TEST_F(Lifetime, what_was_received_is_acknowledged_before_the_qp_goes) {
  post_recv(qb, {rb->sge(0, 64)});
  send(qa, ra->sge(0, 64));
  a_frozen_until_received();
  w.b.engine.qp_acknowledge(qb);
  w.b.engine.qp_destroy(qb);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1, 1 * kMs));
}

TEST_F(Lifetime, nothing_is_acknowledged_that_is_not_owed) {
  const uint64_t sent = w.b.count(USIW_CNT_TX_PKTS);
  w.b.engine.qp_acknowledge(qb);
  EXPECT_EQ(sent, w.b.count(USIW_CNT_TX_PKTS));
}

TEST_F(Lifetime, reset_makes_the_qp_new) {
  for (int round = 0; round < 3; ++round) {
    write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, 1);
    post_recv(qb, {rb->sge(0, 64)}, 2);
    send(qa, ra->sge(0, 64), 3);
    EXPECT_EQ((Statuses{kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 2));
    EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
    for (Host* h : {&w.a, &w.b}) h->engine.qp_abort(h == &w.a ? qa : qb);
    for (Host* h : {&w.a, &w.b}) h->engine.qp_reset(h == &w.a ? qa : qb);
    EXPECT_EQ(QpState::kIdle, qa->state());
    w.connect(qa, qb, {});
  }
}

TEST_F(Lifetime, four_tuple_of_a_live_connection_is_refused) {
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = 4;
  Qp* q = w.a.qp(attr);
  const Path path{w.last_flow, {}, {}, 64, 0};
  const ConnAttr conn{1, 2, 64, 1, 1, 1500, true};
  EXPECT_EQ(EADDRINUSE, w.a.engine.qp_connect(q, 0, path, conn));
  EXPECT_EQ(EISCONN, w.a.engine.qp_connect(qa, 0, path, conn));
  w.a.engine.qp_abort(qa);
  EXPECT_EQ(0, w.a.engine.qp_connect(q, 0, path, conn));
}

TEST_F(Lifetime, connect_refuses_what_no_handshake_agrees_on) {
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = 4;
  Qp* q = w.a.qp(attr);
  FlowKey flow = w.last_flow;
  flow.local_port ^= 1;
  const Path path{flow, {}, {}, 64, 0};
  const auto connect = [&](uint16_t ird, uint16_t ord, uint16_t mtu, int port = 0, uint16_t handshake_mtu = 0) {
    return w.a.engine.qp_connect(q, port, path, {1, 2, 64, ird, ord, mtu, true, true, handshake_mtu});
  };
  EXPECT_EQ(EINVAL, connect(1, 1, USIW_MIN_MTU - 1));
  EXPECT_EQ(EINVAL, connect(1, 1, USIW_MAX_MTU + 1));
  EXPECT_EQ(EINVAL, connect(1, 1, 1500, 0, USIW_MAX_MTU + 1));
  EXPECT_EQ(EINVAL, connect(USIW_MAX_IRD + 1, 1, 1500));
  EXPECT_EQ(EINVAL, connect(1, USIW_MAX_ORD + 1, 1500));
  EXPECT_EQ(EINVAL, connect(1, 1, 1500, 1));
  EXPECT_EQ(EINVAL, connect(1, 1, 1500, -1));
  EXPECT_EQ(QpState::kIdle, q->state());
  EXPECT_EQ(0, connect(USIW_MAX_IRD, USIW_MAX_ORD, USIW_MAX_MTU));
}

TEST_F(Lifetime, destroy_in_any_state) {
  write(qa, ra->sge(0, 50'000), rb->addr(), rb->stag, 1);
  w.a.engine.qp_destroy(qa);  // still in the doorbell list
  write(qb, rb->sge(0, 50'000), ra->addr(), ra->stag, 1);
  w.run_for(50'000);
  w.b.engine.qp_destroy(qb);
  w.run_for(1 * kSec);
}

TEST_F(Lifetime, many_connections_come_and_go) {
  std::vector<std::pair<Qp*, Qp*>> pairs;
  for (int i = 0; i < 300; ++i) {
    pairs.push_back(w.connect());
    write(pairs.back().first, ra->sge(0, 3000), rb->addr(), rb->stag, i);
    if (i % 3 == 2) {
      std::swap(pairs[pairs.size() / 2], pairs.back());
      w.run_for(10'000);
      w.a.engine.qp_destroy(pairs.back().first);
      w.b.engine.qp_destroy(pairs.back().second);
      pairs.pop_back();
    }
  }
  w.run_for(100 * kMs);
  w.a.poll(w.a.send_cq);
  while (!w.a.poll(w.a.send_cq).empty()) {
  }
  for (auto& [p, q] : pairs) {
    (void)q;
    write(p, ra->sge(0, 3000), rb->addr(), rb->stag, 1);
  }
  EXPECT_EQ(Statuses(pairs.size(), kSuccess), statuses(w.a, w.a.send_cq, pairs.size()));
}

TEST_F(Lifetime, fairness_among_qps) {
  constexpr int kQps = 8;
  std::vector<Qp*> qps;
  Region* dst = w.b.region(1 << 20);
  Region* src = w.a.region(1 << 20);
  for (int i = 0; i < kQps; ++i) {
    qps.push_back(w.connect().first);
    for (int k = 0; k < 8; ++k) write(qps[i], src->sge(0, 1 << 20), dst->addr(), dst->stag, k);
  }
  w.wire.faults.per_packet = 1000;
  std::vector<int> done(kQps);
  w.run([&] {
    for (const Cqe& c : w.a.poll(w.a.send_cq)) ++done[c.qpn - qps[0]->qpn()];
    return *std::max_element(done.begin(), done.end()) == 6;
  });
  EXPECT_GE(*std::min_element(done.begin(), done.end()), 3);
}

}  // namespace
}  // namespace usiw::sim
