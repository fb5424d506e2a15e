// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file advise.cc
/// ibv_advise_mr(): the pages of a region are the process's own, so the advice is passed on to its kernel.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "runtime/runtime.h"

using namespace usiw;

namespace {

/// Has the kernel bring @p length bytes in. 0, or EFAULT where nothing is mapped.
int prefetch(ibv_advise_mr_advice advice, bool flush, const std::byte* at, uint32_t length) {
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return 0;  // what is there, the engine has
  int what = MADV_WILLNEED;
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE)
    what = MADV_POPULATE_WRITE;
  else if (flush)
    what = MADV_POPULATE_READ;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(at);
  const uintptr_t first = begin / page * page;
  if (madvise(reinterpret_cast<void*>(first), begin - first + length, what) == 0) return 0;
  // It is advice: what this kernel or this kind of memory does not know need not be done.
  return errno == ENOMEM || errno == EFAULT || errno == EHWPOISON ? EFAULT : 0;
}

/// One range of ibv_advise_mr(3).
int advise(Runtime& runtime, uint32_t pd, ibv_advise_mr_advice advice, bool flush, const ibv_sge& sge) {
  if (sge.lkey >> 8 >= USIW_MAX_MR) return EINVAL;  // a window
  MrFault why;
  const std::byte* at = runtime.hold()->mr_find(sge.lkey, pd, kAccessOnDemand, sge.addr, sge.length, why);
  if (why == MrFault::kPd) return EPERM;
  if (why == MrFault::kAccess) return ENOENT;  // not registered on demand
  if (at == nullptr) return EFAULT;
  if (advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE) {
    runtime.hold()->mr_find(sge.lkey, pd, kAccessLocalWrite, sge.addr, sge.length, why);
    if (why != MrFault::kNone) return EPERM;
  }
  return prefetch(advice, flush, at, sge.length);
}

}  // namespace

extern "C" int usiw_verb_advise_mr(ibv_pd* ibpd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
                                   uint32_t num_sge) {
  Runtime& runtime = *Context::of(ibpd->context).runtime;
  if (runtime.dead()) return EINVAL;
  if (advice != IBV_ADVISE_MR_ADVICE_PREFETCH && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE &&
      advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT)
    return ENOTSUP;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || num_sge == 0) return EINVAL;
  for (uint32_t i = 0; i < num_sge; i++)
    if (int rc = advise(runtime, from(ibpd)->number, advice, (flags & IBV_ADVISE_MR_FLAG_FLUSH) != 0, sges[i]); rc != 0)
      return rc;
  return 0;
}
