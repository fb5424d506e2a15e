// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_objects.cc
/// Protection domains, memory regions, completion channels and queues.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <set>

#include "cm/usiw_limits.h"
#include "random.h"
#include "uverbs.h"

namespace usiw::run {
namespace {

static_assert(USIW_ACCESS_KNOWN == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_OPTIONAL_RANGE));

/// 0 if [start, start + length) is mapped with the rights that @p access needs; else -EFAULT.
int check_mapped(uint64_t start, uint64_t length, uint32_t access) {
  const bool write = usiw_access_writes(access) != 0;
  uint64_t end;
  if (length == 0) return 0;
  if (__builtin_add_overflow(start, length, &end)) return -EFAULT;
  FILE* maps = fopen("/proc/thread-self/maps", "re");  // main may have ended
  if (maps == nullptr) return 0;  // no /proc: nothing can be said
  uint64_t at = start;
  char line[512];
  while (at < end && fgets(line, sizeof line, maps) != nullptr) {
    unsigned long from, to;
    char rights[5];
    if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || to <= at) continue;
    if (from > at || rights[0] != 'r' || (write && rights[1] != 'w')) break;
    at = to;
  }
  fclose(maps);
  return at >= end ? 0 : -EFAULT;
}

/// STag indices in use by this process.
std::set<uint32_t>& mr_indices() {
  static auto& used = *new std::set<uint32_t>;
  return used;
}

}  // namespace

int UverbsFile::alloc_pd(const Command& c) {
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

int UverbsFile::reg_mr(const Command& c) {
  const auto& cmd = c.core<ib_uverbs_reg_mr>();
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) - 1;
  if ((cmd.start & page) != (cmd.hca_va & page)) return -EINVAL;
  int ret = usiw_check_access(cmd.access_flags);
  if (ret != 0) return ret;
  std::shared_ptr<Pd> pd = find(pds_, cmd.pd_handle);
  if (!pd) return -EINVAL;
  ret = check_mapped(cmd.start, cmd.length, cmd.access_flags);
  if (ret != 0) return ret;

  // Cyclic, so that an STag that a peer still has does not name another region soon.
  static uint32_t next = random_u32() % USIW_MR_INDEX_LAST;
  auto& used = mr_indices();
  if (used.size() > USIW_MR_INDEX_LAST - USIW_MR_INDEX_FIRST) return -ENOMEM;
  do {
    next = next >= USIW_MR_INDEX_LAST ? USIW_MR_INDEX_FIRST : next + 1;
  } while (used.count(next) != 0);
  ib_uverbs_reg_mr_resp r{};
  r.mr_handle = next_handle_++;
  r.lkey = r.rkey = usiw_stag(next, random_u32());
  ret = respond(c, r);
  if (ret != 0) return ret;
  used.insert(next);
  mrs_[r.mr_handle] = std::make_shared<Mr>(Mr{pd, next});
  return 0;
}

int UverbsFile::dereg_mr(const Command& c) {
  auto it = mrs_.find(c.core<ib_uverbs_dereg_mr>().mr_handle);
  if (it == mrs_.end()) return -ENOENT;
  mr_indices().erase(it->second->index);
  mrs_.erase(it);
  return 0;
}

int UverbsFile::create_comp_channel(const Command& c) {
  auto channel = std::make_shared<ChannelFile>();
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
  if (cqs_.size() >= USIW_MAX_CQ) return -ENOMEM;
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
