// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lane_rights.cc
/// The access flags of the responder's QP may change while work requests are under way. Three rules follow:
/// - A work request that the flags did not permit at any time since it was posted must be refused.
/// - One that they permitted for a part of that time may be refused, unless the responder had begun with it by then.
/// - No other may be refused, and memory must not change while the flags forbid it.
#include <algorithm>

#include "engine/operations.h"
#include "model.h"
#include "shared_words.h"

namespace usiw::sim {
namespace {

constexpr uint32_t kAll = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

/// The right that the QP has to grant for this work request. 0 if it needs none, because it touches no byte.
uint32_t right_for(const OpPlan& p) {
  if (p.size == 0) return 0;
  if (is_tagged(p.opcode)) return kAccessRemoteWrite;
  if (is_atomic(p.opcode)) return kAccessRemoteAtomic;
  return p.opcode == WrOpcode::kRdmaRead ? uint32_t{kAccessRemoteRead} : 0;
}

}  // namespace

void Rights::become(uint64_t at, uint32_t rights) { changes_.push_back({at, rights}); }

uint32_t Rights::now() const { return changes_.empty() ? kAll : changes_.back().rights; }

/// True if @p what is true of the rights at some time since @p from.
template <typename F>
bool Rights::any(uint64_t from, F what) const {
  for (size_t i = 0; i < changes_.size(); ++i) {
    const uint64_t until = i + 1 < changes_.size() ? changes_[i + 1].at : UINT64_MAX;
    if (until >= from && what(changes_[i].rights)) return true;
  }
  return false;
}

bool Rights::ever(uint32_t right, uint64_t from) const {
  return changes_.empty() || any(from, [=](uint32_t rights) { return (rights & right) != 0; });
}

bool Rights::always(uint32_t right, uint64_t from) const {
  return !any(from, [=](uint32_t rights) { return (rights & right) == 0; });
}

void Lane::permit(uint32_t flags, bool connected) {
  if (raw_) return;
  check_withheld();
  // The responder has begun with a READ if a part of its response has arrived, and is done with a WRITE whose last byte
  // is in place. The same is true of all work requests before these.
  for (size_t i = send.posted; i > std::max(send.completed, accepted_); --i) {
    const Op& op = ops_[i - 1];
    const WrOpcode o = op.plan->opcode;
    const bool seen = o == WrOpcode::kRdmaRead ? !sink.untouched(op.local)
                      : is_tagged(o)           ? op.plan->wrong == Wrong::kNone && last_byte_new(target, op)
                                               : false;
    if (seen) accepted_ = i;
  }
  uint32_t rights = flags & kAll;
  constexpr uint32_t kBoth = kAccessRemoteWrite | kAccessRemoteRead;
  if ((rights & kBoth) == kBoth || (flags == 0 && !connected)) rights = kAll;
  rights_.become(w_.clock.now, rights);
  kept_target_.clear();
  kept_words_.clear();
  if ((rights & kAccessRemoteWrite) == 0) kept_target_ = target.bytes;
  if ((rights & kAccessRemoteAtomic) == 0) kept_words_ = words.bytes;
}

void Lane::check_withheld() {
  if (!kept_target_.empty() && kept_target_ != target.bytes)
    fail("rights", "written to, while the QP does not permit WRITEs");
  if (!kept_words_.empty() && kept_words_ != words.bytes)
    fail("rights", "an atomic has been done, while the QP does not permit any");
}

bool Lane::must_be_refused(const Op& op) const {
  const uint32_t right = right_for(*op.plan);
  return right != 0 && !rights_.ever(right, op.posted_at);
}

bool Lane::may_be_refused(size_t i) const {
  const uint32_t right = right_for(*ops_[i].plan);
  return right != 0 && i >= accepted_ && !rights_.always(right, ops_[i].posted_at);
}

void Lane::check_permitted(size_t i) {
  if (must_be_refused(ops_[i]))
    fail("rights", "%zu succeeds, which the QP of its responder has not permitted at any time", i);
}

/// @p op has failed. After a work request that the flags refused, no later one is carried out.
void Lane::check_refusal(const Op& op, const Cqe& c) {
  if (raw_) return;
  if (c.status == WcStatus::kRemAccessErr && op.plan->wrong == Wrong::kNone && !op.plan->risky) {
    no_right_ = true;
    ++w_.totals[kRefusals];
    if (c.vendor_err != vendor_err_of(term::kRdmapAccess))
      fail("rights", "vendor_err %x, and there is nothing but the QP's flags", c.vendor_err);
  }
  if (no_right_ && op.plan->contended) shared_words->withdraw(op.plan->opcode, op.operands);
}

}  // namespace usiw::sim
