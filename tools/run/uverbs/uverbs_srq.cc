// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_srq.cc
/// The commands for shared receive queues. Each command returns what kmod/usiw_verbs.c would return.
#include <algorithm>
#include <cerrno>

#include "cm/object/usiw_limits.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

/// Carries out CREATE_SRQ or CREATE_XSRQ, whose core structures differ. The driver's data follows the core structure.
template <typename Core>
int create_srq(UverbsContext& u, const Command& c, const Core& cmd) {
  std::shared_ptr<Pd> pd = u.find(u.pds, cmd.pd_handle);
  if (!pd) return -EINVAL;
  if (int ret = usiw_check_srq(cmd.max_wr, cmd.max_sge); ret != 0) return ret;
  if (int ret = c.check_driver_data<usiw_create_srq_req>(sizeof cmd); ret != 0) return ret;
  if (Counted<Srq>::number() >= USIW_MAX_SRQ) return -ENOMEM;
  ib_uverbs_create_srq_resp r{};
  r.srq_handle = u.next_handle++;
  r.max_wr = cmd.max_wr;
  r.max_sge = cmd.max_sge;
  auto srq = std::make_shared<Srq>(
      Srq{.pd = pd, .user_handle = cmd.user_handle, .max_wr = cmd.max_wr, .max_sge = cmd.max_sge});
  if (int ret = c.respond(r); ret != 0) return ret;
  u.srqs[r.srq_handle] = srq;
  return 0;
}

int create_xsrq(UverbsContext& u, const Command& c, const ib_uverbs_create_xsrq& cmd) {
  return cmd.srq_type == IBV_SRQT_BASIC ? create_srq(u, c, cmd) : -EOPNOTSUPP;
}

int modify_srq(UverbsContext& u, const Command&, const ib_uverbs_modify_srq& cmd) {
  std::shared_ptr<Srq> srq = u.find(u.srqs, cmd.srq_handle);
  if (!srq) return u.no_such(cmd.srq_handle);
  if (int ret = usiw_check_modify_srq(cmd.attr_mask, cmd.max_wr, cmd.srq_limit, srq->max_wr); ret != 0) return ret;
  if ((cmd.attr_mask & USIW_SRQ_ATTR_MAX_WR) != 0) {
    srq->max_wr = cmd.max_wr;
    srq->limit = std::min(srq->limit, srq->max_wr);
  }
  if ((cmd.attr_mask & USIW_SRQ_ATTR_LIMIT) != 0) srq->limit = cmd.srq_limit;
  return 0;
}

int query_srq(UverbsContext& u, const Command& c, const ib_uverbs_query_srq& cmd) {
  std::shared_ptr<Srq> srq = u.find(u.srqs, cmd.srq_handle);
  if (!srq) return u.no_such(cmd.srq_handle);
  ib_uverbs_query_srq_resp r{};
  r.max_wr = srq->max_wr;
  r.max_sge = srq->max_sge;
  r.srq_limit = srq->limit;
  return c.respond(r);
}

int destroy_srq(UverbsContext& u, const Command& c, const ib_uverbs_destroy_srq& cmd) {
  int error;
  const std::shared_ptr<Srq> srq = u.remove(u.srqs, cmd.srq_handle, error);
  if (!srq) return error;
  u.async->purge(srq->async_events);
  return c.respond(ib_uverbs_destroy_srq_resp{*srq->async_events});
}

constexpr UverbsMethod kMethodsOfSrq[] = {
    method<create_srq<ib_uverbs_create_srq>>(IB_USER_VERBS_CMD_CREATE_SRQ, sizeof(ib_uverbs_create_srq_resp)),
    method<create_xsrq>(IB_USER_VERBS_CMD_CREATE_XSRQ, sizeof(ib_uverbs_create_srq_resp)),
    method<modify_srq>(IB_USER_VERBS_CMD_MODIFY_SRQ),
    method<query_srq>(IB_USER_VERBS_CMD_QUERY_SRQ, sizeof(ib_uverbs_query_srq_resp)),
    method<destroy_srq>(IB_USER_VERBS_CMD_DESTROY_SRQ, sizeof(ib_uverbs_destroy_srq_resp)),
};

}  // namespace

const std::span<const UverbsMethod> kSrqMethods = kMethodsOfSrq;

int srq_event(UverbsContext& u, uint32_t handle, uint32_t kind) {
  std::shared_ptr<Srq> srq = u.find(u.srqs, handle);
  if (!srq) return u.no_such(handle);
  if (kind != USIW_SRQ_LIMIT) return -EINVAL;
  srq->limit = 0;
  u.async->push({srq->user_handle, IBV_EVENT_SRQ_LIMIT_REACHED, 0}, srq->async_events);
  return 0;
}

}  // namespace usiw::run
