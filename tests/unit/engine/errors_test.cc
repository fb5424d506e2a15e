// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file errors_test.cc
/// What a programmer sees when a work request is wrong: statuses at both ends, order of
/// flushing, events. Everything also with losses, which must not change the outcome.
#include "fixture.h"

namespace usiw::sim {
namespace {

class Errors : public EngineTest, public ::testing::WithParamInterface<double> {
 protected:
  Errors() {
    w.wire.faults.loss = GetParam();
    std::tie(qa, qb) = w.connect();
    ra = w.a.region(100'000);
    rb = w.b.region(100'000);
  }
  Qp *qa, *qb;
  Region *ra, *rb;
};
INSTANTIATE_TEST_SUITE_P(Wire, Errors, ::testing::Values(0.0, 0.05, 0.2),
                         [](const auto& p) { return "loss" + std::to_string(int(p.param * 100)); });

TEST_P(Errors, local_protection) {
  Region* foreign = w.a.region(64, Host::kAllRights, Host::kPd + 1);
  Region* readonly = w.a.region(64, kAccessRemoteRead);
  const struct {
    WrOpcode op;
    Sge sge;
  } bad[] = {{WrOpcode::kSend, {ra->addr(), 8, 0xdeadbe00}},
             {WrOpcode::kRdmaWrite, {ra->addr(), 8, ra->stag ^ 1}},
             {WrOpcode::kRdmaWrite, foreign->sge(0, 8)},
             {WrOpcode::kSend, {ra->addr() - 1, 8, ra->stag}},
             {WrOpcode::kRdmaWrite, ra->sge(99'990, 11)},
             {WrOpcode::kRdmaWrite, {UINT64_MAX - 3, 8, ra->stag}},
             {WrOpcode::kRdmaRead, readonly->sge(0, 8)}};
  for (const auto& b : bad) {
    auto [q, p] = w.connect();
    w.a.events.failed.clear();
    write(q, ra->sge(0, 50'000), rb->addr(), rb->stag, 1);
    ASSERT_EQ(0, q->post_send({2, b.op, 0, rb->addr(), rb->stag}, std::vector{b.sge}));
    send(q, ra->sge(0, 8), 3);
    ASSERT_EQ(0, q->post_recv(9, {}));
    // Unsignalled, and completes all the same because it fails.
    EXPECT_EQ((Statuses{kSuccess, kLocProtErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 3));
    EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1));
    expect_failed(w.a, -EFAULT, AsyncEvent::kNone);
    w.a.engine.qp_abort(q);
    w.b.engine.qp_abort(p);
  }
}

/// Of a message that has more than one segment nothing is sent when some of its memory is not there.
TEST_P(Errors, local_protection_at_the_end_of_a_long_message) {
  w.run_for(1 * kMs);
  const uint64_t before = w.a.count(USIW_CNT_TX_PKTS);
  post(qa, WrOpcode::kRdmaWrite, {ra->sge(0, 50'000), {ra->addr(), 8, 0xdeadbe00}}, 1, 0, rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kLocProtErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(before, w.a.count(USIW_CNT_TX_PKTS));
}

TEST_P(Errors, work_posted_in_error_state_is_flushed) {
  send(qa, {0, 8, 1}, 1);
  EXPECT_EQ(Statuses{kLocProtErr}, statuses(w.a, w.a.send_cq, 1));
  send(qa, ra->sge(0, 8), 2);
  post_recv(qa, {}, 3);
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.a, w.a.recv_cq, 1));
}

TEST_P(Errors, receive_too_small) {
  post_recv(qb, {rb->sge(0, 100)}, 1);
  post_recv(qb, {rb->sge(100, 4999)}, 2);
  post_recv(qb, {rb->sge(0, 1)}, 3);
  send(qa, ra->sge(0, 100), 1);
  send(qa, ra->sge(0, 5000), 2);
  send(qa, ra->sge(0, 1), 3);
  EXPECT_EQ((Statuses{kSuccess, kRemInvReqErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 3));
  EXPECT_EQ((Statuses{kSuccess, kLocLenErr, kWrFlushErr}), statuses(w.b, w.b.recv_cq, 3));
  ASSERT_TRUE(failed(w.b));
  expect_failed(w.a, -EREMOTEIO, AsyncEvent::kNone);
  expect_failed(w.b, -EPROTO, AsyncEvent::kQpReqErr);
  EXPECT_EQ(1u, w.b.count(USIW_CNT_TERM_TX));
  EXPECT_EQ(1u, w.a.count(USIW_CNT_TERM_RX));
}

TEST_P(Errors, receive_buffer_not_registered) {
  post_recv(qb, {{rb->addr(), 100, rb->stag + 1}}, 1);
  send(qa, ra->sge(0, 100), 1);
  EXPECT_EQ(Statuses{kRemOpErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kLocProtErr}, statuses(w.b, w.b.recv_cq, 1));
  ASSERT_TRUE(failed(w.b));
  expect_failed(w.b, -EPROTO, AsyncEvent::kQpReqErr);
}

TEST_P(Errors, remote_access) {
  Region* foreign = w.b.region(8000, Host::kAllRights, Host::kPd + 1);
  Region* readable = w.b.region(8000, kAccessLocalWrite | kAccessRemoteRead);
  Region* writable = w.b.region(8000, kAccessLocalWrite | kAccessRemoteWrite);
  const struct {
    WrOpcode op;
    uint64_t to;
    uint32_t rkey;
    TermCode why;
  } bad[] = {{WrOpcode::kRdmaWrite, rb->addr(), rb->stag + 1, term::kDdpInvalidStag},
             {WrOpcode::kRdmaWrite, rb->addr(), 0xffffff00, term::kDdpInvalidStag},
             {WrOpcode::kRdmaWrite, rb->addr() - 1, rb->stag, term::kDdpBounds},
             {WrOpcode::kRdmaWrite, rb->addr() + 100'000 - 3999, rb->stag, term::kDdpBounds},
             {WrOpcode::kRdmaWrite, UINT64_MAX - 100, rb->stag, term::kDdpToWrap},
             {WrOpcode::kRdmaWrite, foreign->addr(), foreign->stag, term::kDdpStagNotAssociated},
             {WrOpcode::kRdmaWrite, readable->addr(), readable->stag, term::kRdmapAccess},
             {WrOpcode::kRdmaRead, rb->addr(), rb->stag + 1, term::kRdmapInvalidStag},
             {WrOpcode::kRdmaRead, rb->addr() + 96'001, rb->stag, term::kRdmapBounds},
             {WrOpcode::kRdmaRead, UINT64_MAX - 100, rb->stag, term::kRdmapToWrap},
             {WrOpcode::kRdmaRead, foreign->addr(), foreign->stag, term::kRdmapStagNotAssociated},
             {WrOpcode::kRdmaRead, writable->addr(), writable->stag, term::kRdmapAccess}};
  for (const auto& b : bad) {
    SCOPED_TRACE(&b - bad);
    auto [q, p] = w.connect();
    w.a.events.failed.clear();
    w.b.events.failed.clear();
    post_recv(p, {}, 1);
    fill(ra->bytes, 5);
    read(q, ra->sge(50'000, 9000), rb->addr(), rb->stag, 1);
    write(q, ra->sge(0, 20'000), rb->addr() + 50'000, rb->stag, 2);
    post(q, b.op, {ra->sge(0, 4000)}, 3, 0, b.to, b.rkey);
    write(q, ra->sge(0, 8), rb->addr(), rb->stag, 4);
    read(q, ra->sge(0, 8), rb->addr(), rb->stag, 5);
    const auto got = wait(w.a, w.a.send_cq, 5);
    const Statuses want{kSuccess, kSuccess, kRemAccessErr, kWrFlushErr, kWrFlushErr};
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(want[i], got[i].status) << i;
      EXPECT_EQ(i + 1, got[i].wr_id);
      EXPECT_EQ(i == 2 ? vendor_err_of(b.why) : 0, got[i].vendor_err) << i;
    }
    EXPECT_EQ(Statuses{kWrFlushErr}, statuses(w.b, w.b.recv_cq, 1));
    expect_failed(w.a, -EREMOTEIO, AsyncEvent::kNone);
    ASSERT_TRUE(failed(w.b));
    expect_failed(w.b, -EPROTO, AsyncEvent::kQpAccessErr);
  }
}

/// The QP's own flags, set while it is connected. What a region allows beside is another matter.
TEST_P(Errors, rights_of_the_queue_pair) {
  const uint32_t kBoth = kAccessRemoteWrite | kAccessRemoteRead;
  const struct {
    WrOpcode op;
    uint32_t flags;
    bool permitted;
  } asked[] = {{WrOpcode::kRdmaWrite, 0, false},
               {WrOpcode::kRdmaWrite, kAccessRemoteWrite, true},
               {WrOpcode::kRdmaWrite, kAccessLocalWrite | kAccessRemoteRead | kAccessRemoteAtomic, false},
               {WrOpcode::kRdmaWriteImm, kAccessRemoteRead, false},
               {WrOpcode::kRdmaWriteImm, kAccessRemoteWrite, true},
               {WrOpcode::kRdmaRead, kAccessLocalWrite, false},
               {WrOpcode::kRdmaRead, kAccessRemoteRead, true},
               {WrOpcode::kRdmaRead, kAccessRemoteWrite | kAccessRemoteAtomic, false},
               {WrOpcode::kFetchAdd, kAccessRemoteAtomic, true},
               {WrOpcode::kFetchAdd, kBoth, true},
               {WrOpcode::kFetchAdd, kAccessRemoteWrite, false},
               {WrOpcode::kFetchAdd, kAccessRemoteRead, false}};
  Region* words = w.b.region(64, Host::kAllRights | kAccessRemoteAtomic);
  for (const auto& ask : asked) {
    SCOPED_TRACE(&ask - asked);
    auto [q, p] = w.connect();
    EXPECT_EQ(kBoth, w.b.engine.qp_access(p));  // nobody has said anything
    w.a.events.failed.clear();
    w.b.events.failed.clear();
    post_recv(p, {}, 1);
    read(q, ra->sge(0, 8), rb->addr(), rb->stag, 1);
    EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
    w.b.engine.qp_permit(p, ask.flags);
    EXPECT_EQ(ask.flags, w.b.engine.qp_access(p));
    post(q, ask.op, {ra->sge(0, 8)}, 2, kWrSignaled, words->addr(), words->stag);
    const auto got = wait(w.a, w.a.send_cq, 1);
    EXPECT_EQ(ask.permitted ? kSuccess : kRemAccessErr, got.at(0).status);
    EXPECT_EQ(ask.permitted ? 0 : vendor_err_of(term::kRdmapAccess), got.at(0).vendor_err);
    if (!ask.permitted) {
      ASSERT_TRUE(failed(w.b));
      expect_failed(w.b, -EPROTO, AsyncEvent::kQpAccessErr);
    }
    w.a.engine.qp_abort(q);
    w.b.engine.qp_abort(p);
    w.b.poll(w.b.recv_cq);
  }
}

/// READs that were accepted go on; what comes later is refused.
TEST_P(Errors, rights_are_taken_under_a_read) {
  read(qa, ra->sge(0, 100'000), rb->addr(), rb->stag, 1);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_TX_PKTS) > 5; }, 10 * kSec));
  w.b.engine.qp_permit(qb, kAccessLocalWrite);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag, 2);
  EXPECT_EQ(Statuses{kRemAccessErr}, statuses(w.a, w.a.send_cq, 1));
}

/// Flags that were set ahead of the connection are those that it has.
TEST_P(Errors, rights_set_ahead_of_the_connection) {
  w.a.engine.qp_reset(qa);
  w.b.engine.qp_reset(qb);
  w.b.engine.qp_permit(qb, kAccessLocalWrite);
  w.connect(qa, qb, {});
  read(qa, ra->sge(0, 8), rb->addr(), rb->stag, 1);
  EXPECT_EQ(Statuses{kRemAccessErr}, statuses(w.a, w.a.send_cq, 1));
}

TEST_P(Errors, zero_length_needs_no_memory) {
  write(qa, {0, 0, 0}, 1, 2, 1);
  read(qa, {0, 0, 0}, 3, 4, 2);
  post_recv(qb, {}, 3);
  send(qa, {0, 0, 0}, 3);
  EXPECT_EQ((Statuses{kSuccess, kSuccess, kSuccess}), statuses(w.a, w.a.send_cq, 3));
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.b, w.b.recv_cq, 1));
}

// ---- Memory that goes away under work in flight: an error, never an access ----

TEST_P(Errors, source_of_a_read_is_deregistered) {
  Region* big = w.b.region(4 << 20);
  Region* sink = w.a.region(4 << 20);
  read(qa, sink->sge(0, 4 << 20), big->addr(), big->stag, 1);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_TX_PKTS) > 100; }));
  ASSERT_EQ(0, w.b.engine.mr_remove(big->stag));
  std::vector<std::byte>().swap(big->bytes);  // the sanitizer sees any later access
  EXPECT_EQ(Statuses{kRemAccessErr}, statuses(w.a, w.a.send_cq, 1));
  ASSERT_TRUE(failed(w.b));
  expect_failed(w.b, -EPROTO, AsyncEvent::kQpAccessErr);
}

TEST_P(Errors, source_is_deregistered_when_the_read_is_complete) {
  Region* source = w.b.region(1000);
  Region* sink = w.a.region(1000);
  int from_a = 0;  // the request passes, the acknowledgement of the response is lost
  w.wire.filter = [&](int side, Datagram&) { return side != 0 || ++from_a != 2; };
  read(qa, sink->sge(0, 1000), source->addr(), source->stag, 1);
  EXPECT_EQ(Statuses{kSuccess}, statuses(w.a, w.a.send_cq, 1));
  ASSERT_EQ(0, w.b.engine.mr_remove(source->stag));
  EXPECT_FALSE(failed(w.b, 2 * kSec));
  EXPECT_TRUE(w.a.events.failed.empty());
}

TEST_P(Errors, sink_of_a_read_is_deregistered) {
  Region* big = w.b.region(4 << 20);
  Region* sink = w.a.region(4 << 20);
  read(qa, sink->sge(0, 4 << 20), big->addr(), big->stag, 1);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_TX_PKTS) > 100; }));
  ASSERT_EQ(0, w.a.engine.mr_remove(sink->stag));
  std::vector<std::byte>().swap(sink->bytes);
  EXPECT_EQ(Statuses{kLocProtErr}, statuses(w.a, w.a.send_cq, 1));
  expect_failed(w.a, -EFAULT, AsyncEvent::kNone);
}

TEST_P(Errors, source_of_a_write_is_deregistered) {
  Region* big = w.a.region(4 << 20);
  Region* dst = w.b.region(4 << 20);
  write(qa, ra->sge(0, 5000), rb->addr(), rb->stag, 1);
  write(qa, big->sge(0, 4 << 20), dst->addr(), dst->stag, 2);
  write(qa, ra->sge(0, 5000), rb->addr(), rb->stag, 3);
  ASSERT_TRUE(w.run([&] { return w.a.count(USIW_CNT_TX_PKTS) > 100; }));
  ASSERT_EQ(0, w.a.engine.mr_remove(big->stag));
  std::vector<std::byte>().swap(big->bytes);
  EXPECT_EQ((Statuses{kSuccess, kLocProtErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 3));
}

TEST_P(Errors, target_of_a_write_is_deregistered) {
  Region* big = w.a.region(4 << 20);
  Region* dst = w.b.region(4 << 20);
  write(qa, big->sge(0, 4 << 20), dst->addr(), dst->stag, 1);
  write(qa, ra->sge(0, 5000), rb->addr(), rb->stag, 2);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_RX_PKTS) > 100; }));
  ASSERT_EQ(0, w.b.engine.mr_remove(dst->stag));
  std::vector<std::byte>().swap(dst->bytes);
  EXPECT_EQ((Statuses{kRemAccessErr, kWrFlushErr}), statuses(w.a, w.a.send_cq, 2));
}

TEST_P(Errors, receive_buffer_is_deregistered) {
  Region* big = w.a.region(4 << 20);
  Region* dst = w.b.region(4 << 20);
  post_recv(qb, {dst->sge(0, 4 << 20)}, 1);
  send(qa, big->sge(0, 4 << 20), 1);
  ASSERT_TRUE(w.run([&] { return w.b.count(USIW_CNT_RX_PKTS) > 100; }));
  ASSERT_EQ(0, w.b.engine.mr_remove(dst->stag));
  std::vector<std::byte>().swap(dst->bytes);
  EXPECT_EQ(Statuses{kRemOpErr}, statuses(w.a, w.a.send_cq, 1));
  EXPECT_EQ(Statuses{kLocProtErr}, statuses(w.b, w.b.recv_cq, 1));
}

TEST_P(Errors, memory_table) {
  EXPECT_EQ(EEXIST, w.a.engine.mr_add({ra->stag ^ 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ENOENT, w.a.engine.mr_remove(ra->stag ^ 1));
  EXPECT_EQ(EINVAL, w.a.engine.mr_add({1u << 30, 0, 0, 0, 0, 0}));
  EXPECT_EQ(0, w.a.engine.mr_remove(ra->stag));
  EXPECT_EQ(ENOENT, w.a.engine.mr_remove(ra->stag));
}

TEST_P(Errors, read_with_ord_0) {
  PairOptions o;
  o.ord = 0;
  auto [q, p] = w.connect(o);
  (void)p;
  read(q, ra->sge(0, 8), rb->addr(), rb->stag);
  EXPECT_EQ(Statuses{kLocQpOpErr}, statuses(w.a, w.a.send_cq, 1));
}

TEST_P(Errors, more_reads_than_the_peer_serves) {
  // The two ends disagree, which the handshake prevents: a hostile requester.
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = 16;
  attr.max_send_sge = attr.max_recv_sge = 1;
  Qp* q = w.a.qp(attr);
  Qp* p = w.b.qp(attr);
  const FlowKey flow = w.next_flow(false);
  ASSERT_EQ(0, w.a.engine.qp_connect(q, 0, {flow, {}, {}, 64, 0}, {5, 6, 64, 8, 8, 1500, true}));
  ASSERT_EQ(0, w.b.engine.qp_connect(p, 0, {SimWire::reversed(flow), {}, {}, 64, 0}, {6, 5, 64, 2, 2, 1500, false}));
  for (int i = 0; i < 8; ++i) ASSERT_EQ(0, q->post_send({1, WrOpcode::kRdmaRead, kWrSignaled, rb->addr(), rb->stag},
                                                        std::vector{ra->sge(0, 50'000)}));
  q->ring_send();
  ASSERT_TRUE(failed(w.a));
  EXPECT_EQ(-EREMOTEIO, w.a.events.failed[0].error);
}

TEST_P(Errors, cq_overrun) {
  Cq* tiny = w.a.engine.cq_create(4, nullptr);
  QpAttr attr{};
  attr.max_send_wr = attr.max_recv_wr = 16;
  attr.max_send_sge = attr.max_recv_sge = 1;
  attr.send_cq = tiny;
  Qp* q = w.a.qp(attr);
  QpAttr other = attr;
  other.send_cq = nullptr;
  Qp* peer = w.b.qp(other);
  w.connect(q, peer, {});
  for (int i = 0; i < 5; ++i) write(q, ra->sge(0, 8), rb->addr(), rb->stag);
  ASSERT_TRUE(failed(w.a));
  expect_failed(w.a, -EOVERFLOW, AsyncEvent::kQpFatal);
  ASSERT_EQ(1u, w.a.events.overrun.size());
  EXPECT_EQ(tiny, w.a.events.overrun[0]);
  EXPECT_TRUE(tiny->dead());
  EXPECT_EQ(4u, w.a.poll(tiny).size());
  EXPECT_EQ(1u, w.a.count(USIW_CNT_CQ_OVERRUN));

  // A QP of that CQ whose connection comes about later would complete nothing.
  attr.recv_cq = tiny;
  Qp* late = w.a.qp(attr);
  EXPECT_EQ(EOVERFLOW,
            w.a.engine.qp_connect(late, 0, {w.next_flow(false), {}, {}, 64, 0}, {1, 2, 64, 1, 1, 1500, true}));
  EXPECT_EQ(QpState::kIdle, late->state());
}

}  // namespace
}  // namespace usiw::sim
