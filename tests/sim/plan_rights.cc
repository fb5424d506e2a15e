// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file plan_rights.cc
/// Access flags of QPs: those with which each QP begins, and their changes under way, in RTS and in SQD.
#include <algorithm>

#include "engine/operations.h"
#include "scenario.h"

namespace usiw::sim {
namespace {

/// The flags that the work requests of the lane need.
uint32_t needed(const LanePlan& lane) {
  uint32_t flags = 0;
  for (const OpPlan& op : lane.ops)
    flags |= is_tagged(op.opcode)               ? uint32_t{kAccessRemoteWrite}
             : is_atomic(op.opcode)             ? uint32_t{kAccessRemoteAtomic}
             : op.opcode == WrOpcode::kRdmaRead ? uint32_t{kAccessRemoteRead}
                                                : 0;
  return flags;
}

uint32_t draw(Rng& rng) {
  const auto some = rng.below(16);  // with local write, which grants the peer nothing
  return rng.chance(30) ? kAccessOfConnection : some;
}

/// Makes most wrong work requests right, so that the connection does not end before the flags matter.
void mend(Rng& rng, LanePlan& lane) {
  for (OpPlan& op : lane.ops) {
    const bool tagged = op.wrong == Wrong::kRkey || op.wrong == Wrong::kBounds || op.wrong == Wrong::kRights ||
                        op.wrong == Wrong::kLkey;
    if (tagged && op.window < 0 && !op.foreign && rng.chance(80)) op.wrong = Wrong::kNone;
  }
}

}  // namespace

void plan_rights(Rng& rng, SessionPlan& s) {
  for (LanePlan& lane : s.lane) mend(rng, lane);
  // As a rule, one set of flags refuses a work request and the others do not.
  const unsigned refusing = rng.chance(60) ? 20 : 60;
  const auto value = [&](int end) {
    const uint32_t flags = draw(rng);
    return rng.chance(refusing) ? flags : flags | needed(s.lane[1 - end]);
  };
  for (const int end : {0, 1})
    if (rng.chance(60)) s.access[end] = value(end);
  for (auto n = rng.below(6); n > 0; --n) {
    const auto end = rng.below(2);
    const uint64_t at = rng.log_range(1'000, 20'000'000);
    s.permits.push_back({end, at, value(end)});
    if (rng.chance(40)) s.permits.push_back({end, at + rng.log_range(200, 1'000'000), 15});
    // Some changes come in SQD, which must not matter: it concerns the own send queue only.
    if (rng.chance(35))
      s.pauses.push_back({.end = end,
                          .at = at - std::min(at - 1, rng.log_range(300, uint64_t{500'000})),
                          .length = rng.log_range(100, uint64_t{5'000'000}),
                          .tell = rng.chance(70)});
  }
}

void refuse_nothing(SessionPlan& s) {
  for (const int end : {0, 1})
    if (s.access[end] != 0) s.access[end] |= needed(s.lane[1 - end]);
  for (PermitPlan& p : s.permits) p.access |= needed(s.lane[1 - p.end]);
}

}  // namespace usiw::sim
