// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file uverbs_memory.cc
/// The commands for memory regions and windows. Each command first makes the checks of the kernel's uverbs core, then
/// returns what kmod/usiw_mr.c would return.
#include <cerrno>
#include <set>

#include "base/machine.h"
#include "cm/object/usiw_limits.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/random.h"
#include "tools/run/libc/mapped.h"
#include "tools/run/uverbs/uverbs.h"

namespace usiw::run {
namespace {

static_assert(USIW_ACCESS_KNOWN == (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                    IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                    IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE));
static_assert(USIW_REREG_TRANSLATION == IBV_REREG_MR_CHANGE_TRANSLATION);
static_assert(USIW_REREG_PD == IBV_REREG_MR_CHANGE_PD);
static_assert(USIW_REREG_ACCESS == IBV_REREG_MR_CHANGE_ACCESS);

int check_mr(uint64_t start, uint64_t length, uint32_t access) {
  const int ret = usiw_check_region(start, length, access);
  if (ret != 0 || (access & USIW_ACCESS_ON_DEMAND) != 0) return ret;
  return check_mapped(start, length, usiw_access_writes(access) != 0);
}

/// Allocates the indices of STags, from @p first to @p last, in this process. Indices are used in a cycle, so that an
/// STag that a peer still has does not soon name another object.
template <uint32_t first, uint32_t last>
class Indices {
 public:
  /// Returns an index, or 0 if none is left.
  uint32_t take() {
    if (used_.size() > last - first) return 0;
    do {
      next_ = next_ >= last ? first : next_ + 1;
    } while (!used_.insert(next_).second);
    return next_;
  }
  void give_back(uint32_t index) { used_.erase(index); }

 private:
  uint32_t next_ = first + random_u32() % (last - first + 1);
  std::set<uint32_t> used_;
};

auto& regions() { return never_destroyed<Indices<USIW_MR_INDEX_FIRST, USIW_MR_INDEX_LAST>>(); }
auto& windows() { return never_destroyed<Indices<USIW_MW_INDEX_FIRST, USIW_MW_INDEX_LAST>>(); }

bool same_page_offset(uint64_t a, uint64_t b) { return ((a ^ b) & (page_size() - 1)) == 0; }

int check_reg_mr(UverbsContext&, const Command& c) {
  const auto& cmd = c.core<ib_uverbs_reg_mr>();
  return check_mr(cmd.start, cmd.length, cmd.access_flags);
}

int reg_mr(UverbsContext& u, const Command& c, const ib_uverbs_reg_mr& cmd) {
  if (!same_page_offset(cmd.start, cmd.hca_va)) return -EINVAL;
  std::shared_ptr<Pd> pd = u.find(u.pds, cmd.pd_handle);
  if (!pd) return -EINVAL;
  if (c.checked != 0) return c.checked;
  const uint32_t index = regions().take();
  if (index == 0) return -ENOMEM;
  auto mr = std::make_shared<Mr>(pd, usiw_stag(index, random_u32()), cmd.start, cmd.length, cmd.access_flags);
  ib_uverbs_reg_mr_resp r{};
  r.mr_handle = u.next_handle++;
  r.lkey = r.rkey = mr->stag;
  if (int ret = c.respond(r); ret != 0) return ret;
  u.mrs[r.mr_handle] = mr;
  return 0;
}

int check_rereg_mr(UverbsContext& u, const Command& c) {
  const auto& cmd = c.core<ib_uverbs_rereg_mr>();
  uint64_t start = cmd.start, length = cmd.length;
  uint32_t access = cmd.access_flags;
  const bool moves = (cmd.flags & USIW_REREG_TRANSLATION) != 0, other_access = (cmd.flags & USIW_REREG_ACCESS) != 0;
  if (!moves && !other_access) return 0;
  {
    HoldBigLock hold;
    std::shared_ptr<Mr> mr = u.find(u.mrs, cmd.mr_handle);
    if (!mr) return 0;  // rereg_mr() returns the error
    if (!moves) start = mr->start, length = mr->length;
    if (!other_access) access = mr->access;
  }
  return check_mr(start, length, access);
}

int rereg_mr(UverbsContext& u, const Command& c, const ib_uverbs_rereg_mr& cmd) {
  if (int ret = usiw_check_rereg(cmd.flags); ret != 0) return ret;
  const bool moves = (cmd.flags & USIW_REREG_TRANSLATION) != 0, other_access = (cmd.flags & USIW_REREG_ACCESS) != 0;
  if (moves && !same_page_offset(cmd.start, cmd.hca_va)) return -EINVAL;
  std::shared_ptr<Mr> mr = u.find(u.mrs, cmd.mr_handle);
  if (!mr) return u.no_such(cmd.mr_handle);
  std::shared_ptr<Pd> pd = (cmd.flags & USIW_REREG_PD) != 0 ? u.find(u.pds, cmd.pd_handle) : mr->pd;
  if (!pd) return u.no_such(cmd.pd_handle);
  const uint64_t start = moves ? cmd.start : mr->start, length = moves ? cmd.length : mr->length;
  const uint32_t access = other_access ? cmd.access_flags : mr->access;
  if (c.checked != 0) return c.checked;
  const bool renews = usiw_rereg_renews(cmd.flags, mr->access, access) != 0;
  const uint32_t stag = renews ? usiw_stag_renewed(mr->stag, random_u32()) : mr->stag;
  if (int ret = c.respond(ib_uverbs_rereg_mr_resp{stag, stag}); ret != 0) return ret;
  mr->pd = pd;
  mr->stag = stag;
  mr->start = start;
  mr->length = length;
  mr->access = access;
  return 0;
}

int dereg_mr(UverbsContext& u, const Command&, const ib_uverbs_dereg_mr& cmd) {
  return u.mrs.erase(cmd.mr_handle) != 0 ? 0 : u.no_such(cmd.mr_handle);
}

int alloc_mw(UverbsContext& u, const Command& c, const ib_uverbs_alloc_mw& cmd) {
  std::shared_ptr<Pd> pd = u.find(u.pds, cmd.pd_handle);
  if (!pd) return u.no_such(cmd.pd_handle);
  if (int ret = usiw_check_mw_type(cmd.mw_type); ret != 0) return ret;
  const uint32_t index = windows().take();
  if (index == 0) return -ENOMEM;
  auto mw = std::make_shared<Mw>(pd, usiw_stag(index, random_u32()));
  ib_uverbs_alloc_mw_resp r{};
  r.mw_handle = u.next_handle++;
  r.rkey = mw->rkey;
  if (int ret = c.respond(r); ret != 0) return ret;
  u.mws[r.mw_handle] = mw;
  return 0;
}

int dealloc_mw(UverbsContext& u, const Command&, const ib_uverbs_dealloc_mw& cmd) {
  return u.mws.erase(cmd.mw_handle) != 0 ? 0 : u.no_such(cmd.mw_handle);
}

constexpr UverbsMethod kMethodsOfMemory[] = {
    method<reg_mr>(IB_USER_VERBS_CMD_REG_MR, sizeof(ib_uverbs_reg_mr_resp), check_reg_mr),
    method<rereg_mr>(IB_USER_VERBS_CMD_REREG_MR, sizeof(ib_uverbs_rereg_mr_resp), check_rereg_mr),
    method<dereg_mr>(IB_USER_VERBS_CMD_DEREG_MR),
    method<alloc_mw>(IB_USER_VERBS_CMD_ALLOC_MW, sizeof(ib_uverbs_alloc_mw_resp)),
    method<dealloc_mw>(IB_USER_VERBS_CMD_DEALLOC_MW),
};

}  // namespace

Mr::~Mr() { regions().give_back(stag >> USIW_STAG_KEY_BITS); }
Mw::~Mw() { windows().give_back(rkey >> USIW_STAG_KEY_BITS); }

const std::span<const UverbsMethod> kMemoryMethods = kMethodsOfMemory;

}  // namespace usiw::run
