// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_objects.cc
/// Protection domains, completion channels and queues.
#include <cerrno>

#include "cm/object/usiw_limits.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {

int UverbsFile::alloc_pd(const Command& c) {
  if (Counted<Pd>::number() >= USIW_MAX_PD) return -ENOMEM;
  ib_uverbs_alloc_pd_resp r{};
  r.pd_handle = next_handle_++;
  if (int ret = respond(c, r); ret != 0) return ret;
  pds_[r.pd_handle] = std::make_shared<Pd>();
  return 0;
}

int UverbsFile::dealloc_pd(const Command& c) {
  auto it = pds_.find(c.core<ib_uverbs_dealloc_pd>().pd_handle);
  if (it == pds_.end()) return -ENOENT;
  if (busy(it->second)) return -EBUSY;
  pds_.erase(it);
  return 0;
}

int UverbsFile::create_comp_channel(const Command& c) {
  auto channel = std::make_shared<ChannelFile>(engine_);
  int fd = ChannelFile::open(channel);
  if (fd < 0) return fd;
  ib_uverbs_create_comp_channel_resp r{static_cast<uint32_t>(fd)};
  int ret = respond(c, r);
  if (ret != 0) file_close(fd);
  return ret;
}

int UverbsFile::create_cq(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_create_cq>();
  struct {
    ib_uverbs_create_cq_resp core;
    usiw_create_cq_resp drv;
  } r{};
  usiw_create_cq_req req;
  if (cmd.comp_vector >= USIW_COMP_VECTORS) return -EINVAL;
  std::shared_ptr<ChannelFile> channel;
  if (cmd.comp_channel >= 0) {
    channel = std::dynamic_pointer_cast<ChannelFile>(file_of(cmd.comp_channel));
    if (!channel) return -EBADF;
  }
  if (int ret = usiw_check_cqe(cmd.cqe); ret != 0) return ret;
  if (int ret = read_request(c, sizeof cmd, req, 0); ret != 0) return ret;
  if (req.comp_mask != 0) return -EOPNOTSUPP;
  if (req.reserved != 0) return -EINVAL;
  if (Counted<Cq>::number() >= USIW_MAX_CQ) return -ENOMEM;
  r.core.cq_handle = r.drv.cqn = next_handle_++;
  r.core.cqe = cmd.cqe;
  if (int ret = respond(c, r); ret != 0) return ret;
  cqs_[r.core.cq_handle] =
      std::make_shared<Cq>(Cq{.user_handle = cmd.user_handle, .cqe = cmd.cqe, .channel = channel});
  return 0;
}

int UverbsFile::resize_cq(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_resize_cq>();
  std::shared_ptr<Cq> cq = find(cqs_, cmd.cq_handle);
  if (!cq) return no_such(cmd.cq_handle);
  struct {
  } none;
  if (int ret = read_request(c, sizeof cmd, none, 0); ret != 0) return ret;
  if (int ret = usiw_check_cqe(cmd.cqe); ret != 0) return ret;
  cq->cqe = cmd.cqe;
  ib_uverbs_resize_cq_resp r{};
  r.cqe = cmd.cqe;
  return respond(c, r);
}

int UverbsFile::destroy_cq(const Command& c) {
  auto it = cqs_.find(c.core<ib_uverbs_destroy_cq>().cq_handle);
  if (it == cqs_.end()) return -ENOENT;
  if (busy(it->second)) return -EBUSY;
  Cq& cq = *it->second;
  if (cq.channel) cq.channel->purge(cq.comp_events);
  async_->purge(cq.async_events);
  ib_uverbs_destroy_cq_resp r{*cq.comp_events, *cq.async_events};
  cqs_.erase(it);
  return respond(c, r);
}

}  // namespace usiw::run
