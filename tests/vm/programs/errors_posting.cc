// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What ibv_post_send() and ibv_post_recv() refuse at once, with which errno value, and that the
// connection works as before.
#include "by_verbs.h"

namespace {

ibv_qp_cap capabilities(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
  return init.cap;
}

}  // namespace

CASE(post_many_sges, "post/too-many-sges", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 4096);
  const ibv_qp_cap cap = capabilities(p.a.qp);
  for (uint32_t extra : {1u, 100u}) {
    const std::vector<ibv_sge> sends(cap.max_send_sge + extra, at_a.sge(0, 1));
    const std::vector<ibv_sge> receives(cap.max_recv_sge + extra, at_a.sge(0, 1));
    for (ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ})
      CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = opcode, .sges = sends}), EINVAL);
    CHECK_EQ(p.a.try_recv(1, receives), EINVAL);
  }
  exercise(p);
  p.close();
}

// A negative number of elements is no list either.
CASE(post_negative_sges, "post/negative-number-of-sges") {
  Pair p;
  Region at_a(p.a.pd, 64);
  ibv_sge sge = at_a.sge();
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = -1;
  CHECK_EQ(ibv_post_send(p.a.qp, &wr, &bad), EINVAL);
  CHECK(bad == &wr);
  ibv_recv_wr receive = {}, *bad_receive = nullptr;
  receive.sg_list = &sge;
  receive.num_sge = -1;
  CHECK_EQ(ibv_post_recv(p.a.qp, &receive, &bad_receive), EINVAL);
  exercise(p);
  p.close();
}

CASE(post_long_inline, "post/inline-too-long", .core = true) {
  Pair p;
  const uint32_t limit = capabilities(p.a.qp).max_inline_data;
  std::vector<uint8_t> data(limit + 4096);
  const uint64_t at = reinterpret_cast<uint64_t>(data.data());
  for (uint32_t length : {limit + 1, limit + 4096})
    CHECK_EQ(p.a.try_send({.wr_id = 1, .flags = IBV_SEND_INLINE, .sges = {{at, length, 0}}}), EINVAL);
  // The sum counts.
  CHECK_EQ(p.a.try_send({.wr_id = 1, .flags = IBV_SEND_INLINE, .sges = {{at, limit, 0}, {at, 1, 0}}}), EINVAL);
  exercise(p);
  p.close();
}

CASE(post_opcode, "post/unknown-opcode", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64);
  for (int opcode : {11, 15, 77, 0x7fffffff, -1}) {
    const int error = p.a.try_send({.wr_id = 1, .opcode = static_cast<ibv_wr_opcode>(opcode), .sges = {at_a.sge()}});
    if (error != EINVAL && error != EOPNOTSUPP) FAIL("opcode %d: error %d", opcode, error);
  }
  exercise(p);
  p.close();
}

// What an atomic finds goes into one place of eight bytes.
CASE(post_atomics, "post/atomics-that-cannot-be", .core = true) {
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(context_of(site_a().device), &attr), 0);
  CHECK_EQ(attr.atomic_cap, IBV_ATOMIC_GLOB);
  Pair p;
  Region at_a(p.a.pd, 64);
  for (ibv_wr_opcode opcode : {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = opcode}), EINVAL);
    CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = opcode, .sges = {at_a.sge(0, 7)}}), EINVAL);
    CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = opcode, .sges = {at_a.sge(0, 4), at_a.sge(4, 4)}}), EINVAL);
    CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = opcode, .flags = IBV_SEND_INLINE, .sges = {at_a.sge(0, 8)}}),
             EINVAL);
  }
  exercise(p);
  p.close();
}

CASE(post_flags, "post/unknown-flags", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64);
  for (unsigned flags : {1u << 20, 1u << 31, 0x100u})
    CHECK_EQ(p.a.try_send({.wr_id = 1, .flags = flags, .sges = {at_a.sge()}}), EINVAL);
  exercise(p);
  p.close();
}

CASE(post_inline_read, "post/inline-read", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64);
  CHECK_EQ(p.a.try_send({.wr_id = 1, .opcode = IBV_WR_RDMA_READ, .flags = IBV_SEND_INLINE, .sges = {at_a.sge(0, 8)}}),
           EINVAL);
  exercise(p);
  p.close();
}

// More than the largest message in one work request.
CASE(post_too_long, "post/message-too-long") {
  ibv_port_attr port;
  CHECK_EQ(ibv_query_port(context_of(site_a().device), 1, &port), 0);
  Pair p;
  Region at_a(p.a.pd, 64);
  const ibv_sge huge = {at_a.addr(), 0xffffffffu, at_a.lkey()};
  if (port.max_msg_sz == 0xffffffffu) CHECK_EQ(p.a.try_send({.wr_id = 1, .sges = {huge, huge}}), EINVAL);
  else CHECK_EQ(p.a.try_send({.wr_id = 1, .sges = {huge}}), EINVAL);
  exercise(p);
  p.close();
}

// In the middle of a chain: what is in front is posted, bad_wr names the one that was refused.
CASE(post_chain, "post/bad-one-in-a-chain", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  ibv_sge sge = at_a.sge();
  std::vector<ibv_sge> many(capabilities(p.a.qp).max_send_sge + 1, at_a.sge(0, 1));
  for (uint64_t i = 0; i < 3; ++i) p.b.recv(i, {at_b.sge()});
  std::vector<ibv_send_wr> wrs(3);
  for (size_t i = 0; i < 3; ++i) {
    wrs[i].wr_id = i;
    wrs[i].next = i < 2 ? &wrs[i + 1] : nullptr;
    wrs[i].opcode = IBV_WR_SEND;
    wrs[i].send_flags = IBV_SEND_SIGNALED;
    wrs[i].sg_list = &sge;
    wrs[i].num_sge = 1;
  }
  wrs[1].sg_list = many.data();
  wrs[1].num_sge = static_cast<int>(many.size());
  ibv_send_wr* bad = nullptr;
  CHECK_EQ(ibv_post_send(p.a.qp, wrs.data(), &bad), EINVAL);
  CHECK(bad == &wrs[1]);
  expect_wc(p.a.send_cq, 0);
  expect_wc(p.b.recv_cq, 0);
  expect_no_wc(p.a.send_cq, 100);
  p.a.send({.wr_id = 9, .sges = {at_a.sge()}});
  expect_wc(p.a.send_cq, 9);
  expect_wc(p.b.recv_cq, 1);
  p.close();
}

CASE(post_full, "post/queue-full", .core = true) {
  Options options;
  options.send_wr = options.recv_wr = 10;
  options.send_cqe = options.recv_cqe = 256;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  const ibv_qp_cap cap = capabilities(p.a.qp);
  CHECK(cap.max_send_wr >= 10 && cap.max_send_wr <= 128 && cap.max_recv_wr >= 10 && cap.max_recv_wr <= 128);
  // Without a receive at the peer no SEND completes, so the queue fills.
  uint32_t posted = 0;
  int error = 0;
  while (posted < 1000 && !(error = p.a.try_send({.wr_id = posted, .sges = {at_a.sge()}}))) ++posted;
  CHECK_EQ(error, ENOMEM);
  if (posted < 10 || posted > cap.max_send_wr) FAIL("%u SENDs fit, max_send_wr is %u", posted, cap.max_send_wr);
  // Receives at A, to which nobody sends.
  uint32_t receives = 0;
  while (receives < 1000 && !(error = p.a.try_recv(receives, {at_a.sge()}))) ++receives;
  CHECK_EQ(error, ENOMEM);
  if (receives < 10 || receives > cap.max_recv_wr)
    FAIL("%u receives fit, max_recv_wr is %u", receives, cap.max_recv_wr);
  // As the SENDs find their receives, slots become free on both sides.
  for (uint32_t i = 0; i < posted; ++i) {
    p.b.recv(i, {at_b.sge()});
    expect_wc(p.b.recv_cq, i);
    expect_wc(p.a.send_cq, i);
  }
  p.b.recv(500, {at_b.sge()});
  p.a.send({.wr_id = 500, .sges = {at_a.sge()}});
  expect_wc(p.a.send_cq, 500);
  p.a.send({.wr_id = 501,
            .opcode = IBV_WR_RDMA_WRITE,
            .sges = {at_a.sge()},
            .remote_addr = at_b.addr(),
            .rkey = at_b.rkey()});
  expect_wc(p.a.send_cq, 501);
  p.close();
}

// A program that posts until ENOMEM and only then polls: each work request that was taken completes once, and the CQ,
// which has as many entries as the queue, does not overrun.
CASE(post_until_full, "post/until-full-then-poll", .core = true) {
  Options options;
  options.send_wr = options.recv_wr = 16;
  Pair p(options);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  const uint32_t depth = capabilities(p.a.qp).max_send_wr;
  uint64_t next = 0, done = 0;
  for (int round = 0; round < 20; ++round) {
    int error = 0;
    while (next < 2000 && !(error = p.a.try_send({.wr_id = next, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
                                                  .remote_addr = at_b.addr(), .rkey = at_b.rkey()})))
      ++next;
    CHECK_EQ(error, ENOMEM);
    CHECK_EQ(next - done, uint64_t{depth});
    usleep(5000);  // all have completed, and count until they are polled
    CHECK_EQ(p.a.try_send({.wr_id = next, .sges = {at_a.sge()}}), ENOMEM);
    for (; done != next; ++done) expect_wc(p.a.send_cq, done);
  }
  p.close();
}

// A program that goes on posting to a QP in ERROR and never polls harms neither its CQ nor the other QP there.
CASE(post_error_unpolled, "post/in-error-without-polling", .core = true) {
  constexpr int kDepth = 16;
  ibv_cq* const cq = ibv_create_cq(pd_a()->context, 4 * kDepth, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  Options of_a;
  of_a.send_wr = of_a.recv_wr = kDepth;
  of_a.cq = cq;
  {
    Pair dead(of_a, {}), other(of_a, {});
    drain_async(pd_a()->context);
    Region at_a(dead.a.pd, 64), at_b(other.b.pd, 64);
    CHECK_CALL(rdma_disconnect(dead.b.id));
    dead.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
    wait_until("the QP in state ERROR", [&] { return dead.a.state() == IBV_QPS_ERR; });
    int sends = 0, receives = 0;
    for (int i = 0; i < 500; ++i) {
      if (dead.a.try_send({.wr_id = 1, .sges = {at_a.sge()}}) == 0) ++sends;
      if (dead.a.try_recv(2, {at_a.sge()}) == 0) ++receives;
    }
    CHECK_EQ(sends, kDepth);
    CHECK_EQ(receives, kDepth);
    for (int i = 0; i < 2 * kDepth; ++i) CHECK_EQ(wait_wc(cq).status, IBV_WC_WR_FLUSH_ERR);
    other.a.send({.wr_id = 77, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge()},
                  .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
    expect_wc(cq, 77);
    // A program that polls what it posts may go on for ever.
    for (int i = 0; i < 1000; ++i) {
      CHECK_EQ(dead.a.try_recv(3, {at_a.sge()}), 0);
      expect_wc(cq, 3, IBV_WC_WR_FLUSH_ERR);
    }
    // A CQE of the QP is still in the CQ after the QP has been destroyed.
    CHECK_EQ(dead.a.try_send({.wr_id = 4, .sges = {at_a.sge()}}), 0);
    usleep(5000);
    dead.a.destroy_qp();
    expect_wc(cq, 4, IBV_WC_WR_FLUSH_ERR);
    other.close();
  }
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

// The same by the extended CQ: what ibv_next_poll() has shown may be posted again before ibv_end_poll().
CASE(post_while_polling, "post/again-while-polling", .core = true) {
  constexpr uint32_t kDepth = 16;
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = kDepth;
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* const cq = ibv_create_cq_ex(pd_b()->context, &attr);
  CHECK(cq != nullptr);
  Options of_b;
  of_b.send_wr = of_b.recv_wr = kDepth;
  of_b.cq = ibv_cq_ex_to_cq(cq);
  {
    Pair p({}, of_b);
    Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
    uint64_t next = 0, done = 0;
    while (p.b.try_recv(next, {at_b.sge()}) == 0) ++next;
    CHECK_EQ(next, uint64_t{kDepth});
    for (uint32_t round = 0; round < 10; ++round) {
      for (uint32_t i = 0; i < kDepth; ++i) p.a.send({.wr_id = i, .sges = {at_a.sge()}});
      for (uint32_t i = 0; i < kDepth; ++i) expect_wc(p.a.send_cq, i);
      ibv_poll_cq_attr none = {};
      wait_until("a completion", [&] { return ibv_start_poll(cq, &none) == 0; });
      do {
        CHECK_EQ(cq->wr_id, done++);
        CHECK_EQ(p.b.try_recv(next++, {at_b.sge()}), 0);
        CHECK_EQ(p.b.try_recv(next, {at_b.sge()}), ENOMEM);
      } while (ibv_next_poll(cq) == 0);
      ibv_end_poll(cq);
    }
    p.close();
  }
  CHECK_EQ(ibv_destroy_cq(of_b.cq), 0);
}

// Posting to a QP that is not connected, and to one in ERROR.
CASE(post_states, "post/qp-states", .core = true) {
  ibv_cq* cq = ibv_create_cq(pd_a()->context, 64, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  Region region(pd_a(), 64);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* const qp = ibv_create_qp(pd_a(), &init);
  CHECK(qp != nullptr);
  struct Bare : Endpoint {
    ~Bare() { qp = nullptr; }  // it has no rdma_cm id
  } e;
  e.qp = qp;
  CHECK_EQ(e.try_send({.wr_id = 1, .sges = {region.sge()}}), EINVAL);
  // A RoCE device permits no SEND in INIT and RTR, and no move from RESET to ERR.
  if (roce()) {
    for (int state : {IBV_QPS_INIT, IBV_QPS_RTR}) {
      CHECK_EQ(required_for(qp, state).apply(qp), 0);
      CHECK_EQ(e.try_send({.wr_id = 1, .sges = {region.sge()}}), EINVAL);
    }
  }
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  // ibv_modify_qp(3): in ERROR work requests are flushed, those that come later as well.
  for (uint64_t i = 0; i < 3; ++i) {
    CHECK_EQ(e.try_send({.wr_id = 10 + i, .sges = {region.sge()}}), 0);
    expect_wc(cq, 10 + i, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(e.try_recv(20 + i, {region.sge()}), 0);
    expect_wc(cq, 20 + i, IBV_WC_WR_FLUSH_ERR);
  }
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

CASE(post_after_error, "post/after-disconnect", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 64);
  CHECK_CALL(rdma_disconnect(p.a.id));
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  wait_until("QP B in state ERROR", [&] { return p.b.state() == IBV_QPS_ERR; });
  for (Endpoint* e : {&p.a, &p.b}) {
    CHECK_EQ(e->try_send({.wr_id = 1, .sges = {at_a.sge()}}), 0);
    expect_wc(e->send_cq, 1, IBV_WC_WR_FLUSH_ERR);
    CHECK_EQ(e->try_recv(2, {at_a.sge()}), 0);
    expect_wc(e->recv_cq, 2, IBV_WC_WR_FLUSH_ERR);
    // Also what is not signalled completes when it fails.
    CHECK_EQ(e->try_send({.wr_id = 3, .flags = 0, .sges = {at_a.sge()}}), 0);
    expect_wc(e->send_cq, 3, IBV_WC_WR_FLUSH_ERR);
  }
}
