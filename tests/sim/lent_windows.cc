// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "lent_windows.h"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace usiw::sim {
namespace {

constexpr uint32_t kRights = kAccessRemoteRead | kAccessRemoteWrite | kAccessRemoteAtomic;
constexpr uint32_t kAccess = kRights | kAccessLocalWrite | kAccessMwBind;

}  // namespace

LentWindows::LentWindows(World& world, Engine& engine, int side, uint32_t stag)
    : Reporter(world, side),
      engine_(engine),
      blocks_{{stag << 8 | 0x99, kAccess, world.sc.seed + stag},
              {(stag + 1) << 8 | 0xaa, kAccess, world.sc.seed + stag + 1}} {
  blocks_[1].pd = kOtherPd;
  for (Block& b : blocks_) {
    b.size = kAt + kLentBytes;
    b.make();
    if (engine.mr_add(b.attr()) != 0) w_.fail("setup", "mr_add");
  }
}

void LentWindows::add(uint32_t stag, uint32_t pd, uint32_t owner, std::function<bool()> lives) {
  // Every QP of its PD may use a window of type 1.
  const bool type2 = w_.mutation != Mutation::kForgetStream;
  if (engine_.mw_add({stag, pd, type2}) != 0) w_.fail("setup", "mw_add");
  windows_.push_back({stag, pd, owner, std::move(lives)});
}

void LentWindows::fill_bind(uint32_t stag, Qp::SendWr& wr) const {
  const auto w = std::find_if(windows_.begin(), windows_.end(), [&](const Window& it) { return it.stag == stag; });
  wr.rkey = stag;
  wr.imm = w_.mutation != Mutation::kForgetStream ? 1 : 0;
  wr.remote_addr = address(w->pd);
  wr.bind = {.length = kLentBytes, .access = kRights, .region = block(w->pd).stag};
}

void LentWindows::bound(uint32_t stag) {
  for (Window& w : windows_)
    if (w.stag == stag) w.bound = true;
  if (w_.mutation == Mutation::kForgetStream) ++w_.mutated;
}

const LentWindows::Window* LentWindows::of_another(uint32_t owner, bool living) const {
  std::vector<const Window*> some;
  for (const Window& w : windows_)
    if (w.bound && w.owner != owner && (!living || w.lives())) some.push_back(&w);
  return some.empty() ? nullptr : some[w_.rng.below(some.size())];
}

void LentWindows::check() {
  if (w_.sc.has(kRaw)) return;
  for (const Block& b : blocks_)
    if (!b.untouched({{0, b.size}}))
      fail("lent", "memory has changed, and all windows to it are those of connections that do not work on it");
}

void LentWindows::check_end() {
  check();
  for (const Block& b : blocks_) {
    const auto of_block = [&](const Window& w) { return w.bound && w.pd == b.pd; };
    const bool some = std::any_of(windows_.begin(), windows_.end(), of_block);
    const int rc = some ? engine_.mr_remove(b.stag) : EBUSY;
    if (rc != EBUSY) return fail("lent", "a window has been unbound, by nobody who may");
  }
  for (const Window& w : windows_)
    if (engine_.mw_remove(w.stag) != 0) w_.fail("setup", "mw_remove");
  for (const Block& b : blocks_)
    if (engine_.mr_remove(b.stag) != 0) w_.fail("setup", "mr_remove");
}

}  // namespace usiw::sim
