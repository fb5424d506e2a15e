// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file world.h
/// State that all parts of one simulated run share. All parts act on one virtual clock, so that a seed always gives the
/// same run. World has this clock, a queue of functions to call later, the wire, the trace, and the first broken rule.
#ifndef USIW_TESTS_SIM_WORLD_H
#define USIW_TESTS_SIM_WORLD_H

#include <array>
#include <cstdarg>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <queue>
#include <string>
#include <vector>

#include "scenario.h"
#include "tests/support/sim_wire.h"

namespace usiw::sim {

/// Deliberate damage. Each kind has to break a rule, which shows that the simulation checks the rule.
enum class Mutation {
  kNone,
  kFlipPlaced,  ///< a byte of a registered block changes by itself
  kFlipWire,    ///< the wire damages payloads and no checksum detects that
  kSwallowCompletion,
  kRepeatCompletion,
  kSwapCompletions,
  kSwallowEvent,   ///< a process does not notice that its peer has closed
  kSwallowReport,  ///< the kernel gets no report that the engine has closed
  kPlaceEarly,     ///< the last byte of a WRITE is placed before its middle
  kLeakBuffer,
  kAckFuture,        ///< an end acknowledges a PSN that has not arrived
  kOverrunWindow,    ///< the rules allow an end a smaller window than its engine assumes
  kRepeatDatagrams,  ///< an end sends each datagram many times
  kDeafTimers,       ///< the kernel's timers do not fire
  kStayPut,          ///< a connection never moves to its other port
  kLoseReceive,      ///< a receive vanishes with the QP that took it from the SRQ
  kSwallowLastWqe,   ///< a process does not get the event that a QP takes nothing more from the SRQ
  kSwallowLimit,     ///< a process does not get the event that the SRQ's limit is reached
  kWriteUnbound,     ///< an access that has to fail by its window names the region instead
  kFlipUnbound,      ///< a byte changes in memory whose window is unbound
  kRepeatAtomic,     ///< a fetch-and-add adds twice
  kTwoWinners,       ///< a compare-and-swap is undone
  kGoOnEarly,        ///< a QP leaves SQD while its program assumes it in SQD
  kSwallowDrained,   ///< a program does not get SQ_DRAINED
  kJumpQueue,        ///< the QP that waits longest for a receive of the SRQ becomes the last
  kLateLimit,        ///< the event of the SRQ's limit comes one receive late
  kForgetStream,     ///< a window of type 2 is usable by every QP of its PD
  kIgnoreAccess,     ///< a QP permits all access, whatever its flags are
  kKeepAccess,       ///< a QP keeps the flags that it had when it was connected
  kNoAccess,         ///< a QP permits no access after its flags are changed
  // The program `face` has these.
  kUnprovenCounts,  ///< each REQ counts as proven
  kResetEnds,       ///< the RESET of a QP ends the connection at its peer
  kAnyQpFits,       ///< a QP accepts the REQ of any other QP
  kSwallowTake,     ///< a QP does not accept the REQ that arrives
  kMutations,
};
const char* mutation_name(Mutation m);

/// Returns @p number with the type that %llu and %llx of printf() need.
inline unsigned long long ull(uint64_t number) { return number; }

/// Events of a scenario that the program `sim` adds up over all seeds.
enum Total : unsigned {
  kSent,        ///< DATA and SHUTDOWN
  kRepeated,    ///< those among them that were retransmissions
  kMoves,       ///< moves of a connection to its other port
  kForbidden,   ///< connections that ended because raw packets were forbidden
  kTrespasses,  ///< posted work requests that name a window of another connection
  kOfLiving,    ///< those among them whose window belongs to a connected QP
  kRefusals,    ///< work requests that the access flags of a QP refused
  kTotals,
};

/// The life of an object. World::after() calls a function only if the object that asked for it still exists.
using Life = std::shared_ptr<int>;
using LifeOf = std::weak_ptr<int>;

class World {
 public:
  World(const Scenario& scenario, Mutation damage, size_t trace_lines)
      : sc(scenario), mutation(damage), rng(scenario.seed * 31 + 7), wire(clock, scenario.seed * 77 + 1),
        trace_lines_(trace_lines) {}

  /// Calls @p what in @p ns, unless @p life has ended by then.
  void after(uint64_t ns, const LifeOf& life, std::function<void()> what) {
    later_.push({clock.now + ns, order_++, life, std::move(what)});
  }
  bool run_due();
  uint64_t next_due() const { return later_.empty() ? UINT64_MAX : later_.top().at; }

  /// Records a broken rule, unless there is one already. @p rule is one word, by which the reduction compares.
  void fail(const char* rule, const char* fmt, ...) __attribute__((format(printf, 3, 4)));
  bool failed() const { return !rule.empty(); }

  bool tracing() const { return trace_lines_ != 0; }
  void trace(const char* fmt, ...) __attribute__((format(printf, 2, 3)));

  const Scenario& sc;
  const Mutation mutation;
  Rng rng;  ///< for hosts and programs; the wire has its own
  SimClock clock;
  SimWire wire;
  std::string rule, why;
  std::deque<std::string> lines;  ///< the last lines of the trace
  uint64_t digest = 0xcbf29ce484222325ull;
  void mix(uint64_t v) { digest = (digest ^ v) * 0x100000001b3ull; }
  /// Dead ports, by [host][raw packets, socket][transmit, receive].
  bool dead[kMaxSides][2][2] = {};
  bool mtu_known = false;  ///< the kernels know the reduced MTU, so that sockets send fragments
  std::array<uint64_t, kTotals> totals{};
  uint64_t mutated = 0;  ///< how often the mutation did damage

 private:
  struct Later {
    uint64_t at, order;
    LifeOf life;
    std::function<void()> what;
    bool operator<(const Later& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  std::priority_queue<Later> later_;
  uint64_t order_ = 0;
  const size_t trace_lines_;
};

/// Reports broken rules, and writes to the trace, under the name of a host ("A", "B", ...) or of a lane.
class Reporter {
 public:
  Reporter(World& world, std::string name) : w_(world), name_(std::move(name)) {}
  Reporter(World& world, int side) : Reporter(world, std::string(1, static_cast<char>('A' + side))) {}

  void fail(const char* rule, const char* fmt, ...) const __attribute__((format(printf, 3, 4)));
  void trace(const char* fmt, ...) const __attribute__((format(printf, 2, 3)));

 protected:
  World& w_;

 private:
  const std::string name_;
};

std::string describe(std::span<const std::byte> datagram);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_WORLD_H
