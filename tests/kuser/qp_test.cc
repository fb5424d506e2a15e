// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_qp.c, in its order.
#include "fixture.h"

namespace kuser {
namespace {

class Qp : public Kuser {
 protected:
  void SetUp() override {
    Kuser::SetUp();
    process = std::make_unique<Process>("eth0");
    ASSERT_EQ(process->open_all(), 0);
  }
  void TearDown() override {
    process.reset();
    Kuser::TearDown();
  }
  /// Creates a second QP with these attributes, and destroys it if there is one.
  int create(const ib_qp_init_attr& wanted, size_t outlen = sizeof(usiw_create_qp_resp)) {
    usiw_create_qp_resp resp{};
    ib_udata udata{nullptr, &resp, 0, outlen, process->ibuc};
    ib_qp_init_attr attr = wanted;
    auto* qp = static_cast<ib_qp*>(calloc(1, process->device->ops->size_ib_qp));
    qp->device = process->device;
    const int ret = process->device->ops->create_qp(qp, &attr, &udata);
    if (!ret) process->device->ops->destroy_qp(qp, nullptr);
    free(qp);
    return ret;
  }
  ib_qp_init_attr good() {
    ib_qp_init_attr attr{};
    attr.qp_type = IB_QPT_RC;
    attr.send_cq = attr.recv_cq = process->ibcq;
    attr.cap = {USIW_MAX_QP_WR, USIW_MAX_QP_WR, USIW_MAX_SGE, USIW_MAX_SGE, USIW_MAX_INLINE};
    return attr;
  }
  int modify(ib_qp_attr attr, int mask) {
    ib_udata udata{};
    return process->device->ops->modify_qp(process->ibqp, &attr, mask, &udata);
  }
  std::unique_ptr<Process> process;
};

TEST_F(Qp, check_attr__limits) {
  EXPECT_EQ(create(good()), 0);
  const std::vector<std::pair<int, std::function<void(ib_qp_init_attr&)>>> cases = {
      {-EOPNOTSUPP, [](auto& a) { a.create_flags = 1; }},
      {-EOPNOTSUPP, [](auto& a) { a.qp_type = IB_QPT_UD; }},
      {-EINVAL, [](auto& a) { a.send_cq = nullptr; }},
      {-EINVAL, [](auto& a) { a.recv_cq = nullptr; }},
      {-EINVAL, [](auto& a) { a.cap.max_send_wr++; }},
      {-EINVAL, [](auto& a) { a.cap.max_recv_wr++; }},
      {-EINVAL, [](auto& a) { a.cap.max_send_sge++; }},
      {-EINVAL, [](auto& a) { a.cap.max_recv_sge++; }},
      {-EINVAL, [](auto& a) { a.cap.max_inline_data++; }},
      {-EINVAL, [](auto& a) { a.cap.max_send_wr = ~0u; }},
  };
  for (size_t i = 0; i < cases.size(); i++) {
    ib_qp_init_attr attr = good();
    cases[i].second(attr);
    EXPECT_EQ(create(attr), cases[i].first) << "case " << i;
  }
}

TEST_F(Qp, create__kernel_user) {
  ib_qp_init_attr attr = good();
  EXPECT_EQ(process->device->ops->create_qp(process->ibqp, &attr, nullptr), -EOPNOTSUPP);
}

TEST_F(Qp, create__limit_of_the_device) {
  usiw_device* dev = to_usiw_dev(process->device);
  atomic_set(&dev->nr_qps, USIW_MAX_QP);
  EXPECT_EQ(create(good()), -ENOMEM);
  EXPECT_EQ(atomic_read(&dev->nr_qps), USIW_MAX_QP);
  atomic_set(&dev->nr_qps, 1);
}

TEST_F(Qp, create__each_failure) {
  usiw_device* dev = to_usiw_dev(process->device);
  for (int n = 0;; n++) {
    mock_inject(u64{1} << n);
    const int ret = create(good());
    const bool more = mock_fallible > static_cast<unsigned>(n);
    mock_inject(0);
    EXPECT_EQ(atomic_read(&dev->nr_qps), 1);
    EXPECT_EQ(process->mm.grabbed, 1);
    EXPECT_EQ(process->task.pid_refs, 1);
    if (!more) break;
    EXPECT_LT(ret, 0) << "call " << n;
  }
}

TEST_F(Qp, destroy__proxy_outlives_it) {
  const auto* ops = process->device->ops;
  ib_qp* proxy = ops->iw_get_qp(process->device, process->ibqp->qp_num);
  ASSERT_NE(proxy, nullptr);
  ops->iw_add_ref(proxy);
  process->destroy_qp();
  mock_grace_period();
  ib_qp_attr attr{};
  attr.qp_state = IB_QPS_ERR;
  EXPECT_EQ(ops->modify_qp(proxy, &attr, IB_QP_STATE, nullptr), -EINVAL);
  ops->iw_rem_ref(proxy);
}

TEST_F(Qp, get_qp__between_lookup_and_reference) {
  const auto* ops = process->device->ops;
  ib_qp* proxy = ops->iw_get_qp(process->device, process->ibqp->qp_num);
  process->destroy_qp();
  ops->iw_add_ref(proxy);  // no grace period has passed
  mock_grace_period();
  ops->iw_rem_ref(proxy);
}

TEST_F(Qp, get_qp__unknown_number) {
  for (const int qpn : {0, 1, -1, 0xffffff, 99})
    EXPECT_EQ(process->device->ops->iw_get_qp(process->device, qpn), nullptr);
}

TEST_F(Qp, modify__table_of_states) {
  const std::vector<std::pair<ib_qp_state, std::string>> allowed = {
      {IB_QPS_RESET, "0126"}, {IB_QPS_INIT, "0126"}, {IB_QPS_RTR, "0126"}, {IB_QPS_RTS, "012346"},
      {IB_QPS_SQD, "046"},   {IB_QPS_SQE, ""},      {IB_QPS_ERR, "046"}};
  for (const auto& [from, to] : allowed) {
    for (int next = 0; next <= IB_QPS_ERR; next++) {
      process->qp()->state = from;
      const bool ok = to.find('0' + next) != std::string::npos;
      EXPECT_EQ(process->modify(static_cast<ib_qp_state>(next)), ok ? 0 : -EINVAL) << from << " to " << next;
    }
  }
  EXPECT_EQ(process->modify(static_cast<ib_qp_state>(7)), -EINVAL);
  EXPECT_EQ(process->modify(static_cast<ib_qp_state>(0x7fffffff)), -EINVAL);
}

// A program that leads its QP through the states by itself may find that the connection was faster.
TEST_F(Qp, modify__what_a_connection_has_set_stays) {
  for (const ib_qp_state next : {IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS}) {
    process->qp()->state = IB_QPS_RTS;
    EXPECT_EQ(process->modify(next), 0);
    EXPECT_EQ(process->qp()->state, IB_QPS_RTS) << next;
  }
}

// As other drivers of RNICs say, and rdma-core's tests expect. A caller may name the state by either name.
TEST_F(Qp, query__a_fresh_one_is_in_INIT) {
  process->qp()->state = IB_QPS_RESET;
  ib_qp_attr attr{};
  ib_qp_init_attr init{};
  ASSERT_EQ(process->device->ops->query_qp(process->ibqp, &attr, IB_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IB_QPS_INIT);
  EXPECT_EQ(attr.cur_qp_state, IB_QPS_INIT);
  for (const ib_qp_state named : {IB_QPS_RESET, IB_QPS_INIT}) {
    attr = {};
    attr.cur_qp_state = named;
    EXPECT_EQ(modify(attr, IB_QP_CUR_STATE), 0);
  }
  attr.cur_qp_state = IB_QPS_RTR;
  EXPECT_EQ(modify(attr, IB_QP_CUR_STATE), -EINVAL);
  ASSERT_EQ(process->modify(IB_QPS_RESET), 0);
  ASSERT_EQ(process->device->ops->query_qp(process->ibqp, &attr, IB_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IB_QPS_INIT);
}

TEST_F(Qp, modify__attributes) {
  ib_qp_attr attr{};
  attr.max_rd_atomic = USIW_MAX_ORD + 1;
  EXPECT_EQ(modify(attr, IB_QP_MAX_QP_RD_ATOMIC), -EINVAL);
  attr = {};
  attr.max_dest_rd_atomic = USIW_MAX_IRD + 1;
  EXPECT_EQ(modify(attr, IB_QP_MAX_DEST_RD_ATOMIC), -EINVAL);
  EXPECT_EQ(modify({}, 1 << 25), -EOPNOTSUPP);
  attr = {};
  attr.cur_qp_state = IB_QPS_RTS;
  EXPECT_EQ(modify(attr, IB_QP_CUR_STATE), -EINVAL);
}

TEST_F(Qp, query__says_what_was_set) {
  ib_qp_attr attr{};
  ib_qp_init_attr init{};
  process->qp()->ird = 3;
  process->qp()->ord = 4;
  EXPECT_EQ(process->device->ops->query_qp(process->ibqp, &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IB_QPS_INIT);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.max_dest_rd_atomic, 3);
  EXPECT_EQ(init.send_cq, process->ibcq);
}

TEST_F(Qp, get_own__foreign_process) {
  const u32 qpn = process->ibqp->qp_num;
  usiw_device* dev = to_usiw_dev(process->device);
  process->enter();
  usiw_qp* own = usiw_qp_get_own(dev, qpn);
  EXPECT_EQ(own, process->qp());
  usiw_qp_put(own);
  Process other("eth0");
  other.enter();
  EXPECT_EQ(usiw_qp_get_own(dev, qpn), nullptr);
}

TEST_F(Qp, attach__while_it_is_being_destroyed) {
  CmId active;
  process->qp()->destroying = true;
  EXPECT_EQ(active.connect(*process, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EINVAL);
  process->qp()->destroying = false;
}

TEST_F(Qp, attach__in_error) {
  CmId active;
  ASSERT_EQ(process->modify(IB_QPS_ERR), 0);
  EXPECT_EQ(active.connect(*process, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), -EINVAL);
}

}  // namespace
}  // namespace kuser
