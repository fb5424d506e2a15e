// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Work requests that the local side finds wrong: the completion status, and that the connection
// ends while others go on.
#include "rig.h"

namespace {

/// A connection to break and one that must not notice.
struct Scene {
  Pair broken, witness;
  Region at_a{broken.a.pd, 8192}, at_b{broken.b.pd, 8192};

  explicit Scene(const Options& options = {}) : broken(options) { exercise(witness); }

  /// The broken connection ends with a DISCONNECTED event at both ends and QPs in ERROR,
  /// the other one works.
  void finish() {
    broken.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    broken.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    wait_until("QP A in state ERROR", [&] { return broken.a.state() == IBV_QPS_ERR; });
    wait_until("QP B in state ERROR", [&] { return broken.b.state() == IBV_QPS_ERR; });
    exercise(witness);
    witness.close();
    at_a.check_guards();
    at_b.check_guards();
    drain_async(broken.a.id->verbs);
    drain_async(broken.b.id->verbs);
  }
};

const ibv_wr_opcode kOpcodes[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

/// For every opcode: a list whose second element is bad completes with LOC_PROT_ERR, what is behind it
/// is flushed, nothing of it is placed at the peer.
void bad_element(const std::function<ibv_sge(Scene&)>& bad, bool touches_source = true) {
  for (ibv_wr_opcode opcode : kOpcodes) {
    if (opcode == IBV_WR_RDMA_READ && !touches_source) continue;
    Scene scene;
    Endpoint& a = scene.broken.a;
    scene.broken.b.recv(50, {scene.at_b.sge()});
    std::vector<ibv_sge> sges;
    if (opcode != IBV_WR_RDMA_READ) sges.push_back(scene.at_a.sge(0, 8));
    sges.push_back(bad(scene));
    a.send({.wr_id = 1, .opcode = opcode, .sges = sges, .remote_addr = scene.at_b.addr(), .rkey = scene.at_b.rkey()});
    a.send({.wr_id = 2, .sges = {scene.at_a.sge(0, 8)}});
    expect_wc(a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
    expect_wc(a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_wc(scene.broken.b.recv_cq, 50, IBV_WC_WR_FLUSH_ERR);
    scene.at_b.check_clear(0, scene.at_b.size());
    scene.finish();
  }
}

}  // namespace

CASE(local_lkey, "local/unknown-lkey", .seconds = 60, .core = true) {
  bad_element([](Scene& s) { return ibv_sge{s.at_a.addr(), 100, s.at_a.lkey() ^ 0x00abcd00}; });
}

CASE(local_key_byte, "local/lkey-with-wrong-key-byte", .seconds = 60) {
  bad_element([](Scene& s) { return ibv_sge{s.at_a.addr(), 100, s.at_a.lkey() ^ 0x01}; });
}

CASE(local_bounds, "local/out-of-bounds", .seconds = 60, .core = true) {
  bad_element([](Scene& s) { return ibv_sge{s.at_a.addr() + s.at_a.size() - 99, 100, s.at_a.lkey()}; });
}

CASE(local_before, "local/before-the-region", .seconds = 60) {
  bad_element([](Scene& s) { return ibv_sge{s.at_a.addr() - 1, 100, s.at_a.lkey()}; });
}

CASE(local_wrap, "local/address-wraps", .seconds = 60) {
  bad_element([](Scene& s) { return ibv_sge{~0ull - 50, 100, s.at_a.lkey()}; });
}

CASE(local_pd, "local/other-pd", .seconds = 60, .core = true) {
  ibv_pd* other = ibv_alloc_pd(context_of(site_a().device));
  CHECK(other != nullptr);
  {
    Region foreign(other, 4096);
    bad_element([&](Scene&) { return foreign.sge(0, 100); });
  }
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}

CASE(local_gone, "local/deregistered", .seconds = 60, .core = true) {
  Region gone(pd_a(), 4096);
  const ibv_sge stale = gone.sge(0, 100);
  gone.deregister();
  bad_element([&](Scene&) { return stale; });
}

// The sink of a READ needs local write.
CASE(local_read_sink, "local/read-into-read-only", .core = true) {
  Scene scene;
  Region sink(scene.broken.a.pd, 4096, IBV_ACCESS_REMOTE_READ);
  scene.broken.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()},
                       .remote_addr = scene.at_b.addr(), .rkey = scene.at_b.rkey()});
  expect_wc(scene.broken.a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
  sink.check_clear(0, 4096);
  scene.finish();
}

// A connection that was made for no READs at all: posting one is an operation that the QP does not have.
CASE(local_no_depth, "local/read-without-depth", .core = true) {
  Options options;
  options.ird = options.ord = 0;
  Scene scene(Options{});
  Pair p(options);
  Region sink(p.a.pd, 64);
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()}, .remote_addr = scene.at_b.addr(),
            .rkey = scene.at_b.rkey()});
  p.a.send({.wr_id = 2, .sges = {sink.sge()}});
  expect_wc(p.a.send_cq, 1, IBV_WC_LOC_QP_OP_ERR);
  expect_wc(p.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  exercise(scene.broken);
}

// A receive into memory without local write, or with a bad lkey, fails when a message comes for it.
CASE(local_recv, "local/receive-not-writable", .seconds = 60, .core = true) {
  for (int kind = 0; kind < 3; ++kind) {
    Scene scene;
    Region sink(scene.broken.b.pd, 4096, kind == 0 ? 0u : kAllAccess);
    ibv_sge sge = sink.sge();
    if (kind == 1) sge.lkey ^= 0x00abcd00;
    if (kind == 2) sge.addr += 1;
    scene.broken.b.recv(1, {sge});
    scene.broken.b.recv(2, {scene.at_b.sge()});
    scene.broken.a.recv(3, {scene.at_a.sge()});
    // As long as the receive, so that a region that ends too early matters.
    scene.broken.a.send({.wr_id = 4, .sges = {scene.at_a.sge(0, 4096)}});
    const ibv_wc wc = wait_wc(scene.broken.b.recv_cq);
    CHECK_EQ(wc.wr_id, 1);
    if (wc.status != IBV_WC_LOC_PROT_ERR) FAIL("kind %d: %s", kind, ibv_wc_status_str(wc.status));
    expect_wc(scene.broken.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_async(scene.broken.b.id->verbs, IBV_EVENT_QP_REQ_ERR, scene.broken.b.qp);
    // The message was lost at the peer: the responder could not do it, which is no fault of the request.
    expect_wc(scene.broken.a.send_cq, 4, IBV_WC_REM_OP_ERR);
    expect_wc(scene.broken.a.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
    sink.check_clear(0, 4096);
    sink.check_guards();
    scene.finish();
  }
}

// Deregistering local memory under use: the work completes (well or with an error), and nothing
// is written to the memory afterwards.
CASE(local_dereg, "local/deregister-under-use", .seconds = 60, .core = true) {
  for (int round = 0; round < 4; ++round) {
    Pair broken, witness;
    constexpr size_t kLength = 4 << 20;
    Region source(broken.b.pd, kLength), sink(broken.a.pd, kLength);
    source.fill(round);
    broken.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()},
                   .remote_addr = source.addr(), .rkey = source.rkey()});
    if (round & 1)
      wait_until("first bytes of the READ", [&] { return pattern_mismatch(sink.data(), 1024, round) == 1024; });
    sink.deregister();
    const std::vector<uint8_t> then(sink.data(), sink.data() + kLength);
    const ibv_wc wc = wait_wc(broken.a.send_cq);
    if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_LOC_PROT_ERR && wc.status != IBV_WC_WR_FLUSH_ERR)
      FAIL("completion '%s'", ibv_wc_status_str(wc.status));
    if (wc.status == IBV_WC_SUCCESS) sink.check(round, 0, kLength);
    expect_no_wc(broken.a.send_cq, 100);
    if (std::memcmp(then.data(), sink.data(), kLength)) FAIL("memory changed after ibv_dereg_mr returned");
    exercise(witness);
    witness.close();
  }
  drain_async(pd_a()->context);
  drain_async(pd_b()->context);
}
