// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_verbs.c, usiw_mr.c and usiw_stats.c.
#include <algorithm>

#include "fixture.h"

namespace kuser {
namespace {

class Verbs : public Kuser {
 protected:
  void SetUp() override {
    Kuser::SetUp();
    process = std::make_unique<Process>("eth0");
  }
  void TearDown() override {
    process.reset();
    Kuser::TearDown();
  }
  /// Returns the driver's result for @p request with space for @p outlen bytes of response. The response is in
  /// response_.
  int alloc(const void* request, size_t inlen, size_t outlen) {
    memset(response_, 0xee, sizeof(response_));
    ib_udata udata{request, response_, inlen, outlen, nullptr};
    auto* c = static_cast<ib_ucontext*>(calloc(1, process->device->ops->size_ib_ucontext));
    c->device = process->device;
    const int ret = process->device->ops->alloc_ucontext(c, &udata);
    caps_ = to_usiw_uctx(c)->caps;
    if (!ret) process->device->ops->dealloc_ucontext(c);
    free(c);
    return ret;
  }
  int create_cq(const void* request, size_t inlen, size_t outlen, unsigned cqe = 1, unsigned flags = 0,
                bool user = true) {
    const auto* ops = process->device->ops;
    uverbs_attr_bundle attrs{};
    memset(response_, 0xee, sizeof(response_));
    attrs.driver_udata = {request, response_, inlen, outlen, process->ibuc};
    const ib_cq_init_attr attr{cqe, flags};
    auto* cq = static_cast<ib_cq*>(calloc(1, ops->size_ib_cq));
    cq->device = process->device;
    cq->uobject = mock_ucq_object(&cq->mock_uobject);
#if USIW_MOCK_KERNEL >= 611
    const int ret = ops->create_cq(cq, &attr, user ? &attrs : nullptr);
#else
    const int ret = ops->create_cq(cq, &attr, user ? &attrs.driver_udata : nullptr);
#endif
    if (!ret) ops->destroy_cq(cq, nullptr);
    free(cq);
    return ret;
  }
  int create_qp(const void* request, size_t inlen, size_t outlen) {
    const auto* ops = process->device->ops;
    memset(response_, 0xee, sizeof(response_));
    ib_udata udata{request, response_, inlen, outlen, process->ibuc};
    ib_qp_init_attr attr{};
    attr.qp_type = IB_QPT_RC;
    attr.send_cq = attr.recv_cq = process->ibcq;
    attr.cap = {1, 1, 1, 1, 0};
    auto* qp = static_cast<ib_qp*>(calloc(1, ops->size_ib_qp));
    qp->device = process->device;
    qp->uobject = mock_ucq_object(&qp->mock_uobject);
    const int ret = ops->create_qp(qp, &attr, &udata);
    if (!ret) ops->destroy_qp(qp, nullptr);
    free(qp);
    return ret;
  }
  /// Returns the number of bytes of the response from @p at on that the driver has not written.
  bool untouched(size_t at) const {
    return std::all_of(response_ + at, response_ + sizeof(response_), [](u8 byte) { return byte == 0xee; });
  }
  template <typename T>
  T response() const {
    T r;
    memcpy(&r, response_, sizeof(r));
    return r;
  }
  ib_mr* reg(u64 start, u64 length, int access) {
    ib_udata udata{};
    ib_pd pd{process->device};
    return process->device->ops->reg_user_mr(&pd, start, length, start, access, &udata);
  }
  long reg_error(u64 start, u64 length, int access) {
    ib_mr* mr = reg(start, length, access);
    if (IS_ERR(mr)) return PTR_ERR(mr);
    mr->device = process->device;
    process->device->ops->dereg_mr(mr, nullptr);
    return 0;
  }
  std::unique_ptr<Process> process;
  u8 response_[256];
  u64 caps_ = 0;
};

constexpr usiw_alloc_ucontext_req kRequest{USIW_ABI_VERSION, 0, 0};

TEST_F(Verbs, alloc_ucontext__driver_data) {
  const size_t in = sizeof(kRequest), out = sizeof(usiw_alloc_ucontext_resp);
  EXPECT_EQ(alloc(&kRequest, in, out), 0);
  EXPECT_EQ(alloc(&kRequest, in - 1, out), -EINVAL);
  EXPECT_EQ(alloc(&kRequest, 4, out), -EINVAL);
  EXPECT_EQ(alloc(&kRequest, 3, out), -EINVAL);
  EXPECT_EQ(alloc(&kRequest, 0, out), -EINVAL);
}

// An older or newer provider: its structures are shorter or longer than the module's.
TEST_F(Verbs, alloc_ucontext__other_sizes) {
  struct {
    usiw_alloc_ucontext_req req;
    u8 more[40];
  } newer{kRequest, {}};
  const size_t out = sizeof(usiw_alloc_ucontext_resp);
  EXPECT_EQ(alloc(&newer, sizeof(newer), sizeof(response_)), 0);
  EXPECT_EQ(response<usiw_alloc_ucontext_resp>().counters_size, u32{USIW_COUNTERS_SIZE});
  EXPECT_TRUE(untouched(out));
  for (const size_t shorter : {out - 1, out - sizeof(struct usiw_link_info), size_t{16}, size_t{1}, size_t{0}}) {
    EXPECT_EQ(alloc(&kRequest, sizeof(kRequest), shorter), 0) << shorter;
    EXPECT_TRUE(untouched(shorter)) << shorter;
  }
  newer.more[39] = 1;  // a field that this module does not know
  EXPECT_EQ(alloc(&newer, sizeof(newer), out), -EOPNOTSUPP);
}

TEST_F(Verbs, alloc_ucontext__unknown_bits) {
  usiw_alloc_ucontext_req req = kRequest;
  const size_t out = sizeof(usiw_alloc_ucontext_resp);
  for (unsigned bit = 0; bit < 32; bit++) {
    req.comp_mask = 1u << bit;
    EXPECT_EQ(alloc(&req, sizeof(req), out), -EOPNOTSUPP) << bit;
  }
  // A capability that the module does not know is not used, and causes no failure.
  req.comp_mask = 0;
  req.caps = ~u64{0};
  EXPECT_EQ(alloc(&req, sizeof(req), out), 0);
  EXPECT_EQ(response<usiw_alloc_ucontext_resp>().caps, caps_);
  constexpr u64 known = USIW_CAP_DATA_SOCKET | USIW_CAP_PORT_REPORT | USIW_CAP_PORT_MOVE | USIW_CAP_SOCKETS_ONLY |
                        USIW_CAP_MERGES;
  EXPECT_EQ(caps_ & ~known, 0u);
  EXPECT_EQ(caps_, known);
  req.caps = USIW_CAP_SOCKETS_ONLY | USIW_CAP_MERGES;  // have no meaning without data sockets
  EXPECT_EQ(alloc(&req, sizeof(req), out), 0);
  EXPECT_EQ(caps_, 0u);
  req.caps = 0;
  EXPECT_EQ(alloc(&req, sizeof(req), out), 0);
  EXPECT_EQ(response<usiw_alloc_ucontext_resp>().caps, 0u);
  EXPECT_EQ(caps_, 0u);
}

// No connection changes its port without a data socket, or if the process does not report its port.
TEST_F(Verbs, alloc_ucontext__capabilities_that_need_others) {
  usiw_alloc_ucontext_req req = kRequest;
  constexpr u64 socket = USIW_CAP_DATA_SOCKET, tell = USIW_CAP_PORT_REPORT, move = USIW_CAP_PORT_MOVE;
  for (const auto& [asked, agreed] : {std::pair{move, u64{0}}, {tell, tell}, {tell | move, tell},
                                      {socket | move, socket}, {socket | tell, socket | tell}}) {
    req.caps = asked;
    EXPECT_EQ(alloc(&req, sizeof(req), sizeof(usiw_alloc_ucontext_resp)), 0);
    EXPECT_EQ(caps_, agreed) << asked;
  }
}

// Both sides learn the version: the module by the request, the provider by the response. A request of ABI 2 has 8
// bytes.
TEST_F(Verbs, alloc_ucontext__other_version) {
  usiw_alloc_ucontext_req req = kRequest;
  for (const u32 version : {0u, 1u, 2u, u32{USIW_ABI_VERSION} + 1, ~0u}) {
    req.abi_version = version;
    for (const size_t in : {size_t{8}, sizeof(req)}) {
      EXPECT_EQ(alloc(&req, in, sizeof(usiw_alloc_ucontext_resp)), -EPROTO) << version;
      EXPECT_EQ(response<usiw_alloc_ucontext_resp>().abi_min, u32{USIW_ABI_VERSION_MIN});
      EXPECT_EQ(response<usiw_alloc_ucontext_resp>().abi_max, u32{USIW_ABI_VERSION});
    }
    EXPECT_EQ(alloc(&req, sizeof(req), 0), -EPROTO);
    mock_errors[MOCK_COPY] = 2;
    EXPECT_EQ(alloc(&req, sizeof(req), 16), -EFAULT);
  }
}

TEST_F(Verbs, create__other_sizes_and_unknown_bits) {
  ASSERT_EQ(process->open_all(), 0);
  struct Request {
    u32 comp_mask, reserved;
    u8 more[24];
  };
  const auto both = [&](const Request& r, size_t in, size_t out) {
    const int cq = create_cq(&r, in, out);
    const bool clean = untouched(std::min(out, sizeof(usiw_create_cq_resp)));
    const int qp = create_qp(&r, in, out);
    EXPECT_TRUE(clean && untouched(std::min(out, sizeof(usiw_create_qp_resp)))) << in << " " << out;
    EXPECT_EQ(cq, qp);
    return cq;
  };
  for (const size_t in : {0, 1, 4, 7, 8, 9, 32})
    for (const size_t out : {0, 4, 8, 12, 16, 24, 256}) EXPECT_EQ(both({}, in, out), 0) << in << " " << out;
  for (unsigned bit = 0; bit < 32; bit++) EXPECT_EQ(both({1u << bit, 0, {}}, 8, 24), -EOPNOTSUPP);
  EXPECT_EQ(both({0, 1, {}}, 8, 24), -EINVAL);
  EXPECT_EQ(both({0, 0, {1}}, 32, 24), -EOPNOTSUPP);
  EXPECT_EQ(both({0, 0, {1}}, 8, 24), 0);
}

TEST_F(Verbs, create_qp__needs_the_event_stream) {
  ASSERT_EQ(process->open(), 0);
  ASSERT_EQ(process->create_cq(), 0);
  usiw_evfile* events = process->context()->events;
  process->context()->events = nullptr;
  EXPECT_EQ(create_qp(nullptr, 0, 24), -EINVAL);
  process->context()->events = events;
  EXPECT_EQ(create_qp(nullptr, 0, 24), 0);
}

TEST_F(Verbs, alloc_ucontext__each_failure) {
  for (int n = 0;; n++) {
    mock_inject(u64{1} << n);
    const int ret = alloc(&kRequest, sizeof(kRequest), sizeof(usiw_alloc_ucontext_resp));
    const bool more = mock_fallible > static_cast<unsigned>(n);
    mock_inject(0);
    if (!more) {
      EXPECT_GE(n, 5);
      break;
    }
    EXPECT_LT(ret, 0) << "call " << n;
  }
}

// The netdev changes while the context is made. The process has to be notified in either order.
TEST_F(Verbs, alloc_ucontext__link_changes_meanwhile) {
  mock_on_copy_to_user = [] {
    mock_on_copy_to_user = nullptr;
    mock_netdev("eth0")->mtu = 1400;
    mock_notify_netdev(mock_netdev("eth0"), NETDEV_CHANGEMTU);
  };
  ASSERT_EQ(process->open(), 0);
  const auto records = process->events();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].type, USIW_EVENT_LINK);
  EXPECT_EQ(records[0].link.mtu, 1400u);
}

TEST_F(Verbs, mmap__counters_page) {
  ASSERT_EQ(process->open(), 0);
  vm_area_struct vma{0, PAGE_SIZE, 0, reinterpret_cast<unsigned long>(process->context()->counters.entry)};
  EXPECT_EQ(process->device->ops->mmap(process->ibuc, &vma), 0);
  EXPECT_EQ(vma.vm_flags, VM_DONTEXPAND | VM_DONTDUMP);
  mock_errors[MOCK_CORE] = 1;
  EXPECT_EQ(process->device->ops->mmap(process->ibuc, &vma), -ENOMEM);
  vma.vm_end *= 2;
  EXPECT_EQ(process->device->ops->mmap(process->ibuc, &vma), -EINVAL);
  vma = {0, PAGE_SIZE, 0, 0};
  EXPECT_EQ(process->device->ops->mmap(process->ibuc, &vma), -EINVAL);
}

// Memory that a process can make the kernel allocate is charged to it (GFP_KERNEL_ACCOUNT), whatever object it makes.
TEST_F(Verbs, memory__is_the_process_s) {
  CmId listener, active;
  mock_unaccounted = 0;
  ASSERT_EQ(process->open_all(), 0);
  ib_mr* mr = reg(0x10000, 1, 0);
  ASSERT_FALSE(IS_ERR(mr));
  ASSERT_EQ(listener.listen(process->device, in6_addr{}, kPort), 0);
  ASSERT_EQ(active.connect(*process, ipv4("192.0.2.1"), 9000, ipv4("192.0.2.2"), kPort), 0);
  EXPECT_EQ(mock_unaccounted, 0u) << mock_unaccounted_site;
  mr->device = process->device;
  process->device->ops->dereg_mr(mr, nullptr);
}

TEST_F(Verbs, counters__outlive_the_context) {
  const auto* ops = process->device->ops;
  auto* stats = ops->alloc_hw_port_stats(process->device, 1);
  ASSERT_NE(stats, nullptr);
  ASSERT_LE(stats->num_counters, 64);
  for (int i = 0; i < stats->num_counters; i++) EXPECT_NE(stats->descs[i].name, nullptr) << i;
  ASSERT_EQ(process->open(), 0);
  const_cast<u64*>(process->context()->counters.page)[USIW_CNT_TX_PKTS] = 5;
  mock_advance_ms(1);
  EXPECT_EQ(ops->get_hw_stats(process->device, stats, 1, 0), stats->num_counters);
  EXPECT_EQ(stats->value[USIW_CNT_TX_PKTS], 5u);
  process->close();
  EXPECT_EQ(ops->get_hw_stats(process->device, stats, 1, 0), stats->num_counters);
  EXPECT_EQ(stats->value[USIW_CNT_TX_PKTS], 5u);
  EXPECT_EQ(ops->get_hw_stats(process->device, stats, 0, 0), 0);
  kfree(stats);
}

// A process may write any value into its page, but the totals neither decrease nor reach their maximum.
TEST_F(Verbs, counters__hostile_page_does_not_spoil_the_totals) {
  const auto* ops = process->device->ops;
  auto* stats = ops->alloc_hw_port_stats(process->device, 1);
  ASSERT_EQ(process->open_all(), 0);
  auto* page = const_cast<u64*>(process->qp()->counters.page);
  auto total = [&](uint32_t ms) {
    mock_advance_ms(ms);
    ops->get_hw_stats(process->device, stats, 1, 0);
    return stats->value[USIW_CNT_RX_PKTS];
  };
  page[USIW_CNT_RX_PKTS] = 9;
  EXPECT_EQ(total(1), 9u);
  page[USIW_CNT_RX_PKTS] = 1;
  EXPECT_EQ(total(1), 9u);
  page[USIW_CNT_RX_PKTS] = U64_MAX;
  const_cast<u64*>(process->context()->counters.page)[USIW_CNT_RX_PKTS] = 2;
  EXPECT_EQ(total(1), 11u);
  page[USIW_CNT_RX_PKTS] = 20;  // honest again
  EXPECT_EQ(total(1), 22u);
  page[USIW_CNT_RX_PKTS] = 20 + 64000001;
  EXPECT_EQ(total(1), 22u);
  page[USIW_CNT_RX_PKTS] = 20 + 64000000;
  EXPECT_EQ(total(1), 22u + 64000000);
  page[USIW_CNT_RX_PKTS] = U64_MAX;
  process->close();
  EXPECT_EQ(total(1), 22u + 64000000);
  kfree(stats);
}

TEST_F(Verbs, fill_res_qp_entry__page_of_the_qp) {
  const auto* ops = process->device->ops;
  ASSERT_EQ(process->open_all(), 0);
  auto* page = reinterpret_cast<usiw_qp_stats*>(const_cast<u64*>(process->qp()->counters.page));
  page->counters[USIW_CNT_TX_BYTES] = 77;
  page->gauges[USIW_GAUGE_RTO_NS] = 5000;
  u64 value = 0;
  ASSERT_EQ(ops->fill_res_qp_entry(nullptr, process->ibqp), 0);
  EXPECT_EQ(mock_driver_attrs("tx_bytes", &value), int{USIW_CNT_MAX} + int{USIW_GAUGE_MAX} - 2);
  EXPECT_EQ(value, 77u);
  // Without a measured round trip there is no figure, rather than 0.
  for (const char* name : {"srtt_ns", "min_rtt_ns"}) {
    value = 99;
    mock_driver_attrs(name, &value);
    EXPECT_EQ(value, 99u) << name;
  }
  page->gauges[USIW_GAUGE_SRTT_NS] = 900;
  page->gauges[USIW_GAUGE_MIN_RTT_NS] = 300;
  ASSERT_EQ(ops->fill_res_qp_entry(nullptr, process->ibqp), 0);
  EXPECT_EQ(mock_driver_attrs("min_rtt_ns", &value), int{USIW_CNT_MAX} + int{USIW_GAUGE_MAX});
  EXPECT_EQ(value, 300u);
  mock_driver_attrs("rto_ns", &value);
  EXPECT_EQ(value, 5000u);
  // If the message has no space left, nothing is added to it.
  for (int n : {0, 1, 20}) {
    mock_inject(u64{1} << n);
    EXPECT_EQ(ops->fill_res_qp_entry(nullptr, process->ibqp), -EMSGSIZE) << n;
    mock_inject(0);
    if (n > 0) {
      EXPECT_EQ(mock_driver_attrs("rto_ns", &value), 0) << n;
    }
  }
}

TEST_F(Verbs, pd__limit) {
  ib_udata udata{};
  ib_pd pd{process->device};
  const auto* ops = process->device->ops;
  usiw_device* dev = to_usiw_dev(process->device);
  EXPECT_EQ(ops->alloc_pd(&pd, nullptr), -EOPNOTSUPP);
  atomic_set(&dev->nr_pds, USIW_MAX_PD - 1);
  EXPECT_EQ(ops->alloc_pd(&pd, &udata), 0);
  EXPECT_EQ(ops->alloc_pd(&pd, &udata), -ENOMEM);
  EXPECT_EQ(ops->dealloc_pd(&pd, &udata), 0);
  EXPECT_EQ(atomic_read(&dev->nr_pds), USIW_MAX_PD - 1);
}

TEST_F(Verbs, cq__limits_and_failures) {
  ASSERT_EQ(process->open(), 0);
  const size_t out = sizeof(usiw_create_cq_resp);
  const auto create = [&](unsigned cqe, unsigned flags, bool user = true) {
    return create_cq(nullptr, 0, out, cqe, flags, user);
  };
  EXPECT_EQ(create(1, 0), 0);
  EXPECT_EQ(create(USIW_MAX_CQE, 0), 0);
  EXPECT_EQ(create(USIW_MAX_CQE + 1, 0), -EINVAL);
  EXPECT_EQ(create(0, 0), -EINVAL);
  EXPECT_EQ(create(1, 1), -EOPNOTSUPP);
  EXPECT_EQ(create(1, 0, false), -EOPNOTSUPP);
  mock_errors[MOCK_ALLOC] = 1;
  EXPECT_EQ(create(1, 0), -ENOMEM);
  for (const int copy : {1, 2}) {
    mock_errors[MOCK_COPY] = copy;
    EXPECT_EQ(create(1, 0), -EFAULT);
  }
}

TEST_F(Verbs, resize_cq__keeps_the_number) {
  ASSERT_EQ(process->open(), 0);
  ASSERT_EQ(process->create_cq(), 0);
  ib_cq* cq = process->ibcq;
  const auto* ops = process->device->ops;
  ib_udata none{};
  EXPECT_EQ(ops->resize_cq(cq, 1, &none), 0);
  EXPECT_EQ(cq->cqe, 1);
  EXPECT_EQ(ops->resize_cq(cq, USIW_MAX_CQE, &none), 0);
  EXPECT_EQ(cq->cqe, USIW_MAX_CQE);
  for (const int cqe : {0, -1, USIW_MAX_CQE + 1, INT_MIN, INT_MAX}) EXPECT_EQ(ops->resize_cq(cq, cqe, &none), -EINVAL);
  EXPECT_EQ(ops->resize_cq(cq, 16, nullptr), -EOPNOTSUPP);
  const uint64_t zero = 0, more = 1;
  ib_udata data{&more, nullptr, sizeof(more), 0, process->ibuc};
  EXPECT_EQ(ops->resize_cq(cq, 16, &data), -EOPNOTSUPP);
  EXPECT_EQ(cq->cqe, USIW_MAX_CQE);
  data.inbuf = &zero;
  EXPECT_EQ(ops->resize_cq(cq, 16, &data), 0);
  EXPECT_EQ(cq->cqe, 16);
}

TEST_F(Verbs, reg_mr__ranges_and_rights) {
  const int rw = IB_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(reg_error(0x10000, 0x1000, rw), 0);
  EXPECT_EQ(reg_error(0x10000, 0x10000, rw), 0);
  EXPECT_EQ(reg_error(0x10000, 0x10001, rw), -EFAULT);  // the next one is read-only
  EXPECT_EQ(reg_error(0x10000, 0x20000, 0), 0);
  EXPECT_EQ(reg_error(0x10000, 0x20001, 0), -EFAULT);   // a hole
  EXPECT_EQ(reg_error(0x3ffff, 2, 0), -EFAULT);
  EXPECT_EQ(reg_error(0x50000, 1, 0), -EFAULT);
  EXPECT_EQ(reg_error(0, 0, 0), 0);
  EXPECT_EQ(reg_error(~u64{0}, 2, 0), -EFAULT);
  EXPECT_EQ(reg_error(TASK_SIZE, 1, 0), -EFAULT);
  EXPECT_EQ(reg_error(0x20000, 1, IB_ACCESS_REMOTE_WRITE | rw), -EFAULT);
  EXPECT_EQ(reg_error(0x10000, 1, IB_ACCESS_REMOTE_WRITE), -EINVAL);
  EXPECT_EQ(reg_error(0x10000, 1, IB_ACCESS_REMOTE_ATOMIC), -EINVAL);
  EXPECT_EQ(reg_error(0x10000, 1, IB_ACCESS_REMOTE_ATOMIC | rw), 0);
  for (const int bit : {IB_ACCESS_MW_BIND, IB_ZERO_BASED, IB_ACCESS_ON_DEMAND, IB_ACCESS_HUGETLB, 1 << 20})
    EXPECT_EQ(reg_error(0x10000, 1, bit), 0) << bit;
  EXPECT_EQ(reg_error(0x10000, 1, 1 << 8), -EOPNOTSUPP);
  // The mapping of its memory may change, so only the length has a limit.
  EXPECT_EQ(reg_error(0x50000, 1, IB_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(reg_error(0, ~u64{0}, IB_ACCESS_ON_DEMAND), 0);  // the implicit region
  EXPECT_EQ(reg_error(0, ~u64{0}, IB_ACCESS_ON_DEMAND | IB_ACCESS_REMOTE_WRITE), -EINVAL);
  EXPECT_EQ(reg_error(0x10000, USIW_MAX_MR_SIZE + 1, IB_ACCESS_ON_DEMAND), -EINVAL);
  EXPECT_EQ(reg_error(0, USIW_MAX_MR_SIZE, 0), -EFAULT);
  EXPECT_EQ(reg_error(0, USIW_MAX_MR_SIZE + 1, 0), -EINVAL);
  EXPECT_EQ(process->mm.readers, 0);
}

/// Maps a file of @p size bytes from its byte @p offset on at 0x60000, 16 pages.
struct MappedFile {
  MappedFile(mm_struct& mm, loff_t size, unsigned long offset = 0, unsigned short mode = S_IFREG | 0600) {
    about.i_mode = mode;
    about.i_size = size;
    area = &mm.areas[3];
    *area = {0x60000, 0x70000, VM_READ | VM_WRITE, offset / PAGE_SIZE, &opened};
  }
  inode about{};
  address_space mapping{&about};
  file opened{nullptr, nullptr, 0, &mapping};
  vm_area_struct* area;
};

TEST_F(Verbs, reg_mr__end_of_file) {
  const int rw = IB_ACCESS_LOCAL_WRITE;
  {
    MappedFile whole(process->mm, 0x10000);
    EXPECT_EQ(reg_error(0x60000, 0x10000, rw), 0);
    EXPECT_EQ(reg_error(0x60000, 0x10001, rw), -EFAULT);
  }
  {
    MappedFile cut(process->mm, 0x3001);  // the fourth page has one byte, followed by zeros
    EXPECT_EQ(reg_error(0x60000, 0x4000, rw), 0);
    EXPECT_EQ(reg_error(0x63fff, 1, 0), 0);
    EXPECT_EQ(reg_error(0x60000, 0x4001, 0), -EFAULT);
    EXPECT_EQ(reg_error(0x64000, 1, 0), -EFAULT);
    EXPECT_EQ(reg_error(0x6f000, 0x1000, rw), -EFAULT);
    EXPECT_EQ(reg_error(0x64000, 1, IB_ACCESS_ON_DEMAND), 0);  // noticed at each access
    cut.about.i_size = 0x4001;
    EXPECT_EQ(reg_error(0x60000, 0x5000, rw), 0);
    cut.about.i_size = 0;
    EXPECT_EQ(reg_error(0x60000, 1, 0), -EFAULT);
  }
  {
    MappedFile later(process->mm, 0x13000, 0x10000);
    EXPECT_EQ(reg_error(0x60000, 0x3000, 0), 0);
    EXPECT_EQ(reg_error(0x60000, 0x3001, 0), -EFAULT);
  }
  {
    MappedFile disk(process->mm, 0x2000, 0, S_IFBLK | 0600);
    EXPECT_EQ(reg_error(0x60000, 0x2000, 0), 0);
    EXPECT_EQ(reg_error(0x60000, 0x2001, 0), -EFAULT);
  }
  // The memory of a character device or a driver has no end of file.
  {
    MappedFile device(process->mm, 0, 0, S_IFCHR | 0600);
    EXPECT_EQ(reg_error(0x60000, 0x10000, rw), 0);
  }
  for (const unsigned long flag : {VM_IO, VM_PFNMAP}) {
    MappedFile resource(process->mm, 0);
    resource.area->vm_flags |= flag;
    EXPECT_EQ(reg_error(0x60000, 0x10000, rw), 0);
  }
  EXPECT_EQ(process->mm.readers, 0);
}

// A range of several mappings is checked against the file of each.
TEST_F(Verbs, reg_mr__end_of_one_of_several_files) {
  MappedFile second(process->mm, 0x1000);
  second.area->vm_start = 0x50000;  // follows a mapping without a file
  second.area->vm_end = 0x60000;
  EXPECT_EQ(reg_error(0x40000, 0x11000, 0), 0);
  EXPECT_EQ(reg_error(0x40000, 0x11001, 0), -EFAULT);
  EXPECT_EQ(reg_error(0x40000, 0x10000, 0), 0);
}

TEST_F(Verbs, rereg_mr__end_of_file) {
  MappedFile file(process->mm, 0x2000);
  ib_mr* mr = reg(0x60000, 0x2000, IB_ACCESS_LOCAL_WRITE);
  ASSERT_FALSE(IS_ERR(mr));
  mr->device = process->device;
  ib_pd pd{process->device};
  ib_udata udata{};
  const auto rereg = [&](int flags, u64 length, int access) {
    return PTR_ERR(process->device->ops->rereg_user_mr(mr, flags, 0x60000, length, 0x60000, access, &pd, &udata));
  };
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS, 0x3000, 0), -EFAULT);
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS, 0x1000, 0), 0);
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS, 0x2000, 0), 0);
  file.about.i_size = 0x1000;
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, IB_ACCESS_REMOTE_READ), -EFAULT);
  process->device->ops->dereg_mr(mr, nullptr);
}

// The call uses only the arguments that the flags name. The other properties stay as registered.
TEST_F(Verbs, rereg_mr__each_property_by_its_flag) {
  const auto* ops = process->device->ops;
  ib_mr* mr = reg(0x10000, 0x1000, IB_ACCESS_LOCAL_WRITE);
  ASSERT_FALSE(IS_ERR(mr));
  mr->device = process->device;
  ib_pd other{process->device};
  ib_udata udata{};
  u32 stag = mr->lkey;
  const auto rereg = [&](int flags, u64 start, u64 length, int access, bool renews = false) -> long {
    ib_mr* now = ops->rereg_user_mr(mr, flags, start, length, start, access, &other, &udata);
    EXPECT_EQ(mr->lkey, mr->rkey);
    EXPECT_EQ(mr->lkey >> 8, stag >> 8);
    EXPECT_EQ(mr->lkey != stag, renews);
    stag = mr->lkey;
    return PTR_ERR(now);
  };
  EXPECT_EQ(rereg(IB_MR_REREG_PD, 0x50000, 1, IB_ACCESS_REMOTE_WRITE), 0);  // both are ignored
  EXPECT_EQ(rereg(0, 0, 0, 0), 0);                                   // the same PD again: ib_core has cleared the flag
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS, 0x20000, 0x1000, 0), -EFAULT);  // read-only memory with write access
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS | IB_MR_REREG_ACCESS, 0x20000, 0x1000, 0, true), 0);
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, 0, IB_ACCESS_REMOTE_READ), 0);  // other rights keep the key
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, 0, IB_ZERO_BASED, true), 0);    // other addresses change it
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, 0, 0, true), 0);
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0x10000, 1, IB_ACCESS_LOCAL_WRITE), -EFAULT);  // checks the present range
  EXPECT_EQ(rereg(IB_MR_REREG_TRANS, 0x50000, 1, 0), -EFAULT);
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, 0, IB_ACCESS_REMOTE_WRITE), -EINVAL);
  EXPECT_EQ(rereg(IB_MR_REREG_ACCESS, 0, 0, 1 << 9), -EOPNOTSUPP);
  EXPECT_EQ(rereg(8, 0, 0, 0), -EOPNOTSUPP);
  EXPECT_EQ(PTR_ERR(ops->rereg_user_mr(mr, IB_MR_REREG_PD, 0, 0, 0, 0, &other, nullptr)), -EOPNOTSUPP);
  ops->dereg_mr(mr, nullptr);
}

TEST_F(Verbs, alloc_mw__types_and_names) {
  const auto* ops = process->device->ops;
  ib_udata udata{};
  usiw_mw window[3] = {};
  for (usiw_mw& mw : window) mw.ibmw.device = process->device;
  window[0].ibmw.type = IB_MW_TYPE_1;
  window[1].ibmw.type = IB_MW_TYPE_2;
  window[2].ibmw.type = static_cast<ib_mw_type>(3);
  EXPECT_EQ(ops->alloc_mw(&window[0].ibmw, &udata), 0);
  EXPECT_EQ(ops->alloc_mw(&window[1].ibmw, &udata), 0);
  EXPECT_EQ(ops->alloc_mw(&window[2].ibmw, &udata), -EINVAL);
  ib_mr* mr = reg(0x10000, 1, 0);
  ASSERT_FALSE(IS_ERR(mr));
  mr->device = process->device;
  for (const usiw_mw& mw : {window[0], window[1]}) {
    EXPECT_GE(mw.ibmw.rkey >> 8, USIW_MW_INDEX_FIRST);
    EXPECT_LE(mw.ibmw.rkey >> 8, USIW_MW_INDEX_LAST);
  }
  EXPECT_LE(mr->rkey >> 8, USIW_MR_INDEX_LAST);
  const u32 first = window[0].ibmw.rkey >> 8;
  EXPECT_NE(first, window[1].ibmw.rkey >> 8);
  EXPECT_EQ(ops->dealloc_mw(&window[0].ibmw), 0);
  EXPECT_EQ(ops->alloc_mw(&window[0].ibmw, &udata), 0);
  EXPECT_NE(first, window[0].ibmw.rkey >> 8);  // not used again soon
  mock_errors[MOCK_ALLOC] = 1;
  window[2].ibmw.type = IB_MW_TYPE_2;
  EXPECT_EQ(ops->alloc_mw(&window[2].ibmw, &udata), -ENOMEM);
  EXPECT_EQ(ops->alloc_mw(&window[2].ibmw, nullptr), -EOPNOTSUPP);
  EXPECT_EQ(ops->dealloc_mw(&window[0].ibmw), 0);
  EXPECT_EQ(ops->dealloc_mw(&window[1].ibmw), 0);
  ops->dereg_mr(mr, nullptr);
}

TEST_F(Verbs, reg_mr__failures) {
  mock_errors[MOCK_CORE] = 1;
  EXPECT_EQ(reg_error(0x10000, 1, 0), -EINTR);
  mock_errors[MOCK_ALLOC] = 1;
  EXPECT_EQ(reg_error(0x10000, 1, 0), -ENOMEM);
  mock_errors[MOCK_ALLOC] = 2;
  EXPECT_EQ(reg_error(0x10000, 1, 0), -ENOMEM);
  process->task.killed = true;
  EXPECT_EQ(reg_error(0x10000, 1, 0), -EINTR);
  EXPECT_EQ(process->mm.readers, 0);
}

TEST_F(Verbs, reg_mr__stags_are_not_used_again_soon) {
  ib_mr* first = reg(0x10000, 1, 0);
  ASSERT_FALSE(IS_ERR(first));
  const u32 index = first->lkey >> 8;
  EXPECT_GE(index, 1u);
  EXPECT_EQ(first->lkey, first->rkey);
  first->device = process->device;
  process->device->ops->dereg_mr(first, nullptr);
  ib_mr* second = reg(0x10000, 1, 0);
  EXPECT_NE(second->lkey >> 8, index);
  second->device = process->device;
  process->device->ops->dereg_mr(second, nullptr);
}

TEST_F(Verbs, kernel_users__are_told_so) {
  const auto* ops = process->device->ops;
  const ib_send_wr* bad_send = nullptr;
  const ib_recv_wr* bad_recv = nullptr;
  ib_pd pd{process->device};
  EXPECT_EQ(ops->poll_cq(nullptr, 1, nullptr), -EOPNOTSUPP);
  EXPECT_EQ(ops->req_notify_cq(nullptr, IB_CQ_SOLICITED), -EOPNOTSUPP);
  EXPECT_EQ(ops->post_send(nullptr, nullptr, &bad_send), -EOPNOTSUPP);
  EXPECT_EQ(ops->post_recv(nullptr, nullptr, &bad_recv), -EOPNOTSUPP);
  EXPECT_EQ(PTR_ERR(ops->get_dma_mr(&pd, 0)), -EOPNOTSUPP);
  EXPECT_EQ(PTR_ERR(ops->reg_user_mr(&pd, 0, 0, 0, 0, nullptr)), -EOPNOTSUPP);
}

}  // namespace
}  // namespace kuser
