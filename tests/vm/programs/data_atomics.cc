// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Compare-and-swap and fetch-and-add: results, exact totals of several that add to one word (the program itself among
// them, since the device says that its atomics are those of the processor), fences, and what is refused.
#include <atomic>
#include <thread>

#include "rig.h"

namespace {

constexpr unsigned kWithAtomics = kAllAccess | IBV_ACCESS_REMOTE_ATOMIC;

uint64_t& word(const Region& r, size_t i = 0) { return reinterpret_cast<uint64_t*>(r.data())[i]; }

SendWr adding(uint64_t wr_id, const Region& result, const Region& to, uint64_t n, unsigned flags = IBV_SEND_SIGNALED) {
  return {.wr_id = wr_id, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .flags = flags, .sges = {result.sge(0, 8)},
          .remote_addr = to.addr(), .rkey = to.rkey(), .compare_add = n};
}

SendWr swapping(uint64_t wr_id, const Region& result, const Region& to, uint64_t expected, uint64_t n) {
  return {.wr_id = wr_id, .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .sges = {result.sge(0, 8)}, .remote_addr = to.addr(),
          .rkey = to.rkey(), .compare_add = expected, .swap = n};
}

}  // namespace

CASE(atomic_results, "atomic/results", .core = true) {
  Pair p;
  Region result(p.a.pd, 64), target(p.b.pd, 64, kWithAtomics);
  target.clear();
  word(target) = 0x0102030405060708;
  p.a.send(adding(1, result, target, 2));
  const ibv_wc added = expect_wc(p.a.send_cq, 1);
  CHECK_EQ(added.opcode, IBV_WC_FETCH_ADD);
  CHECK_EQ(added.byte_len, 8u);
  CHECK_EQ(word(result), 0x0102030405060708ull);
  CHECK_EQ(word(target), 0x010203040506070aull);
  p.a.send(swapping(2, result, target, 1, 5));
  CHECK_EQ(expect_wc(p.a.send_cq, 2).opcode, IBV_WC_COMP_SWAP);
  CHECK_EQ(word(result), 0x010203040506070aull);
  CHECK_EQ(word(target), 0x010203040506070aull);
  p.a.send(swapping(3, result, target, 0x010203040506070a, 5));
  expect_wc(p.a.send_cq, 3);
  CHECK_EQ(word(result), 0x010203040506070aull);
  CHECK_EQ(word(target), 5ull);
  p.a.send(adding(4, result, target, ~0ull));
  expect_wc(p.a.send_cq, 4);
  CHECK_EQ(word(target), 4ull);
  target.check_clear(8, 56);
  result.check_guards();
  target.check_guards();
  p.close();
}

// Both ends, two connections and the program itself add to one word.
CASE(atomic_total, "atomic/exact-total", .seconds = 90, .core = true) {
  Options options;
  options.send_wr = 32;
  Pair first(options), second(options);
  constexpr uint64_t kEach = 1500, kOwn = 300'000, kUnit = 1'000'000'000;
  Region result(first.a.pd, 64), target(first.b.pd, 64, kWithAtomics);
  word(target) = 0;
  uint64_t own = 0;
  std::jthread host([&](std::stop_token stop) {
    for (; own < kOwn && !stop.stop_requested(); ++own) std::atomic_ref(word(target)).fetch_add(1);
  });
  uint64_t posted = 0, done = 0;
  uint64_t last[2] = {0, 0};
  while (done < 2 * kEach) {
    for (; posted < 2 * kEach && posted < done + 32; ++posted) {
      Endpoint& from = posted % 2 != 0 ? first.a : second.a;
      from.send(adding(posted, result, target, kUnit));
    }
    for (Endpoint* e : {&first.a, &second.a}) {
      ibv_wc wc;
      while (ibv_poll_cq(e->send_cq, 1, &wc) == 1) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        const size_t which = e == &first.a;
        CHECK(last[which] == 0 || wc.wr_id == last[which] + 2);
        last[which] = wc.wr_id;
        ++done;
      }
    }
  }
  host.request_stop();
  host.join();
  CHECK_EQ(word(target), 2 * kEach * kUnit + own);
  first.close();
  second.close();
}

// A lock that two connections and the program take by compare-and-swap: one at a time has it.
CASE(atomic_lock, "atomic/lock-by-compare-and-swap", .seconds = 90, .core = true) {
  Pair first, second;
  Region result(first.a.pd, 64), target(first.b.pd, 64, kWithAtomics);
  word(target, 0) = word(target, 1) = 0;
  const auto remote = [&](Endpoint& e, uint64_t me) {
    Region found(e.pd, 8), count(e.pd, 8);
    for (int i = 0; i < 40; ++i) {
      do {
        e.send(swapping(1, found, target, 0, me));
        expect_wc(e.send_cq, 1);
      } while (word(found) != 0);
      // Not by an atomic: the lock is what keeps the others away.
      e.send({.wr_id = 2, .opcode = IBV_WR_RDMA_READ, .sges = {count.sge()}, .remote_addr = target.addr() + 8,
              .rkey = target.rkey()});
      expect_wc(e.send_cq, 2);
      ++word(count);
      e.send({.wr_id = 3, .opcode = IBV_WR_RDMA_WRITE, .sges = {count.sge()}, .remote_addr = target.addr() + 8,
              .rkey = target.rkey()});
      e.send(swapping(4, found, target, me, 0));
      expect_wc(e.send_cq, 3);
      expect_wc(e.send_cq, 4);
      CHECK_EQ(word(found), me);
    }
  };
  std::exception_ptr failed;
  {
    std::jthread other([&] {
      try {
        remote(second.a, 2);
      } catch (...) {
        failed = std::current_exception();
      }
    });
    remote(first.a, 1);
  }
  if (failed) std::rethrow_exception(failed);
  CHECK_EQ(word(target, 0), 0ull);
  CHECK_EQ(word(target, 1), 80ull);
  first.close();
  second.close();
}

// With READs they share ORD; more than that wait for their turn.
CASE(atomic_depth, "atomic/more-than-ord-at-once", .core = true) {
  Options options;
  options.ird = options.ord = 2;
  Pair p(options);
  Region result(p.a.pd, 64), sink(p.a.pd, 64), target(p.b.pd, 64, kWithAtomics);
  word(target) = 0;
  for (uint64_t i = 0; i < 48; ++i) {
    if (i % 3 == 2)
      p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sges = {sink.sge(0, 64)}, .remote_addr = target.addr(),
                .rkey = target.rkey()});
    else
      p.a.send(adding(i, result, target, 1));
  }
  for (uint64_t i = 0; i < 48; ++i) expect_wc(p.a.send_cq, i);
  CHECK_EQ(word(target), 32ull);
  p.close();
}

CASE(atomic_fence, "atomic/fence-waits", .core = true) {
  Pair p;
  Region result(p.a.pd, 64), target(p.b.pd, 64, kWithAtomics);
  for (uint64_t i = 1; i <= 50; ++i) {
    word(target) = i;
    word(result) = 0;
    p.a.send(adding(1, result, target, 1, 0));
    p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE,
              .sges = {result.sge(0, 8)}, .remote_addr = target.addr() + 8, .rkey = target.rkey()});
    expect_wc(p.a.send_cq, 2);
    wait_until("what was found, sent on", [&] { return std::atomic_ref(word(target, 1)).load() == i; });
  }
  p.close();
}

// Refused: the status that ibv_poll_cq(3) says, what is behind it flushed, nothing touched.
CASE(atomic_refused, "atomic/refused", .seconds = 60, .core = true) {
  Region target(pd_b(), 64, kWithAtomics), plain(pd_b(), 64);
  target.clear();
  plain.clear();
  const struct {
    uint64_t addr;
    uint32_t rkey;
    ibv_wc_status status;
  } bad[] = {{target.addr(), target.rkey() ^ 0x00abcd00, IBV_WC_REM_ACCESS_ERR},
             {plain.addr(), plain.rkey(), IBV_WC_REM_ACCESS_ERR},
             {target.addr() + 64, target.rkey(), IBV_WC_REM_ACCESS_ERR},
             {target.addr() + 4, target.rkey(), IBV_WC_REM_INV_REQ_ERR}};
  for (ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    for (const auto& b : bad) {
      Pair p;
      Region result(p.a.pd, 64);
      result.clear();
      p.a.send({.wr_id = 1, .opcode = opcode, .sges = {result.sge(0, 8)}, .remote_addr = b.addr, .rkey = b.rkey,
                .compare_add = 1, .swap = 2});
      p.a.send({.wr_id = 2, .opcode = IBV_WR_RDMA_WRITE, .sges = {result.sge(0, 8)}, .remote_addr = target.addr(),
                .rkey = target.rkey()});
      expect_wc(p.a.send_cq, 1, b.status);
      expect_wc(p.a.send_cq, 2, IBV_WC_WR_FLUSH_ERR);
      expect_async(p.b.id->verbs,
                   b.status == IBV_WC_REM_INV_REQ_ERR ? IBV_EVENT_QP_REQ_ERR : IBV_EVENT_QP_ACCESS_ERR, p.b.qp);
      result.check_clear(0, 64);
    }
  }
  target.check_clear(0, 64);
  plain.check_clear(0, 64);
}

CASE(atomic_sink, "atomic/result-not-writable", .core = true) {
  Pair p;
  Region result(p.a.pd, 64, IBV_ACCESS_REMOTE_READ), target(p.b.pd, 64, kWithAtomics);
  target.clear();
  p.a.send(adding(1, result, target, 1));
  expect_wc(p.a.send_cq, 1, IBV_WC_LOC_PROT_ERR);
  target.check_clear(0, 64);
  drain_async(p.b.id->verbs);
}
