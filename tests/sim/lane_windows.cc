// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lane_windows.cc
/// Memory windows of a lane: the responder binds and unbinds them, and the requester uses them. The rule: from the
/// moment at which the responder knows that a window is unbound, the window's memory does not change.
#include <algorithm>

#include "model.h"

namespace usiw::sim {

void Lane::make_windows(const LanePlan& plan, uint32_t first_index) {
  for (size_t i = 0; i < plan.windows.size(); ++i) {
    const WindowPlan& p = plan.windows[i];
    const uint32_t index = USIW_MAX_MR + first_index + static_cast<uint32_t>(p.slot);
    Window w{.plan = &p, .stag = index << 8 | static_cast<uint32_t>(i)};
    // The window reaches from the first work request that uses it to the last.
    for (const Op& op : ops_) {
      if (op.plan->window != static_cast<int>(i) || is_local(op.plan->opcode) || takes_bytes(op.plan->opcode)) continue;
      const Piece& piece = op.remote[0];
      if (w.block == nullptr) w.at = {piece.offset, 0};
      w.block = &remote_block(op.plan->opcode);
      w.users.push_back(piece);
      w.at.length = piece.offset + piece.length - w.at.offset;
    }
    if (w.block == nullptr) w.block = &target, w.at = {0, target.size};
    w.at.length = std::max(w.at.length, 1 + p.cut);  // a window has at least one byte
    windows_.push_back(w);
  }
  for (Op& op : ops_) {
    const OpPlan& p = *op.plan;
    if (p.window < 0 || is_local(p.opcode)) continue;
    const Window& w = windows_[p.window];
    if (p.opcode == WrOpcode::kSendInv) {
      op.imm = p.wrong == Wrong::kRkey ? w.stag ^ 1 : w.stag;
      continue;
    }
    op.rkey = w.stag;
    if (w.plan->zero_based) op.remote_addr = op.remote[0].offset - w.at.offset;
    if (p.wrong == Wrong::kUnbound && w_.mutation == Mutation::kWriteUnbound) {
      ++w_.mutated;
      op.rkey = w.block->stag;
      op.remote_addr = w.block->iova(op.remote[0].offset);
    }
  }
}

std::vector<std::byte> Window::bytes() const {
  std::vector<std::byte> out;
  for (const Piece& p : users) {
    const auto from = block->bytes.begin() + p.offset;
    out.insert(out.end(), from, from + p.length);
  }
  return out;
}

std::vector<const Window*> Lane::first_windows() const {
  std::vector<const Window*> first;
  for (const Window& w : windows_) {
    const auto same = [&](const Window* other) { return other->plan->slot == w.plan->slot; };
    if (std::none_of(first.begin(), first.end(), same)) first.push_back(&w);
  }
  return first;
}

void Lane::fill_local(const OpPlan& p, Qp::SendWr& wr) const {
  const Window& w = windows_[p.window];
  if (p.opcode == WrOpcode::kLocalInv) {
    wr.imm = w.stag;
    return;
  }
  const uint32_t rights = w.block == &source ? kAccessRemoteRead
                          : w.block == &words ? kAccessRemoteAtomic
                                              : kAccessRemoteWrite;
  wr.rkey = w.stag;
  wr.imm = w.plan->type2 ? 1 : 0;
  wr.remote_addr = w.block->iova(w.at.offset);
  wr.bind = {.length = w.at.length - w.plan->cut,
             .access = rights | (w.plan->zero_based ? kAccessZeroBased : 0u),
             .region = w.block->stag};
  if (p.unbind) wr.bind.length = 0;
  if (p.wrong == Wrong::kBadBind) wr.bind.length = uint64_t{w.block->size} + 1;
}

void Lane::unbound(int window) {
  Window& w = windows_[window];
  if (raw_ || w.frozen) return;
  w.frozen = true;
  w.kept = w.bytes();
  if (w_.mutation == Mutation::kFlipUnbound && w.block != &words && !w.kept.empty())
    w.block->bytes[w.users[0].offset] ^= std::byte{1}, ++w_.mutated;
}

void Lane::check_windows() {
  for (size_t i = 0; i < windows_.size(); ++i) {
    const Window& w = windows_[i];
    // Atomics that name the region may still change the word.
    if (w.frozen && w.block != &words && w.kept != w.bytes())
      fail("window", "memory of window %zu has changed behind its end", i);
  }
}

}  // namespace usiw::sim
