// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Thread domains and parent domains (ibv_alloc_td(3), ibv_alloc_parent_domain(3)).
#include <cstdlib>
#include <map>

#include "rig.h"

namespace {

/// What an allocator was asked for, and what is still out.
struct Memory {
  enum Answer { kOwn, kDefault, kNone } answer = kOwn;
  unsigned calls = 0, freed = 0;
  std::map<void*, uint64_t> out;
  ibv_pd* of = nullptr;
};

void* allocate(ibv_pd* pd, void* at, size_t size, size_t alignment, uint64_t type) {
  auto* memory = static_cast<Memory*>(at);
  CHECK(pd == memory->of);
  ++memory->calls;
  if (memory->answer == Memory::kDefault) return IBV_ALLOCATOR_USE_DEFAULT;
  if (memory->answer == Memory::kNone) return nullptr;
  CHECK(type >> 32 != 0 && size != 0);
  void* p = nullptr;
  CHECK_EQ(posix_memalign(&p, alignment, size), 0);
  std::memset(p, 0xff, size);  // not zeros, which would be our duty: nothing may come of that
  memory->out[p] = type;
  return p;
}

void release(ibv_pd* pd, void* at, void* p, uint64_t type) {
  auto* memory = static_cast<Memory*>(at);
  CHECK(pd == memory->of && memory->out.count(p) == 1 && memory->out[p] == type);
  memory->out.erase(p);
  ++memory->freed;
  std::free(p);
}

ibv_td* alloc_td() {
  ibv_td_init_attr attr = {};
  ibv_td* td = ibv_alloc_td(context(), &attr);
  if (!td) FAIL("ibv_alloc_td: %s", std::strerror(errno));
  return td;
}

ibv_pd* alloc_domain(ibv_pd* pd, ibv_td* td, Memory* memory = nullptr) {
  ibv_parent_domain_init_attr attr = {};
  attr.pd = pd;
  attr.td = td;
  if (memory) {
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = allocate;
    attr.free = release;
    attr.pd_context = memory;
  }
  ibv_pd* domain = ibv_alloc_parent_domain(context(), &attr);
  if (!domain) FAIL("ibv_alloc_parent_domain: %s", std::strerror(errno));
  if (memory) memory->of = domain;
  return domain;
}

ibv_cq* create_cq(ibv_pd* domain, uint32_t cqe = 64) {
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = cqe;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = domain;
  errno = 0;
  ibv_cq_ex* cq = ibv_create_cq_ex(context(), &attr);
  return cq ? ibv_cq_ex_to_cq(cq) : nullptr;
}

}  // namespace

// Whatever a parent domain is used by keeps it, and it keeps what it is made of.
CASE(domains_busy, "domains/life-and-order", .core = true) {
  ibv_pd* pd = ibv_alloc_pd(context());
  CHECK(pd != nullptr);
  ibv_td* td = alloc_td();
  ibv_pd* domain = alloc_domain(pd, td);
  CHECK_EQ(ibv_dealloc_pd(pd), EBUSY);
  CHECK_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_pd* second = alloc_domain(pd, td);
  ibv_pd* without = alloc_domain(pd, nullptr);
  CHECK_EQ(ibv_dealloc_pd(without), 0);
  CHECK_EQ(ibv_dealloc_pd(second), 0);
  CHECK_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_cq* cq = create_cq(domain);
  CHECK(cq != nullptr);
  CHECK_EQ(ibv_dealloc_pd(domain), EBUSY);
  {
    Region region(domain, 4096);
    CHECK_EQ(ibv_destroy_cq(cq), 0);
    CHECK_EQ(ibv_dealloc_pd(domain), EBUSY);
  }
  cq = ibv_create_cq(context(), 16, nullptr, nullptr, 0);
  CHECK(cq != nullptr);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  ibv_qp* qp = ibv_create_qp(domain, &init);
  CHECK(qp != nullptr);
  CHECK(qp->pd == domain);
  CHECK_EQ(ibv_dealloc_pd(domain), EBUSY);
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(ibv_dealloc_pd(domain), 0);
  CHECK_EQ(ibv_dealloc_td(td), 0);
  CHECK_EQ(ibv_dealloc_pd(pd), 0);
}

// QPs, CQs and regions made with a parent domain work together with those of its PD: rights are the PD's.
CASE(domains_traffic, "domains/traffic", .core = true) {
  ibv_td* td = alloc_td();
  ibv_pd* domain = alloc_domain(pd_a(), td);
  ibv_cq* cq = create_cq(domain, 256);
  CHECK(cq != nullptr);
  {
    Options of_a;
    of_a.pd = domain;
    of_a.cq = cq;
    Pair p(of_a, Options());
    exercise(p);
    Region of_pd(pd_a(), 256), of_domain(domain, 256), at_b(p.b.pd, 256);
    for (uint64_t i = 0; i < 200; ++i) {
      p.a.send({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE, .sges = {(i % 2 ? of_pd : of_domain).sge()},
                .remote_addr = at_b.addr(), .rkey = at_b.rkey()});
      expect_wc(cq, i);
    }
    // The peer reaches a region of the PD through the QP of the parent domain.
    p.b.send({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE, .sges = {at_b.sge()},
              .remote_addr = of_pd.addr(), .rkey = of_pd.rkey()});
    expect_wc(p.b.send_cq, 1);
    p.close();
  }
  CHECK_EQ(ibv_resize_cq(cq, 1000), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(ibv_dealloc_pd(domain), 0);
  CHECK_EQ(ibv_dealloc_td(td), 0);
}

// The rings lie where the allocator wants them, and all of them come back to it.
CASE(domains_allocator, "domains/allocator", .core = true) {
  Memory memory;
  ibv_pd* domain = alloc_domain(pd_a(), nullptr, &memory);
  ibv_cq* cq = create_cq(domain, 256);
  CHECK(cq != nullptr);
  CHECK_EQ(memory.out.size(), 1);
  {
    Options of_a;
    of_a.pd = domain;
    of_a.cq = cq;
    Pair p(of_a, Options());
    CHECK_EQ(memory.out.size(), 3);  // and a QP has two
    exercise(p);
    CHECK_EQ(ibv_resize_cq(cq, 5000), 0);
    CHECK_EQ(memory.out.size(), 3);
    exercise(p);
    p.close();
  }
  CHECK_EQ(memory.out.size(), 1);
  memory.answer = Memory::kNone;
  CHECK_EQ(ibv_resize_cq(cq, 20000), ENOMEM);
  CHECK(create_cq(domain) == nullptr);
  CHECK_EQ(errno, ENOMEM);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  errno = 0;
  CHECK(ibv_create_qp(domain, &init) == nullptr);
  CHECK_EQ(errno, ENOMEM);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(memory.out.size(), 0);

  memory.answer = Memory::kDefault;
  const unsigned freed = memory.freed;
  cq = create_cq(domain);
  CHECK(cq != nullptr);
  init.send_cq = init.recv_cq = cq;
  ibv_qp* qp = ibv_create_qp(domain, &init);
  CHECK(qp != nullptr);
  CHECK_EQ(ibv_destroy_qp(qp), 0);
  CHECK_EQ(ibv_destroy_cq(cq), 0);
  CHECK_EQ(memory.freed, freed);
  CHECK_EQ(ibv_dealloc_pd(domain), 0);
}

CASE(domains_refused, "domains/refused", .core = true) {
  ibv_td_init_attr td_attr = {};
  td_attr.comp_mask = 1;
  errno = 0;
  CHECK(ibv_alloc_td(context(), &td_attr) == nullptr);
  CHECK_EQ(errno, EOPNOTSUPP);
  const auto refused = [](const ibv_parent_domain_init_attr& from) {
    ibv_parent_domain_init_attr attr = from;
    errno = 0;
    ibv_pd* domain = ibv_alloc_parent_domain(context(), &attr);
    if (domain) CHECK_EQ(ibv_dealloc_pd(domain), 0);
    return domain ? 0 : errno;
  };
  ibv_parent_domain_init_attr attr = {};
  CHECK_EQ(refused(attr), EINVAL);  // no PD
  attr.pd = pd_a();
  CHECK_EQ(refused(attr), 0);
  attr.comp_mask = 1u << 20;
  CHECK_EQ(refused(attr), EOPNOTSUPP);
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  attr.alloc = allocate;
  CHECK_EQ(refused(attr), EINVAL);  // nobody frees
  attr.comp_mask = 0;
  CHECK_EQ(refused(attr), 0);

  ibv_context* second = ibv_open_device(context()->device);
  CHECK(second != nullptr);
  ibv_pd* foreign = ibv_alloc_pd(second);
  CHECK(foreign != nullptr);
  attr = {};
  attr.pd = foreign;
  CHECK_EQ(refused(attr), EINVAL);
  CHECK_EQ(ibv_dealloc_pd(foreign), 0);
  CHECK_EQ(ibv_close_device(second), 0);

  // An ordinary PD is no parent domain.
  CHECK(create_cq(pd_a()) == nullptr);
  CHECK_EQ(errno, EINVAL);
  CHECK(create_cq(nullptr) == nullptr);
  CHECK_EQ(errno, EINVAL);
}
