// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Many work requests in flight, signalling, completion channels, receives that come late.
#include <algorithm>

#include "rig.h"

namespace {

uint32_t mixed_length(uint32_t i) {
  static const uint32_t kLengths[] = {0, 1, 64, 1000, 1500, 3000, 4096, 9000, 17, 20000};
  return kLengths[i % 10];
}

}  // namespace

CASE(flow_sends, "flow/128-sends", .core = true) {
  Options options;
  options.send_wr = options.recv_wr = 128;
  Pair p(options);
  constexpr uint32_t kEach = 20000;
  Region at_a(p.a.pd, 128 * kEach), at_b(p.b.pd, 128 * kEach);
  for (uint32_t i = 0; i < 128; ++i) {
    fill_pattern(at_a.data() + i * kEach, mixed_length(i), i);
    p.b.recv(i, {at_b.sge(i * kEach, kEach)});
  }
  for (uint32_t i = 0; i < 128; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge(i * kEach, mixed_length(i))}});
  for (uint32_t i = 0; i < 128; ++i) {
    expect_wc(p.a.send_cq, i);
    CHECK_EQ(expect_wc(p.b.recv_cq, i).byte_len, mixed_length(i));
    at_b.check(i, i * kEach, mixed_length(i));
    at_b.check_clear(i * kEach + mixed_length(i), std::min(64u, kEach - mixed_length(i)));
  }
  p.close();
}

CASE(flow_mixed, "flow/128-of-each-kind", .seconds = 60, .core = true) {
  Options options;
  options.send_wr = 384;
  options.recv_wr = 128;
  options.ord = options.ird = 16;
  Pair p(options);
  constexpr uint32_t kEach = 20000;
  Region sends(p.a.pd, 128 * kEach), writes(p.a.pd, 128 * kEach), reads(p.a.pd, 128 * kEach);
  Region receives(p.b.pd, 128 * kEach), written(p.b.pd, 128 * kEach), to_read(p.b.pd, 128 * kEach);
  for (uint32_t i = 0; i < 128; ++i) {
    fill_pattern(sends.data() + i * kEach, mixed_length(i), i);
    fill_pattern(writes.data() + i * kEach, mixed_length(i + 3), i + 1000);
    fill_pattern(to_read.data() + i * kEach, mixed_length(i + 5), i + 2000);
    p.b.recv(i, {receives.sge(i * kEach, kEach)});
  }
  for (uint32_t i = 0; i < 128; ++i) {
    p.a.send({.wr_id = 3 * i, .opcode = IBV_WR_RDMA_WRITE,
              .sges = {writes.sge(i * kEach, mixed_length(i + 3))},
              .remote_addr = written.addr() + i * kEach, .rkey = written.rkey()});
    p.a.send({.wr_id = 3 * i + 1, .opcode = IBV_WR_RDMA_READ,
              .sges = {reads.sge(i * kEach, mixed_length(i + 5))},
              .remote_addr = to_read.addr() + i * kEach, .rkey = to_read.rkey()});
    p.a.send({.wr_id = 3 * i + 2, .sges = {sends.sge(i * kEach, mixed_length(i))}});
  }
  const ibv_wc_opcode kinds[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ, IBV_WC_SEND};
  for (uint32_t i = 0; i < 384; ++i) CHECK_EQ(expect_wc(p.a.send_cq, i).opcode, kinds[i % 3]);
  for (uint32_t i = 0; i < 128; ++i) {
    CHECK_EQ(expect_wc(p.b.recv_cq, i).byte_len, mixed_length(i));
    receives.check(i, i * kEach, mixed_length(i));
    written.check(i + 1000, i * kEach, mixed_length(i + 3));
    reads.check(i + 2000, i * kEach, mixed_length(i + 5));
  }
  for (Region* r : {&sends, &writes, &reads, &receives, &written, &to_read}) r->check_guards();
  p.close();
}

CASE(flow_both_ways, "flow/both-ways-at-once", .core = true) {
  Options options;
  options.send_wr = options.recv_wr = 64;
  Pair p(options);
  constexpr uint32_t kEach = 8000;
  Region from_a(p.a.pd, 64 * kEach), from_b(p.b.pd, 64 * kEach), at_a(p.a.pd, 64 * kEach), at_b(p.b.pd, 64 * kEach);
  from_a.fill(1);
  from_b.fill(2);
  for (uint32_t i = 0; i < 64; ++i) {
    p.a.recv(i, {at_a.sge(i * kEach, kEach)});
    p.b.recv(i, {at_b.sge(i * kEach, kEach)});
  }
  for (uint32_t i = 0; i < 64; ++i) {
    p.a.send({.wr_id = i, .sges = {from_a.sge(i * kEach, kEach)}});
    p.b.send({.wr_id = i, .sges = {from_b.sge(i * kEach, kEach)}});
  }
  for (uint32_t i = 0; i < 64; ++i) {
    for (ibv_cq* cq : {p.a.send_cq, p.a.recv_cq, p.b.send_cq, p.b.recv_cq}) expect_wc(cq, i);
  }
  at_b.check(1, 0, at_b.size());
  at_a.check(2, 0, at_a.size());
  p.close();
}

// READs beyond the depth that was negotiated wait for their turn.
CASE(flow_reads_ord, "flow/64-reads-with-ord-2", .core = true) {
  Options options;
  options.send_wr = 64;
  options.ord = options.ird = 2;
  Pair p(options);
  Region at_a(p.a.pd, 64 * 3000), at_b(p.b.pd, 64 * 3000);
  at_b.fill(9);
  for (uint32_t i = 0; i < 64; ++i)
    p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_READ, .sges = {at_a.sge(i * 3000, 3000)},
              .remote_addr = at_b.addr() + i * 3000, .rkey = at_b.rkey()});
  for (uint32_t i = 0; i < 64; ++i) expect_wc(p.a.send_cq, i);
  at_a.check(9, 0, at_a.size());
  p.close();
}

// Only signalled work requests complete; the slots of the others are free again behind one of them.
CASE(signal_mix, "signal/one-in-four", .core = true) {
  Options options;
  options.send_wr = 16;
  options.recv_wr = 400;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 400; ++i) p.b.recv(i, {at_b.sge()});
  for (uint32_t i = 0; i < 400; i += 4) {
    for (uint32_t k = 0; k < 4; ++k)
      p.a.send({.wr_id = i + k, .flags = k == 3 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u, .sges = {at_a.sge()}});
    if (i >= 8) expect_wc(p.a.send_cq, i - 8 + 3);
  }
  expect_wc(p.a.send_cq, 395);
  expect_wc(p.a.send_cq, 399);
  for (uint32_t i = 0; i < 400; ++i) expect_wc(p.b.recv_cq, i);
  expect_no_wc(p.a.send_cq, 50);
  p.close();
}

CASE(signal_all, "signal/sq_sig_all", .core = true) {
  Options options;
  options.sig_all = true;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 20; ++i) p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .flags = 0,
        .sges = {at_a.sge()}, .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
  for (uint32_t i = 0; i < 20; ++i) expect_wc(p.a.send_cq, i);
  p.close();
}

// A chain of work requests is one call; they complete in its order.
CASE(post_chain, "post/chain-of-work-requests", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 32 * 100), at_b(p.b.pd, 32 * 100);
  at_a.fill(4);
  std::vector<ibv_send_wr> wrs(32);
  std::vector<ibv_recv_wr> receives(32);
  std::vector<ibv_sge> from(32), to(32);
  for (uint32_t i = 0; i < 32; ++i) {
    from[i] = at_a.sge(i * 100, 100);
    to[i] = at_b.sge(i * 100, 100);
    wrs[i].wr_id = receives[i].wr_id = i;
    wrs[i].next = i < 31 ? &wrs[i + 1] : nullptr;
    receives[i].next = i < 31 ? &receives[i + 1] : nullptr;
    wrs[i].sg_list = &from[i];
    receives[i].sg_list = &to[i];
    wrs[i].num_sge = receives[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_SEND;
    wrs[i].send_flags = IBV_SEND_SIGNALED;
  }
  ibv_recv_wr* bad_recv;
  ibv_send_wr* bad_send;
  CHECK_EQ(ibv_post_recv(p.b.qp, receives.data(), &bad_recv), 0);
  CHECK_EQ(ibv_post_send(p.a.qp, wrs.data(), &bad_send), 0);
  for (uint32_t i = 0; i < 32; ++i) {
    expect_wc(p.a.send_cq, i);
    expect_wc(p.b.recv_cq, i);
  }
  at_b.check(4, 0, at_b.size());
  p.close();
}

// A SEND whose receive is posted late waits for it, and so does what comes behind it.
CASE(late_receive, "recv/posted-late", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 6000), at_b(p.b.pd, 6000);
  at_a.fill(1);
  p.b.recv(1, {at_b.sge()});
  p.a.send({.wr_id = 1, .sges = {at_a.sge()}});
  p.a.send({.wr_id = 2, .sges = {at_a.sge(0, 100)}});
  p.a.send({.wr_id = 3, .sges = {at_a.sge()}});
  expect_wc(p.b.recv_cq, 1);
  expect_wc(p.a.send_cq, 1);
  expect_no_wc(p.b.recv_cq, 300);
  at_b.clear();
  p.b.recv(2, {at_b.sge()});
  CHECK_EQ(expect_wc(p.b.recv_cq, 2).byte_len, 100);
  at_b.check(1, 0, 100);
  expect_wc(p.a.send_cq, 2);
  p.b.recv(3, {at_b.sge()});
  CHECK_EQ(expect_wc(p.b.recv_cq, 3).byte_len, 6000);
  at_b.check(1, 0, 6000);
  expect_wc(p.a.send_cq, 3);
  p.close();
}

// ---- Completion channels ----

CASE(event_mode, "event/ping-pong", .core = true) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 50; ++i) {
    CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
    p.b.recv(i, {at_b.sge()});
    p.a.send({.wr_id = i, .sges = {at_a.sge()}});
    CHECK(wait_cq_event(p.b.recv_channel, kWaitMs));
    expect_wc(p.b.recv_cq, i);
    expect_wc(p.a.send_cq, i);
    // One event per arming: nothing more comes though the channel is not armed again.
    if (i % 10 == 0) CHECK(!wait_cq_event(p.b.recv_channel, 50));
  }
  p.close();
}

// A completion that came before arming causes no event, or is found by polling once more.
CASE(event_arm_race, "event/arm-then-poll", .core = true) {
  Options options;
  options.with_channel = true;
  options.send_wr = options.recv_wr = 256;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 200; ++i) p.b.recv(i, {at_b.sge()});
  for (uint32_t i = 0; i < 200; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge()}});
  CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
  uint32_t seen = 0;
  while (seen < 200) {
    ibv_wc wc[8];
    int n;
    while ((n = ibv_poll_cq(p.b.recv_cq, 8, wc)) > 0)
      for (int i = 0; i < n; ++i) CHECK_EQ(wc[i].wr_id, seen++);
    CHECK_EQ(n, 0);
    if (seen == 200) break;
    if (!wait_cq_event(p.b.recv_channel, kWaitMs)) FAIL("no event with %u of 200 received", seen);
    CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 0), 0);
  }
  p.close();
}

CASE(event_solicited, "event/solicited-only", .core = true) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  for (uint32_t i = 0; i < 4; ++i) p.b.recv(i, {at_b.sge()});
  CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 1), 0);
  p.a.send({.wr_id = 0, .sges = {at_a.sge()}});
  p.a.send({.wr_id = 1, .sges = {at_a.sge()}});
  expect_wc(p.a.send_cq, 0);
  expect_wc(p.a.send_cq, 1);
  expect_wc(p.b.recv_cq, 0);
  expect_wc(p.b.recv_cq, 1);
  CHECK(!wait_cq_event(p.b.recv_channel, 200));
  p.a.send({.wr_id = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED, .sges = {at_a.sge()}});
  CHECK(wait_cq_event(p.b.recv_channel, kWaitMs));
  expect_wc(p.b.recv_cq, 2);
  // Solicited or in error: a flushed receive counts.
  CHECK_EQ(ibv_req_notify_cq(p.b.recv_cq, 1), 0);
  CHECK_CALL(rdma_disconnect(p.a.id));
  CHECK(wait_cq_event(p.b.recv_channel, kWaitMs));
  expect_wc(p.b.recv_cq, 3, IBV_WC_WR_FLUSH_ERR);
}

CASE(event_send_side, "event/send-and-read-completions", .core = true) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  Region at_a(p.a.pd, 50000), at_b(p.b.pd, 50000);
  for (ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    CHECK_EQ(ibv_req_notify_cq(p.a.send_cq, 0), 0);
    p.a.send({.wr_id = 1, .opcode = opcode, .sges = {at_a.sge()}, .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    CHECK(wait_cq_event(p.a.send_channel, kWaitMs));
    expect_wc(p.a.send_cq, 1);
  }
  p.close();
}
