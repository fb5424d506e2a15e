// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Everything that was posted completes exactly once, in order, however the connection ends.
#include "by_verbs.h"

namespace {

enum class End { kDisconnectA, kDisconnectB, kModifyA, kModifyB, kDestroyB };

void end_it(Pair& p, End how) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  switch (how) {
    case End::kDisconnectA: CHECK_CALL(rdma_disconnect(p.a.id)); break;
    case End::kDisconnectB: CHECK_CALL(rdma_disconnect(p.b.id)); break;
    case End::kModifyA: CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0); break;
    case End::kModifyB: CHECK_EQ(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE), 0); break;
    case End::kDestroyB: p.b.destroy_qp(); break;
  }
}

/// Receives that nobody will use are flushed in order, at both ends.
void flushed_receives(End how) {
  Pair p;
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint64_t i = 0; i < 20; ++i) {
    p.a.recv(i, {at_a.sge()});
    p.b.recv(i, {at_b.sge()});
  }
  end_it(p, how);
  for (uint64_t i = 0; i < 20; ++i) expect_wc(p.a.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  if (how == End::kDestroyB) return;
  for (uint64_t i = 0; i < 20; ++i) expect_wc(p.b.recv_cq, i, IBV_WC_WR_FLUSH_ERR);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  expect_no_wc(p.a.recv_cq, 50);
  expect_no_wc(p.b.recv_cq, 0);
  wait_until("QP A in state ERROR", [&] { return p.a.state() == IBV_QPS_ERR; });
  wait_until("QP B in state ERROR", [&] { return p.b.state() == IBV_QPS_ERR; });
}

/// 60 SENDs, of which the peer takes 20; then the end. The first ones succeed, the others do not, each
/// completes once and in order, and what the sender was told has arrived.
void flushed_sends(End how) {
  Options options;
  options.send_wr = 64;
  Pair p(options);
  constexpr uint32_t kLength = 3000;
  Region at_a(p.a.pd, 60 * kLength), at_b(p.b.pd, 60 * kLength);
  at_a.fill(6);
  for (uint64_t i = 0; i < 20; ++i) p.b.recv(i, {at_b.sge(i * kLength, kLength)});
  for (uint64_t i = 0; i < 60; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge(i * kLength, kLength)}});
  for (uint64_t i = 0; i < 20; ++i) expect_wc(p.b.recv_cq, i);
  end_it(p, how);
  uint64_t good = 0;
  for (uint64_t i = 0; i < 60; ++i) {
    const ibv_wc wc = wait_wc(p.a.send_cq, 40000);
    CHECK_EQ(wc.wr_id, i);
    if (wc.status == IBV_WC_SUCCESS) {
      CHECK_EQ(good, i);  // no success behind a failure
      ++good;
    }
  }
  if (good > 20) FAIL("%llu SENDs succeeded, but only 20 receives were posted", static_cast<unsigned long long>(good));
  at_b.check(6, 0, 20 * kLength);
  at_b.check_clear(20 * kLength, 40 * kLength);
  expect_no_wc(p.a.send_cq, 50);
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED, 40000);
}

/// Returns how many of the work requests 0 to @p count - 1 have succeeded. They complete in order, and those after the
/// last success are flushed.
uint64_t successes_before_flushes(ibv_cq* cq, uint64_t count) {
  uint64_t good = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const ibv_wc wc = wait_wc(cq);
    CHECK_EQ(wc.wr_id, i);
    if (wc.status == IBV_WC_SUCCESS)
      CHECK_EQ(good++, i);
    else
      CHECK_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  }
  return good;
}

}  // namespace

CASE(flush_recv_a, "flush/receives-disconnect-by-client", .core = true) { flushed_receives(End::kDisconnectA); }
CASE(flush_recv_b, "flush/receives-disconnect-by-server") { flushed_receives(End::kDisconnectB); }
CASE(flush_recv_modify_a, "flush/receives-client-qp-to-error", .core = true) { flushed_receives(End::kModifyA); }
CASE(flush_recv_modify_b, "flush/receives-server-qp-to-error") { flushed_receives(End::kModifyB); }
CASE(flush_recv_destroy, "flush/receives-server-qp-destroyed", .core = true) { flushed_receives(End::kDestroyB); }
CASE(flush_send_b, "flush/sends-disconnect-by-server", .seconds = 60, .core = true) {
  flushed_sends(End::kDisconnectB);
}
CASE(flush_send_modify_a, "flush/sends-client-qp-to-error", .seconds = 60, .core = true) {
  flushed_sends(End::kModifyA);
}
CASE(flush_send_modify_b, "flush/sends-server-qp-to-error", .seconds = 60) { flushed_sends(End::kModifyB); }
CASE(flush_send_destroy, "flush/sends-server-qp-destroyed", .seconds = 60, .core = true) {
  flushed_sends(End::kDestroyB);
}

// rdma_disconnect() after posted work that the peer takes. With an RNIC, librdmacm sets the QP to SQD, so the work is
// done first. With a CA it sets the QP to ERR, which flushes the work that has not completed.
CASE(flush_drain, "flush/disconnect-drains", .core = true) {
  for (int round = 0; round < 5; ++round) {
    Options options;
    Pair p(options);
    constexpr uint32_t kLength = 10000;
    Region at_a(p.a.pd, 30 * kLength), at_b(p.b.pd, 30 * kLength);
    at_a.fill(round);
    for (uint64_t i = 0; i < 40; ++i) p.b.recv(i, {i < 30 ? at_b.sge(i * kLength, kLength) : at_b.sge()});
    for (uint64_t i = 0; i < 30; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge(i * kLength, kLength)}});
    CHECK_CALL(rdma_disconnect(p.a.id));
    const uint64_t sent = successes_before_flushes(p.a.send_cq, 30);
    const uint64_t arrived = successes_before_flushes(p.b.recv_cq, 40);
    if (roce()) {
      // The last SENDs may have arrived although their acknowledgements have not.
      CHECK_EQ(p.a.state(), IBV_QPS_ERR);
      CHECK(arrived >= sent && arrived <= 30);
    } else {
      CHECK_EQ(sent, 30);
      CHECK_EQ(arrived, 30);
    }
    at_b.check(round, 0, arrived * kLength);
    p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  }
}
