// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// ibv_create_qp_ex(3) and the work request API (ibv_wr_post(3)).
#include <arpa/inet.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "rig.h"

namespace {

constexpr uint64_t kBasic = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;

Options extended(uint64_t ops = kBasic) {
  Options o;
  o.send_ops = ops;
  return o;
}

ibv_qp_ex* ex_of(Endpoint& e) {
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(e.qp);
  if (!ex) FAIL("no ibv_qp_ex");
  return ex;
}

/// errno of ibv_create_qp_ex(); 0 if it works (and is destroyed again).
int try_create(const ibv_qp_init_attr_ex& wish) {
  ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp_init_attr_ex attr = wish;
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {8, 8, 1, 1, 0};
  errno = 0;
  ibv_qp* qp = ibv_create_qp_ex(context(), &attr);
  const int error = qp ? 0 : errno;
  if (qp) {
    CHECK((ibv_qp_to_qp_ex(qp) != nullptr) == ((attr.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0));
    CHECK(attr.cap.max_send_wr >= 8);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
  }
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  return error;
}

int try_ops(uint64_t ops) {
  ibv_qp_init_attr_ex attr = {};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_a();
  attr.send_ops_flags = ops;
  return try_create(attr);
}

/// A QP can be made that does @p op.
bool has(uint64_t op) { return try_ops(op) == 0; }

}  // namespace

// Each operation with each way to give it data; all in one batch, and then one after the other.
CASE(wr_basic, "wr/send-write-read", .core = true) {
  Pair p(extended());
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 4096), at_b(p.b.pd, 4096), sink(p.b.pd, 4096);
  at_a.fill(1);
  for (const bool together : {true, false}) {
    at_b.clear();
    sink.clear();
    p.b.recv(1, {sink.sge()});
    const auto next = [&] {
      if (together) return;
      CHECK_EQ(ibv_wr_complete(ex), 0);
      ibv_wr_start(ex);
    };
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    ex->wr_id = 10;
    ibv_wr_rdma_write(ex, at_b.rkey(), at_b.addr() + 100);
    ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr() + 100, 500);
    next();
    ex->wr_id = 11;
    ibv_wr_send(ex);
    const ibv_sge list[] = {at_a.sge(0, 10), at_a.sge(10, 1), at_a.sge(11, 89)};
    ibv_wr_set_sge_list(ex, 3, list);
    next();
    ex->wr_flags = 0;
    ex->wr_id = 12;
    ibv_wr_rdma_write(ex, at_b.rkey(), at_b.addr());  // no data at all
    next();
    ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE;
    ex->wr_id = 13;
    ibv_wr_rdma_read(ex, at_b.rkey(), at_b.addr() + 100);
    ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr() + 2000, 500);
    CHECK_EQ(ibv_wr_complete(ex), 0);

    CHECK_EQ(expect_wc(p.a.send_cq, 10).opcode, IBV_WC_RDMA_WRITE);
    CHECK_EQ(expect_wc(p.a.send_cq, 11).opcode, IBV_WC_SEND);
    CHECK_EQ(expect_wc(p.a.send_cq, 13).opcode, IBV_WC_RDMA_READ);
    CHECK_EQ(expect_wc(p.b.recv_cq, 1).byte_len, 100);
    CHECK(std::memcmp(sink.data(), at_a.data(), 100) == 0);
    CHECK(std::memcmp(at_b.data() + 100, at_a.data() + 100, 500) == 0);
    CHECK(std::memcmp(at_a.data() + 2000, at_a.data() + 100, 500) == 0);
    at_b.check_clear(0, 100);
    at_b.check_clear(600, 4096 - 600);
  }
  expect_no_wc(p.a.send_cq, 10);
  p.close();
}

// Inline data is the program's again at once.
CASE(wr_inline, "wr/inline-data", .core = true) {
  Options of_a = extended();
  of_a.inline_data = 1024;
  Pair p(of_a, Options());
  ibv_qp_ex* ex = ex_of(p.a);
  Region sink(p.b.pd, 2048);
  uint8_t bytes[1025];
  for (size_t length : {size_t{0}, size_t{1}, size_t{100}, size_t{1024}}) {
    for (const bool list : {false, true}) {
      sink.clear();
      p.b.recv(1, {sink.sge()});
      fill_pattern(bytes, length, length);
      ibv_wr_start(ex);
      ex->wr_id = length;
      ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;  // the flag changes nothing
      ibv_wr_send(ex);
      if (list) {
        const ibv_data_buf bufs[] = {{bytes, length / 3}, {nullptr, 0}, {bytes + length / 3, length - length / 3}};
        ibv_wr_set_inline_data_list(ex, 3, bufs);
      } else {
        ibv_wr_set_inline_data(ex, bytes, length);
      }
      std::memset(bytes, 0, sizeof bytes);
      CHECK_EQ(ibv_wr_complete(ex), 0);
      CHECK_EQ(expect_wc(p.b.recv_cq, 1).byte_len, length);
      CHECK_EQ(pattern_mismatch(sink.data(), length, length), length);
      expect_wc(p.a.send_cq, length);
    }
  }
  // One byte too many; a READ.
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_inline_data(ex, bytes, 1025);
  CHECK_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_rdma_read(ex, sink.rkey(), sink.addr());
  ibv_wr_set_inline_data(ex, bytes, 8);
  CHECK_EQ(ibv_wr_complete(ex), EINVAL);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  const ibv_data_buf large[] = {{bytes, 1000}, {bytes, static_cast<size_t>(-1)}};
  ibv_wr_set_inline_data_list(ex, 2, large);
  CHECK_EQ(ibv_wr_complete(ex), EINVAL);
  exercise(p);
  p.close();
}

// What is not completed is not sent, though other work of the QP is under way; what is aborted never is.
CASE(wr_abort, "wr/nothing-before-complete", .core = true) {
  Options of_a = extended();
  of_a.send_wr = 16;
  Pair p(of_a, Options());
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  at_b.clear();
  for (unsigned round = 0; round < 40; ++round) {
    // Work under way makes the engine look at the ring.
    p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .sges = {at_a.sge(32, 32)},
              .remote_addr = at_b.addr() + 32, .rkey = at_b.rkey()});
    ibv_wr_start(ex);
    ex->wr_flags = IBV_SEND_SIGNALED;
    for (uint64_t i = 0; i < 1 + round % 8; ++i) {
      ex->wr_id = 100 + i;
      at_a.data()[0] = 0xee;
      ibv_wr_rdma_write(ex, at_b.rkey(), at_b.addr());
      ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 32);
    }
    expect_wc(p.a.send_cq, 1);
    if (round < 4) usleep(20'000);
    if (round % 2) {
      ex->wr_id = 200;
      ibv_wr_send(ex);  // begun, and without data yet
    }
    ibv_wr_abort(ex);
  }
  expect_no_wc(p.a.send_cq, 50);
  at_b.check_clear(0, 64);
  // The ring is as it was: 16 fit, in order.
  ibv_wr_start(ex);
  for (uint64_t i = 0; i < 16; ++i) {
    ex->wr_id = i;
    ibv_wr_rdma_write(ex, at_b.rkey(), at_b.addr());
    ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 32);
  }
  CHECK_EQ(ibv_wr_complete(ex), 0);
  for (uint64_t i = 0; i < 16; ++i) expect_wc(p.a.send_cq, i);
  p.close();
}

// One bad work request: none of the batch is posted, and the next batch is as if there had been none.
CASE(wr_errors, "wr/a-batch-is-all-or-nothing", .core = true) {
  Options of_a = extended();
  of_a.send_wr = 8;
  of_a.send_sge = 2;
  Pair p(of_a, Options());
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  at_b.clear();
  const ibv_sge three[] = {at_a.sge(0, 1), at_a.sge(1, 1), at_a.sge(2, 1)};
  const auto good = [&](uint64_t wr_id) {
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, at_b.rkey(), at_b.addr());
    ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 64);
  };
  for (int bad = 0; bad < 5; ++bad) {
    ibv_wr_start(ex);
    good(1);
    switch (bad) {
      case 0:  // too many SGEs
        ibv_wr_send(ex);
        ibv_wr_set_sge_list(ex, 3, three);
        break;
      case 1:  // an unknown flag
        ex->wr_flags = 1u << 20;
        ibv_wr_send(ex);
        ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 1);
        break;
      case 2:  // too many of them
        for (uint64_t i = 0; i < 8; ++i) good(10 + i);
        break;
      case 3:  // data of nothing
        ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 1);
        break;
      case 4:  // more than a message may hold
        ibv_wr_send(ex);
        const ibv_sge large[] = {{at_a.addr(), 0xffffffffu, at_a.lkey()}, {at_a.addr(), 2, at_a.lkey()}};
        ibv_wr_set_sge_list(ex, 2, large);
        break;
    }
    good(2);
    const int error = ibv_wr_complete(ex);
    CHECK_EQ(error, bad == 2 ? ENOMEM : EINVAL);
    expect_no_wc(p.a.send_cq, 5);
    ibv_wr_start(ex);
    good(3);
    CHECK_EQ(ibv_wr_complete(ex), 0);
    expect_wc(p.a.send_cq, 3);
  }
  ibv_wr_start(ex);
  CHECK_EQ(ibv_wr_complete(ex), 0);  // of nothing
  p.close();
}

// A QP that is not connected takes no work; one that has failed flushes it.
CASE(wr_states, "wr/states", .core = true) {
  {
    ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
    CHECK(cq != nullptr);
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {8, 8, 1, 1, 0};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_a();
    attr.send_ops_flags = kBasic;
    ibv_qp* qp = ibv_create_qp_ex(context(), &attr);
    CHECK(qp != nullptr);
    ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
    CHECK(ex != nullptr);
    ibv_wr_start(ex);
    ibv_wr_send(ex);
    CHECK_EQ(ibv_wr_complete(ex), EINVAL);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
  }
  Pair p(extended());
  ibv_qp_ex* ex = ex_of(p.a);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  CHECK_EQ(ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE), 0);
  ibv_wr_start(ex);
  for (uint64_t i = 0; i < 3; ++i) {
    ex->wr_id = i;
    ex->wr_flags = 0;
    ibv_wr_send(ex);
  }
  CHECK_EQ(ibv_wr_complete(ex), 0);
  for (uint64_t i = 0; i < 3; ++i) expect_wc(p.a.send_cq, i, IBV_WC_WR_FLUSH_ERR);
}

// Batches of several threads and of ibv_post_send() come whole: the peer sees the receives of a batch in a row.
CASE(wr_threads, "wr/threads", .seconds = 60, .core = true) {
  Options of_a = extended(), of_b;
  of_a.send_wr = 256;
  of_b.recv_wr = 256;
  Pair p(of_a, of_b);
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  at_a.fill(1);
  constexpr unsigned kThreads = 3, kRounds = 100, kBatch = 4;
  std::atomic<unsigned> under_way{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 200; ++i) p.b.recv(i, {at_b.sge()});
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (unsigned round = 0; round < kRounds && !stop.load(); ++round) {
        while (under_way.fetch_add(kBatch) > 100 && !stop.load()) {
          under_way.fetch_sub(kBatch);
          std::this_thread::yield();
        }
        ibv_wr_start(ex);
        ex->wr_flags = IBV_SEND_SIGNALED;
        for (unsigned i = 0; i < kBatch; ++i) {
          ex->wr_id = t * 100 + i;
          ibv_wr_send(ex);
          ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 1 + t * 10 + i);
        }
        if (ibv_wr_complete(ex) != 0) stop.store(true);
      }
    });
  unsigned received = 0, sent = 0;
  uint32_t last = 0;
  wait_until("all of them", [&] {
    ibv_wc wc;
    while (ibv_poll_cq(p.a.send_cq, 1, &wc) > 0) {
      CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      ++sent;
      under_way.fetch_sub(1);
    }
    while (ibv_poll_cq(p.b.recv_cq, 1, &wc) > 0) {
      CHECK_EQ(wc.status, IBV_WC_SUCCESS);
      const uint32_t length = wc.byte_len - 1;
      if (received % kBatch != 0) CHECK_EQ(length, last + 1);
      else CHECK_EQ(length % 10, 0);
      last = length;
      ++received;
      p.b.recv(0, {at_b.sge()});
    }
    return stop.load() || (received == kThreads * kRounds * kBatch && sent == received);
  }, 3 * kWaitMs);
  stop.store(true);
  for (std::thread& t : threads) t.join();
  CHECK_EQ(received, kThreads * kRounds * kBatch);
  p.close();
}

// What a device cannot do is refused when the QP is made, and nothing else is.
CASE(wr_create, "wr/creation", .core = true) {
  CHECK_EQ(try_ops(0), 0);
  CHECK_EQ(try_ops(kBasic), 0);
  CHECK_EQ(try_ops(IBV_QP_EX_WITH_TSO), EOPNOTSUPP);
  CHECK_EQ(try_ops(kBasic | 1ull << 40), EOPNOTSUPP);
  ibv_qp_init_attr_ex attr = {};
  attr.pd = pd_a();
  CHECK_EQ(try_create(attr), EINVAL);  // the mask does not name the PD
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  CHECK_EQ(try_create(attr), 0);
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  CHECK_EQ(try_create(attr), 0);
  attr.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
  CHECK_EQ(try_create(attr), EOPNOTSUPP);
  attr.create_flags = 0;
  for (uint32_t mask : {IBV_QP_INIT_ATTR_XRCD, IBV_QP_INIT_ATTR_MAX_TSO_HEADER, IBV_QP_INIT_ATTR_IND_TABLE,
                        IBV_QP_INIT_ATTR_RX_HASH}) {
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | mask;
    const int error = try_create(attr);
    if (error != EOPNOTSUPP && error != EINVAL) FAIL("comp_mask 0x%x: error %d", mask, error);
  }
  // An ordinary QP has no such functions.
  Pair p;
  CHECK(ibv_qp_to_qp_ex(p.a.qp) == nullptr);
  p.close();
}

CASE(wr_immediate, "wr/immediate-data", .core = true) {
  CHECK(has(IBV_QP_EX_WITH_SEND_WITH_IMM));
  const bool write = has(IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM);
  Pair p(extended(IBV_QP_EX_WITH_SEND_WITH_IMM | (write ? IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM : 0)));
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  p.b.recv(1, {at_b.sge()});
  p.b.recv(2, {at_b.sge()});
  ibv_wr_start(ex);
  ex->wr_id = 1;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(ex, htonl(0x12345678));
  ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 10);
  if (write) {
    ex->wr_id = 2;
    ibv_wr_rdma_write_imm(ex, at_b.rkey(), at_b.addr(), htonl(0x87654321));
    ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 20);
  }
  CHECK_EQ(ibv_wr_complete(ex), 0);
  ibv_wc wc = expect_wc(p.b.recv_cq, 1);
  CHECK((wc.wc_flags & IBV_WC_WITH_IMM) != 0);
  CHECK_EQ(ntohl(wc.imm_data), 0x12345678);
  CHECK_EQ(wc.byte_len, 10);
  expect_wc(p.a.send_cq, 1);
  if (write) {
    wc = expect_wc(p.b.recv_cq, 2);
    CHECK_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    CHECK_EQ(ntohl(wc.imm_data), 0x87654321);
    expect_wc(p.a.send_cq, 2);
  }
  p.close();
}

CASE(wr_atomics, "wr/atomics", .core = true) {
  constexpr uint64_t kAtomics = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  CHECK(has(kAtomics));
  Pair p(extended(kAtomics));
  ibv_qp_ex* ex = ex_of(p.a);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64, kAllAccess | IBV_ACCESS_REMOTE_ATOMIC);
  auto* const there = reinterpret_cast<uint64_t*>(at_b.data());
  auto* const here = reinterpret_cast<uint64_t*>(at_a.data());
  *there = 1000;
  ibv_wr_start(ex);
  ex->wr_flags = IBV_SEND_SIGNALED;
  ex->wr_id = 1;
  ibv_wr_atomic_fetch_add(ex, at_b.rkey(), at_b.addr(), 5);
  ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr(), 8);
  ex->wr_id = 2;
  ibv_wr_atomic_cmp_swp(ex, at_b.rkey(), at_b.addr(), 1005, 77);
  ibv_wr_set_sge(ex, at_a.lkey(), at_a.addr() + 8, 8);
  CHECK_EQ(ibv_wr_complete(ex), 0);
  CHECK_EQ(expect_wc(p.a.send_cq, 1).opcode, IBV_WC_FETCH_ADD);
  CHECK_EQ(expect_wc(p.a.send_cq, 2).opcode, IBV_WC_COMP_SWAP);
  CHECK_EQ(here[0], 1000);
  CHECK_EQ(here[1], 1005);
  CHECK_EQ(*there, 77);
  p.close();
}
