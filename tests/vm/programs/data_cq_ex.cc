// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Extended completion queues (ibv_create_cq_ex(3)) and time stamps.
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <thread>

#include "rig.h"

namespace {

constexpr uint64_t kTimes = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// An extended CQ at A.
struct ExCq {
  explicit ExCq(uint64_t wc_flags, uint32_t cqe = 64, uint32_t flags = 0, ibv_comp_channel* channel = nullptr) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = cqe;
    attr.channel = channel;
    attr.wc_flags = wc_flags;
    attr.comp_mask = flags ? IBV_CQ_INIT_ATTR_MASK_FLAGS : 0;
    attr.flags = flags;
    ex = ibv_create_cq_ex(context(), &attr);
    if (!ex) FAIL("ibv_create_cq_ex: %s", std::strerror(errno));
    cq = ibv_cq_ex_to_cq(ex);
  }
  ~ExCq() {
    if (ex) ibv_destroy_cq(cq);
  }
  ExCq(const ExCq&) = delete;
  ExCq& operator=(const ExCq&) = delete;
  void destroy() {
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    ex = nullptr;
  }

  /// Waits until there is a completion; then it is shown.
  void start() {
    ibv_poll_cq_attr none = {};
    wait_until("a completion", [&] {
      const int ret = ibv_start_poll(ex, &none);
      if (ret && ret != ENOENT) FAIL("ibv_start_poll: %d", ret);
      return ret == 0;
    });
  }

  ibv_cq_ex* ex;
  ibv_cq* cq;
};

uint64_t nanoseconds(const timespec& t) {
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
uint64_t now_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return nanoseconds(t);
}

Options with_cq(const ExCq& cq) {
  Options o;
  o.cq = cq.cq;
  return o;
}

/// A WRITE of all of @p from to @p to.
void write(Pair& p, uint64_t wr_id, const Region& from, const Region& to) {
  p.a.send({.wr_id = wr_id, .opcode = IBV_WR_RDMA_WRITE, .sges = {from.sge()},
            .remote_addr = to.addr(), .rkey = to.rkey()});
}

}  // namespace

// All that an ordinary completion says, of each operation and of a receive; several in one go.
CASE(cq_ex_fields, "cq_ex/fields", .core = true) {
  ExCq cq(IBV_WC_STANDARD_FLAGS);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 3000), at_b(p.b.pd, 3000);
  ibv_poll_cq_attr none = {};
  CHECK_EQ(ibv_start_poll(cq.ex, &none), ENOENT);

  p.b.recv(1, {at_b.sge()});
  at_a.fill(1);
  p.a.send({.wr_id = 10, .sges = {at_a.sge(0, 100)}});
  p.a.send({.wr_id = 11, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(0, 200)},
            .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  p.a.send({.wr_id = 12, .opcode = IBV_WR_RDMA_READ, .sges = {at_a.sge(0, 300)},
            .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_wc(p.b.recv_cq, 1);
  static const ibv_wc_opcode kOpcodes[] = {IBV_WC_SEND, IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ};
  cq.start();
  for (unsigned i = 0; i < 3;) {
    CHECK_EQ(cq.ex->status, IBV_WC_SUCCESS);
    CHECK_EQ(cq.ex->wr_id, 10 + i);
    CHECK_EQ(ibv_wc_read_opcode(cq.ex), kOpcodes[i]);
    CHECK_EQ(ibv_wc_read_vendor_err(cq.ex), 0);
    CHECK_EQ(ibv_wc_read_qp_num(cq.ex), p.a.qp->qp_num);
    CHECK_EQ(ibv_wc_read_wc_flags(cq.ex), 0);
    if (++i == 3) break;
    if (const int ret = ibv_next_poll(cq.ex); ret == ENOENT) {  // not all had come yet
      ibv_end_poll(cq.ex);
      cq.start();
    } else {
      CHECK_EQ(ret, 0);
    }
  }
  CHECK_EQ(ibv_wc_read_byte_len(cq.ex), 300);  // of the READ
  CHECK_EQ(ibv_next_poll(cq.ex), ENOENT);
  ibv_end_poll(cq.ex);

  p.a.recv(20, {at_a.sge()});
  p.b.send({.wr_id = 2, .sges = {at_b.sge(0, 1234)}});
  cq.start();
  CHECK_EQ(cq.ex->wr_id, 20);
  CHECK_EQ(ibv_wc_read_opcode(cq.ex), IBV_WC_RECV);
  CHECK_EQ(ibv_wc_read_byte_len(cq.ex), 1234);
  CHECK_EQ(ibv_wc_read_src_qp(cq.ex), 0);
  CHECK_EQ(ibv_wc_read_slid(cq.ex), 0);
  CHECK_EQ(ibv_wc_read_sl(cq.ex), 0);
  CHECK_EQ(ibv_wc_read_dlid_path_bits(cq.ex), 0);
  ibv_end_poll(cq.ex);
  CHECK_EQ(ibv_start_poll(cq.ex, &none), ENOENT);
  expect_wc(p.b.send_cq, 2);
  p.close();
  cq.destroy();
}

// What fails says so, with the code of the Terminate.
CASE(cq_ex_errors, "cq_ex/failed-completions", .core = true) {
  ExCq cq(IBV_WC_STANDARD_FLAGS);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 100), at_b(p.b.pd, 100);
  p.a.recv(30, {at_a.sge()});
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
            .remote_addr = at_b.addr() + 1, .rkey = at_b.rkey()});
  bool write = false, recv = false;
  while (!write || !recv) {
    cq.start();
    do {
      if (cq.ex->wr_id == 1) {
        CHECK_EQ(cq.ex->status, IBV_WC_REM_ACCESS_ERR);
        CHECK(ibv_wc_read_vendor_err(cq.ex) != 0);
        write = true;
      } else {
        CHECK_EQ(cq.ex->wr_id, 30);
        CHECK_EQ(cq.ex->status, IBV_WC_WR_FLUSH_ERR);
        recv = true;
      }
      CHECK_EQ(ibv_wc_read_qp_num(cq.ex), p.a.qp->qp_num);
    } while (ibv_next_poll(cq.ex) == 0);
    ibv_end_poll(cq.ex);
  }
  drain_async(p.b.id->verbs);
}

// ibv_poll_cq() and the extended calls take turns on one CQ: each completion comes once, in order. A channel works too.
CASE(cq_ex_mixed, "cq_ex/mixed-with-poll", .core = true) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context());
  CHECK(channel != nullptr);
  ExCq cq(IBV_WC_EX_WITH_BYTE_LEN, 128, 0, channel);
  {
    Pair p(with_cq(cq), Options());
    Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
    for (uint64_t i = 0, done = 0; done < 500;) {
      for (; i < 500 && i - done < 40; ++i)
        write(p, i, at_a, at_b);
      if (done % 3 == 0) {
        CHECK_EQ(wait_wc(cq.cq).wr_id, done++);
        continue;
      }
      cq.start();
      for (unsigned n = 1 + done % 5;;) {
        CHECK_EQ(cq.ex->wr_id, done++);
        if (--n == 0 || ibv_next_poll(cq.ex) != 0) break;
      }
      ibv_end_poll(cq.ex);
    }
    CHECK_EQ(ibv_req_notify_cq(cq.cq, 0), 0);
    write(p, 1000, at_a, at_b);
    CHECK(wait_cq_event(channel, kWaitMs));
    cq.start();
    CHECK_EQ(cq.ex->wr_id, 1000);
    ibv_end_poll(cq.ex);
    p.close();
  }
  cq.destroy();
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

// While a completion is shown the program may post, and poll other CQs.
CASE(cq_ex_post_inside, "cq_ex/post-between-start-and-end", .core = true) {
  ExCq cq(IBV_WC_EX_WITH_BYTE_LEN);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  p.a.recv(0, {at_a.sge()});
  for (uint64_t i = 0; i < 200; ++i) {
    p.b.send({.wr_id = i, .sges = {at_b.sge(0, static_cast<uint32_t>(1 + i % 64))}});
    cq.start();
    CHECK_EQ(cq.ex->wr_id, i);
    CHECK_EQ(ibv_wc_read_byte_len(cq.ex), 1 + i % 64);
    p.a.recv(i + 1, {at_a.sge()});
    expect_wc(p.b.send_cq, i);
    CHECK_EQ(cq.ex->wr_id, i);
    CHECK_EQ(ibv_next_poll(cq.ex), ENOENT);
    ibv_end_poll(cq.ex);
  }
  p.close();
}

// The work request whose completion is shown counts no more: another one may be posted in place of it, and complete,
// while the CQ, which has as many entries as the queue, is full.
CASE(cq_ex_post_when_full, "cq_ex/post-between-start-and-end-when-full", .core = true) {
  ExCq cq(IBV_WC_EX_WITH_BYTE_LEN, 16);
  Options of_a = with_cq(cq);
  of_a.send_wr = 16;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  CHECK_EQ(ibv_query_qp(p.a.qp, &attr, IBV_QP_CAP, &init), 0);
  const uint64_t depth = attr.cap.max_send_wr;
  uint64_t next = 0, done = 0;
  for (; next < depth; ++next) write(p, next, at_a, at_b);
  usleep(5000);  // all have completed
  cq.start();
  for (;;) {
    CHECK_EQ(cq.ex->status, IBV_WC_SUCCESS);
    CHECK_EQ(cq.ex->wr_id, done++);
    CHECK_EQ(ibv_wc_read_byte_len(cq.ex), 64);
    if (next != 3 * depth) write(p, next++, at_a, at_b);
    usleep(2000);  // it has completed
    CHECK_EQ(cq.ex->wr_id, done - 1);
    if (const int ret = ibv_next_poll(cq.ex); ret == 0) continue;
    ibv_end_poll(cq.ex);
    if (done == 3 * depth) break;
    cq.start();
  }
  p.close();
}

// Time stamps are of the clock that ibv_query_rt_values_ex() reads, at the rate that ibv_query_device_ex() tells, and
// do not run backwards.
CASE(cq_ex_times, "cq_ex/time-stamps", .core = true) {
  ibv_device_attr_ex attr;
  CHECK_EQ(ibv_query_device_ex(context(), nullptr, &attr), 0);
  CHECK_EQ(attr.hca_core_clock, 1000000);  // kHz: nanoseconds
  CHECK_EQ(attr.completion_timestamp_mask, ~0ull);
  const auto raw = [] {
    ibv_values_ex values = {};
    values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
    CHECK_EQ(ibv_query_rt_values_ex(context(), &values), 0);
    CHECK_EQ(values.comp_mask, IBV_VALUES_MASK_RAW_CLOCK);
    return nanoseconds(values.raw_clock);
  };
  ibv_values_ex bad = {};
  bad.comp_mask = IBV_VALUES_MASK_RESERVED;
  CHECK_EQ(ibv_query_rt_values_ex(context(), &bad), EINVAL);

  ExCq cq(kTimes);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  uint64_t before = raw();
  const uint64_t wall_before = now_of(CLOCK_REALTIME);
  for (uint64_t i = 0; i < 100; ++i) {
    write(p, i, at_a, at_b);
    cq.start();
    CHECK_EQ(cq.ex->wr_id, i);
    const uint64_t stamp = ibv_wc_read_completion_ts(cq.ex);
    const uint64_t wall = ibv_wc_read_completion_wallclock_ns(cq.ex);
    if (stamp < before || stamp > raw())
      FAIL("the stamp is %lld ns behind the one before", static_cast<long long>(stamp - before));
    CHECK(wall + 1000000000 > wall_before && wall < now_of(CLOCK_REALTIME) + 1000000000);
    before = stamp;
    ibv_end_poll(cq.ex);
  }
  p.close();

  ExCq plain(IBV_WC_STANDARD_FLAGS);
  Pair q(with_cq(plain), Options());
  Region at_c(q.a.pd, 64), at_d(q.b.pd, 64);
  write(q, 1, at_c, at_d);
  plain.start();
  CHECK_EQ(ibv_wc_read_completion_ts(plain.ex), 0);  // was not asked for
  ibv_end_poll(plain.ex);
  q.close();
}

// A completion is stamped when it comes, not when it is looked at.
CASE(cq_ex_times_of_arrival, "cq_ex/stamped-on-arrival") {
  ExCq cq(kTimes);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  p.a.recv(1, {at_a.sge()});
  p.b.send({.wr_id = 1, .sges = {at_b.sge()}});
  expect_wc(p.b.send_cq, 1);
  usleep(300'000);
  const uint64_t looked = now_of(CLOCK_MONOTONIC);
  cq.start();
  const uint64_t stamp = ibv_wc_read_completion_ts(cq.ex);
  ibv_end_poll(cq.ex);
  if (stamp + 200'000'000 > looked)
    FAIL("stamped %.3f ms before it was looked at", static_cast<double>(looked - stamp) / 1e6);
  p.close();
}

CASE(cq_ex_refused, "cq_ex/refused", .core = true) {
  const auto refused = [](uint64_t wc_flags, uint32_t comp_mask, uint32_t flags, uint32_t cqe = 16,
                          uint32_t vector = 0) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = cqe;
    attr.comp_vector = vector;
    attr.wc_flags = wc_flags;
    attr.comp_mask = comp_mask;
    attr.flags = flags;
    errno = 0;
    ibv_cq_ex* cq = ibv_create_cq_ex(context(), &attr);
    if (cq) CHECK_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    return cq ? 0 : errno;
  };
  for (uint64_t flag : {IBV_WC_EX_WITH_CVLAN, IBV_WC_EX_WITH_FLOW_TAG, IBV_WC_EX_WITH_TM_INFO})
    CHECK_EQ(refused(flag, 0, 0), EOPNOTSUPP);
  CHECK_EQ(refused(1ull << 40, 0, 0), EOPNOTSUPP);
  CHECK_EQ(refused(0, 1u << 20, 0), EOPNOTSUPP);
  CHECK_EQ(refused(0, IBV_CQ_INIT_ATTR_MASK_FLAGS, 1u << 20), EOPNOTSUPP);
  CHECK_EQ(refused(0, 0, 0, 0), EINVAL);
  CHECK_EQ(refused(0, 0, 0, 0xffffffffu), EINVAL);
  CHECK(context()->num_comp_vectors >= 1);
  const auto vectors = static_cast<uint32_t>(context()->num_comp_vectors);
  for (uint32_t vector = 0; vector < vectors; ++vector) CHECK_EQ(refused(0, 0, 0, 16, vector), 0);
  CHECK_EQ(refused(0, 0, 0, 16, vectors), EINVAL);
  CHECK_EQ(refused(0, 0, 0, 16, 1u << 20), EINVAL);
  CHECK_EQ(refused(0, 0, 1u << 20), 0);  // flags that the mask does not name
  ExCq cq(0);
  ibv_poll_cq_attr attr = {};
  attr.comp_mask = 1;
  CHECK_EQ(ibv_start_poll(cq.ex, &attr), EINVAL);
}

// One thread polls, and says so: no locks. Nothing else changes.
CASE(cq_ex_single, "cq_ex/single-threaded", .core = true) {
  ExCq cq(IBV_WC_STANDARD_FLAGS, 64, IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
  Pair p(with_cq(cq), Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint64_t i = 0; i < 300; ++i) {
    write(p, i, at_a, at_b);
    if (i % 2) {
      CHECK_EQ(wait_wc(cq.cq).wr_id, i);
    } else {
      cq.start();
      CHECK_EQ(cq.ex->wr_id, i);
      ibv_end_poll(cq.ex);
    }
  }
  p.close();
}

// After an overrun the program first gets the CQEs that were in the CQ, then EOVERFLOW from each further call.
CASE(cq_ex_overrun, "cq_ex/overrun", .core = true) {
  ExCq cq(IBV_WC_STANDARD_FLAGS, 4);
  Options of_a = with_cq(cq);
  of_a.send_wr = 512;
  Pair p(of_a, Options());
  drain_async(p.a.id->verbs);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  const auto capacity = static_cast<uint64_t>(cq.cq->cqe);
  CHECK(capacity >= 4 && capacity < 400);
  for (uint64_t i = 0; i < capacity + 50; ++i)
    p.a.try_send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
                  .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  expect_async(p.a.id->verbs, IBV_EVENT_CQ_ERR, cq.cq);
  ibv_poll_cq_attr none = {};
  uint64_t seen = 0;
  CHECK_EQ(ibv_start_poll(cq.ex, &none), 0);
  CHECK_EQ(cq.ex->wr_id, seen++);
  ibv_end_poll(cq.ex);
  CHECK_EQ(ibv_start_poll(cq.ex, &none), 0);
  for (int error = 0; error == 0; error = ibv_next_poll(cq.ex)) {
    CHECK_EQ(cq.ex->status, IBV_WC_SUCCESS);
    CHECK_EQ(cq.ex->wr_id, seen++);
  }
  ibv_end_poll(cq.ex);
  CHECK_EQ(seen, capacity);
  ibv_wc wc;
  for (int i = 0; i < 3; ++i) {  // after a failed ibv_start_poll() no ibv_end_poll() follows
    CHECK_EQ(ibv_start_poll(cq.ex, &none), EOVERFLOW);
    CHECK_EQ(ibv_poll_cq(cq.cq, 1, &wc), -1);
  }
  expect_async(p.a.id->verbs, IBV_EVENT_QP_FATAL, p.a.qp);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  drain_async(p.a.id->verbs);
}

// Whoever asks for it loses completions of a CQ that is full, and nothing else.
CASE(cq_ex_ignore_overrun, "cq_ex/ignore-overrun", .core = true) {
  ExCq cq(IBV_WC_STANDARD_FLAGS, 4, IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
  Options of_a = with_cq(cq);
  of_a.send_wr = 512;
  Pair p(of_a, Options());
  drain_async(p.a.id->verbs);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint64_t i = 0; i < 200; ++i)
    write(p, i, at_a, at_b);
  // All of them are through when what is behind them is.
  p.b.recv(1, {at_b.sge()});
  p.a.send({.wr_id = 200, .flags = 0, .sges = {at_a.sge()}});
  expect_wc(p.b.recv_cq, 1);
  usleep(200'000);  // for the last acknowledgement
  std::vector<ibv_wc> wcs(8);
  const int n = ibv_poll_cq(cq.cq, 8, wcs.data());
  CHECK_EQ(n, 4);
  for (int i = 0; i < n; ++i) CHECK_EQ(wcs[static_cast<size_t>(i)].wr_id, static_cast<uint64_t>(i));
  CHECK_EQ(p.a.state(), IBV_QPS_RTS);
  write(p, 1000, at_a, at_b);
  wait_until("the completion of the last one", [&] {
    const int got = ibv_poll_cq(cq.cq, 1, wcs.data());
    CHECK(got >= 0);
    return got == 1 && wcs[0].wr_id == 1000;
  });
  p.close();
}

// Several threads consume one CQ, each by its own way: every completion comes to exactly one of them.
CASE(cq_ex_threads, "cq_ex/threads", .seconds = 60) {
  ExCq cq(IBV_WC_STANDARD_FLAGS, 256);
  Options of_a = with_cq(cq);
  of_a.send_wr = 200;
  Pair p(of_a, Options());
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  constexpr uint64_t kTotal = 2000;
  std::vector<std::atomic<int>> seen(kTotal);
  std::atomic<uint64_t> done{0};
  const auto note = [&](uint64_t wr_id) {
    if (wr_id < kTotal) seen[wr_id].fetch_add(1);
    done.fetch_add(1);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      while (done.load() < kTotal) {
        if (t == 0) {
          ibv_wc wcs[7];
          const int n = ibv_poll_cq(cq.cq, 7, wcs);
          for (int i = 0; i < n; ++i) note(wcs[i].wr_id);
          continue;
        }
        ibv_poll_cq_attr none = {};
        if (ibv_start_poll(cq.ex, &none)) continue;
        do note(cq.ex->wr_id);
        while (ibv_next_poll(cq.ex) == 0);
        ibv_end_poll(cq.ex);
      }
    });
  for (uint64_t i = 0; i < kTotal; ++i) {
    while (i - done.load() >= 190) std::this_thread::yield();
    write(p, i, at_a, at_b);
  }
  for (std::thread& t : threads) t.join();
  for (const auto& n : seen) CHECK_EQ(n.load(), 1);
  p.close();
}
