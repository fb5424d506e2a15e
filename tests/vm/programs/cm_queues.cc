// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// rdma_create_qp(3) with CQs of the program's, of librdmacm's, and of both.
#include <set>

#include "cm_tools.h"

namespace {

ibv_qp_init_attr attr_with(ibv_cq* send_cq, ibv_cq* recv_cq) {
  ibv_qp_init_attr attr = {};
  attr.send_cq = send_cq;
  attr.recv_cq = recv_cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {16, 16, 2, 2, 32};
  return attr;
}

/// A CQ of device A or B, destroyed with this.
class Cq {
 public:
  Cq(ibv_context* context, int entries) : cq_(ibv_create_cq(context, entries, nullptr, nullptr, 0)) {
    if (!cq_) FAIL("ibv_create_cq: %s", std::strerror(errno));
  }
  ~Cq() {
    if (ibv_destroy_cq(cq_)) tap::note("ibv_destroy_cq failed");
  }
  Cq(const Cq&) = delete;
  Cq& operator=(const Cq&) = delete;
  operator ibv_cq*() const { return cq_; }

 private:
  ibv_cq* const cq_;
};

}  // namespace

CASE(queues_shared, "queues/one-cq-for-several-qps", .core = true) {
  constexpr size_t kConnections = 5;
  Cq at_a(context_of(site_a().device), 256), at_b(context_of(site_b().device), 256);
  Options of_a, of_b;
  of_a.cq = at_a;
  of_b.cq = at_b;
  std::vector<std::unique_ptr<Pair>> pairs;
  std::set<uint32_t> numbers;
  Region source(pd_a(), 400), sink(pd_b(), 400 * kConnections);
  source.fill(5);
  for (size_t i = 0; i < kConnections; ++i) {
    pairs.push_back(std::make_unique<Pair>(of_a, of_b));
    CHECK(pairs[i]->a.qp->send_cq == at_a && pairs[i]->a.qp->recv_cq == at_a);
    CHECK(pairs[i]->a.id->send_cq == nullptr && pairs[i]->a.id->recv_cq == nullptr);  // those are librdmacm's own
    numbers.insert(pairs[i]->b.qp->qp_num);
    pairs[i]->b.recv(100 + i, {sink.sge(400 * i, 400)});
  }
  CHECK_EQ(numbers.size(), kConnections);
  for (size_t i = 0; i < kConnections; ++i) pairs[i]->a.send({.wr_id = i, .sges = {source.sge()}});
  std::set<uint64_t> sent, received;
  for (const ibv_wc& wc : wait_wcs(at_a, kConnections)) {
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.qp_num, pairs[wc.wr_id]->a.qp->qp_num);
    sent.insert(wc.wr_id);
  }
  for (const ibv_wc& wc : wait_wcs(at_b, kConnections)) {
    CHECK_EQ(wc.status, IBV_WC_SUCCESS);
    CHECK_EQ(wc.qp_num, pairs[wc.wr_id - 100]->b.qp->qp_num);
    received.insert(wc.wr_id);
  }
  CHECK_EQ(sent.size(), kConnections);
  CHECK_EQ(received.size(), kConnections);
  // One that goes leaves the CQs to the others.
  pairs[0]->close();
  pairs.erase(pairs.begin());
  Region more(pd_b(), 400);
  pairs[0]->b.recv(7, {more.sge()});
  pairs[0]->a.send({.wr_id = 8, .sges = {source.sge()}});
  expect_wc(at_a, 8);
  expect_wc(at_b, 7);
  more.check(5, 0, 400);
}

// What the program leaves out librdmacm makes, with channels; and takes away again with the QP.
CASE(queues_of_library, "queues/made-by-librdmacm", .core = true) {
  for (int given = 0; given < 4; ++given) {
    ibv_context* const context = context_of(site_a().device);
    Cq own_send(context, 16), own_recv(context, 16);
    Endpoint a;
    const Address from(site_a().ip, 0);
    resolve(a, &from, Address(site_b().ip, shared_listener().port()));
    ibv_cq* const none = nullptr;
    ibv_qp_init_attr attr = attr_with(given & 1 ? own_send : none, given & 2 ? own_recv : none);
    CHECK_CALL(rdma_create_qp(a.id, given & 1 ? pd_a() : nullptr, &attr));
    a.pd = a.id->pd, a.qp = a.id->qp, a.send_cq = a.qp->send_cq, a.recv_cq = a.qp->recv_cq;
    CHECK((a.send_cq == own_send) == ((given & 1) != 0));
    CHECK((a.recv_cq == own_recv) == ((given & 2) != 0));
    CHECK((a.id->send_cq != nullptr) == ((given & 1) == 0));
    CHECK((a.id->recv_cq != nullptr) == ((given & 2) == 0));
    CHECK((a.id->send_cq_channel != nullptr) == ((given & 1) == 0));
    CHECK((a.id->recv_cq_channel != nullptr) == ((given & 2) == 0));
    CHECK(a.id->pd != nullptr && a.id->qp->pd == a.id->pd);
    // Twice is an error.
    ibv_qp_init_attr again = attr_with(own_send, own_recv);
    CHECK_EQ(rdma_create_qp(a.id, pd_a(), &again), -1);
    CHECK_EQ(errno, EINVAL);
    Endpoint b;
    connect(a, b, shared_listener().events());
    greet(a, b);
  }
}

CASE(queues_ex, "queues/create-qp-ex", .core = true) {
  Cq cq(context_of(site_a().device), 32);
  Endpoint a, b;
  const Address from(site_a().ip, 0);
  resolve(a, &from, Address(site_b().ip, shared_listener().port()));
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {16, 16, 2, 2, 32};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd_a();
  CHECK_CALL(rdma_create_qp_ex(a.id, &attr));
  CHECK(attr.cap.max_send_wr >= 16 && attr.cap.max_inline_data >= 32);
  CHECK(a.id->qp->pd == pd_a());
  a.pd = pd_a(), a.qp = a.id->qp, a.send_cq = a.recv_cq = cq;
  connect(a, b, shared_listener().events());
  greet(a, b);
  a.destroy_qp();
}

// A QP of another device than the id's is refused.
CASE(queues_foreign, "queues/pd-of-another-context") {
  ibv_context* const other = ibv_open_device(context_of(site_a().device)->device);
  CHECK(other != nullptr);
  ibv_pd* const pd = ibv_alloc_pd(other);
  CHECK(pd != nullptr);
  Endpoint a;
  const Address from(site_a().ip, 0);
  resolve(a, &from, Address(site_b().ip, shared_listener().port()));
  ibv_qp_init_attr attr = attr_with(nullptr, nullptr);
  CHECK_EQ(rdma_create_qp(a.id, pd, &attr), -1);
  CHECK_EQ(errno, EINVAL);
  CHECK(a.id->qp == nullptr);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
  CHECK_EQ(ibv_close_device(other), 0);
}
