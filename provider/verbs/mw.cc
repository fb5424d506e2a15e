// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mw.cc
/// Memory windows: the kernel gives the name, the engine knows what it is bound to.
#include <cerrno>
#include <mutex>
#include <new>

#include "cm/object/usiw_limits.h"
#include "runtime/runtime.h"

using namespace usiw;

extern "C" ibv_mw* usiw_verb_alloc_mw(ibv_pd* ibpd, ibv_mw_type type) {
  Runtime& runtime = *Context::of(ibpd->context).runtime;
  int rc = runtime.dead() ? EINVAL : -usiw_check_mw_type(type);
  VMw* mw = rc == 0 ? new (std::nothrow) VMw{} : nullptr;
  if (mw == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  // As with regions: the kernel may hand a freed STag index out at once.
  std::lock_guard hold(runtime.region_lock());
  rc = usiw_cmd_alloc_mw(ibpd, type, &mw->ibv);
  if (rc == 0) {
    rc = runtime.hold()->mw_add(
        {.stag = mw->ibv.rkey, .pd = from(ibpd)->number, .type2 = type == IBV_MW_TYPE_2});
    if (rc != 0) usiw_cmd_dealloc_mw(&mw->ibv);
  }
  if (rc != 0) {
    delete mw;
    errno = rc;
    return nullptr;
  }
  mw->domain = from(ibpd);
  ++mw->domain->users;
  return &mw->ibv;
}

extern "C" int usiw_verb_dealloc_mw(ibv_mw* ibmw) {
  VMw* mw = from(ibmw);
  Runtime& runtime = *Context::of(ibmw->context).runtime;
  if (runtime.dead()) return EINVAL;
  {
    std::lock_guard hold(runtime.region_lock());
    if (int rc = usiw_cmd_dealloc_mw(ibmw); rc != 0) return rc;
    runtime.hold()->mw_remove(ibmw->rkey);
  }
  --mw->domain->users;
  delete mw;
  return 0;
}
