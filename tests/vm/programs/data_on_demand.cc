// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// On-demand paging, ibv_reg_mr(3): regions of which the program maps and unmaps parts as it likes, and the implicit one
// of all addresses.
#include <sys/mman.h>

#include <atomic>
#include <thread>

#include "rig.h"

namespace {

constexpr unsigned kOnDemand = kAllAccess | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ON_DEMAND;
constexpr size_t kPage = 4096;

bool has_implicit() {
  ibv_device_attr_ex attr = {};
  CHECK_EQ(ibv_query_device_ex(pd_a()->context, nullptr, &attr), 0);
  return (attr.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0;
}

/// The region of all addresses; null where the device has none.
ibv_mr* everything(ibv_pd* pd) {
  errno = 0;
  ibv_mr* mr = ibv_reg_mr(pd, nullptr, SIZE_MAX, kOnDemand);
  if (mr == nullptr && !has_implicit()) return nullptr;
  if (mr == nullptr) FAIL("ibv_reg_mr of all addresses: %s", std::strerror(errno));
  return mr;
}

ibv_sge at(const void* address, size_t length, const ibv_mr* mr) {
  return {reinterpret_cast<uint64_t>(address), static_cast<uint32_t>(length), mr->lkey};
}

/// New pages, where others were if @p where says so.
uint8_t* map_pages(size_t pages, void* where = nullptr, int rights = PROT_READ | PROT_WRITE) {
  const int fixed = where ? MAP_FIXED : 0;
  void* mapped = mmap(where, pages * kPage, rights, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  CHECK(mapped != MAP_FAILED);
  return static_cast<uint8_t*>(mapped);
}
/// Takes a page away. Nobody gets the address meanwhile, as somebody in this process might after munmap().
void take_away(uint8_t* page) { map_pages(1, page, PROT_NONE); }

/// A WRITE or READ of one byte range; its status.
ibv_wc_status one_sided(Pair& p, ibv_wr_opcode opcode, const ibv_sge& here, const void* there, const ibv_mr* mr) {
  p.a.send({.wr_id = 1, .opcode = opcode, .sges = {here}, .remote_addr = reinterpret_cast<uint64_t>(there),
            .rkey = mr->rkey});
  return wait_wc(p.a.send_cq).status;
}

}  // namespace

// Nothing is registered but that: heap, stack, globals and what is mapped later.
CASE(on_demand_all, "mr/all-addresses", .core = true) {
  Pair p;
  ibv_mr *a = everything(p.a.pd), *b = everything(p.b.pd);
  if (a == nullptr) return;
  CHECK(a->addr == nullptr && a->length == SIZE_MAX);
  static uint8_t global[3000];
  uint8_t stack[3000];
  std::vector<uint8_t> heap(100000), sink(100000);
  uint8_t* mapped = map_pages(2);
  uint64_t seed = 1;
  for (auto [there, n] : {std::pair{global, sizeof global}, {stack, sizeof stack}, {mapped, 2 * kPage},
                          {heap.data(), heap.size()}, {heap.data() + 7, size_t{1}}, {heap.data() + 8, size_t{8}}}) {
    std::vector<uint8_t> source(n), back(n);
    fill_pattern(source.data(), n, ++seed);
    CHECK_EQ(one_sided(p, IBV_WR_RDMA_WRITE, at(source.data(), n, a), there, b), IBV_WC_SUCCESS);
    CHECK_EQ(one_sided(p, IBV_WR_RDMA_READ, at(back.data(), n, a), there, b), IBV_WC_SUCCESS);
    CHECK(back == source);
    p.b.recv(5, {at(sink.data(), n, b)});
    p.a.send({.wr_id = 6, .sges = {at(source.data(), n, a)}});
    expect_wc(p.b.recv_cq, 5);
    expect_wc(p.a.send_cq, 6);
    CHECK_EQ(pattern_mismatch(sink.data(), n, seed), n);
  }
  alignas(8) uint64_t word = 40, found = 0;
  p.a.send({.wr_id = 7, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .sges = {at(&found, 8, a)},
            .remote_addr = reinterpret_cast<uint64_t>(&word), .rkey = b->rkey, .compare_add = 2});
  expect_wc(p.a.send_cq, 7);
  CHECK_EQ(found, 40u);
  CHECK_EQ(std::atomic_ref(word).load(), 42u);
  p.close();
  CHECK_EQ(ibv_dereg_mr(a), 0);
  CHECK_EQ(ibv_dereg_mr(b), 0);
  CHECK_EQ(munmap(mapped, 2 * kPage), 0);
}

// What is not mapped is an error of the work request or of the peer's request, as a range outside of a region is.
CASE(on_demand_holes, "mr/all-addresses-and-nothing-there", .core = true) {
  if (!has_implicit()) return;
  uint8_t* pages = map_pages(3);
  take_away(pages + kPage);
  const uint8_t* const nowhere[] = {nullptr, reinterpret_cast<uint8_t*>(8), pages + kPage, pages + kPage - 4,
                                    reinterpret_cast<uint8_t*>(UINT64_MAX - 4096)};
  for (const uint8_t* there : nowhere) {
    for (const auto opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      Pair p;
      ibv_mr *a = everything(p.a.pd), *b = everything(p.b.pd);
      CHECK_EQ(one_sided(p, opcode, at(pages, 8, a), there, b), IBV_WC_REM_ACCESS_ERR);
      CHECK_EQ(ibv_dereg_mr(a), 0);
      CHECK_EQ(ibv_dereg_mr(b), 0);
    }
  }
  {
    Pair p;
    ibv_mr* a = everything(p.a.pd);
    p.a.send({.wr_id = 3, .sges = {at(pages + kPage, 8, a)}});
    expect_wc(p.a.send_cq, 3, IBV_WC_LOC_PROT_ERR);
    CHECK_EQ(ibv_dereg_mr(a), 0);
  }
  {
    Pair p;
    ibv_mr *a = everything(p.a.pd), *b = everything(p.b.pd);
    p.b.recv(4, {at(pages + kPage, 8, b)});
    p.a.send({.wr_id = 5, .sges = {at(pages, 8, a)}});
    expect_wc(p.b.recv_cq, 4, IBV_WC_LOC_PROT_ERR);
    CHECK(wait_wc(p.a.send_cq).status != IBV_WC_SUCCESS);
    CHECK_EQ(ibv_dereg_mr(a), 0);
    CHECK_EQ(ibv_dereg_mr(b), 0);
  }
  CHECK_EQ(munmap(pages, 3 * kPage), 0);
}

// A thread maps and unmaps pages while peers read and write them: each request is answered, and the process lives.
CASE(on_demand_storm, "mr/pages-that-come-and-go", .seconds = 120, .core = true) {
  if (!has_implicit()) return;
  constexpr size_t kPages = 64;
  uint8_t* pages = map_pages(kPages);
  std::atomic<bool> stop{false};
  std::thread mapper([&] {
    for (size_t i = 0; !stop; i = (i + 7) % kPages) {
      uint8_t* page = pages + i * kPage;
      take_away(page);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      map_pages(1, page);
    }
  });
  unsigned done = 0, refused = 0;
  for (unsigned i = 0; refused < 5; ++i) {
    Pair p;
    ibv_mr* b = ibv_reg_mr(p.b.pd, pages, kPages * kPage, kOnDemand);
    if (i % 2 == 0) {
      CHECK_EQ(ibv_dereg_mr(b), 0);
      b = everything(p.b.pd);
    }
    CHECK(b != nullptr);
    Region here(p.a.pd, 6000);
    for (;;) {
      const auto opcode = done % 2 == 0 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
      const ibv_wc_status status = one_sided(p, opcode, here.sge(), pages + (done * 7919) % ((kPages - 2) * kPage), b);
      if (status == IBV_WC_REM_ACCESS_ERR) break;
      CHECK_EQ(status, IBV_WC_SUCCESS);
      ++done;
    }
    ++refused;
    CHECK_EQ(ibv_dereg_mr(b), 0);
  }
  stop = true;
  mapper.join();
  tap::note("%u done, %u refused", done, refused);
  CHECK(done > 0);
  CHECK_EQ(munmap(pages, kPages * kPage), 0);
}

// A region can become one on demand, and be one that stays mapped again. The library lets none become that of all
// addresses.
CASE(on_demand_rereg, "mr/rereg-on-demand", .core = true) {
  if (!has_implicit()) return;
  Pair p;
  Region here(p.a.pd, 100);
  std::vector<uint8_t> memory(1000);
  ibv_mr* b = ibv_reg_mr(p.b.pd, memory.data(), 10, kAllAccess);
  CHECK(b != nullptr);
  const int flags = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS;
  CHECK(ibv_rereg_mr(b, flags, nullptr, nullptr, SIZE_MAX, kAllAccess) != 0);
  CHECK_EQ((ibv_rereg_mr)(b, flags, nullptr, memory.data(), memory.size(), kOnDemand), 0);
  here.fill(1);
  CHECK_EQ(one_sided(p, IBV_WR_RDMA_WRITE, here.sge(), memory.data() + 900, b), IBV_WC_SUCCESS);
  CHECK_EQ(pattern_mismatch(memory.data() + 900, 100, 1), 100u);
  CHECK_EQ((ibv_rereg_mr)(b, flags, nullptr, memory.data(), 50, kAllAccess), 0);
  CHECK_EQ(one_sided(p, IBV_WR_RDMA_WRITE, here.sge(0, 51), memory.data(), b), IBV_WC_REM_ACCESS_ERR);
  CHECK_EQ(ibv_dereg_mr(b), 0);
}
