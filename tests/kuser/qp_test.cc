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
    qp->uobject = mock_ucq_object(&qp->mock_uobject);
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
  ib_qp* proxy = get_qp(process->device, process->ibqp->qp_num);
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
  ib_qp* proxy = get_qp(process->device, process->ibqp->qp_num);
  process->destroy_qp();
  ops->iw_add_ref(proxy);  // no grace period has passed
  mock_grace_period();
  ops->iw_rem_ref(proxy);
}

TEST_F(Qp, get_qp__unknown_number) {
  for (const int qpn : {0, 1, -1, 0xffffff, 99})
    EXPECT_EQ(get_qp(process->device, qpn), nullptr);
}

TEST_F(Qp, modify__table_of_states) {
  const std::vector<std::pair<usiw_qp_state, std::string>> allowed = {
      {USIW_QPS_RESET, "0126"}, {USIW_QPS_INIT, "0126"}, {USIW_QPS_RTR, "06"}, {USIW_QPS_RTS, "012346"},
      {USIW_QPS_SQD, "0346"},   {USIW_QPS_SQE, ""},      {USIW_QPS_ERR, "046"}, {USIW_QPS_CLOSING, "046"}};
  for (const auto& [from, to] : allowed) {
    for (int next = 0; next <= IB_QPS_ERR; next++) {
      process->qp()->state = from;
      const bool ok = to.find('0' + next) != std::string::npos;
      EXPECT_EQ(process->modify(static_cast<ib_qp_state>(next)), ok ? 0 : -EINVAL) << from << " to " << next;
      if (!ok) {
        EXPECT_EQ(process->qp()->state, from) << "to " << next;
      }
    }
  }
  EXPECT_EQ(process->modify(static_cast<ib_qp_state>(7)), -EINVAL);
  EXPECT_EQ(process->modify(static_cast<ib_qp_state>(0x7fffffff)), -EINVAL);
}

TEST_F(Qp, modify__where_it_leads) {
  const struct {
    usiw_qp_state from;
    ib_qp_state to;
    u32 then;
  } cases[] = {{USIW_QPS_RTS, IB_QPS_SQD, USIW_QPS_SQD},     {USIW_QPS_SQD, IB_QPS_RTS, USIW_QPS_RTS},
               {USIW_QPS_SQD, IB_QPS_SQD, USIW_QPS_SQD},     {USIW_QPS_CLOSING, IB_QPS_SQD, USIW_QPS_CLOSING},
               {USIW_QPS_ERR, IB_QPS_SQD, USIW_QPS_ERR},     {USIW_QPS_CLOSING, IB_QPS_ERR, USIW_QPS_ERR},
               {USIW_QPS_SQD, IB_QPS_RESET, USIW_QPS_RESET}, {USIW_QPS_INIT, IB_QPS_RTR, USIW_QPS_RTR}};
  for (const auto& c : cases) {
    process->qp()->state = c.from;
    EXPECT_EQ(process->modify(c.to), 0);
    EXPECT_EQ(process->qp()->state, c.then) << c.from << " to " << c.to;
  }
}

// iw_cm's SQD ends the connection in every state that the user may have given the QP, but not without a connection.
TEST_F(Qp, modify__by_iw_cm) {
  const auto* ops = process->device->ops;
  ib_qp* proxy = get_qp(process->device, process->ibqp->qp_num);
  ASSERT_NE(proxy, nullptr);
  ib_qp_attr attr{};
  for (const usiw_qp_state state : {USIW_QPS_RESET, USIW_QPS_INIT, USIW_QPS_RTR, USIW_QPS_RTS, USIW_QPS_SQD,
                                    USIW_QPS_CLOSING, USIW_QPS_ERR}) {
    process->qp()->state = state;
    attr.qp_state = IB_QPS_SQD;
    EXPECT_EQ(ops->modify_qp(proxy, &attr, IB_QP_STATE, nullptr), state < USIW_QPS_RTS ? -EINVAL : 0) << state;
    EXPECT_EQ(process->qp()->state, state);
    attr.qp_state = IB_QPS_RTS;
    EXPECT_EQ(ops->modify_qp(proxy, &attr, IB_QP_STATE, nullptr), -EINVAL) << state;
    attr.qp_state = IB_QPS_ERR;
    EXPECT_EQ(ops->modify_qp(proxy, &attr, IB_QP_STATE, nullptr), 0) << state;
    EXPECT_EQ(process->qp()->state, USIW_QPS_ERR);
  }
}

// The connection may be faster than a program that moves its QP through the states by itself.
TEST_F(Qp, modify__what_a_connection_has_set_stays) {
  for (const ib_qp_state next : {IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS}) {
    process->qp()->state = IB_QPS_RTS;
    EXPECT_EQ(process->modify(next), 0);
    EXPECT_EQ(process->qp()->state, IB_QPS_RTS) << next;
  }
}

// Other drivers of RNICs show this state, and rdma-core's tests expect it. A caller may use either name of the state.
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

TEST_F(Qp, modify__refused_attributes) {
  const struct {
    u32 mask;
    int error;
    std::function<void(ib_qp_attr&)> set;
  } cases[] = {{USIW_QP_MAX_QP_RD_ATOMIC, -EINVAL, [](auto& a) { a.max_rd_atomic = USIW_MAX_ORD + 1; }},
               {USIW_QP_MAX_DEST_RD_ATOMIC, -EINVAL, [](auto& a) { a.max_dest_rd_atomic = USIW_MAX_IRD + 1; }},
               {USIW_QP_CUR_STATE, -EINVAL, [](auto& a) { a.cur_qp_state = IB_QPS_RTS; }},
               {USIW_QP_PORT, -EINVAL, [](auto& a) { a.port_num = 2; }},
               {USIW_QP_PKEY_INDEX, -EINVAL, [](auto& a) { a.pkey_index = 1; }},
               {USIW_QP_TIMEOUT, -EINVAL, [](auto& a) { a.timeout = 32; }},
               {USIW_QP_RETRY_CNT, -EINVAL, [](auto& a) { a.retry_cnt = 8; }},
               {USIW_QP_RNR_RETRY, -EINVAL, [](auto& a) { a.rnr_retry = 8; }},
               {USIW_QP_MIN_RNR_TIMER, -EINVAL, [](auto& a) { a.min_rnr_timer = 32; }},
               {USIW_QP_ACCESS_FLAGS, -EINVAL, [](auto& a) { a.qp_access_flags = 0x8000; }},
               {USIW_QP_PATH_MTU, -EINVAL, [](auto& a) { a.path_mtu = 0; }},
               {USIW_QP_PATH_MTU, -EINVAL, [](auto& a) { a.path_mtu = 6; }},
               {USIW_QP_CAP, -EOPNOTSUPP, [](auto&) {}},
               {USIW_QP_QKEY, -EOPNOTSUPP, [](auto&) {}},
               {USIW_QP_ALT_PATH, -EOPNOTSUPP, [](auto&) {}},
               {USIW_QP_PATH_MIG_STATE, -EOPNOTSUPP, [](auto&) {}},
               {1u << 25, -EOPNOTSUPP, [](auto&) {}}};
  const u32 before = process->qp()->state;
  for (const auto& c : cases) {
    ib_qp_attr attr{};
    attr.qp_state = IB_QPS_ERR;
    c.set(attr);
    EXPECT_EQ(modify(attr, static_cast<int>(c.mask | USIW_QP_STATE)), c.error) << c.mask;
    EXPECT_EQ(process->qp()->state, before) << c.mask;
  }
}

TEST_F(Qp, query__says_what_was_set) {
  ib_qp_attr attr{}, said{};
  ib_qp_init_attr init{};
  attr.qp_access_flags = USIW_ACCESS_REMOTE_READ;
  attr.timeout = 31;
  attr.retry_cnt = attr.rnr_retry = 7;
  attr.min_rnr_timer = 30;
  attr.dest_qp_num = 99;
  attr.rq_psn = 7;
  attr.sq_psn = 8;
  attr.max_dest_rd_atomic = 3;
  attr.max_rd_atomic = 4;
  attr.path_mtu = 1;
  const u32 all = USIW_QP_ACCESS_FLAGS | USIW_QP_TIMEOUT | USIW_QP_RETRY_CNT | USIW_QP_RNR_RETRY |
                  USIW_QP_MIN_RNR_TIMER | USIW_QP_DEST_QPN | USIW_QP_RQ_PSN | USIW_QP_SQ_PSN |
                  USIW_QP_MAX_DEST_RD_ATOMIC | USIW_QP_MAX_QP_RD_ATOMIC | USIW_QP_PATH_MTU;
  ASSERT_EQ(modify(attr, static_cast<int>(all)), 0);
  // The depths are those of the connection as soon as there is one.
  process->qp()->state = USIW_QPS_RTS;
  attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
  ASSERT_EQ(modify(attr, USIW_QP_MAX_DEST_RD_ATOMIC | USIW_QP_MAX_QP_RD_ATOMIC), 0);
  process->qp()->state = USIW_QPS_RESET;
  EXPECT_EQ(process->device->ops->query_qp(process->ibqp, &said, 0, &init), 0);
  EXPECT_EQ(said.qp_state, IB_QPS_INIT);
  EXPECT_EQ(said.qp_access_flags, static_cast<int>(USIW_ACCESS_REMOTE_READ));
  EXPECT_EQ(said.timeout, 31);
  EXPECT_EQ(said.retry_cnt, 7);
  EXPECT_EQ(said.rnr_retry, 7);
  EXPECT_EQ(said.min_rnr_timer, 30);
  EXPECT_EQ(said.dest_qp_num, 99u);
  EXPECT_EQ(said.rq_psn, 7u);
  EXPECT_EQ(said.sq_psn, 8u);
  EXPECT_EQ(said.max_rd_atomic, 4);
  EXPECT_EQ(said.max_dest_rd_atomic, 3);
  EXPECT_EQ(said.path_mtu, 3);  // for 1500 bytes, whatever was requested
  EXPECT_EQ(said.port_num, 1u);
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
