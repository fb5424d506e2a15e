// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Access flags of regions, regions registered anew, null regions and advice: ibv_reg_mr(3), ibv_rereg_mr(3),
// ibv_alloc_null_mr(3), ibv_advise_mr(3).
#include <sys/mman.h>

#include <algorithm>

#include "rig.h"

namespace {

constexpr unsigned kRemote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

ibv_device_attr_ex device_limits() {
  ibv_device_attr_ex attr = {};
  CHECK_EQ(ibv_query_device_ex(pd_a()->context, nullptr, &attr), 0);
  return attr;
}

/// A WRITE of @p source from A to @p to of B, and that it arrives at @p at.
void write_to(Pair& p, Region& source, uint64_t to, uint32_t rkey, const uint8_t* at, uint64_t seed) {
  source.fill(seed);
  p.a.send({.wr_id = seed, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()}, .remote_addr = to, .rkey = rkey});
  expect_wc(p.a.send_cq, seed);
  wait_until("written data", [&] { return pattern_mismatch(at, source.size(), seed) == source.size(); });
}

/// ibv_rereg_mr() as a function: the macro of some libraries takes other types.
int rereg(ibv_mr* mr, int flags, ibv_pd* pd, void* addr, size_t length, int access) {
  return ibv_rereg_mr(mr, flags, pd, addr, length, access);
}

}  // namespace

// Each flag is a promise or a wish that does not change what works.
CASE(mr_flags, "mr/access-flags", .core = true) {
  Pair p;
  std::vector<uint8_t> memory(8192);
  Region source(p.a.pd, 1000);
  uint64_t seed = 1;
  for (unsigned flag : {0u, unsigned{IBV_ACCESS_MW_BIND}, unsigned{IBV_ACCESS_ON_DEMAND},
                        unsigned{IBV_ACCESS_ON_DEMAND} | IBV_ACCESS_HUGETLB, unsigned{IBV_ACCESS_RELAXED_ORDERING},
                        unsigned{IBV_ACCESS_REMOTE_ATOMIC}}) {
    if ((flag & IBV_ACCESS_ON_DEMAND) != 0 && (device_limits().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) continue;
    ibv_mr* mr = ibv_reg_mr(p.b.pd, memory.data(), memory.size(), kRemote | flag);
    if (!mr) FAIL("access 0x%x: %s", kRemote | flag, std::strerror(errno));
    write_to(p, source, reinterpret_cast<uint64_t>(memory.data()) + 77, mr->rkey, memory.data() + 77, ++seed);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
  }
  exercise(p);
  p.close();
}

// Peers and scatter lists count from the region's first byte, wherever that lies.
CASE(mr_zero_based, "mr/zero-based", .core = true) {
  Pair p;
  std::vector<uint8_t> memory(8192);
  Region source(p.a.pd, 1000), sink(p.a.pd, 500);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{101}}) {
    uint8_t* begin = memory.data() + offset;
    ibv_mr* by_flag = ibv_reg_mr(p.b.pd, begin, 4000, kRemote | IBV_ACCESS_ZERO_BASED);
    if (!by_flag) FAIL("by flag: %s", std::strerror(errno));
    ibv_mr* by_iova = ibv_reg_mr_iova(p.b.pd, begin, 4000, 0, kRemote);
    if (!by_iova) FAIL("by hca_va 0: %s", std::strerror(errno));
    for (ibv_mr* mr : {by_flag, by_iova}) {
      write_to(p, source, 3, mr->rkey, begin + 3, 1 + offset);
      p.a.send({.wr_id = 9, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge()}, .remote_addr = 3, .rkey = mr->rkey});
      expect_wc(p.a.send_cq, 9);
      sink.check(1 + offset, 0, sink.size());
      // As the source and the sink of work requests.
      p.b.recv(1, {{2000, 100, mr->lkey}});
      p.a.send({.wr_id = 2, .sges = {source.sge(0, 100)}});
      expect_wc(p.b.recv_cq, 1);
      CHECK(std::memcmp(begin + 2000, source.data(), 100) == 0);
      expect_wc(p.a.send_cq, 2);
      p.a.recv(3, {sink.sge()});
      p.b.send({.wr_id = 4, .sges = {{2000, 100, mr->lkey}}});
      expect_wc(p.a.recv_cq, 3);
      CHECK(std::memcmp(sink.data(), source.data(), 100) == 0);
      expect_wc(p.b.send_cq, 4);
    }
    CHECK_EQ(ibv_dereg_mr(by_flag), 0);
    CHECK_EQ(ibv_dereg_mr(by_iova), 0);
  }
  p.close();
}

// A region of no bytes is one, wherever it begins: adapters take it too, unless it begins at a page. It serves work
// requests of no bytes.
CASE(mr_empty, "mr/length-zero", .core = true) {
  Pair p;
  alignas(4096) static uint8_t memory[4096];
  Region sink(p.a.pd, 64);
  uint64_t wr_id = 0;
  for (uint8_t* at : {memory, memory + 1, static_cast<uint8_t*>(nullptr)}) {
    ibv_mr* mr = ibv_reg_mr(p.b.pd, at, 0, kRemote);
    if (!mr) FAIL("at %p: %s", static_cast<void*>(at), std::strerror(errno));
    CHECK_EQ(mr->length, 0);
    for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      p.a.send({.wr_id = ++wr_id, .opcode = opcode, .sges = {sink.sge(0, 0)},
                .remote_addr = reinterpret_cast<uint64_t>(at), .rkey = mr->rkey});
      expect_wc(p.a.send_cq, wr_id);
    }
    CHECK_EQ(ibv_dereg_mr(mr), 0);
  }
  ibv_mr* mr = ibv_reg_mr(p.b.pd, memory, 0, kRemote);
  CHECK(mr != nullptr);
  p.a.send({.wr_id = ++wr_id, .opcode = IBV_WR_RDMA_WRITE, .sges = {sink.sge(0, 1)},
            .remote_addr = reinterpret_cast<uint64_t>(memory), .rkey = mr->rkey});
  expect_wc(p.a.send_cq, wr_id, IBV_WC_REM_ACCESS_ERR);
  p.close();
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

CASE(mr_refused, "mr/refused-flags", .core = true) {
  static uint8_t memory[4096];
  for (unsigned flag : {1u << 9, 1u << 19, 1u << 30}) {
    errno = 0;
    CHECK(ibv_reg_mr(pd_a(), memory, sizeof memory, kRemote | flag) == nullptr);
    if (errno != EOPNOTSUPP && errno != EINVAL) FAIL("access 0x%x: error %d", flag, errno);
  }
  if ((device_limits().odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) == 0) {
    errno = 0;
    CHECK(ibv_reg_mr(pd_a(), nullptr, SIZE_MAX, kRemote | IBV_ACCESS_ON_DEMAND) == nullptr);
    CHECK_EQ(errno, EOPNOTSUPP);
  }
  errno = 0;
  CHECK(ibv_reg_dmabuf_mr(pd_a(), 0, 4096, 0, 0, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
  ibv_alloc_dm_attr dm = {};
  dm.length = 4096;
  errno = 0;
  CHECK(ibv_alloc_dm(pd_a()->context, &dm) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
}

// Place, rights and PD, one by one and together. The old name is nobody's then.
CASE(rereg_all, "mr/rereg", .core = true) {
  Pair p;
  std::vector<uint8_t> old_place(4096), new_place(4096);
  Region source(p.a.pd, 500);
  ibv_mr* mr = ibv_reg_mr(p.b.pd, old_place.data(), old_place.size(), kRemote);
  CHECK(mr != nullptr);
  write_to(p, source, reinterpret_cast<uint64_t>(old_place.data()), mr->rkey, old_place.data(), 1);

  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_place.data(), new_place.size(), 0), 0);
  CHECK(mr->addr == new_place.data() && mr->length == new_place.size());
  write_to(p, source, reinterpret_cast<uint64_t>(new_place.data()) + 5, mr->rkey, new_place.data() + 5, 2);

  // Without remote rights, and with them again.
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  p.b.recv(1, {{reinterpret_cast<uint64_t>(new_place.data()), 500, mr->lkey}});
  source.fill(3);
  p.a.send({.wr_id = 3, .sges = {source.sge()}});
  expect_wc(p.b.recv_cq, 1);
  CHECK_EQ(pattern_mismatch(new_place.data(), 500, 3), 500u);
  expect_wc(p.a.send_cq, 3);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kRemote), 0);
  write_to(p, source, reinterpret_cast<uint64_t>(new_place.data()), mr->rkey, new_place.data(), 4);

  // To another PD and back, with all else at the same time.
  ibv_pd* other = ibv_alloc_pd(p.b.pd->context);
  CHECK(other != nullptr);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  CHECK(mr->pd == other);
  CHECK_EQ(ibv_dealloc_pd(other), EBUSY);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, p.b.pd,
                 old_place.data(), 1000, static_cast<int>(kRemote | IBV_ACCESS_ZERO_BASED)), 0);
  CHECK_EQ(ibv_dealloc_pd(other), 0);
  write_to(p, source, 100, mr->rkey, old_place.data() + 100, 5);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  exercise(p);
  p.close();
}

// Other rights, another PD: the name that a peer has goes on, by the new rights.
CASE(rereg_keeps_name, "mr/rereg-keeps-the-name-of-the-place", .core = true) {
  Pair p;
  std::vector<uint8_t> place(4096);
  Region source(p.a.pd, 500);
  ibv_mr* mr = ibv_reg_mr(p.b.pd, place.data(), place.size(), kRemote);
  CHECK(mr != nullptr);
  const uint32_t rkey = mr->rkey, lkey = mr->lkey;
  const auto at = reinterpret_cast<uint64_t>(place.data());
  ibv_pd* other = ibv_alloc_pd(p.b.pd->context);
  CHECK(other != nullptr);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE), 0);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, p.b.pd, nullptr, 0, 0), 0);
  CHECK(mr->rkey == rkey && mr->lkey == lkey);
  CHECK_EQ(ibv_dealloc_pd(other), 0);
  write_to(p, source, at, rkey, place.data(), 1);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  CHECK_EQ(mr->rkey, rkey);
  p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()}, .remote_addr = at, .rkey = rkey});
  expect_wc(p.a.send_cq, 2, IBV_WC_REM_ACCESS_ERR);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

// What a peer still has of the name of the old place gives it nothing.
CASE(rereg_old_name, "mr/rereg-takes-the-old-name", .core = true) {
  Pair p;
  std::vector<uint8_t> old_place(4096, 0x11), new_place(4096, 0x22);
  Region source(p.a.pd, 100);
  source.fill(1);
  ibv_mr* mr = ibv_reg_mr(p.b.pd, old_place.data(), old_place.size(), kRemote);
  CHECK(mr != nullptr);
  const uint32_t old_rkey = mr->rkey;
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, new_place.data(), new_place.size(), 0), 0);
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()},
            .remote_addr = reinterpret_cast<uint64_t>(old_place.data()), .rkey = old_rkey});
  expect_wc(p.a.send_cq, 1, IBV_WC_REM_ACCESS_ERR);
  CHECK(std::all_of(old_place.begin(), old_place.end(), [](uint8_t b) { return b == 0x11; }));
  CHECK(std::all_of(new_place.begin(), new_place.end(), [](uint8_t b) { return b == 0x22; }));
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

CASE(rereg_bad, "mr/rereg-bad-arguments", .core = true) {
  std::vector<uint8_t> memory(4096);
  ibv_mr* mr = ibv_reg_mr(pd_a(), memory.data(), memory.size(), kRemote);
  CHECK(mr != nullptr);
  CHECK_EQ(rereg(mr, 1 << 5, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, pd_a(), nullptr, 0, IBV_ACCESS_LOCAL_WRITE), IBV_REREG_MR_ERR_INPUT);
  CHECK_EQ(rereg(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_REMOTE_WRITE), IBV_REREG_MR_ERR_CMD);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_CMD);
  void* hole = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(hole != MAP_FAILED);
  CHECK_EQ(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, hole, 4096, 0), IBV_REREG_MR_ERR_CMD);
  CHECK_EQ(munmap(hole, 4096), 0);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
}

// Zeros come out of it, and what goes in is gone; between two pieces of memory it is a hole.
CASE(null_mr, "mr/null", .core = true) {
  Pair p;
  ibv_mr *null_a = ibv_alloc_null_mr(p.a.pd), *null_b = ibv_alloc_null_mr(p.b.pd);
  if (!null_a || !null_b) FAIL("ibv_alloc_null_mr: %s", std::strerror(errno));
  CHECK(null_a->pd == p.a.pd && null_a->context == p.a.pd->context);
  constexpr uint32_t kHole = 100000, kEnd = 300;
  Region at_a(p.a.pd, 2 * kEnd), at_b(p.b.pd, kHole + 2 * kEnd);
  const auto hole = [](const ibv_mr* mr, uint64_t at, uint32_t length) { return ibv_sge{at, length, mr->lkey}; };

  // A hole in what is sent arrives as zeros.
  at_a.fill(1);
  at_b.clear();
  p.b.recv(1, {at_b.sge()});
  p.a.send({.wr_id = 2, .sges = {at_a.sge(0, kEnd), hole(null_a, 0, kHole), at_a.sge(kEnd, kEnd)}});
  CHECK_EQ(expect_wc(p.b.recv_cq, 1).byte_len, kHole + 2 * kEnd);
  expect_wc(p.a.send_cq, 2);
  CHECK(std::memcmp(at_b.data(), at_a.data(), kEnd) == 0);
  CHECK(std::all_of(at_b.data() + kEnd, at_b.data() + kEnd + kHole, [](uint8_t b) { return b == 0; }));
  CHECK(std::memcmp(at_b.data() + kEnd + kHole, at_a.data() + kEnd, kEnd) == 0);

  // A hole in what is received, and in what is read, takes its part and is gone.
  at_b.fill(2);
  at_a.clear();
  p.a.recv(3, {at_a.sge(0, kEnd), hole(null_a, 0xfffffffffffffff0, kHole), at_a.sge(kEnd, kEnd)});
  p.b.send({.wr_id = 4, .sges = {at_b.sge()}});
  expect_wc(p.a.recv_cq, 3);
  expect_wc(p.b.send_cq, 4);
  CHECK(std::memcmp(at_a.data(), at_b.data(), kEnd) == 0);
  CHECK(std::memcmp(at_a.data() + kEnd, at_b.data() + kEnd + kHole, kEnd) == 0);
  at_a.clear();
  p.a.send({.wr_id = 5,
            .opcode = IBV_WR_RDMA_READ,
            .sges = {at_a.sge(0, kEnd), hole(null_a, 1, kHole), at_a.sge(kEnd, kEnd)},
            .remote_addr = at_b.addr(),
            .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 5);
  CHECK(std::memcmp(at_a.data(), at_b.data(), kEnd) == 0);
  CHECK(std::memcmp(at_a.data() + kEnd, at_b.data() + kEnd + kHole, kEnd) == 0);

  // What went in does not come out again.
  at_b.fill(3);
  p.b.recv(6, {at_b.sge(0, 100)});
  p.a.send({.wr_id = 7, .sges = {hole(null_a, 0, 100)}});
  expect_wc(p.b.recv_cq, 6);
  expect_wc(p.a.send_cq, 7);
  CHECK(std::all_of(at_b.data(), at_b.data() + 100, [](uint8_t b) { return b == 0; }));

  CHECK_EQ(ibv_rereg_mr(null_a, IBV_REREG_MR_CHANGE_PD, p.a.pd, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  // Peers have no name for it.
  const uint32_t lkey = null_b->lkey;
  p.a.send({.wr_id = 8, .opcode = IBV_WR_RDMA_READ, .sges = {at_a.sge(0, 8)}, .remote_addr = 0, .rkey = lkey});
  expect_wc(p.a.send_cq, 8, IBV_WC_REM_ACCESS_ERR);
  CHECK_EQ(ibv_dereg_mr(null_a), 0);
  CHECK_EQ(ibv_dereg_mr(null_b), 0);
}

CASE(advise, "mr/advise", .core = true) {
  if ((device_limits().odp_caps.general_caps & IBV_ODP_SUPPORT) == 0) return;
  constexpr size_t kBytes = 1 << 20;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  auto* memory = static_cast<uint8_t*>(mapped);
  ibv_pd* other = ibv_alloc_pd(pd_a()->context);
  ibv_mr* writable = ibv_reg_mr(pd_a(), memory, kBytes, kRemote | IBV_ACCESS_ON_DEMAND);
  ibv_mr* readable = ibv_reg_mr(pd_a(), memory, kBytes, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
  ibv_mr* plain = ibv_reg_mr(pd_a(), memory, kBytes, kRemote);
  CHECK(other && writable && readable && plain);
  const auto at = reinterpret_cast<uint64_t>(memory);
  const auto advise = [&](const ibv_mr* mr, ibv_advise_mr_advice what, uint64_t from, uint32_t length,
                          uint32_t flags = 0, ibv_pd* pd = pd_a()) {
    ibv_sge sge = {from, length, mr->lkey};
    return ibv_advise_mr(pd, what, flags, &sge, 1);
  };
  const auto read = IBV_ADVISE_MR_ADVICE_PREFETCH, write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  for (uint32_t flags : {0u, uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}}) {
    CHECK_EQ(advise(readable, read, at + 10, 5000, flags), 0);
    CHECK_EQ(advise(writable, read, at, kBytes, flags), 0);
    CHECK_EQ(advise(writable, write, at + 4095, 2, flags), 0);
    CHECK_EQ(advise(writable, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, at, 100, flags), 0);
  }
  // Pages that were asked for are there.
  CHECK_EQ(advise(writable, write, at, kBytes, IBV_ADVISE_MR_FLAG_FLUSH), 0);
  std::vector<unsigned char> present(kBytes / 4096);
  CHECK_EQ(mincore(memory, kBytes, present.data()), 0);
  CHECK(std::all_of(present.begin(), present.end(), [](unsigned char page) { return (page & 1) != 0; }));

  CHECK_EQ(advise(writable, read, at + kBytes - 10, 11), EFAULT);
  CHECK_EQ(advise(writable, read, at - 1, 2), EFAULT);
  CHECK_EQ(advise(readable, write, at, 10), EPERM);
  CHECK_EQ(advise(writable, read, at, 10, 0, other), EPERM);
  CHECK_EQ(advise(plain, read, at, 10), ENOENT);
  CHECK_EQ(advise(writable, read, at, 10, 2), EINVAL);
  CHECK_EQ(ibv_advise_mr(pd_a(), read, 0, nullptr, 0), EINVAL);
  CHECK_EQ(advise(writable, static_cast<ibv_advise_mr_advice>(77), at, 10), ENOTSUP);
  ibv_sge wrong = {at, 10, writable->lkey ^ 1};
  CHECK_EQ(ibv_advise_mr(pd_a(), read, 0, &wrong, 1), EFAULT);
  // The program has unmapped a part.
  CHECK_EQ(munmap(memory + 8192, 4096), 0);
  CHECK_EQ(advise(writable, write, at + 8192, 4096, IBV_ADVISE_MR_FLAG_FLUSH), EFAULT);
  for (ibv_mr* mr : {writable, readable, plain}) CHECK_EQ(ibv_dereg_mr(mr), 0);
  CHECK_EQ(ibv_dealloc_pd(other), 0);
  CHECK_EQ(munmap(memory, kBytes), 0);
}
