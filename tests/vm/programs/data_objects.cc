// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Regions, queue sizes, queries and QP states as the manual pages describe them.
#include <algorithm>
#include <set>

#include "by_verbs.h"

CASE(mr_keys, "mr/1000-regions", .seconds = 60, .core = true) {
  Pair p;
  std::vector<uint8_t> memory(1 << 20);
  std::vector<ibv_mr*> regions;
  std::set<uint32_t> keys;
  for (size_t i = 0; i < 1000; ++i) {
    ibv_mr* mr = ibv_reg_mr(p.a.pd, memory.data() + i * 1000 + i % 3, 1 + i % 999, kAllAccess);
    if (!mr) FAIL("region %zu: %s", i, std::strerror(errno));
    regions.push_back(mr);
    if (!keys.insert(mr->lkey).second) FAIL("lkey 0x%x twice", mr->lkey);
    CHECK(mr->rkey != 0);
  }
  for (ibv_mr* mr : regions) CHECK_EQ(ibv_dereg_mr(mr), 0);
  exercise(p);
  p.close();
}

// Any alignment and any offset inside of the region work.
CASE(mr_offsets, "mr/offsets", .core = true) {
  Pair p;
  Region at_a(p.a.pd, 10007), at_b(p.b.pd, 10009);
  for (uint32_t i = 0; i < 12; ++i) {
    const uint32_t length = 4000 + i, from = 1 + i * 13, to = 5999 - i;
    at_b.clear();
    fill_pattern(at_a.data() + from, length, i);
    p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_a.sge(from, length)},
              .remote_addr = at_b.addr() + to, .rkey = at_b.rkey()});
    expect_wc(p.a.send_cq, i);
    wait_until("written data", [&] { return pattern_mismatch(at_b.data() + to, length, i) == length; });
    at_b.check_clear(0, to);
    at_b.check_clear(to + length, at_b.size() - to - length);
  }
  p.close();
}

// One piece of memory may be registered several times with different rights.
CASE(mr_overlap, "mr/overlapping-registrations", .core = true) {
  Pair p;
  Region at_b(p.b.pd, 4096, IBV_ACCESS_LOCAL_WRITE), at_a(p.a.pd, 4096);
  ibv_mr* readable = ibv_reg_mr(p.b.pd, at_b.data(), 2048, IBV_ACCESS_REMOTE_READ);
  ibv_mr* writable = ibv_reg_mr(p.b.pd, at_b.data(), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  CHECK(readable && writable);
  at_a.fill(1);
  p.a.send({.wr_id = 1,
            .opcode = IBV_WR_RDMA_WRITE,
            .sges = {at_a.sge()},
            .remote_addr = at_b.addr(),
            .rkey = writable->rkey});
  expect_wc(p.a.send_cq, 1);  // until then the memory is the work request's
  at_a.clear();
  p.a.send({.wr_id = 2,
            .opcode = IBV_WR_RDMA_READ,
            .sges = {at_a.sge(0, 2048)},
            .remote_addr = at_b.addr(),
            .rkey = readable->rkey});
  expect_wc(p.a.send_cq, 2);
  at_b.check(1, 0, 4096);
  CHECK_EQ(ibv_dereg_mr(readable), 0);
  CHECK_EQ(ibv_dereg_mr(writable), 0);
  p.close();
}

CASE(mr_readonly, "mr/read-only-memory", .core = true) {
  // Constant data may be registered without local write and sent.
  static const uint8_t kConstant[4096] = {1, 2, 3};
  Pair p;
  ibv_mr* mr = ibv_reg_mr(p.a.pd, const_cast<uint8_t*>(kConstant), sizeof kConstant, IBV_ACCESS_REMOTE_READ);
  if (!mr) FAIL("read-only memory was refused: %s", std::strerror(errno));
  Region sink(p.b.pd, sizeof kConstant);
  p.b.recv(1, {sink.sge()});
  p.a.send({.wr_id = 1, .sges = {{reinterpret_cast<uint64_t>(kConstant), sizeof kConstant, mr->lkey}}});
  expect_wc(p.b.recv_cq, 1);
  CHECK(std::memcmp(sink.data(), kConstant, sizeof kConstant) == 0);
  expect_wc(p.a.send_cq, 1);
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  p.close();
}

// Objects as large as the device says can be created, and hold that many entries.
// rdma-core's own tests want one.
CASE(vendor, "query/vendor-is-not-nobody", .core = true) {
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(pd_a()->context, &attr), 0);
  CHECK(attr.vendor_id != 0);
}

CASE(limits_true, "query/limits-can-be-used", .seconds = 60) {
  ibv_context* context = context_of(site_a().device);
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(context, &attr), 0);
  CHECK(attr.max_qp >= 100 && attr.max_cq >= 100 && attr.max_mr >= 1000 && attr.max_pd >= 100);
  CHECK(attr.max_qp_rd_atom >= 1 && attr.max_qp_init_rd_atom >= 1);
  CHECK(attr.max_mr_size >= 1ull << 30);
  CHECK_EQ(attr.phys_port_cnt, 1);
  ibv_cq* cq = ibv_create_cq(context, attr.max_cqe, nullptr, nullptr, 0);
  if (!cq) FAIL("a CQ of max_cqe %d: %s", attr.max_cqe, std::strerror(errno));
  CHECK(cq->cqe >= attr.max_cqe);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {static_cast<uint32_t>(attr.max_qp_wr), static_cast<uint32_t>(attr.max_qp_wr),
              static_cast<uint32_t>(attr.max_sge), static_cast<uint32_t>(attr.max_sge), 0};
  ibv_qp* qp = ibv_create_qp(pd_a(), &init);
  if (!qp) FAIL("a QP of max_qp_wr %d, max_sge %d: %s", attr.max_qp_wr, attr.max_sge, std::strerror(errno));
  CHECK(init.cap.max_send_wr >= static_cast<uint32_t>(attr.max_qp_wr));
  CHECK(init.cap.max_recv_wr >= static_cast<uint32_t>(attr.max_qp_wr));
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

// Programs that ask for no inline data and post some (rdma_xclient, rstream).
CASE(inline_unasked, "objects/inline-data-that-was-not-asked-for", .core = true) {
  Options options;
  options.inline_data = 0;
  Pair p(options);
  uint8_t source[64];
  fill_pattern(source, sizeof source, 1);
  Region sink(p.b.pd, sizeof source);
  p.b.recv(1, {sink.sge()});
  p.a.send({.wr_id = 1, .flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE,
            .sges = {{reinterpret_cast<uint64_t>(source), sizeof source, 0}}});
  expect_wc(p.a.send_cq, 1);
  expect_wc(p.b.recv_cq, 1);
  sink.check(1, 0, sizeof source);
  p.close();
}

CASE(query_qp, "query/qp-capabilities-and-state", .core = true) {
  Options options;
  options.send_wr = 33;
  options.recv_wr = 17;
  options.send_sge = 3;
  options.recv_sge = 2;
  options.inline_data = 40;
  Pair p(options);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  CHECK_EQ(ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
  CHECK_EQ(attr.qp_state, IBV_QPS_RTS);
  CHECK_EQ(p.a.qp->qp_type, IBV_QPT_RC);
  for (const ibv_qp_cap* cap : {&attr.cap, &init.cap}) {
    CHECK(cap->max_send_wr >= 33 && cap->max_recv_wr >= 17);
    CHECK(cap->max_send_sge >= 3 && cap->max_recv_sge >= 2 && cap->max_inline_data >= 40);
  }
  CHECK(init.send_cq == p.a.send_cq && init.recv_cq == p.a.recv_cq);
  CHECK_EQ(p.b.state(), IBV_QPS_RTS);
  CHECK_CALL(rdma_disconnect(p.a.id));
  p.a.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  wait_until("QP A in state ERROR", [&] { return p.a.state() == IBV_QPS_ERR; });
  wait_until("QP B in state ERROR", [&] { return p.b.state() == IBV_QPS_ERR; });
}

CASE(query_fresh, "query/fresh-qp", .core = true) {
  ibv_cq* cq = ibv_create_cq(pd_a()->context, 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(pd_a(), &init);
  CHECK(qp != nullptr);
  ibv_qp_attr attr = {};
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  if (roce()) {
    CHECK_EQ(attr.qp_state, IBV_QPS_RESET);
    CHECK_EQ(only_state(IBV_QPS_ERR).apply(qp), EINVAL);
    CHECK_EQ(to_init().apply(qp), 0);
  } else {
    const char* const peer = getenv("PEER");  // another driver, which may begin elsewhere
    CHECK(attr.qp_state == IBV_QPS_INIT || (peer != nullptr && *peer != '\0' && attr.qp_state == IBV_QPS_RESET));
  }
  attr.qp_state = IBV_QPS_ERR;
  CHECK_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  CHECK_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  CHECK_EQ(attr.qp_state, IBV_QPS_ERR);
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

// GID 0 of an iWARP device is the MAC of its netdev.
CASE(query_gid, "query/gid", .core = true) {
  ibv_gid gid;
  CHECK_EQ(ibv_query_gid(context_of(site_a().device), 1, 0, &gid), 0);
  static const uint8_t kZero[16] = {};
  CHECK(std::memcmp(gid.raw, kZero, 16) != 0);
  CHECK(ibv_query_gid(context_of(site_a().device), 1, 1000, &gid) != 0);
  CHECK_EQ(context_of(site_a().device)->device->transport_type == IBV_TRANSPORT_IWARP ||
               context_of(site_a().device)->device->node_type == IBV_NODE_CA, 1);
}

// 200 of each object made and destroyed: nothing is used up.
CASE(objects_again, "objects/create-and-destroy-200", .seconds = 60) {
  ibv_context* context = context_of(site_a().device);
  for (int i = 0; i < 200; ++i) {
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    CHECK(pd && channel);
    ibv_cq* cq = ibv_create_cq(context, 100, nullptr, channel, 0);
    CHECK(cq != nullptr);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {32, 32, 2, 2, 16};
    ibv_qp* qp = ibv_create_qp(pd, &init);
    CHECK(qp != nullptr);
    CHECK_EQ(ibv_destroy_qp(qp), 0);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
    CHECK_EQ(ibv_dealloc_pd(pd), 0);
  }
}

// A second context of the same device in the same process is a device of its own.
CASE(second_context, "objects/second-context", .core = true) {
  ibv_context* second = ibv_open_device(context_of(site_a().device)->device);
  if (!second) FAIL("ibv_open_device: %s", std::strerror(errno));
  ibv_pd* pd = ibv_alloc_pd(second);
  CHECK(pd != nullptr);
  { Region region(pd, 100); }
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(second), 0);
  Pair p;
  exercise(p);
  p.close();
}
