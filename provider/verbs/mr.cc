// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mr.cc
/// Protection domains and memory regions.
#include <cerrno>
#include <mutex>
#include <new>

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

extern "C" ibv_mr* usiw_verb_reg_mr(ibv_pd* ibpd, void* addr, size_t length, uint64_t iova, int access) {
  Runtime& runtime = *Context::of(ibpd->context).runtime;
  if (runtime.dead()) {
    errno = EINVAL;
    return nullptr;
  }
  auto* mr = new (std::nothrow) VMr{};
  if (mr == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  // The kernel may hand a freed STag index out at once: both tables change together.
  std::lock_guard hold(runtime.region_lock());
  int rc = usiw_cmd_reg_mr(ibpd, addr, length, iova, access, mr);
  if (rc == 0) {
    constexpr uint32_t kAccess = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    rc = runtime.hold()->mr_add({.stag = mr->ibv.lkey,
                                  .pd = from(ibpd)->number,
                                  .access = static_cast<uint32_t>(access) & kAccess,
                                  .addr = reinterpret_cast<uintptr_t>(addr),
                                  .length = length,
                                  .iova = iova});
    if (rc != 0) usiw_cmd_dereg_mr(mr);
  }
  if (rc != 0) {
    delete mr;
    errno = rc;
    return nullptr;
  }
  mr->domain = from(ibpd);
  ++mr->domain->users;
  return &mr->ibv;
}

extern "C" int usiw_verb_dereg_mr(ibv_mr* ibmr) {
  VMr* mr = from(ibmr);
  Runtime& runtime = *Context::of(ibmr->context).runtime;
  if (runtime.dead()) return EINVAL;
  {
    std::lock_guard hold(runtime.region_lock());
    if (int rc = usiw_cmd_dereg_mr(mr); rc != 0) return rc;
    runtime.hold()->mr_remove(mr->ibv.lkey);
  }
  --mr->domain->users;
  delete mr;
  return 0;
}
