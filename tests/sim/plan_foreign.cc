// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file plan_foreign.cc
/// Connections that name windows of other connections. An end binds a window of type 2 to memory of its host at the
/// beginning, and no end unbinds it. The last work request of another connection names that window. It must be refused,
/// whether the first connection still works, has failed or was destroyed.
#include "engine/operations.h"
#include "scenario.h"

namespace usiw::sim {
namespace {

void lend(LanePlan& lane) {
  lane.ops.insert(lane.ops.begin(), OpPlan{.opcode = WrOpcode::kBindMw, .foreign = true});
  for (OpPlan& op : lane.ops)
    if (op.read_of >= 0) ++op.read_of;
}

void trespass(Rng& rng, LanePlan& lane, const SessionPlan& s) {
  static constexpr WrOpcode kAll[] = {WrOpcode::kRdmaWrite, WrOpcode::kRdmaWrite,   WrOpcode::kRdmaWriteImm,
                                      WrOpcode::kRdmaRead,  WrOpcode::kRdmaRead,    WrOpcode::kFetchAdd,
                                      WrOpcode::kSendInv,   WrOpcode::kCompareSwap, WrOpcode::kLocalInv,
                                      WrOpcode::kBindMw};
  OpPlan op;
  op.opcode = kAll[rng.below(std::size(kAll))];
  op.foreign = true;
  op.wrong = Wrong::kForeign;
  const auto size = rng.log_range(1, kLentBytes);
  op.size = is_local(op.opcode) ? 0 : is_atomic(op.opcode) ? kAtomicBytes : size;
  op.local = split(rng, op.size, s.max_sge);
  op.recv = split(rng, op.size, s.max_sge);
  if (is_atomic(op.opcode)) op.local = op.recv = {kAtomicBytes};
  op.fence = rng.chance(20);
  op.living = rng.chance(80);
  lane.ops.push_back(std::move(op));
}

/// The session has to live until others have named its windows, so nothing in it is wrong or ends it early.
void keep_alive(SessionPlan& s) {
  s.early_end = 0;
  for (LanePlan& lane : s.lane)
    for (OpPlan& op : lane.ops)
      if (op.window < 0) op.wrong = Wrong::kNone;
}

}  // namespace

void plan_foreign(Rng& rng, PairPlan& pair, bool two_pds, bool lender) {
  for (const int end : {0, 1})
    if (two_pds && rng.chance(30)) pair.pd[end] = kOtherPd;
  for (SessionPlan& s : pair.sessions) {
    for (const int end : {0, 1}) {
      const bool lends = rng.chance(60);
      if (!lends && !lender) continue;
      s.lane[1 - end].lent = true;
      lend(s.lane[end]);
    }
    if (lender)
      keep_alive(s);
    else if (rng.chance(70))
      trespass(rng, s.lane[rng.below(2)], s);
  }
}

}  // namespace usiw::sim
