// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file plan_windows.cc
/// Memory windows in the programs of a connection. The owner binds a window to memory on which its peer works, and
/// notifies the peer by a SEND. From then on the peer names the window only. At the end the peer sends a SEND with
/// Invalidate, or a message on which the owner invalidates or unbinds the window, or the window remains. These steps
/// are put between the other work requests of the lanes.
#include <algorithm>

#include "engine/operations.h"
#include "scenario.h"

namespace usiw::sim {
namespace {

/// A work request of the dialogue. It waits until the message that is step @p after of the other lane was received.
struct Step {
  OpPlan op;
  int after = -1;
};

class Dialogue {
 public:
  Dialogue(Rng& rng, SessionPlan& session) : rng_(rng), s_(session) {}

  void round(bool bad) {
    const int owner = rng_.below(2), user = 1 - owner;
    auto& windows = s_.lane[user].windows;
    const int number = static_cast<int>(windows.size());
    WindowPlan w{.type2 = rng_.chance(75), .zero_based = rng_.chance(40)};
    static constexpr Wrong kAll[] = {Wrong::kBeyond, Wrong::kUnbound, Wrong::kUnbound, Wrong::kRisk,
                                     Wrong::kBadBind, Wrong::kRkey};
    Wrong wrong = bad ? kAll[rng_.below(std::size(kAll))] : Wrong::kNone;
    if (wrong == Wrong::kRkey || wrong == Wrong::kRisk) w.type2 = true;

    // Some windows that are not bound any more are bound again.
    int bind_after = -1;
    w.slot = number;
    auto& free = free_[user];
    const auto again = std::find_if(free.begin(), free.end(), [&](const Free& f) { return f.type2 == w.type2; });
    if (again != free.end() && rng_.chance(70)) {
      w.slot = again->slot;
      bind_after = again->after;
      free.erase(again);
    }

    OpPlan bind = local(WrOpcode::kBindMw, number);
    if (wrong == Wrong::kBadBind) bind.wrong = wrong;
    add(owner, bind, bind_after);
    const int ready = add(owner, message(), -1);
    w.cut = wrong == Wrong::kBeyond;

    const auto kind = rng_.below(3);
    const bool atomic = rng_.chance(15);
    const unsigned users = 1 + (atomic ? 0 : rng_.below(4));
    const bool reads = kind == 2 || atomic;
    for (unsigned n = 0; n < users; ++n) {
      OpPlan op = access(kind, atomic, number, n);
      if (wrong == Wrong::kRisk) op.risky = true;
      if (wrong == Wrong::kBeyond && n + 1 == users) {
        op.wrong = wrong;
        if (op.size == 0) op.size = 1, op.local = op.recv = {1};  // an access of no bytes is never beyond the window
      }
      add(user, op, ready);
    }

    // The end of the binding.
    int after = -1;
    if (wrong == Wrong::kRisk) {
      add(owner, local(WrOpcode::kLocalInv, number), -1);
    } else if (w.type2 && (wrong == Wrong::kRkey || rng_.chance(50))) {
      OpPlan op = message();
      op.opcode = WrOpcode::kSendInv;
      op.window = number;
      op.fence = reads || rng_.chance(20);
      if (wrong == Wrong::kRkey) op.wrong = wrong;
      after = add(user, op, ready);
      if (wrong == Wrong::kUnbound) add_unbound(user, kind, atomic, number, ready);
      free_[user].push_back({w.slot, w.type2, after});
    } else if (wrong == Wrong::kUnbound || rng_.chance(80)) {
      OpPlan done = message();
      done.fence = reads || rng_.chance(20);
      after = add(user, done, ready);
      OpPlan end = local(w.type2 ? WrOpcode::kLocalInv : WrOpcode::kBindMw, number);
      end.unbind = true;
      add(owner, end, after);
      if (wrong == Wrong::kUnbound) add_unbound(user, kind, atomic, number, add(owner, message(), after));
      free_[user].push_back({w.slot, w.type2, after});
    }
    windows.push_back(w);
  }

  /// Puts the steps between the other work requests of the lanes.
  void mix() {
    std::vector<size_t> place[2];
    for (const int l : {0, 1}) mix(s_.lane[l], steps_[l], place[l]);
    // A step waits for a number of messages, which is known only now.
    for (const int l : {0, 1})
      for (size_t i = 0; i < steps_[l].size(); ++i) {
        if (steps_[l][i].after < 0) continue;
        const auto& ops = s_.lane[1 - l].ops;
        const size_t of = place[1 - l][steps_[l][i].after];
        s_.lane[l].ops[place[l][i]].after = static_cast<uint32_t>(
            std::count_if(ops.begin(), ops.begin() + static_cast<ptrdiff_t>(of) + 1,
                          [](const OpPlan& o) { return takes_receive(o.opcode); }));
      }
  }

 private:
  struct Free {
    int slot;
    bool type2;
    int after;  ///< step of the other lane after which the window is free
  };

  int add(int lane, OpPlan op, int after) {
    op.signalled |= rng_.chance(70);
    steps_[lane].push_back({std::move(op), after});
    return static_cast<int>(steps_[lane].size()) - 1;
  }
  static OpPlan local(WrOpcode opcode, int window) { return {.opcode = opcode, .signalled = false, .window = window}; }
  OpPlan sized(WrOpcode opcode, uint32_t size) {
    return {.opcode = opcode,
            .size = size,
            .signalled = false,
            .local = split(rng_, size, s_.max_sge),
            .recv = split(rng_, size, s_.max_sge)};
  }
  OpPlan message() { return sized(WrOpcode::kSend, rng_.below(65)); }
  /// The @p n-th work request that names the window. The first has at least two bytes.
  OpPlan access(uint64_t kind, bool atomic, int window, unsigned n) {
    const int size = n == 0 ? rng_.log_range(2, 32768) : rng_.log_range(1, 32768) - 1;
    const WrOpcode write = rng_.chance(20) ? WrOpcode::kRdmaWriteImm : WrOpcode::kRdmaWrite;
    OpPlan op = sized(kind == 2 ? WrOpcode::kRdmaRead : write, size);
    if (atomic) {
      op = sized(rng_.chance(50) ? WrOpcode::kFetchAdd : WrOpcode::kCompareSwap, kAtomicBytes);
      op.local = {kAtomicBytes};
    }
    op.window = window;
    return op;
  }
  void add_unbound(int lane, uint64_t kind, bool atomic, int window, int after) {
    OpPlan op = access(kind, atomic, window, 0);
    op.wrong = Wrong::kUnbound;
    op.alone = rng_.chance(50);
    if (op.alone) steps_[lane].back().op.signalled = true;  // without a completion its end would not be known
    add(lane, op, after);
  }

  void mix(LanePlan& lane, std::vector<Step>& steps, std::vector<size_t>& place) {
    std::vector<OpPlan> out;
    std::vector<int> moved;
    size_t next = 0;
    const auto take = [&] {
      place.push_back(out.size());
      out.push_back(steps[next++].op);
    };
    for (OpPlan& op : lane.ops) {
      // No other work request comes between one that is posted alone and those before it.
      while (next < steps.size() && rng_.below(lane.ops.size() + 1) < steps.size()) take();
      while (next < steps.size() && steps[next].op.alone) take();
      moved.push_back(static_cast<int>(out.size()));
      if (op.read_of >= 0) op.read_of = moved[op.read_of];
      out.push_back(std::move(op));
    }
    while (next < steps.size()) take();
    lane.ops = std::move(out);
    if (!lane.ops.empty()) lane.ops.back().signalled = true;
  }

  Rng& rng_;
  SessionPlan& s_;
  std::vector<Step> steps_[2];
  std::vector<Free> free_[2];  ///< windows of the lane that are not bound any more
};

/// Makes a work request use no window. A local one becomes a WRITE of no bytes, so that the others keep their numbers.
void make_plain(OpPlan& op) {
  if (op.window < 0) return;
  op.window = -1;
  op.wrong = Wrong::kNone;
  op.alone = op.risky = op.unbind = false;
  if (op.opcode == WrOpcode::kSendInv) op.opcode = WrOpcode::kSend;
  if (is_local(op.opcode)) {
    op.opcode = WrOpcode::kRdmaWrite;
    op.local = op.recv = {0};
  }
}

}  // namespace

void plan_windows(Rng& rng, SessionPlan& session, bool bad) {
  Dialogue dialogue(rng, session);
  const unsigned rounds = 1 + rng.below(5), at = rng.below(5);
  for (unsigned n = 0; n < rounds; ++n) dialogue.round(bad && (n == at || (n + 1 == rounds && at >= rounds)));
  dialogue.mix();
}

void use_rightly(SessionPlan& session) {
  for (LanePlan& lane : session.lane) {
    for (WindowPlan& w : lane.windows) w.cut = 0;
    for (OpPlan& op : lane.ops) {
      // The window is not bound any more, or may not be.
      if (op.window >= 0 && !is_local(op.opcode) && (op.wrong == Wrong::kUnbound || op.risky)) make_plain(op);
      op.wrong = Wrong::kNone;
    }
  }
}

void cut_windows(SessionPlan& session, const size_t first[2]) {
  // Three kinds of work requests become plain: those that wait for a message that was cut, those whose window is never
  // bound, and those that rely on an unbinding that was cut. No window is bound twice, because the end of its first
  // binding may be missing.
  for (const int l : {0, 1}) {
    LanePlan& lane = session.lane[l];
    LanePlan& other = session.lane[1 - l];
    for (size_t i = 0; i < lane.windows.size(); ++i) lane.windows[i].slot = static_cast<int>(i);
    const auto sends = static_cast<uint32_t>(std::count_if(
        other.ops.begin(), other.ops.end(), [](const OpPlan& o) { return takes_receive(o.opcode); }));
    for (OpPlan& op : lane.ops) {
      op.after -= std::min(op.after, static_cast<uint32_t>(first[1 - l]));
      if (op.after <= sends) continue;
      op.after = 0;
      make_plain(op);
    }
  }
  for (const int l : {0, 1}) {
    LanePlan& lane = session.lane[l];
    LanePlan& other = session.lane[1 - l];
    for (int w = 0; w < static_cast<int>(lane.windows.size()); ++w) {
      const auto has = [w](const LanePlan& in, auto what) {
        return std::any_of(in.ops.begin(), in.ops.end(), [&](const OpPlan& o) { return o.window == w && what(o); });
      };
      const bool bound = has(other, [](const OpPlan& o) { return o.opcode == WrOpcode::kBindMw && !o.unbind; });
      const bool ended = has(other, [](const OpPlan& o) { return is_local(o.opcode) && o.unbind; }) ||
                         has(lane, [](const OpPlan& o) { return o.opcode == WrOpcode::kSendInv; });
      for (OpPlan& op : lane.ops) {
        if (op.window != w || is_local(op.opcode)) continue;
        if (!bound || (op.wrong == Wrong::kUnbound && !ended)) make_plain(op);
      }
      if (!has(lane, [](const OpPlan& o) { return o.wrong == Wrong::kBeyond; })) lane.windows[w].cut = 0;
      for (OpPlan& op : other.ops)
        if (op.window == w && is_local(op.opcode) && !bound) make_plain(op);
    }
  }
}

}  // namespace usiw::sim
