// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of the SRQs of kmod/usiw_verbs.c and of the method on its objects.
#include "fixture.h"

namespace kuser {
namespace {

class Srq : public Kuser {
 protected:
  void SetUp() override {
    Kuser::SetUp();
    process = std::make_unique<Process>("eth0");
    ASSERT_EQ(process->open_all(), 0);
  }
  void TearDown() override {
    for (ib_srq* srq : srqs) destroy(srq);
    process.reset();
    Kuser::TearDown();
  }
  const ib_device_ops* ops() const { return process->device->ops; }
  int create(const ib_srq_init_attr& wanted, const void* request = nullptr, size_t inlen = 0, bool user = true) {
    ib_udata udata{request, nullptr, inlen, 0, process->ibuc};
    ib_srq_init_attr attr = wanted;
    auto* srq = static_cast<ib_srq*>(calloc(1, ops()->size_ib_srq));
    srq->device = process->device;
    srq->uobject = mock_ucq_object(&srq->mock_uobject);
    srq->srq_context = process.get();
    srq->event_handler = [](ib_event* event, void* p) {
      auto& object = event->element.srq->uobject->uevent;
      static_cast<Process*>(p)->async_events.push_back(event->event);
      static_cast<Process*>(p)->on_event(object.event_list, object.events_reported, event->event);
    };
    const int ret = ops()->create_srq(srq, &attr, user ? &udata : nullptr);
    if (ret)
      free(srq);
    else
      srqs.push_back(srq);
    return ret;
  }
  void destroy(ib_srq* srq) {
    ops()->destroy_srq(srq, nullptr);
    free(srq);
  }
  ib_srq* make() { return create({{16, 4, 0}, IB_SRQT_BASIC}) == 0 ? srqs.back() : nullptr; }
  int modify(ib_srq* srq, int mask, u32 max_wr, u32 limit) {
    ib_srq_attr attr{max_wr, 0, limit};
    ib_udata udata{};
    return ops()->modify_srq(srq, &attr, static_cast<ib_srq_attr_mask>(mask), &udata);
  }
  ib_srq_attr query(ib_srq* srq) {
    ib_srq_attr attr{};
    EXPECT_EQ(ops()->query_srq(srq, &attr), 0);
    return attr;
  }
  int event(ib_srq* srq, u32 kind) {
    uverbs_attr_bundle attrs{};
    attrs.mock_object = srq;
    attrs.mock_data = &kind;
    attrs.mock_len = sizeof(kind);
    return mock_uverbs_call(process->device, UVERBS_OBJECT_SRQ, &attrs);
  }
  std::unique_ptr<Process> process;
  std::vector<ib_srq*> srqs;
};

TEST_F(Srq, create__limits) {
  EXPECT_EQ(create({{USIW_MAX_SRQ_WR, USIW_MAX_SGE, 0}, IB_SRQT_BASIC}), 0);
  EXPECT_EQ(create({{1, 0, 0}, IB_SRQT_BASIC}), 0);
  EXPECT_EQ(create({{0, 1, 0}, IB_SRQT_BASIC}), -EINVAL);
  EXPECT_EQ(create({{USIW_MAX_SRQ_WR + 1, 1, 0}, IB_SRQT_BASIC}), -EINVAL);
  EXPECT_EQ(create({{~0u, 1, 0}, IB_SRQT_BASIC}), -EINVAL);
  EXPECT_EQ(create({{1, USIW_MAX_SGE + 1, 0}, IB_SRQT_BASIC}), -EINVAL);
  EXPECT_EQ(create({{1, 1, 0}, IB_SRQT_XRC}), -EOPNOTSUPP);
  EXPECT_EQ(create({{1, 1, 0}, IB_SRQT_TM}), -EOPNOTSUPP);
  EXPECT_EQ(create({{1, 1, 0}, IB_SRQT_BASIC}, nullptr, 0, false), -EOPNOTSUPP) << "a kernel user";
  EXPECT_EQ(create({{1, 1, 77}, IB_SRQT_BASIC}), 0) << "verbs: the limit is irrelevant";
  EXPECT_EQ(query(srqs.back()).srq_limit, 0u);
}

TEST_F(Srq, create__driver_data) {
  struct {
    usiw_create_srq_req req;
    u8 more[8];
  } r{};
  const ib_srq_init_attr attr{{1, 1, 0}, IB_SRQT_BASIC};
  for (size_t in = 0; in <= sizeof(r); in++) EXPECT_EQ(create(attr, &r, in), 0) << in;
  r.more[7] = 1;
  EXPECT_EQ(create(attr, &r, sizeof(r)), -EOPNOTSUPP);
  r.more[7] = 0;
  r.req.reserved = 1;
  EXPECT_EQ(create(attr, &r, sizeof(r)), -EINVAL);
  r.req.comp_mask = 1;
  EXPECT_EQ(create(attr, &r, sizeof(r)), -EOPNOTSUPP);
  mock_errors[MOCK_COPY] = 1;
  r.req = {};
  EXPECT_EQ(create(attr, &r, sizeof(r.req)), -EFAULT);
}

TEST_F(Srq, create__so_many_on_a_device) {
  usiw_device* dev = to_usiw_dev(process->device);
  atomic_set(&dev->nr_srqs, USIW_MAX_SRQ - 1);
  EXPECT_NE(make(), nullptr);
  EXPECT_EQ(create({{1, 1, 0}, IB_SRQT_BASIC}), -ENOMEM);
  destroy(srqs.back());
  srqs.pop_back();
  EXPECT_EQ(atomic_read(&dev->nr_srqs), USIW_MAX_SRQ - 1);
  atomic_set(&dev->nr_srqs, 0);
}

TEST_F(Srq, modify_and_query) {
  ib_srq* srq = make();
  ASSERT_TRUE(srq);
  EXPECT_EQ(modify(srq, IB_SRQ_LIMIT, 0, 16), 0);
  EXPECT_EQ(modify(srq, IB_SRQ_LIMIT, 0, 17), -EINVAL);
  EXPECT_EQ(modify(srq, 4, 0, 0), -EINVAL);
  EXPECT_EQ(modify(srq, ~0, 0, 0), -EINVAL);
  EXPECT_EQ(modify(srq, 0, 9, 9), 0);
  const ib_srq_attr attr = query(srq);
  EXPECT_EQ(attr.max_wr, 16u);
  EXPECT_EQ(attr.max_sge, 4u);
  EXPECT_EQ(attr.srq_limit, 16u);
}

TEST_F(Srq, modify__size) {
  ib_srq* srq = make();
  ASSERT_TRUE(srq);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR, 0, 0), -EINVAL);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR, USIW_MAX_SRQ_WR + 1, 0), -EINVAL);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR | IB_SRQ_LIMIT, 32, 33), -EINVAL);
  EXPECT_EQ(query(srq).max_wr, 16u);
  EXPECT_EQ(query(srq).srq_limit, 0u);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR | IB_SRQ_LIMIT, 32, 32), 0);
  EXPECT_EQ(query(srq).max_wr, 32u);
  EXPECT_EQ(query(srq).srq_limit, 32u);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR, 8, 99), 0) << "a limit that is not asked for";
  EXPECT_EQ(query(srq).max_wr, 8u);
  EXPECT_EQ(query(srq).srq_limit, 8u) << "never beyond the size";
  EXPECT_EQ(modify(srq, IB_SRQ_LIMIT, 0, 9), -EINVAL);
  EXPECT_EQ(modify(srq, IB_SRQ_MAX_WR, USIW_MAX_SRQ_WR, 0), 0);
}

TEST_F(Srq, event__limit) {
  ib_srq* srq = make();
  ASSERT_TRUE(srq);
  ASSERT_EQ(modify(srq, IB_SRQ_LIMIT, 0, 5), 0);
  for (const u32 kind : {1u, 0x80000000u, ~0u}) EXPECT_EQ(event(srq, kind), -EINVAL);
  mock_errors[MOCK_COPY] = 1;
  EXPECT_EQ(event(srq, USIW_SRQ_LIMIT), -EFAULT);
  EXPECT_TRUE(process->async_events.empty());
  EXPECT_EQ(query(srq).srq_limit, 5u);
  EXPECT_EQ(event(srq, USIW_SRQ_LIMIT), 0);
  EXPECT_EQ(process->async_events, std::vector<ib_event_type>{IB_EVENT_SRQ_LIMIT_REACHED});
  EXPECT_EQ(query(srq).srq_limit, 0u);
  srq->event_handler = nullptr;
  EXPECT_EQ(event(srq, USIW_SRQ_LIMIT), 0);
}

// A program that never reads gets a few events; a program that reads gets one for each limit.
TEST_F(Srq, event__unread_ones_are_bounded) {
  ib_srq* srq = make();
  ASSERT_TRUE(srq);
  process->reads_events = false;
  for (int i = 0; i < 1000; i++) EXPECT_EQ(event(srq, USIW_SRQ_LIMIT), 0);
  EXPECT_EQ(process->async_events.size(), size_t{USIW_UNREAD_MOST});
  EXPECT_EQ(query(srq).srq_limit, 0u);
  auto& object = srq->uobject->uevent;
  EXPECT_EQ(process->read_event(object.event_list, object.events_reported), IB_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event(srq, USIW_SRQ_LIMIT), 0);
  EXPECT_EQ(process->async_events.size(), USIW_UNREAD_MOST + size_t{1});
}

TEST_F(Srq, device__limits_are_told) {
  ib_device_attr attr;
  ib_udata none{};
  ASSERT_EQ(ops()->query_device(process->device, &attr, &none), 0);
  EXPECT_EQ(attr.max_srq, USIW_MAX_SRQ);
  EXPECT_EQ(attr.max_srq_wr, USIW_MAX_SRQ_WR);
  EXPECT_EQ(attr.max_srq_sge, USIW_MAX_SGE);
}

TEST_F(Srq, qp__has_no_receive_queue_of_its_own) {
  ib_srq* srq = make();
  usiw_create_qp_resp resp{};
  ib_udata udata{nullptr, &resp, 0, sizeof(resp), process->ibuc};
  ib_qp_init_attr attr{};
  attr.qp_type = IB_QPT_RC;
  attr.send_cq = attr.recv_cq = process->ibcq;
  attr.srq = srq;
  attr.cap = {1, ~0u, 1, ~0u, 0};  // verbs ignore the requested receive queue
  auto* qp = static_cast<ib_qp*>(calloc(1, ops()->size_ib_qp));
  qp->device = process->device;
  qp->uobject = mock_ucq_object(&qp->mock_uobject);
  qp->srq = srq;
  ASSERT_EQ(ops()->create_qp(qp, &attr, &udata), 0);
  ib_qp_attr told;
  ib_qp_init_attr init;
  EXPECT_EQ(ops()->query_qp(qp, &told, 0, &init), 0);
  EXPECT_EQ(init.srq, srq);
  EXPECT_EQ(init.cap.max_recv_wr, 0u);
  EXPECT_EQ(init.cap.max_recv_sge, 0u);
  ops()->destroy_qp(qp, nullptr);
  attr.cap.max_send_wr = USIW_MAX_QP_WR + 1;
  EXPECT_EQ(ops()->create_qp(qp, &attr, &udata), -EINVAL);
  free(qp);
}

TEST_F(Srq, qp_report__last_wqe) {
  EXPECT_EQ(process->report(USIW_REPORT_ASYNC, 0, 0, IB_EVENT_QP_LAST_WQE_REACHED), 0);
  EXPECT_EQ(process->async_events, std::vector<ib_event_type>{IB_EVENT_QP_LAST_WQE_REACHED});
  constexpr u32 kLimit = IB_EVENT_SRQ_LIMIT_REACHED;
  for (const u32 other : {kLimit - 1, kLimit, kLimit + 2})
    EXPECT_EQ(process->report(USIW_REPORT_ASYNC, 0, 0, other), -EINVAL) << other;
}

TEST_F(Srq, kernel_users__are_told_so) {
  const ib_recv_wr* bad = nullptr;
  EXPECT_EQ(ops()->post_srq_recv(nullptr, nullptr, &bad), -EOPNOTSUPP);
}

}  // namespace
}  // namespace kuser
