// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// A program takes memory away that its work requests still name, for usiw-run by sockets: the kernel reads the payload
// where it lies.
#include <sys/mman.h>

#include "rig.h"

// What has been taken away is as if lost on the wire: the connection ends, in order, and the others go on.
CASE(unmapped, "memory/taken-away-while-it-is-sent", .seconds = 60) {
  constexpr size_t kBytes = 4 << 20;
  constexpr uint64_t kWrites = 8, kSeed = 7;
  Pair other, p;
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  fill_pattern(mapped, kBytes, kSeed);
  ibv_mr* mr = ibv_reg_mr(p.a.pd, mapped, kBytes, IBV_ACCESS_LOCAL_WRITE);
  CHECK(mr != nullptr);
  Region sink(p.b.pd, kBytes * kWrites);
  sink.clear();
  for (uint64_t i = 0; i < kWrites; ++i)
    p.a.send({.wr_id = i,
              .opcode = IBV_WR_RDMA_WRITE,
              .sges = {{reinterpret_cast<uint64_t>(mapped), kBytes, mr->lkey}},
              .remote_addr = sink.addr() + i * kBytes,
              .rkey = sink.rkey()});
  ibv_wc first = wait_wc(p.a.send_cq);
  CHECK_EQ(first.status, IBV_WC_SUCCESS);
  // Nobody gets the address meanwhile, as somebody in this process might after munmap().
  CHECK(mmap(mapped, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == mapped);
  exercise(other);

  uint64_t done = 1;
  bool failed = false;
  for (uint64_t i = 1; i < kWrites; ++i) {
    const ibv_wc wc = wait_wc(p.a.send_cq, 4 * kWaitMs);
    CHECK_EQ(wc.wr_id, i);
    if (wc.status == IBV_WC_SUCCESS) {
      CHECK(!failed);
      ++done;
      continue;
    }
    CHECK_EQ(wc.status, failed ? IBV_WC_WR_FLUSH_ERR : IBV_WC_RETRY_EXC_ERR);
    failed = true;
  }
  CHECK(failed);
  for (uint64_t i = 0; i < done; ++i)
    CHECK_EQ(pattern_mismatch(sink.data() + i * kBytes, kBytes, kSeed), kBytes);
  // Of what did not complete: the right byte, or none.
  std::vector<uint8_t> right(kBytes);
  fill_pattern(right.data(), kBytes, kSeed);
  const uint8_t none = sink.data()[kBytes * kWrites - 1];
  for (size_t i = done * kBytes; i < kBytes * kWrites; ++i)
    if (sink.data()[i] != right[i % kBytes]) CHECK_EQ(sink.data()[i], none);
  sink.check_guards();
  exercise(other);
  other.close();
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  CHECK_EQ(munmap(mapped, kBytes), 0);
}
