// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// ibv_resize_cq(3): what is in the CQ stays in it, also under traffic.
#include <unistd.h>

#include <atomic>
#include <thread>

#include "rig.h"

namespace {

/// A WRITE of all of @p from to @p to.
void write_all(Pair& p, uint64_t wr_id, const Region& from, const Region& to) {
  p.a.send({.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .sges = {from.sge()},
            .remote_addr = to.addr(), .rkey = to.rkey()});
}

}  // namespace

// Larger, smaller, smaller than what is in it; the completions come out as they went in.
CASE(resize_keeps, "resize_cq/completions-are-kept", .core = true) {
  Options of_a;
  of_a.send_wr = 300;
  of_a.send_cqe = 100;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  ibv_cq* const cq = p.a.send_cq;
  uint64_t posted = 0, seen = 0;
  const auto post = [&](unsigned count) {
    while (count-- > 0) write_all(p, posted++, at_a, at_b);
    // What is behind them is complete, so they are; it is in the other CQ.
    p.a.recv(0, {at_a.sge()});
    p.b.recv(0, {at_b.sge()});
    p.a.send({.wr_id = 0, .flags = 0, .sges = {at_a.sge()}});
    expect_wc(p.b.recv_cq, 0);
    p.b.send({.wr_id = 0, .sges = {at_b.sge()}});
    expect_wc(p.b.send_cq, 0);
    expect_wc(p.a.recv_cq, 0);
  };
  const auto take = [&](size_t count) {
    for (const ibv_wc& wc : wait_wcs(cq, count)) {
      CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      CHECK_EQ(wc.wr_id, seen++);
    }
  };
  post(60);
  CHECK_EQ(ibv_resize_cq(cq, 1000), 0);
  CHECK(cq->cqe >= 1000);
  take(10);
  post(200);  // 250 in it
  CHECK_EQ(ibv_resize_cq(cq, 249), EINVAL);
  CHECK_EQ(ibv_resize_cq(cq, 1), EINVAL);
  CHECK(cq->cqe >= 1000);
  CHECK_EQ(ibv_resize_cq(cq, 250), 0);
  CHECK(cq->cqe >= 250 && cq->cqe < 1000);
  take(250);
  CHECK_EQ(ibv_resize_cq(cq, 1), 0);
  for (int i = 0; i < 5; ++i) {
    post(1);
    take(1);
  }
  CHECK_EQ(ibv_resize_cq(cq, 70), 0);
  post(70);
  take(70);
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(context(), &attr), 0);
  CHECK_EQ(ibv_resize_cq(cq, 0), EINVAL);
  CHECK_EQ(ibv_resize_cq(cq, -1), EINVAL);
  CHECK_EQ(ibv_resize_cq(cq, attr.max_cqe + 1), EINVAL);
  CHECK_EQ(ibv_resize_cq(cq, attr.max_cqe), 0);
  CHECK_EQ(cq->cqe, attr.max_cqe);
  post(3);
  take(3);
  p.close();
}

// A work request whose CQE has not been polled counts once against the depth of its queue, before the resizing and
// after it.
CASE(resize_counts, "resize_cq/unpolled-count-against-the-depth", .core = true) {
  constexpr uint64_t kDepth = 16;
  Options of_a;
  of_a.send_wr = kDepth;
  of_a.send_cqe = kDepth;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  uint64_t posted = 0, seen = 0;
  const auto expect_places = [&](uint64_t places) {
    for (uint64_t i = 0; i < places; ++i) write_all(p, posted++, at_a, at_b);
    CHECK_EQ(p.a.try_send({.wr_id = posted, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
                           .remote_addr = at_b.addr(), .rkey = at_b.rkey()}), ENOMEM);
  };
  const auto take = [&](size_t count) {
    for (const ibv_wc& wc : wait_wcs(p.a.send_cq, count)) {
      CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      CHECK_EQ(wc.wr_id, seen++);
    }
  };
  expect_places(kDepth);
  for (const int cqe : {100, 16, 30000, 33, 64}) {
    take(5);
    expect_places(5);  // the ring of the CQ wraps, each time at another place
    usleep(5000);      // all have completed
    CHECK_EQ(ibv_resize_cq(p.a.send_cq, cqe), 0);
    expect_places(0);
    take(3);
    expect_places(3);
  }
  take(kDepth);
  expect_places(kDepth);
  take(kDepth);
  p.close();
}

// A CQ that would have overrun has not, once it has grown; one that has cannot be saved.
CASE(resize_room, "resize_cq/room-is-real", .core = true) {
  Options of_a;
  of_a.send_wr = 300;
  of_a.send_cqe = 4;
  Pair p(of_a, Options());
  drain_async(p.a.id->verbs);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  CHECK_EQ(ibv_resize_cq(p.a.send_cq, 200), 0);
  for (uint64_t i = 0; i < 200; ++i) write_all(p, i, at_a, at_b);
  uint64_t next = 0;
  for (const ibv_wc& wc : wait_wcs(p.a.send_cq, 200)) {
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.wr_id, next++);
  }
  CHECK_EQ(ibv_resize_cq(p.a.send_cq, 4), 0);
  for (uint64_t i = 0; i < 50; ++i)
    p.a.try_send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
                  .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_async(p.a.id->verbs, IBV_EVENT_CQ_ERR, p.a.send_cq);
  CHECK(ibv_resize_cq(p.a.send_cq, 200) != 0);
  drain_async(p.a.id->verbs);
}

// Beside a thread that posts and one that polls.
CASE(resize_traffic, "resize_cq/under-traffic", .seconds = 60, .core = true) {
  Options of_a;
  of_a.send_wr = 64;
  of_a.send_cqe = 64;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  std::atomic<uint64_t> total{20000}, done{0};  // fewer where all is slow
  std::atomic<bool> wrong{false};
  std::thread poller([&] {
    ibv_wc wcs[8];
    while (done.load() < total.load() && !wrong.load()) {
      const int n = ibv_poll_cq(p.a.send_cq, 8, wcs);
      for (int i = 0; i < n; ++i)
        if (wcs[i].status != IBV_WC_SUCCESS || wcs[i].wr_id != done.fetch_add(1)) wrong.store(true);
    }
  });
  std::thread resizer([&] {
    static const int kSizes[] = {64, 1000, 100, 70, 30000, 128, 65, 5000};
    for (unsigned i = 0; done.load() < total.load() && !wrong.load(); ++i) {
      if (ibv_resize_cq(p.a.send_cq, kSizes[i % 8]) != 0) wrong.store(true);
      std::this_thread::yield();
    }
  });
  const uint64_t until = tap::now_ms() + 8000;
  for (uint64_t i = 0; i < total.load() && !wrong.load(); ++i) {
    while (i - done.load() >= 60 && !wrong.load()) std::this_thread::yield();
    write_all(p, i, at_a, at_b);
    if (tap::now_ms() > until) total.store(i + 1);
  }
  poller.join();
  resizer.join();
  CHECK(!wrong.load());
  CHECK_EQ(done.load(), total.load());
  p.close();
}

// An armed CQ stays armed.
CASE(resize_armed, "resize_cq/armed", .core = true) {
  Options of_a;
  of_a.with_channel = true;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  CHECK_EQ(ibv_req_notify_cq(p.a.send_cq, 0), 0);
  CHECK_EQ(ibv_resize_cq(p.a.send_cq, 500), 0);
  write_all(p, 1, at_a, at_b);
  CHECK(wait_cq_event(p.a.send_channel, kWaitMs));
  expect_wc(p.a.send_cq, 1);
  p.close();
}
