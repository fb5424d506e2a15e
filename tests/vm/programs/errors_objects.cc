// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Creating what is too large, destroying what is in use, handles that are none, full CQs.
#include <sys/mman.h>
#include <unistd.h>

#include "rig.h"

namespace {

ibv_device_attr device_limits() {
  ibv_device_attr attr;
  CHECK_EQ(ibv_query_device(context(), &attr), 0);
  return attr;
}

/// errno of ibv_create_qp() with these capabilities; 0 if it works (and is destroyed again).
int create_qp(ibv_cq* cq, const ibv_qp_cap& cap, ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = type;
  init.cap = cap;
  errno = 0;
  ibv_qp* qp = ibv_create_qp(pd_a(), &init);
  if (!qp) return errno ? errno : -1;
  ibv_destroy_qp(qp);
  return 0;
}

}  // namespace

CASE(create_qp_large, "create/qp-too-large", .core = true) {
  const ibv_device_attr limits = device_limits();
  const auto wr = static_cast<uint32_t>(limits.max_qp_wr), sge = static_cast<uint32_t>(limits.max_sge);
  ibv_cq* cq = ibv_create_cq(context(), 64, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  for (uint32_t extra : {1u, 1u << 20, 0x7fffffffu - wr}) {
    CHECK_EQ(create_qp(cq, {wr + extra, 8, 1, 1, 0}), EINVAL);
    CHECK_EQ(create_qp(cq, {8, wr + extra, 1, 1, 0}), EINVAL);
  }
  for (uint32_t extra : {1u, 1000u, 0x7fffffffu}) {
    CHECK_EQ(create_qp(cq, {8, 8, sge + extra, 1, 0}), EINVAL);
    CHECK_EQ(create_qp(cq, {8, 8, 1, sge + extra, 0}), EINVAL);
  }
  for (uint32_t bytes : {1u << 20, 0x7fffffffu, 0xffffffffu}) CHECK_EQ(create_qp(cq, {8, 8, 1, 1, bytes}), EINVAL);
  CHECK_EQ(create_qp(cq, {8, 8, 1, 1, 0}), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

CASE(create_qp_type, "create/qp-of-another-type", .core = true) {
  ibv_cq* cq = ibv_create_cq(context(), 64, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  for (ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_RAW_PACKET, static_cast<ibv_qp_type>(99)}) {
    const int error = create_qp(cq, {8, 8, 1, 1, 0}, type);
    if (error != EOPNOTSUPP && error != EINVAL && error != EPERM) FAIL("type %d: error %d", type, error);
  }
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

CASE(create_cq_large, "create/cq-too-large", .core = true) {
  const ibv_device_attr limits = device_limits();
  for (int cqe : {limits.max_cqe + 1, 0x7fffffff, -1}) {
    errno = 0;
    CHECK(ibv_create_cq(context(), cqe, nullptr, nullptr, 0) == nullptr);
    CHECK_EQ(errno, EINVAL);
  }
  // A completion vector that does not exist.
  errno = 0;
  CHECK(ibv_create_cq(context(), 16, nullptr, nullptr, 10000) == nullptr);
  CHECK_EQ(errno, EINVAL);
}

// Rights that contradict each other (ibv_reg_mr(3): remote write needs local write), and memory
// that is not there.
CASE(create_mr, "create/bad-regions", .core = true) {
  static uint8_t memory[4096];
  errno = 0;
  CHECK(ibv_reg_mr(pd_a(), memory, sizeof memory, IBV_ACCESS_REMOTE_WRITE) == nullptr);
  CHECK_EQ(errno, EINVAL);
  errno = 0;
  CHECK(ibv_reg_mr(pd_a(), reinterpret_cast<void*>(0x1000), 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  if (errno != EFAULT && errno != EINVAL && errno != ENOMEM) FAIL("unmapped memory: error %d", errno);
  errno = 0;
  CHECK(ibv_reg_mr(pd_a(), memory, ~static_cast<size_t>(0) - 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  CHECK(errno != 0);
  // Read-only memory cannot be registered for writing.
  static const uint8_t kConstant[64] = {1};
  errno = 0;
  CHECK(ibv_reg_mr(pd_a(), const_cast<uint8_t*>(kConstant), sizeof kConstant, IBV_ACCESS_LOCAL_WRITE) == nullptr);
  if (errno != EFAULT && errno != EINVAL && errno != EACCES && errno != EPERM)
    FAIL("read-only memory: error %d", errno);
}

// A mapping may reach past the end of its file. Nothing can be read or written there, so it is no region.
CASE(create_mr_past_eof, "create/region-past-the-end-of-its-file", .core = true) {
  constexpr size_t kPage = 4096, kPages = 8;
  const int fd = memfd_create("region", MFD_CLOEXEC);
  CHECK(fd >= 0);
  CHECK_CALL(ftruncate(fd, 2 * kPage + 1));  // so the third page is there
  const auto error_of = [](void* at, size_t length, unsigned access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(pd_a(), at, length, access);
    if (!mr) return errno ? errno : -1;
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  };
  constexpr unsigned kRead = IBV_ACCESS_REMOTE_READ, kWrite = IBV_ACCESS_LOCAL_WRITE;
  for (int flags : {MAP_SHARED, MAP_PRIVATE}) {
    void* mapped = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, flags, fd, 0);
    CHECK(mapped != MAP_FAILED);
    uint8_t* const at = static_cast<uint8_t*>(mapped);
    CHECK_EQ(error_of(at, 3 * kPage, kWrite), 0);
    CHECK_EQ(error_of(at, 3 * kPage + 1, kRead), EFAULT);
    CHECK_EQ(error_of(at, kPages * kPage, kRead | kWrite), EFAULT);
    CHECK_EQ(error_of(at + 5 * kPage, 1, kRead), EFAULT);
    CHECK_EQ(error_of(at + 5 * kPage, 1, kRead | IBV_ACCESS_ON_DEMAND), 0);  // found out at each access

    ibv_mr* mr = ibv_reg_mr(pd_a(), at, kPage, kWrite);
    CHECK(mr != nullptr);
    CHECK_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at, 3 * kPage, 0), 0);
    CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at, 4 * kPage, 0) != 0);
    CHECK_EQ(errno, EFAULT);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    CHECK_CALL(munmap(mapped, kPages * kPage));
  }
  void* mapped = mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(mapped != MAP_FAILED);
  CHECK_CALL(ftruncate(fd, kPages * kPage));
  CHECK_EQ(error_of(mapped, kPages * kPage, kRead | kWrite), 0);
  CHECK_CALL(munmap(mapped, kPages * kPage));
  close(fd);
}

// Programs ask for all rights at once (libfabric, qperf), whatever they use: such a region serves all else, too.
CASE(create_mr_atomic, "create/region-with-the-right-to-atomics", .core = true) {
  static uint8_t memory[4096];
  constexpr unsigned kAll =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  Pair p;
  ibv_mr* mr = ibv_reg_mr(p.b.pd, memory, sizeof memory, kAll);
  if (!mr) FAIL("ibv_reg_mr: %s", std::strerror(errno));
  Region source(p.a.pd, 100);
  source.fill(1);
  p.a.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {source.sge()},
            .remote_addr = reinterpret_cast<uint64_t>(memory), .rkey = mr->rkey});
  expect_wc(p.a.send_cq, 1);
  wait_until("the data in place", [&] { return pattern_mismatch(memory, 100, 1) == 100; });
  p.close();
  CHECK_EQ(ibv_dereg_mr(mr), 0);
  errno = 0;
  CHECK(ibv_reg_mr(pd_b(), memory, sizeof memory, IBV_ACCESS_REMOTE_ATOMIC) == nullptr);
  CHECK_EQ(errno, EINVAL);
}

// Verbs that the device does not have say so by EOPNOTSUPP.
CASE(create_unsupported, "create/unsupported-verbs") {
  ibv_device_attr limits = device_limits();
  if (limits.max_srq == 0) {
    ibv_srq_init_attr srq = {};
    srq.attr = {16, 1, 0};
    errno = 0;
    CHECK(ibv_create_srq(pd_a(), &srq) == nullptr);
    CHECK_EQ(errno, EOPNOTSUPP);
  }
  if (limits.max_ah == 0) {
    ibv_ah_attr ah = {};
    ah.port_num = 1;
    errno = 0;
    CHECK(ibv_create_ah(pd_a(), &ah) == nullptr);
    CHECK_EQ(errno, EOPNOTSUPP);
  }
  ibv_cq* cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  const int error = ibv_resize_cq(cq, 32);
  if (error && error != EOPNOTSUPP) FAIL("ibv_resize_cq: error %d", error);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
}

CASE(destroy_busy, "destroy/busy-objects", .core = true) {
  ibv_pd* pd = ibv_alloc_pd(context_of(site_b().device));
  CHECK(pd != nullptr);
  ibv_comp_channel* channel = ibv_create_comp_channel(pd->context);
  CHECK(channel != nullptr);
  ibv_cq* cq = ibv_create_cq(pd->context, 64, nullptr, channel, 0);
  CHECK(cq != nullptr);
  {
    Options of_a, of_b;
    of_b.pd = pd;
    of_b.cq = cq;
    Pair p(of_a, of_b);
    Region region(pd, 4096);
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
    CHECK_EQ(ibv_destroy_cq(cq), EBUSY);
    CHECK_EQ(ibv_destroy_comp_channel(channel), EBUSY);
    // All of it goes on working.
    CHECK_EQ(ibv_req_notify_cq(cq, 0), 0);
    p.b.recv(1, {region.sge()});
    Region source(p.a.pd, 100);
    source.fill(1);
    p.a.send({.wr_id = 1, .sges = {source.sge()}});
    CHECK(wait_cq_event(channel, kWaitMs));
    expect_wc(cq, 1);
    region.check(1, 0, 100);
    expect_wc(p.a.send_cq, 1);
    p.close();
    CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);  // the region is left
  }
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

// A handle of no object, of another kind of object, or of an object of another context.
CASE(handles, "handles/foreign", .core = true) {
  Pair p;
  ibv_context* second = ibv_open_device(context()->device);
  CHECK(second != nullptr);
  ibv_pd* pd = ibv_alloc_pd(second);
  CHECK(pd != nullptr);
  const uint32_t own = p.a.qp->handle;
  for (uint32_t handle : {own + 1000, 0xffffffffu, 0x7fffffffu, p.a.send_cq->handle, p.a.pd->handle}) {
    if (handle == own) continue;
    p.a.qp->handle = handle;
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    const int query = ibv_query_qp(p.a.qp, &attr, IBV_QP_STATE, &init);
    attr.qp_state = IBV_QPS_ERR;
    const int modify = ibv_modify_qp(p.a.qp, &attr, IBV_QP_STATE);
    p.a.qp->handle = own;
    if (query != EINVAL && query != ENOENT) FAIL("ibv_query_qp of handle %u: error %d", handle, query);
    if (modify != EINVAL && modify != ENOENT) FAIL("ibv_modify_qp of handle %u: error %d", handle, modify);
  }
  // A PD of the second context does not take a QP with a CQ of the first one's number there.
  ibv_qp_init_attr init = {};
  ibv_cq fake = *p.a.send_cq;
  fake.handle = 0xffff;
  init.send_cq = init.recv_cq = &fake;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  CHECK(ibv_create_qp(pd, &init) == nullptr);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(second), 0);
  exercise(p);
  p.close();
}

// More completions than the CQ holds: an async event, QPs in ERROR, never silence.
CASE(cq_overrun, "cq/overrun", .core = true) {
  Pair witness;
  Options of_a;
  of_a.send_wr = 512;
  of_a.send_cqe = 4;
  Pair p(of_a, Options());
  drain_async(p.a.id->verbs);
  Region at_a(p.a.pd, 64), at_b(p.b.pd, 64);
  const int capacity = p.a.send_cq->cqe;
  CHECK(capacity >= 4 && capacity < 400);
  for (int i = 0; i < capacity + 50; ++i) {
    const int error = p.a.try_send({.wr_id = static_cast<uint64_t>(i),
                                    .opcode = IBV_WR_RDMA_WRITE,
                                    .sges = {at_a.sge()},
                                    .remote_addr = at_b.addr(),
                                    .rkey = at_b.rkey()});
    if (error && i <= capacity) FAIL("work request %d: error %d", i, error);
  }
  expect_async(p.a.id->verbs, IBV_EVENT_CQ_ERR, p.a.send_cq);
  expect_async(p.a.id->verbs, IBV_EVENT_QP_FATAL, p.a.qp);
  wait_until("QP A in state ERROR", [&] { return p.a.state() == IBV_QPS_ERR; });
  p.b.events.expect(RDMA_CM_EVENT_DISCONNECTED);
  // The CQEs that were in the CQ come first, then the error.
  for (int i = 0; i < capacity; ++i) expect_wc(p.a.send_cq, static_cast<uint64_t>(i));
  ibv_wc wc;
  CHECK_EQ(ibv_poll_cq(p.a.send_cq, 1, &wc), -1);
  exercise(witness);
  witness.close();
  drain_async(p.a.id->verbs);
}
