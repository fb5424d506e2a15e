// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_srq.cc
/// Shared receive queues: as kmod/usiw_srq.c answers.
#include <algorithm>
#include <cerrno>

#include "cm/object/usiw_limits.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

/// SRQs of this process, in all its contexts.
size_t& srqs_in_use() {
  static size_t n = 0;
  return n;
}

}  // namespace

Srq::Srq(std::shared_ptr<Pd> of, const SrqAsked& asked)
    : pd(std::move(of)), user_handle(asked.user_handle), max_wr(asked.max_wr), max_sge(asked.max_sge) {
  ++srqs_in_use();
}
Srq::~Srq() { --srqs_in_use(); }

/// @p asked: either command's, its driver's data behind @p core bytes.
int UverbsFile::new_srq(const Command& c, size_t core, const SrqAsked& asked) {
  ib_uverbs_create_srq_resp r{};
  usiw_create_srq_req req;
  std::shared_ptr<Pd> pd = find(pds_, asked.pd_handle);
  if (!pd) return -EINVAL;
  if (int ret = usiw_check_srq(asked.max_wr, asked.max_sge); ret != 0) return ret;
  if (int ret = read_request(c, core, req, 0); ret != 0) return ret;
  if (req.comp_mask != 0) return -EOPNOTSUPP;
  if (req.reserved != 0) return -EINVAL;
  if (srqs_in_use() >= USIW_MAX_SRQ) return -ENOMEM;
  r.srq_handle = next_handle_++;
  r.max_wr = asked.max_wr;
  r.max_sge = asked.max_sge;
  auto srq = std::make_shared<Srq>(pd, asked);
  if (int ret = respond(c, r); ret != 0) return ret;
  srqs_[r.srq_handle] = srq;
  return 0;
}

int UverbsFile::create_srq(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_create_srq>();
  return new_srq(c, sizeof cmd, {cmd.user_handle, cmd.pd_handle, cmd.max_wr, cmd.max_sge});
}

int UverbsFile::create_xsrq(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_create_xsrq>();
  if (cmd.srq_type != IBV_SRQT_BASIC) return -EOPNOTSUPP;
  return new_srq(c, sizeof cmd, {cmd.user_handle, cmd.pd_handle, cmd.max_wr, cmd.max_sge});
}

int UverbsFile::modify_srq(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_modify_srq>();
  std::shared_ptr<Srq> srq = find(srqs_, cmd.srq_handle);
  if (!srq) return no_such(cmd.srq_handle);
  if (int ret = usiw_check_modify_srq(cmd.attr_mask, cmd.max_wr, cmd.srq_limit, srq->max_wr); ret != 0) return ret;
  if ((cmd.attr_mask & USIW_SRQ_ATTR_MAX_WR) != 0) {
    srq->max_wr = cmd.max_wr;
    srq->limit = std::min(srq->limit, srq->max_wr);
  }
  if ((cmd.attr_mask & USIW_SRQ_ATTR_LIMIT) != 0) srq->limit = cmd.srq_limit;
  return 0;
}

int UverbsFile::query_srq(const Command& c) {
  const uint32_t handle = c.core<ib_uverbs_query_srq>().srq_handle;
  std::shared_ptr<Srq> srq = find(srqs_, handle);
  if (!srq) return no_such(handle);
  ib_uverbs_query_srq_resp r{};
  r.max_wr = srq->max_wr;
  r.max_sge = srq->max_sge;
  r.srq_limit = srq->limit;
  return respond(c, r);
}

int UverbsFile::destroy_srq(const Command& c) {
  auto it = srqs_.find(c.core<ib_uverbs_destroy_srq>().srq_handle);
  if (it == srqs_.end()) return -ENOENT;
  if (busy(it->second)) return -EBUSY;
  const std::shared_ptr<uint32_t> async_events = it->second->async_events;
  async_->purge(async_events);
  srqs_.erase(it);
  return respond(c, ib_uverbs_destroy_srq_resp{*async_events});
}

int UverbsFile::srq_event(uint32_t handle, uint32_t kind) {
  std::shared_ptr<Srq> srq = find(srqs_, handle);
  if (!srq) return no_such(handle);
  if (kind != USIW_SRQ_LIMIT) return -EINVAL;
  srq->limit = 0;
  async_->push({srq->user_handle, IBV_EVENT_SRQ_LIMIT_REACHED, 0}, srq->async_events);
  return 0;
}

}  // namespace usiw::run
