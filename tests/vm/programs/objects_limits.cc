// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Sizes that programs of some size need: they work, and the notes say what memory they take.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "rig.h"

namespace {

/// Memory of this process, KiB.
long resident() {
  long pages = 0, kib = 0;
  FILE* f = fopen("/proc/self/statm", "re");
  CHECK(f != nullptr);
  if (fscanf(f, "%*d %ld", &pages) == 1) kib = pages * (sysconf(_SC_PAGESIZE) / 1024);
  fclose(f);
  return kib;
}

/// As many as the case is about, or as can be made in a minute (an emulated guest).
struct Minute {
  bool over() const { return tap::now_ms() > until; }
  const uint64_t until = tap::now_ms() + 60'000;
};

}  // namespace

CASE(limits_qps, "limits/10000-qps", .seconds = 200) {
  constexpr size_t kQps = 10000;
  ibv_cq* cq = ibv_create_cq(context(), 1000, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  std::vector<ibv_qp*> qps;
  std::set<uint32_t> numbers;
  const long before = resident();
  const Minute minute;
  for (size_t i = 0; i < kQps && !minute.over(); ++i) {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(pd_a(), &init);
    if (!qp) FAIL("QP %zu: %s", i, std::strerror(errno));
    qps.push_back(qp);
    if (!numbers.insert(qp->qp_num).second) FAIL("QP number %u twice", qp->qp_num);
  }
  tap::note("%zu QPs of 16 + 16 work requests: %.1f KiB each", qps.size(),
            static_cast<double>(resident() - before) / static_cast<double>(qps.size()));
  // Beside them others work.
  Pair p;
  exercise(p);
  p.close();
  std::reverse(qps.begin() + static_cast<ptrdiff_t>(qps.size() / 2), qps.end());
  for (ibv_qp* qp : qps) CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

CASE(limits_mrs, "limits/100000-regions", .seconds = 200) {
  constexpr size_t kRegions = 100000;
  std::vector<uint8_t> memory(1 << 20);
  std::vector<ibv_mr*> regions;
  std::set<uint32_t> keys;
  const long before = resident();
  const Minute minute;
  for (size_t i = 0; i < kRegions && !minute.over(); ++i) {
    ibv_mr* mr = ibv_reg_mr(pd_b(), memory.data() + i * 10, 10, kAllAccess);
    if (!mr) FAIL("region %zu: %s", i, std::strerror(errno));
    regions.push_back(mr);
    if (!keys.insert(mr->rkey).second) FAIL("rkey 0x%x twice", mr->rkey);
  }
  tap::note("%zu regions: %.0f bytes each", regions.size(),
            1024.0 * static_cast<double>(resident() - before) / static_cast<double>(regions.size()));
  Pair p;
  Region at_a(p.a.pd, 10);
  for (size_t i = 0; i < regions.size(); i += 1 + regions.size() / 100) {
    at_a.fill(i);
    p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
              .remote_addr = reinterpret_cast<uint64_t>(regions[i]->addr), .rkey = regions[i]->rkey});
    expect_wc(p.a.send_cq, i);
  }
  p.close();
  for (ibv_mr* mr : regions) CHECK_EQ(ibv_dereg_mr(mr), 0);
}

// 16 K work requests in each queue, all at a time, and a CQ of 1 M entries that gets their completions.
CASE(limits_queues, "limits/16384-work-requests-and-a-cq-of-1048576", .seconds = 200) {
  constexpr uint32_t kWrs = 16384;
  const long before = resident();
  ibv_cq* cq = ibv_create_cq(context(), 1 << 20, nullptr, nullptr, 0);
  if (!cq) FAIL("ibv_create_cq: %s", std::strerror(errno));
  tap::note("a CQ of 1 M entries, unused: %ld KiB", resident() - before);
  {
    Options both;
    both.send_wr = both.recv_wr = kWrs;
    Options of_a = both;
    of_a.cq = cq;
    Pair p(of_a, both);
    Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
    for (uint64_t i = 0; i < kWrs; ++i) p.b.recv(i, {at_b.sge()});
    CHECK_EQ(p.b.try_recv(0, {at_b.sge()}), ENOMEM);
    for (uint64_t i = 0; i < kWrs; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge(0, 8)}});
    for (uint64_t i = 0; i < kWrs; ++i) expect_wc(p.b.recv_cq, i);
    uint64_t next = 0;
    for (const ibv_wc& wc : wait_wcs(cq, kWrs, 8 * kWaitMs)) {
      CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      CHECK_EQ(wc.wr_id, next++);
    }
    p.close();
  }
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}
