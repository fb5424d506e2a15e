// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_objects.cc
/// The commands for protection domains, completion channels and completion queues.
#include <cerrno>

#include "cm/object/usiw_limits.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

int alloc_pd(UverbsContext& u, const Command& c, const ib_uverbs_alloc_pd&) {
  if (Counted<Pd>::number() >= USIW_MAX_PD) return -ENOMEM;
  ib_uverbs_alloc_pd_resp r{};
  r.pd_handle = u.next_handle++;
  if (int ret = c.respond(r); ret != 0) return ret;
  u.pds[r.pd_handle] = std::make_shared<Pd>();
  return 0;
}

int dealloc_pd(UverbsContext& u, const Command&, const ib_uverbs_dealloc_pd& cmd) {
  int error;
  u.remove(u.pds, cmd.pd_handle, error);
  return error;
}

int create_comp_channel(UverbsContext& u, const Command& c, const ib_uverbs_create_comp_channel&) {
  auto channel = std::make_shared<ChannelFile>(u.engine);
  int fd = ChannelFile::open(channel);
  if (fd < 0) return fd;
  ib_uverbs_create_comp_channel_resp r{static_cast<uint32_t>(fd)};
  int ret = c.respond(r);
  if (ret != 0) file_close(fd);
  return ret;
}

int create_cq(UverbsContext& u, const Command& c, const ib_uverbs_create_cq& cmd) {
  struct {
    ib_uverbs_create_cq_resp core;
    usiw_create_cq_resp drv;
  } r{};
  if (cmd.comp_vector >= USIW_COMP_VECTORS) return -EINVAL;
  std::shared_ptr<ChannelFile> channel;
  if (cmd.comp_channel >= 0) {
    channel = std::dynamic_pointer_cast<ChannelFile>(file_of(cmd.comp_channel));
    if (!channel) return -EBADF;
  }
  if (int ret = usiw_check_cqe(cmd.cqe); ret != 0) return ret;
  if (int ret = c.check_driver_data<usiw_create_cq_req>(sizeof cmd); ret != 0) return ret;
  if (Counted<Cq>::number() >= USIW_MAX_CQ) return -ENOMEM;
  r.core.cq_handle = r.drv.cqn = u.next_handle++;
  r.core.cqe = cmd.cqe;
  if (int ret = c.respond(r); ret != 0) return ret;
  u.cqs[r.core.cq_handle] = std::make_shared<Cq>(
      Cq{.user_handle = cmd.user_handle, .cqe = cmd.cqe, .channel = channel});
  return 0;
}

int resize_cq(UverbsContext& u, const Command& c, const ib_uverbs_resize_cq& cmd) {
  std::shared_ptr<Cq> cq = u.find(u.cqs, cmd.cq_handle);
  if (!cq) return u.no_such(cmd.cq_handle);
  struct {
  } none;
  if (int ret = c.read_driver_data(sizeof cmd, none); ret != 0) return ret;
  if (int ret = usiw_check_cqe(cmd.cqe); ret != 0) return ret;
  cq->cqe = cmd.cqe;
  ib_uverbs_resize_cq_resp r{};
  r.cqe = cmd.cqe;
  return c.respond(r);
}

int destroy_cq(UverbsContext& u, const Command& c, const ib_uverbs_destroy_cq& cmd) {
  int error;
  const std::shared_ptr<Cq> cq = u.remove(u.cqs, cmd.cq_handle, error);
  if (!cq) return error;
  if (cq->channel) cq->channel->purge(cq->comp_events);
  u.async->purge(cq->async_events);
  return c.respond(ib_uverbs_destroy_cq_resp{*cq->comp_events, *cq->async_events});
}

constexpr UverbsMethod kMethodsOfObjects[] = {
    method<alloc_pd>(IB_USER_VERBS_CMD_ALLOC_PD, sizeof(ib_uverbs_alloc_pd_resp)),
    method<dealloc_pd>(IB_USER_VERBS_CMD_DEALLOC_PD),
    method<create_comp_channel>(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, sizeof(ib_uverbs_create_comp_channel_resp)),
    method<create_cq>(IB_USER_VERBS_CMD_CREATE_CQ, sizeof(ib_uverbs_create_cq_resp)),
    method<resize_cq>(IB_USER_VERBS_CMD_RESIZE_CQ, sizeof(ib_uverbs_resize_cq_resp)),
    method<destroy_cq>(IB_USER_VERBS_CMD_DESTROY_CQ, sizeof(ib_uverbs_destroy_cq_resp)),
};

}  // namespace

const std::span<const UverbsMethod> kObjectMethods = kMethodsOfObjects;

int cq_event(UverbsContext& u, uint32_t handle, uint32_t kind) {
  std::shared_ptr<Cq> cq = u.find(u.cqs, handle);
  if (!cq) return u.no_such(handle);
  switch (kind) {
    case USIW_CQ_COMPLETION:
      if (cq->channel) cq->channel->push({cq->user_handle}, cq->comp_events);
      return 0;
    case USIW_CQ_OVERRUN: u.async->push({cq->user_handle, IBV_EVENT_CQ_ERR, 0}, cq->async_events); return 0;
    default: return -EINVAL;
  }
}

}  // namespace usiw::run
