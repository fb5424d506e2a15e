// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Several connections, queues that they share, and several threads on them.
#include <sched.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "rig.h"

namespace {

/// Runs @p body in @p count threads; the first failure fails the case.
void in_threads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  std::mutex lock;
  std::string problem;
  for (int i = 0; i < count; ++i)
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (const std::exception& e) {
        std::lock_guard guard(lock);
        if (problem.empty()) problem = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  if (!problem.empty()) throw tap::Failure(problem);
}

/// WRITE, READ back and SEND of @p rounds different messages on one connection.
void work(Pair& p, int rounds, uint64_t seed) {
  constexpr size_t kLength = 3000;
  Region source(p.a.pd, kLength), back(p.a.pd, kLength), at_b(p.b.pd, kLength), message(p.b.pd, kLength);
  for (int i = 0; i < rounds; ++i) {
    source.fill(seed + i);
    p.b.recv(3, {message.sge()});
    p.a.send({.wr_id = 1,
              .opcode = IBV_WR_RDMA_WRITE,
              .sges = {source.sge()},
              .remote_addr = at_b.addr(),
              .rkey = at_b.rkey()});
    p.a.send({.wr_id = 2,
              .opcode = IBV_WR_RDMA_READ,
              .sges = {back.sge()},
              .remote_addr = at_b.addr(),
              .rkey = at_b.rkey()});
    p.a.send({.wr_id = 3, .sges = {source.sge()}});
    for (uint64_t k = 1; k <= 3; ++k) expect_wc(p.a.send_cq, k);
    expect_wc(p.b.recv_cq, 3);
    back.check(seed + i, 0, kLength);
    message.check(seed + i, 0, kLength);
  }
}

}  // namespace

CASE(many_qps, "qps/16-connections-interleaved", .core = true) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 16; ++i) pairs.push_back(std::make_unique<Pair>());
  Region at_a(pd_a(), 16 * 4000), at_b(pd_b(), 16 * 4000);
  for (int round = 0; round < 5; ++round) {
    at_a.fill(round);
    for (uint32_t i = 0; i < 16; ++i) pairs[i]->b.recv(i, {at_b.sge(i * 4000, 4000)});
    for (uint32_t i = 0; i < 16; ++i) pairs[i]->a.send({.wr_id = i, .sges = {at_a.sge(i * 4000, 4000)}});
    for (uint32_t i = 0; i < 16; ++i) {
      expect_wc(pairs[i]->a.send_cq, i);
      expect_wc(pairs[i]->b.recv_cq, i);
    }
    at_b.check(round, 0, at_b.size());
  }
  for (auto& p : pairs) p->close();
}

// All queues of four connections on one CQ: every completion names its QP.
CASE(shared_cq, "cq/shared-by-4-connections", .core = true) {
  ibv_cq* cq_a = ibv_create_cq(pd_a()->context, 256, nullptr, nullptr, 0);
  ibv_cq* cq_b = ibv_create_cq(pd_b()->context, 256, nullptr, nullptr, 0);
  CHECK(cq_a && cq_b);
  {
    Options of_a, of_b;
    of_a.cq = cq_a;
    of_b.cq = cq_b;
    std::vector<std::unique_ptr<Pair>> pairs;
    for (int i = 0; i < 4; ++i) pairs.push_back(std::make_unique<Pair>(of_a, of_b));
    Region at_a(pd_a(), 100), at_b(pd_b(), 100);
    for (uint64_t i = 0; i < 20; ++i)
      for (uint64_t k = 0; k < 4; ++k) pairs[k]->b.recv(i, {at_b.sge()});
    for (uint64_t i = 0; i < 20; ++i)
      for (uint64_t k = 0; k < 4; ++k) pairs[k]->a.send({.wr_id = i, .sges = {at_a.sge()}});
    for (int side = 0; side < 2; ++side) {
      uint64_t next[4] = {};
      for (const ibv_wc& wc : wait_wcs(side ? cq_b : cq_a, 80)) {
        CHECK_EQ(wc.status, IBV_WC_SUCCESS);
        CHECK_EQ(wc.opcode, side ? IBV_WC_RECV : IBV_WC_SEND);
        unsigned k = 0;
        while (k < 4 && (side ? pairs[k]->b : pairs[k]->a).qp->qp_num != wc.qp_num) ++k;
        if (k == 4) FAIL("a completion names QP %u, which is none of the four", wc.qp_num);
        CHECK_EQ(wc.wr_id, next[k]++);
      }
    }
    for (auto& p : pairs) p->close();
  }
  CHECK_EQ(ibv_destroy_cq(cq_a), 0);
  CHECK_EQ(ibv_destroy_cq(cq_b), 0);
}

CASE(threads_own, "threads/each-its-own-connection", .seconds = 60, .core = true) {
  std::vector<std::unique_ptr<Pair>> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(std::make_unique<Pair>());
  in_threads(4, [&](int i) { work(*pairs[i], 25, i * 1000); });
  for (auto& p : pairs) p->close();
}

// Connections made, used and closed by several threads at the same time.
CASE(threads_connect, "threads/connect-and-close", .seconds = 60) {
  in_threads(4, [](int i) {
    Listener listener(site_b().ip);
    for (int k = 0; k < 5; ++k) {
      // A listener of its own per thread, so that no thread takes another one's request.
      Endpoint a, b;
      Options options;
      connect_pair(a, b, listener, site_a().ip, site_b().ip, options, options);
      Region source(a.pd, 1000), sink(b.pd, 1000);
      source.fill(i * 100 + k);
      b.recv(1, {sink.sge()});
      a.send({.wr_id = 1, .sges = {source.sge()}});
      expect_wc(b.recv_cq, 1);
      expect_wc(a.send_cq, 1);
      sink.check(i * 100 + k, 0, 1000);
      CHECK_CALL(rdma_disconnect(a.id));
      b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    }
  });
}

// Verbs are thread-safe: four threads post on one QP while three poll its CQs, each completion
// appears exactly once.
CASE(threads_shared, "threads/one-qp-one-cq", .seconds = 90, .core = true) {
  constexpr uint32_t kPosters = 4, kEach = 150, kTotal = kPosters * kEach, kLength = 200;
  Options options;
  options.send_wr = options.recv_wr = 1024;
  Pair p(options);
  Region at_a(p.a.pd, kTotal * kLength), at_b(p.b.pd, kTotal * kLength);
  for (uint32_t i = 0; i < kTotal; ++i) {
    fill_pattern(at_a.data() + i * kLength, kLength - 4, i);
    std::memcpy(at_a.data() + i * kLength + kLength - 4, &i, 4);
  }
  std::vector<std::atomic<int>> sent(kTotal), received(kTotal);
  std::atomic<uint32_t> sends = 0, receives = 0;
  const uint64_t end = tap::now_ms() + 60000 * tap::patience();
  in_threads(kPosters + 3, [&](int thread) {
    if (thread < static_cast<int>(kPosters)) {
      const uint32_t first = static_cast<uint32_t>(thread) * kEach;
      for (uint32_t i = first; i < first + kEach; ++i) {
        p.b.recv(i, {at_b.sge(i * kLength, kLength)});
        p.a.send({.wr_id = i, .sges = {at_a.sge(i * kLength, kLength)}});
      }
      return;
    }
    while ((sends < kTotal || receives < kTotal) && tap::now_ms() < end) {
      for (ibv_cq* cq : {p.a.send_cq, p.b.recv_cq}) {
        ibv_wc wc[4];
        const int n = ibv_poll_cq(cq, 4, wc);
        CHECK(n >= 0);
        for (int i = 0; i < n; ++i) {
          CHECK_EQ(wc[i].status, IBV_WC_SUCCESS);
          CHECK(wc[i].wr_id < kTotal);
          if (cq == p.a.send_cq) { ++sent[wc[i].wr_id]; ++sends; }
          else { ++received[wc[i].wr_id]; ++receives; }
        }
      }
      sched_yield();
    }
  });
  CHECK_EQ(sends, kTotal);
  CHECK_EQ(receives, kTotal);
  std::vector<int> arrived(kTotal);
  for (uint32_t i = 0; i < kTotal; ++i) {
    CHECK_EQ(sent[i], 1);
    CHECK_EQ(received[i], 1);
    uint32_t which;
    std::memcpy(&which, at_b.data() + i * kLength + kLength - 4, 4);
    CHECK(which < kTotal);
    ++arrived[which];
    at_b.check(which, i * kLength, kLength - 4);
  }
  for (uint32_t i = 0; i < kTotal; ++i) CHECK_EQ(arrived[i], 1);
  p.close();
}

// One thread waits for events while another one works: no event is lost.
CASE(threads_event, "threads/event-waiter", .seconds = 60, .core = true) {
  Options options;
  options.with_channel = true;
  options.recv_wr = 128;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 100; ++i) p.b.recv(i, {at_b.sge()});
  CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
  in_threads(2, [&](int thread) {
    if (thread == 0) {
      for (uint32_t i = 0; i < 100; ++i) {
        p.a.send({.wr_id = i, .sges = {at_a.sge()}});
        expect_wc(p.a.send_cq, i);
      }
      return;
    }
    uint32_t seen = 0;
    while (seen < 100) {
      if (!wait_cq_event(p.b.recv_channel, kWaitMs)) FAIL("no event after %u of 100", seen);
      CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
      ibv_wc wc;
      while (ibv_poll_cq(p.b.recv_cq, 1, &wc) == 1) CHECK_EQ(wc.wr_id, seen++);
    }
  });
  p.close();
}
