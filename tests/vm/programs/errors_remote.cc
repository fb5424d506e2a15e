// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What the remote side refuses: status at the requester, async event and DISCONNECTED at both
// ends, flushed work behind it, nothing touched that must not be.
#include <unistd.h>

#include <cstdlib>

#include "by_verbs.h"

namespace {

struct Target {
  uint64_t addr;
  uint32_t rkey;
};

/// vendor_err of the requester's completion: the layer, type and code of the Terminate (docs/errors.md). RFC 5041 has
/// other numbers for what DDP refuses of a WRITE than RFC 5040 for the source of a READ.
struct Refusal {
  uint32_t write, read;
};
constexpr Refusal kInvalidStag{0x9100, 0x8100}, kBounds{0x9101, 0x8101}, kNotAssociated{0x9102, 0x8103},
    kWraps{0x9103, 0x8104}, kRights{0x8102, 0x8102};

/// The reason in words of the wire: usiw's own.
void expect_vendor_err(const ibv_wc& wc, uint32_t wanted) {
  const char* peer = std::getenv("PEER");
  if ((peer == nullptr || *peer == '\0') && wc.vendor_err != wanted)
    FAIL("vendor_err of work request %d is %#x, not %#x", static_cast<int>(wc.wr_id), wc.vendor_err, wanted);
}

/// One connection; a WRITE or READ of @p length to @p target that must be refused, with successful
/// work in front of it and work behind it that must be flushed.
void refused(ibv_wr_opcode opcode, const Target& target, uint32_t length, const Region* untouched, const Refusal& why) {
  Pair broken, witness;
  exercise(witness);
  drain_async(broken.b.id->verbs);
  Region at_a(broken.a.pd, 100000), fine(broken.b.pd, 4096), receives(broken.b.pd, 64);
  at_a.fill(1);
  broken.b.recv(60, {receives.sge()});
  broken.a.recv(61, {at_a.sge(0, 64)});
  broken.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(0, 4096)},
                 .remote_addr = fine.addr(), .rkey = fine.rkey()});
  broken.a.send({.wr_id = 2, .opcode = opcode, .sges = {at_a.sge(0, length)},
                 .remote_addr = target.addr, .rkey = target.rkey});
  broken.a.send({.wr_id = 3, .sges = {at_a.sge(0, 16)}});
  broken.a.send({.wr_id = 4, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(0, 16)},
                 .remote_addr = fine.addr(), .rkey = fine.rkey()});
  expect_wc(broken.a.send_cq, 1);
  expect_vendor_err(expect_wc(broken.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR),
                    opcode == IBV_WR_RDMA_READ ? why.read : why.write);
  expect_wc(broken.a.send_cq, 3, IBV_WC_WR_FLUSH_ERR);
  expect_wc(broken.a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
  expect_wc(broken.a.recv_cq, 61, IBV_WC_WR_FLUSH_ERR);
  expect_wc(broken.b.recv_cq, 60, IBV_WC_WR_FLUSH_ERR);
  expect_async(broken.b.id->verbs, IBV_EVENT_QP_ACCESS_ERR, broken.b.qp);
  broken.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  broken.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  CHECK_EQ(broken.a.state(), IBV_QPS_ERR);
  CHECK_EQ(broken.b.state(), IBV_QPS_ERR);
  fine.check(1, 0, 4096);
  receives.check_clear(0, 64);
  if (untouched) {
    if (opcode == IBV_WR_RDMA_WRITE) untouched->check_clear(0, untouched->size());
    untouched->check_guards();
  }
  exercise(witness);
  witness.close();
}

void both(const std::function<Target()>& target, uint32_t length, const Region* untouched, const Refusal& why) {
  refused(IBV_WR_RDMA_WRITE, target(), length, untouched, why);
  refused(IBV_WR_RDMA_READ, target(), length, untouched, why);
}

}  // namespace

CASE(remote_rkey, "remote/unknown-rkey", .seconds = 60, .core = true) {
  Region r(pd_b(), 4096);
  both([&] { return Target{r.addr(), r.rkey() ^ 0x00abcd00}; }, 4096, &r, kInvalidStag);
}

CASE(remote_key_byte, "remote/rkey-with-wrong-key-byte", .seconds = 60) {
  Region r(pd_b(), 4096);
  both([&] { return Target{r.addr(), r.rkey() ^ 0x01}; }, 4096, &r, kInvalidStag);
}

CASE(remote_bounds, "remote/one-byte-too-far", .seconds = 60, .core = true) {
  Region r(pd_b(), 1000);
  both([&] { return Target{r.addr() + 1, r.rkey()}; }, 1000, &r, kBounds);
}

CASE(remote_before, "remote/before-the-region", .seconds = 60) {
  Region r(pd_b(), 1000);
  both([&] { return Target{r.addr() - 1, r.rkey()}; }, 10, &r, kBounds);
}

CASE(remote_wrap, "remote/address-wraps", .seconds = 60) {
  Region r(pd_b(), 1000);
  both([&] { return Target{~0ull - 3, r.rkey()}; }, 100, &r, kWraps);
}

CASE(remote_pd, "remote/region-of-another-pd", .seconds = 60, .core = true) {
  ibv_pd* other = ibv_alloc_pd(context_of(site_b().device));
  CHECK(other != nullptr);
  {
    Region r(other, 4096);
    both([&] { return Target{r.addr(), r.rkey()}; }, 4096, &r, kNotAssociated);
  }
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}

CASE(remote_no_write, "remote/no-right-to-write", .core = true) {
  Region r(pd_b(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
  refused(IBV_WR_RDMA_WRITE, {r.addr(), r.rkey()}, 100, &r, kRights);
}

CASE(remote_no_read, "remote/no-right-to-read", .core = true) {
  Region r(pd_b(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  refused(IBV_WR_RDMA_READ, {r.addr(), r.rkey()}, 100, &r, kRights);
}

CASE(remote_local_only, "remote/local-rights-only", .seconds = 60) {
  Region r(pd_b(), 4096, IBV_ACCESS_LOCAL_WRITE);
  both([&] { return Target{r.addr(), r.rkey()}; }, 100, &r, kRights);
}

CASE(remote_gone, "remote/deregistered", .seconds = 60, .core = true) {
  Region r(pd_b(), 4096);
  const Target stale = {r.addr(), r.rkey()};
  r.deregister();
  both([&] { return stale; }, 100, &r, kInvalidStag);
}

// A WRITE of many datagrams that ends beyond the region: what lies behind the region stays.
CASE(remote_long, "remote/long-write-beyond-the-end", .core = true) {
  Region r(pd_b(), 50000);
  Pair broken;
  Region source(broken.a.pd, 90000);
  broken.a.send(
      {.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()}, .remote_addr = r.addr(), .rkey = r.rkey()});
  expect_wc(broken.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  expect_async(broken.b.id->verbs, IBV_EVENT_QP_ACCESS_ERR, broken.b.qp);
  r.check_guards();
}

namespace {

ibv_qp_attr flags_of(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_ACCESS_FLAGS, &init), 0);
  return attr;
}

void permit(ibv_qp* qp, unsigned flags) {
  ibv_qp_attr attr = {};
  attr.qp_access_flags = flags;
  CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS), 0);
  CHECK_EQ(flags_of(qp).qp_access_flags, flags);
}

constexpr unsigned kWrite = IBV_ACCESS_REMOTE_WRITE, kRead = IBV_ACCESS_REMOTE_READ, kAtomic = IBV_ACCESS_REMOTE_ATOMIC;

/// The rights that a request needs of a QP, any of them.
std::vector<unsigned> needs(ibv_wr_opcode opcode) {
  if (opcode == IBV_WR_RDMA_READ) return {kRead};
  if (opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) return {kWrite};
  return {kAtomic, kWrite | kRead};
}

}  // namespace

// The access flags of a QP, set in RTS and in SQD, whatever the region allows. A new connection per refusal.
CASE(remote_qp_rights, "remote/qp-access-flags", .seconds = 120, .core = true) {
  constexpr unsigned kAll = IBV_ACCESS_LOCAL_WRITE | kWrite | kRead | kAtomic;
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
                               IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    std::unique_ptr<Pair> p;
    for (unsigned flags : {0u, kWrite, kRead, kAtomic, kWrite | kRead, kWrite | kAtomic, kRead | kAtomic}) {
      if (!p) {
        p = std::make_unique<Pair>();
        exercise(*p);
      }
      drain_async(p->b.id->verbs);
      Region at_a(p->a.pd, 4096), at_b(p->b.pd, 4096, kAll);
      at_a.fill(1);
      const auto ask = [&](uint64_t id) {
        const SendWr wr{.wr_id = id, .opcode = opcode, .sges = {at_a.sge(0, 8)}, .remote_addr = at_b.addr(),
                        .rkey = at_b.rkey()};
        if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) p->b.recv(id, {});
        p->a.send(wr);
      };
      permit(p->b.qp, kAll);
      ask(1);
      expect_wc(p->a.send_cq, 1);
      permit(p->b.qp, flags);
      // This end's own requests are the peer's matter.
      p->b.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_b.sge(64, 8)}, .remote_addr = at_a.addr() + 64,
                 .rkey = at_a.rkey()});
      expect_wc(p->b.send_cq, 2);
      bool permitted = false;
      for (unsigned rights : needs(opcode)) permitted = permitted || (flags & rights) == rights;
      ask(3);
      if (permitted) {
        expect_wc(p->a.send_cq, 3);
      } else {
        expect_vendor_err(expect_wc(p->a.send_cq, 3, IBV_WC_REM_ACCESS_ERR), kRights.write);
        expect_async(p->b.id->verbs, IBV_EVENT_QP_ACCESS_ERR, p->b.qp);
        p->a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
        p->b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
      }
      if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
        expect_wc(p->b.recv_cq, 1);
        expect_wc(p->b.recv_cq, 3, permitted ? IBV_WC_SUCCESS : IBV_WC_WR_FLUSH_ERR);
      }
      if (!permitted) p.reset();
    }
  }
  drain_async(pd_b()->context);
}

// What rdma_cm says of a QP, and what comes of it: both ends are readable and writable, whoever has connected.
CASE(remote_cm_rights, "remote/qp-access-flags-of-rdma-cm", .core = true) {
  const unsigned of_rdma_cm = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                              (roce() ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0u);
  Pair p;
  for (Endpoint* e : {&p.a, &p.b}) CHECK_EQ(flags_of(e->qp).qp_access_flags, of_rdma_cm);
  {
    // Before it the initiator's librdmacm has said 0, since the kernel's iw_cm knows nothing of the connection yet, and
    // says nothing later; the other end's says the same twice, the second time in rdma_accept().
    Endpoint a, b;
    a.resolve(site_a().ip, site_b().ip, shared_listener().port());
    a.create_qp({});
    if (!roce()) CHECK_EQ(flags_of(a.qp).qp_access_flags, 0);
    permit(a.qp, kWrite);
    rdma_conn_param param = conn_param({});
    CHECK_EQ(rdma_connect(a.id, &param), 0);
    b.adopt(shared_listener().wait_request().id);
    b.create_qp({});
    CHECK_EQ(flags_of(b.qp).qp_access_flags, of_rdma_cm);
    permit(b.qp, kRead);
    CHECK_EQ(rdma_accept(b.id, &param), 0);
    a.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    b.events.expect(RDMA_CM_EVENT_ESTABLISHED);
    // With a CA the initiator's librdmacm, too, sets them a second time, when the answer has come.
    CHECK_EQ(flags_of(a.qp).qp_access_flags, roce() ? of_rdma_cm : kWrite);
    CHECK_EQ(flags_of(b.qp).qp_access_flags, of_rdma_cm);
    CHECK_EQ(rdma_disconnect(a.id), 0);
    b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  }
  exercise(p);
  // In SQD, and back: what was refused is permitted again. InfiniBand does not permit the attribute on the way to SQD.
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
  if (roce()) {
    CHECK_EQ(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), EINVAL);
    CHECK_EQ(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE), 0);
  }
  CHECK_EQ(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS), 0);
  CHECK_EQ(flags_of(p.b.qp).qp_access_flags, IBV_ACCESS_REMOTE_READ);
  permit(p.b.qp, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
  attr.qp_state = IBV_QPS_RTS;
  CHECK_EQ(ibv_modify_qp(p.b.qp, &attr, IBV_QP_STATE), 0);
  exercise(p);
  p.close();
}

// Deregistering under remote use: bytes stop changing when ibv_dereg_mr has returned.
CASE(remote_dereg, "remote/deregister-under-use", .seconds = 60, .core = true) {
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    Pair broken, witness;
    constexpr size_t kLength = 4 << 20;
    Region at_a(broken.a.pd, kLength), at_b(broken.b.pd, kLength);
    at_a.fill(1);
    broken.a.send(
        {.wr_id = 1, .opcode = opcode, .sges = {at_a.sge()}, .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    if (opcode == IBV_WR_RDMA_WRITE)
      wait_until("first bytes of the WRITE", [&] { return pattern_mismatch(at_b.data(), 1024, 1) == 1024; });
    at_b.deregister();
    const std::vector<uint8_t> then(at_b.data(), at_b.data() + kLength);
    const ibv_wc wc = wait_wc(broken.a.send_cq);
    if (wc.status != IBV_WC_SUCCESS && wc.status != IBV_WC_REM_ACCESS_ERR)
      FAIL("completion '%s'", ibv_wc_status_str(wc.status));
    usleep(100000);
    if (std::memcmp(then.data(), at_b.data(), kLength)) FAIL("memory changed after ibv_dereg_mr returned");
    exercise(witness);
    witness.close();
  }
  drain_async(pd_b()->context);
}

// A message longer than the receive that it meets.
CASE(remote_short_recv, "remote/receive-too-short", .seconds = 60, .core = true) {
  for (uint32_t posted : {0u, 10u, 5000u}) {
    Pair broken, witness;
    Region at_a(broken.a.pd, 20000), at_b(broken.b.pd, 20000);
    drain_async(broken.b.id->verbs);
    broken.b.recv(1, {at_b.sge(0, posted)});
    broken.b.recv(2, {at_b.sge()});
    broken.a.send({.wr_id = 3, .sges = {at_a.sge(0, posted + 1)}});
    broken.a.send({.wr_id = 4, .sges = {at_a.sge(0, 8)}});
    expect_wc(broken.b.recv_cq, 1, IBV_WC_LOC_LEN_ERR);
    expect_wc(broken.b.recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
    expect_async(broken.b.id->verbs, IBV_EVENT_QP_REQ_ERR, broken.b.qp);
    expect_vendor_err(expect_wc(broken.a.send_cq, 3, IBV_WC_REM_INV_REQ_ERR), 0x9205);  // DDP: message too long
    expect_wc(broken.a.send_cq, 4, IBV_WC_WR_FLUSH_ERR);
    at_b.check_clear(posted, 20000 - posted);
    at_b.check_guards();
    broken.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    broken.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    exercise(witness);
    witness.close();
  }
  drain_async(pd_b()->context);
}

// A peer that never posts a receive: the connection fails in bounded time, as iWARP prescribes.
CASE(remote_no_recv, "remote/no-receive-ever", .seconds = 150) {
  Pair broken;
  Region at_a(broken.a.pd, 64);
  broken.a.send({.wr_id = 1, .sges = {at_a.sge()}});
  drain_async(broken.b.id->verbs);
  const ibv_wc wc = wait_wc(broken.a.send_cq, 8 * kWaitMs);
  if (wc.status != IBV_WC_RNR_RETRY_EXC_ERR) FAIL("completion '%s'", ibv_wc_status_str(wc.status));
  expect_vendor_err(wc, 0x9202);  // DDP: no buffer available
  expect_async(broken.b.id->verbs, IBV_EVENT_QP_REQ_ERR, broken.b.qp);
  broken.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  broken.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  drain_async(pd_b()->context);
}
