// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file srq.cc
/// Shared receive queues. Posting to them is in post.cc.
#include <algorithm>
#include <bit>
#include <cerrno>
#include <mutex>
#include <new>

#include "runtime/runtime.h"
#include "cm/object/usiw_limits.h"

using namespace usiw;

extern "C" ibv_srq* usiw_verb_create_srq(ibv_pd* ibpd, ibv_srq_init_attr* attr) {
  Context& context = Context::of(ibpd->context);
  Runtime& runtime = *context.runtime;
  int rc = runtime.dead() ? EINVAL : -usiw_check_srq(attr->attr.max_wr, attr->attr.max_sge);
  VSrq* srq = rc == 0 ? new (std::nothrow) VSrq{} : nullptr;
  if (srq == nullptr) {
    errno = rc != 0 ? rc : ENOMEM;
    return nullptr;
  }
  srq->context = &context;
  srq->runtime = &runtime;
  srq->limit.srq = srq;
  // Granted: what the ring will really hold, a power of two, and one SGE at least.
  ibv_srq_init_attr granted = *attr;
  granted.attr.max_wr = std::bit_ceil(attr->attr.max_wr);
  granted.attr.max_sge = std::max(1u, attr->attr.max_sge);
  const ibv_srq_attr cap = granted.attr;
  rc = usiw_cmd_create_srq(ibpd, &srq->ibv, &granted);
  if (rc == 0) {
    srq->srq = runtime.hold()->srq_create(
        {.pd = from(ibpd)->number, .max_wr = cap.max_wr, .max_sge = cap.max_sge, .owner = srq});
    if (srq->srq == nullptr) {
      usiw_cmd_destroy_srq(&srq->ibv);
      rc = ENOMEM;
    }
  }
  if (rc != 0) {
    delete srq;
    errno = rc;
    return nullptr;
  }
  srq->domain = from(ibpd);
  ++srq->domain->users;
  if (srq->domain->one_thread()) srq->turn.never_contended();
  attr->attr.max_wr = cap.max_wr;
  attr->attr.max_sge = cap.max_sge;
  return &srq->ibv;
}

/// Comes for what ibv_create_srq() cannot say: of that only the basic type is there. The library leaves to the driver
/// what it does for ibv_create_srq() by itself.
extern "C" ibv_srq* usiw_verb_create_srq_ex(ibv_context* ctx, ibv_srq_init_attr_ex* attr) {
  const bool typed = (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0;
  if ((typed && attr->srq_type != IBV_SRQT_BASIC) || attr->comp_mask >= IBV_SRQ_INIT_ATTR_RESERVED) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) == 0 || attr->pd->context != ctx) {
    errno = EINVAL;
    return nullptr;
  }
  ibv_srq_init_attr basic{.srq_context = attr->srq_context, .attr = attr->attr};
  ibv_srq* srq = usiw_verb_create_srq(attr->pd, &basic);
  if (srq == nullptr) return nullptr;
  attr->attr = basic.attr;
  srq->context = ctx;
  srq->srq_context = attr->srq_context;
  srq->pd = attr->pd;
  pthread_mutex_init(&srq->mutex, nullptr);
  pthread_cond_init(&srq->cond, nullptr);
  return srq;
}

extern "C" int usiw_verb_modify_srq(ibv_srq* ibsrq, ibv_srq_attr* attr, int mask) {
  VSrq& srq = *from(ibsrq);
  Runtime& runtime = *srq.runtime;
  if (runtime.dead()) return EINVAL;
  std::lock_guard in_turn(srq.turn);
  const uint32_t before = srq.srq->capacity();
  const auto what = static_cast<uint32_t>(mask);
  if (int rc = usiw_check_modify_srq(what, attr->max_wr, attr->srq_limit, before); rc != 0) return -rc;
  ibv_srq_attr granted = *attr;
  if ((what & USIW_SRQ_ATTR_MAX_WR) != 0) {
    // Ahead of the kernel: only the engine knows whether what is in the queue has room.
    granted.max_wr = std::bit_ceil(attr->max_wr);
    auto engine = runtime.hold();
    if ((what & USIW_SRQ_ATTR_LIMIT) == 0 && engine->srq_limit(srq.srq) > granted.max_wr) return EINVAL;
    if (int rc = engine->srq_resize(srq.srq, granted.max_wr); rc != 0) return rc;
  }
  if (int rc = usiw_cmd_modify_srq(ibsrq, &granted, mask); rc != 0) {
    if ((what & USIW_SRQ_ATTR_MAX_WR) != 0) runtime.hold()->srq_resize(srq.srq, before);
    return rc;
  }
  if ((what & USIW_SRQ_ATTR_LIMIT) != 0) runtime.hold()->srq_arm(srq.srq, attr->srq_limit);
  return 0;
}

extern "C" int usiw_verb_query_srq(ibv_srq* ibsrq, ibv_srq_attr* attr) {
  VSrq& srq = *from(ibsrq);
  if (srq.runtime->dead()) return EINVAL;
  if (int rc = usiw_cmd_query_srq(ibsrq, attr); rc != 0) return rc;
  attr->srq_limit = srq.runtime->hold()->srq_limit(srq.srq);  // the engine knows before the kernel
  return 0;
}

extern "C" int usiw_verb_destroy_srq(ibv_srq* ibsrq) {
  VSrq* srq = from(ibsrq);
  Runtime& runtime = *srq->runtime;
  if (runtime.dead()) return EINVAL;
  Reports::settle(*srq);  // as of a CQ
  if (int rc = usiw_cmd_destroy_srq(ibsrq); rc != 0) return rc;  // EBUSY while a QP uses it
  runtime.hold()->srq_destroy(srq->srq);
  --srq->domain->users;
  delete srq;
  return 0;
}
