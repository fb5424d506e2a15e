// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mr.cc
/// Protection domains and memory regions.
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>

#include "cm/object/usiw_limits.h"
#include "engine/user_memory.h"
#include "runtime/runtime.h"

using namespace usiw;

extern "C" ibv_pd* usiw_verb_alloc_pd(ibv_context* ctx) {
  Runtime& runtime = *Context::of(ctx).runtime;
  if (runtime.dead()) {
    errno = EINVAL;
    return nullptr;
  }
  auto* pd = new (std::nothrow) VPd{};
  if (pd == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  if (int rc = usiw_cmd_alloc_pd(ctx, &pd->ibv); rc != 0) {
    delete pd;
    errno = rc;
    return nullptr;
  }
  pd->number = runtime.next_pd();
  return &pd->ibv;
}

namespace {

static_assert(static_cast<unsigned>(kAccessLocalWrite) == IBV_ACCESS_LOCAL_WRITE);
static_assert(static_cast<unsigned>(kAccessRemoteWrite) == IBV_ACCESS_REMOTE_WRITE);
static_assert(static_cast<unsigned>(kAccessRemoteRead) == IBV_ACCESS_REMOTE_READ);
static_assert(static_cast<unsigned>(kAccessRemoteAtomic) == IBV_ACCESS_REMOTE_ATOMIC);
static_assert(static_cast<unsigned>(kAccessMwBind) == IBV_ACCESS_MW_BIND);
static_assert(static_cast<unsigned>(kAccessZeroBased) == IBV_ACCESS_ZERO_BASED);
static_assert(static_cast<unsigned>(kAccessOnDemand) == IBV_ACCESS_ON_DEMAND);

/// What the engine knows of access rights.
constexpr unsigned kEngineAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic | kAccessMwBind | kAccessOnDemand;

/// What the kernel is told where a region begins for those who name it: of it the kernel only wants that pages begin
/// where the region's do, which a region that counts from 0 does not promise.
uint64_t kernel_iova(const void* addr, uint64_t iova) {
  const auto at = reinterpret_cast<uintptr_t>(addr);
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  return (at & page) == (iova & page) ? iova : at;
}

/// 0, or why there cannot be such a region.
int check_region(uint64_t start, uint64_t length, unsigned access) {
  if (const int rc = usiw_check_region(start, length, access); rc != 0) return -rc;
  return (access & IBV_ACCESS_ON_DEMAND) == 0 || UserMemory::can_be_on_demand() ? 0 : EOPNOTSUPP;
}

template <typename T>
T* failed(int error) {
  errno = error;
  return nullptr;
}

}  // namespace

extern "C" ibv_mr* usiw_verb_reg_mr(ibv_pd* ibpd, void* addr, size_t length, uint64_t iova, int access) {
  Runtime& runtime = *Context::of(ibpd->context).runtime;
  if (runtime.dead()) return failed<ibv_mr>(EINVAL);
  const auto rights = static_cast<unsigned>(access);
  const auto start = reinterpret_cast<uintptr_t>(addr);
  if (int rc = check_region(start, length, rights); rc != 0) return failed<ibv_mr>(rc);
  auto* mr = new (std::nothrow) VMr{};
  if (mr == nullptr) return failed<ibv_mr>(ENOMEM);
  if ((rights & IBV_ACCESS_ZERO_BASED) != 0) iova = 0;
  // The kernel may hand a freed STag index out at once: both tables change together.
  std::lock_guard hold(runtime.region_lock());
  int rc = usiw_cmd_reg_mr(ibpd, addr, length, kernel_iova(addr, iova), access, mr);
  if (rc == 0) {
    mr->access = rights;
    mr->attr = {.stag = mr->ibv.lkey,
                .pd = from(ibpd)->number,
                .access = rights & kEngineAccess,
                .addr = start,
                .length = length,
                .iova = iova};
    rc = runtime.hold()->mr_add(mr->attr);
    if (rc != 0) usiw_cmd_dereg_mr(mr);
  }
  if (rc != 0) {
    delete mr;
    return failed<ibv_mr>(rc);
  }
  mr->domain = from(ibpd);
  ++mr->domain->users;
  return &mr->ibv;
}

/// The kernel's twin has no memory either.
extern "C" ibv_mr* usiw_verb_alloc_null_mr(ibv_pd* ibpd) {
  Runtime& runtime = *Context::of(ibpd->context).runtime;
  if (runtime.dead()) return failed<ibv_mr>(EINVAL);
  auto* mr = new (std::nothrow) VMr{};
  if (mr == nullptr) return failed<ibv_mr>(ENOMEM);
  mr->null = true;
  std::lock_guard hold(runtime.region_lock());
  int rc = usiw_cmd_reg_mr(ibpd, nullptr, 0, 0, IBV_ACCESS_LOCAL_WRITE, mr);
  if (rc == 0) {
    mr->attr.stag = mr->ibv.lkey;
    rc = runtime.hold()->mr_add_null(mr->attr.stag, from(ibpd)->number);
    if (rc != 0) usiw_cmd_dereg_mr(mr);
  }
  if (rc != 0) {
    delete mr;
    return failed<ibv_mr>(rc);
  }
  usiw_mr_is_null(mr);
  mr->ibv.context = ibpd->context;
  mr->ibv.pd = ibpd;
  mr->ibv.addr = nullptr;
  mr->ibv.length = SIZE_MAX;
  mr->ibv.rkey = 0;  // peers have no name for it
  mr->domain = from(ibpd);
  ++mr->domain->users;
  return &mr->ibv;
}

/// The library has checked that addr and length are there where the flags say so, and sets those and the PD in the
/// region when this has succeeded.
extern "C" int usiw_verb_rereg_mr(ibv_mr* ibmr, int flags, ibv_pd* ibpd, void* addr, size_t length, int access) {
  VMr* mr = from(ibmr);
  Runtime& runtime = *Context::of(ibmr->context).runtime;
  if (runtime.dead() || mr->null) return EINVAL;
  const bool other_pd = (flags & IBV_REREG_MR_CHANGE_PD) != 0;
  if (int rc = usiw_check_rereg(static_cast<unsigned>(flags)); rc != 0) return -rc;
  if (other_pd && (ibpd == nullptr || ibpd->context != ibmr->context)) return EINVAL;

  std::lock_guard hold(runtime.region_lock());
  MrAttr now = mr->attr;
  unsigned rights = mr->access;
  if (other_pd) now.pd = from(ibpd)->number;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) rights = static_cast<unsigned>(access);
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    now.addr = now.iova = reinterpret_cast<uintptr_t>(addr);
    now.length = length;
  }
  now.access = rights & kEngineAccess;
  if ((rights & IBV_ACCESS_ZERO_BASED) != 0)
    now.iova = 0;
  else if ((mr->access & IBV_ACCESS_ZERO_BASED) != 0)
    now.iova = now.addr;
  if (int rc = check_region(now.addr, now.length, rights); rc != 0) return rc;

  if (int rc = runtime.hold()->mr_close(mr->attr.stag); rc != 0) return rc;
  const auto* start = reinterpret_cast<const void*>(now.addr);
  const uint64_t iova = kernel_iova(start, now.iova);
  if (int rc = usiw_cmd_rereg_mr(mr, flags, other_pd ? ibpd : ibmr->pd, addr, length, iova, access); rc != 0) {
    runtime.hold()->mr_reopen(mr->attr.stag);
    return rc;
  }
  now.stag = mr->ibv.lkey;
  if (int rc = runtime.hold()->mr_change(mr->attr.stag, now); rc != 0) return rc;
  mr->attr = now;
  mr->access = rights;
  if (other_pd) {
    ++from(ibpd)->users;
    --mr->domain->users;
    mr->domain = from(ibpd);
  }
  return 0;
}

extern "C" int usiw_verb_dereg_mr(ibv_mr* ibmr) {
  VMr* mr = from(ibmr);
  Runtime& runtime = *Context::of(ibmr->context).runtime;
  if (runtime.dead()) return EINVAL;
  {
    std::lock_guard hold(runtime.region_lock());
    if (int rc = runtime.hold()->mr_close(mr->attr.stag); rc != 0) return rc;
    if (int rc = usiw_cmd_dereg_mr(mr); rc != 0) {
      runtime.hold()->mr_reopen(mr->attr.stag);
      return rc;
    }
    runtime.hold()->mr_remove(mr->attr.stag);
  }
  --mr->domain->users;
  delete mr;
  return 0;
}
