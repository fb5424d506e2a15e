// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Memory windows of both types and what invalidates them: ibv_alloc_mw(3), ibv_bind_mw(3), ibv_post_send(3).
#include <algorithm>

#include "rig.h"

namespace {

constexpr unsigned kBindable =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kBothWays = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

bool has_windows() {
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(pd_b()->context, &attr), 0);
  if ((attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0) CHECK(attr.max_mw >= 100);
  return (attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
}

ibv_mw* window(ibv_pd* pd, ibv_mw_type type) {
  ibv_mw* mw = ibv_alloc_mw(pd, type);
  if (!mw) FAIL("ibv_alloc_mw: %s", std::strerror(errno));
  CHECK(mw->pd == pd && mw->type == type);
  return mw;
}

ibv_mw_bind_info info(const Region& r, size_t offset, size_t length, unsigned access) {
  return {r.mr(), r.addr() + offset, length, access};
}

/// Of type 1. The errno value of ibv_bind_mw().
int try_bind(Endpoint& e, ibv_mw* mw, const ibv_mw_bind_info& to, uint64_t wr_id = 1) {
  ibv_mw_bind bind = {};
  bind.wr_id = wr_id;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = to;
  return ibv_bind_mw(e.qp, mw, &bind);
}
void bind(Endpoint& e, ibv_mw* mw, const ibv_mw_bind_info& to) {
  const uint32_t before = mw->rkey;
  CHECK_EQ(try_bind(e, mw, to), 0);
  CHECK(mw->rkey != before && mw->rkey >> 8 == before >> 8);
  CHECK_EQ(expect_wc(e.send_cq, 1).opcode, IBV_WC_BIND_MW);
}

int post(Endpoint& e, ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  wr.send_flags |= IBV_SEND_SIGNALED;
  return ibv_post_send(e.qp, &wr, &bad);
}
/// Of type 2: with the next key, which is the name from then on.
int try_bind2(Endpoint& e, ibv_mw* mw, const ibv_mw_bind_info& to, uint64_t wr_id = 1) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
  wr.bind_mw.bind_info = to;
  const int rc = post(e, wr);
  if (rc == 0) mw->rkey = ibv_inc_rkey(mw->rkey);
  return rc;
}
void bind2(Endpoint& e, ibv_mw* mw, const ibv_mw_bind_info& to) {
  CHECK_EQ(try_bind2(e, mw, to), 0);
  CHECK_EQ(expect_wc(e.send_cq, 1).opcode, IBV_WC_BIND_MW);
}
void local_inv(Endpoint& e, uint32_t rkey, uint64_t wr_id) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.invalidate_rkey = rkey;
  CHECK_EQ(post(e, wr), 0);
}
void send_inv(Endpoint& e, std::vector<ibv_sge> sges, uint32_t rkey, uint64_t wr_id, unsigned flags = 0) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.opcode = IBV_WR_SEND_WITH_INV;
  wr.send_flags = flags;
  wr.invalidate_rkey = rkey;
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  CHECK_EQ(post(e, wr), 0);
}

void write(Pair& p, Region& from, uint64_t to, uint32_t rkey, ibv_wc_status status = IBV_WC_SUCCESS) {
  p.a.send({.wr_id = 9, .opcode = IBV_WR_RDMA_WRITE, .sges = {from.sge()}, .remote_addr = to, .rkey = rkey});
  expect_wc(p.a.send_cq, 9, status);
}

}  // namespace

// Bound, bound anew elsewhere, unbound: the peer reaches what is bound, and nothing else.
CASE(mw_type1, "mw/type-1", .core = true) {
  CHECK(has_windows());
  Pair p;
  Region source(p.a.pd, 1000), at_b(p.b.pd, 8000, kBindable);
  ibv_mw* mw = window(p.b.pd, IBV_MW_TYPE_1);
  bind(p.b, mw, info(at_b, 1000, 1000, kBothWays));
  at_b.clear();
  source.fill(1);
  write(p, source, at_b.addr() + 1000, mw->rkey);
  wait_until("written data", [&] { return pattern_mismatch(at_b.data() + 1000, 1000, 1) == 1000; });
  at_b.check_clear(0, 1000);
  at_b.check_clear(2000, 6000);
  source.clear();
  p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sges = {source.sge()}, .remote_addr = at_b.addr() + 1000,
            .rkey = mw->rkey});
  expect_wc(p.a.send_cq, 2);
  source.check(1, 0, 1000);

  bind(p.b, mw, info(at_b, 4000, 1000, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED));
  source.fill(2);
  write(p, source, 0, mw->rkey);
  wait_until("written data", [&] { return pattern_mismatch(at_b.data() + 4000, 1000, 2) == 1000; });
  CHECK_EQ(ibv_dereg_mr(at_b.mr()), EBUSY);
  const uint32_t bound = mw->rkey;
  bind(p.b, mw, {});
  at_b.clear();
  write(p, source, 0, bound, IBV_WC_REM_ACCESS_ERR);
  at_b.check_clear(0, 8000);
  CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

CASE(mw_type2, "mw/type-2", .core = true) {
  CHECK(has_windows());
  Pair p;
  Region source(p.a.pd, 1000), at_b(p.b.pd, 8000, kBindable);
  ibv_mw* mw = window(p.b.pd, IBV_MW_TYPE_2);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    bind2(p.b, mw, info(at_b, 500 * seed, 1000, kBothWays));
    source.fill(seed);
    write(p, source, at_b.addr() + 500 * seed, mw->rkey);
    wait_until("written data", [&] { return pattern_mismatch(at_b.data() + 500 * seed, 1000, seed) == 1000; });
    local_inv(p.b, mw->rkey, 7);
    CHECK_EQ(expect_wc(p.b.send_cq, 7).opcode, IBV_WC_LOCAL_INV);
  }
  at_b.clear();
  write(p, source, at_b.addr() + 1500, mw->rkey, IBV_WC_REM_ACCESS_ERR);
  at_b.check_clear(0, 8000);
  CHECK_EQ(ibv_dealloc_mw(mw), 0);
}

// The message says which name is no more, and behind it nothing is bound.
CASE(mw_send_inv, "mw/send-with-invalidate", .core = true) {
  CHECK(has_windows());
  Pair p;
  Region source(p.a.pd, 5000), at_b(p.b.pd, 8000, kBindable), inbox(p.b.pd, 5000);
  ibv_mw* mw = window(p.b.pd, IBV_MW_TYPE_2);
  source.fill(5);
  for (const size_t size : {size_t{0}, size_t{100}, size_t{5000}}) {
    bind2(p.b, mw, info(at_b, 0, 8000, kBothWays));
    p.b.recv(3, {inbox.sge()});
    // All in one row: the WRITE uses the window, the SEND ends it.
    p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()}, .remote_addr = at_b.addr(),
              .rkey = mw->rkey});
    send_inv(p.a, {source.sge(0, size)}, mw->rkey, 2, size == 100 ? IBV_SEND_SOLICITED : 0);
    const ibv_wc wc = expect_wc(p.b.recv_cq, 3);
    CHECK_EQ(wc.wc_flags & IBV_WC_WITH_INV, unsigned{IBV_WC_WITH_INV});
    CHECK_EQ(wc.invalidated_rkey, mw->rkey);
    CHECK_EQ(wc.byte_len, size);
    CHECK_EQ(pattern_mismatch(inbox.data(), size, 5), size);
    CHECK_EQ(pattern_mismatch(at_b.data(), 5000, 5), 5000u);
    expect_wc(p.a.send_cq, 1);
    CHECK_EQ(expect_wc(p.a.send_cq, 2).opcode, IBV_WC_SEND);
  }
  at_b.deregister();  // nothing is bound to it
  CHECK_EQ(ibv_dealloc_mw(mw), 0);
  p.close();
}

// Rights, place and names that do not fit: at once where the arguments say it, else by a completion.
CASE(mw_bad_bind, "mw/bad-binds", .core = true) {
  CHECK(has_windows());
  {
    Pair p;
    Region at_b(p.b.pd, 4096, kBindable);
    ibv_mw *one = window(p.b.pd, IBV_MW_TYPE_1), *two = window(p.b.pd, IBV_MW_TYPE_2);
    CHECK_EQ(try_bind(p.b, one, info(at_b, 0, 100, IBV_ACCESS_MW_BIND)), EINVAL);
    CHECK_EQ(try_bind(p.b, one, {nullptr, at_b.addr(), 100, kBothWays}), EINVAL);
    CHECK_EQ(try_bind(p.b, two, info(at_b, 0, 100, kBothWays)), EINVAL);   // ibv_bind_mw() is for type 1
    CHECK_EQ(try_bind2(p.b, one, info(at_b, 0, 100, kBothWays)), EINVAL);  // and the work request for type 2,
    CHECK_EQ(try_bind2(p.b, two, info(at_b, 0, 0, kBothWays)), EINVAL);    // which is not unbound like this
    CHECK(ibv_alloc_mw(p.b.pd, static_cast<ibv_mw_type>(3)) == nullptr);
    CHECK_EQ(ibv_dealloc_mw(one), 0);
    CHECK_EQ(ibv_dealloc_mw(two), 0);
    exercise(p);
    p.close();
  }
  ibv_pd* other = ibv_alloc_pd(pd_b()->context);
  CHECK(other != nullptr);
  for (int what = 0; what < 6; ++what) {
    Pair p;
    const unsigned access = what == 0 ? kBindable & ~unsigned{IBV_ACCESS_MW_BIND}
                            : what == 1 ? unsigned{IBV_ACCESS_REMOTE_READ} | IBV_ACCESS_MW_BIND
                                        : kBindable;
    Region at_b(what == 2 ? other : p.b.pd, 4096, access);
    ibv_mw* mw = window(what == 3 ? other : p.b.pd, IBV_MW_TYPE_2);
    if (what == 5) bind2(p.b, mw, info(at_b, 0, 100, kBothWays));  // type 2 is bound once
    CHECK_EQ(try_bind2(p.b, mw, info(at_b, 0, what == 4 ? 4097 : 100, kBothWays), 4), 0);
    expect_wc(p.b.send_cq, 4, IBV_WC_MW_BIND_ERR);
    wait_until("the QP in error", [&] { return p.b.state() == IBV_QPS_ERR; });
    CHECK_EQ(ibv_dealloc_mw(mw), 0);
  }
  CHECK_EQ(ibv_dealloc_pd(other), 0);
}

// A window of type 2 is the connection's that has bound it, one of type 1 the PD's.
CASE(mw_whose, "mw/whose", .core = true) {
  CHECK(has_windows());
  Pair p, q;
  Region source(p.a.pd, 100), at_b(p.b.pd, 4096, kBindable);
  source.fill(1);
  ibv_mw *one = window(p.b.pd, IBV_MW_TYPE_1), *two = window(p.b.pd, IBV_MW_TYPE_2);
  bind(p.b, one, info(at_b, 0, 100, kBothWays));
  bind2(p.b, two, info(at_b, 1000, 100, kBothWays));
  write(q, source, at_b.addr(), one->rkey);
  wait_until("written data", [&] { return pattern_mismatch(at_b.data(), 100, 1) == 100; });
  write(p, source, at_b.addr() + 1000, two->rkey);
  at_b.clear();
  write(q, source, at_b.addr() + 1000, two->rkey, IBV_WC_REM_ACCESS_ERR);
  at_b.check_clear(0, 4096);
  // Dealloc unbinds, and what was bound may go.
  CHECK_EQ(ibv_dereg_mr(at_b.mr()), EBUSY);
  CHECK_EQ(ibv_dealloc_mw(two), 0);
  CHECK_EQ(ibv_dereg_mr(at_b.mr()), EBUSY);
  CHECK_EQ(ibv_dealloc_mw(one), 0);
  at_b.deregister();
  p.close();
}

// What may not be invalidated: a region, a window of type 1, one of another connection, one that is not bound. The
// receive of such a message does not succeed, and the requester is told.
CASE(mw_refused_inv, "mw/refused-invalidation", .core = true) {
  CHECK(has_windows());
  for (int what = 0; what < 5; ++what) {
    Pair p, q;
    Region source(p.a.pd, 100), at_b(p.b.pd, 4096, kBindable), inbox(p.b.pd, 100);
    ibv_mw *one = window(p.b.pd, IBV_MW_TYPE_1), *two = window(p.b.pd, IBV_MW_TYPE_2);
    ibv_mw* free = window(p.b.pd, IBV_MW_TYPE_2);
    bind(p.b, one, info(at_b, 0, 100, kBothWays));
    bind2(q.b, two, info(at_b, 0, 100, kBothWays));
    const uint32_t name[] = {at_b.rkey(), one->rkey, two->rkey, free->rkey, 0};
    p.b.recv(1, {inbox.sge()});
    send_inv(p.a, {source.sge()}, name[what], 2);
    expect_wc(p.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
    expect_wc(p.b.recv_cq, 1, IBV_WC_WR_FLUSH_ERR);
    // ... and by this end itself.
    local_inv(q.a, name[what], 3);
    expect_wc(q.a.send_cq, 3, IBV_WC_MW_BIND_ERR);
    for (ibv_mw* mw : {one, two, free}) CHECK_EQ(ibv_dealloc_mw(mw), 0);
  }
}
