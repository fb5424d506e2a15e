// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file domains.cc
/// Thread domains and parent domains (ibv_alloc_td(3), ibv_alloc_parent_domain(3)). The kernel knows nothing of them: a
/// parent domain has the number and the handle of its PD, and so is the same for all that is checked by them.
#include <cerrno>
#include <cstring>
#include <new>

#include "runtime/runtime.h"

using namespace usiw;

namespace {

bool is_dead(ibv_context* ctx) { return Context::of(ctx).runtime->dead(); }

/// 0 or why a parent domain like this cannot be.
int check(ibv_context* ctx, const ibv_parent_domain_init_attr& attr) {
  constexpr uint32_t kMask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if ((attr.comp_mask & ~kMask) != 0) return EOPNOTSUPP;
  if (attr.pd == nullptr || attr.pd->context != ctx || (attr.td != nullptr && attr.td->context != ctx)) return EINVAL;
  const bool allocates = (attr.comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0;
  if (allocates && (attr.alloc == nullptr) != (attr.free == nullptr)) return EINVAL;
  return is_dead(ctx) ? EINVAL : 0;
}

}  // namespace

int DomainMemory::allocate(VPd* domain, size_t bytes, RingKind kind) {
  if (domain == nullptr || domain->alloc == nullptr) return 0;
  const uint64_t type = uint64_t{USIW_DRIVER_ID} << 32 | static_cast<uint32_t>(kind);
  void* at = domain->alloc(&domain->ibv, domain->pd_context, bytes, kSlotBytes, type);
  if (at == IBV_ALLOCATOR_USE_DEFAULT) return 0;
  if (at == nullptr) return ENOMEM;
  domain_ = domain;
  kind_ = kind;
  at_ = static_cast<std::byte*>(at);
  if (reinterpret_cast<uintptr_t>(at) % kSlotBytes != 0) {
    free();
    return ENOMEM;
  }
  std::memset(at, 0, bytes);  // the allocator should have done it; a ring that is not zero has work in it
  return 0;
}

void DomainMemory::free() {
  if (at_ == nullptr) return;
  domain_->free(&domain_->ibv, domain_->pd_context, at_, uint64_t{USIW_DRIVER_ID} << 32 | static_cast<uint32_t>(kind_));
  at_ = nullptr;
}

extern "C" ibv_td* usiw_verb_alloc_td(ibv_context* ctx, ibv_td_init_attr* attr) {
  int rc = is_dead(ctx) ? EINVAL : 0;
  if (attr->comp_mask != 0) rc = EOPNOTSUPP;
  VTd* td = rc == 0 ? new (std::nothrow) VTd{} : nullptr;
  if (td == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  td->ibv.context = ctx;
  return &td->ibv;
}

extern "C" int usiw_verb_dealloc_td(ibv_td* ibtd) {
  VTd* td = from(ibtd);
  if (is_dead(ibtd->context)) return EINVAL;
  if (td->users.load() != 0) return EBUSY;
  delete td;
  return 0;
}

extern "C" ibv_pd* usiw_verb_alloc_parent_domain(ibv_context* ctx, ibv_parent_domain_init_attr* attr) {
  const int rc = check(ctx, *attr);
  VPd* domain = rc == 0 ? new (std::nothrow) VPd{} : nullptr;
  if (domain == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  VPd* pd = from(attr->pd);
  domain->ibv.context = ctx;
  domain->ibv.handle = attr->pd->handle;
  domain->number = pd->number;
  domain->extends = pd;
  ++pd->users;
  if (attr->td != nullptr) {
    domain->td = from(attr->td);
    ++domain->td->users;
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS) != 0) {
    domain->alloc = attr->alloc;
    domain->free = attr->free;
  }
  if ((attr->comp_mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT) != 0) domain->pd_context = attr->pd_context;
  return &domain->ibv;
}

extern "C" int usiw_verb_dealloc_pd(ibv_pd* ibpd) {
  VPd* pd = from(ibpd);
  if (is_dead(ibpd->context)) return EINVAL;
  if (pd->users.load() != 0) return EBUSY;
  if (pd->extends == nullptr) {
    if (int rc = usiw_cmd_dealloc_pd(ibpd); rc != 0) return rc;
  } else {
    --pd->extends->users;
    if (pd->td != nullptr) --pd->td->users;
  }
  delete pd;
  return 0;
}
