// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file world.h
/// What everything in a simulation shares: time, things to do later, the wire, the trace,
/// and the first rule that was broken.
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

/// Deliberate damage, to show that the rules are checked.
enum class Mutation {
  kNone,
  kFlipPlaced,         ///< a byte of a registered block changes by itself
  kFlipWire,           ///< the wire damages payloads and nobody notices
  kSwallowCompletion,
  kRepeatCompletion,
  kSwapCompletions,
  kSwallowEvent,       ///< a process never hears that its peer has closed
  kSwallowReport,      ///< the kernel never hears that the engine has closed
  kPlaceEarly,         ///< the end of a WRITE is there before its middle
  kLeakBuffer,
  kAckFuture,          ///< an end acknowledges what has not arrived
  kOverrunWindow,      ///< an end is told of a smaller window than its engine believes
  kRepeatDatagrams,    ///< an end sends everything many times
  kDeafTimers,         ///< the kernel's timers do not fire
  kStayPut,            ///< a connection stays by its port whatever happens
  kLoseReceive,        ///< a receive vanishes with the QP that had taken it from the SRQ
  kSwallowLastWqe,     ///< a process never hears that a QP takes nothing more from the SRQ
  kSwallowLimit,       ///< ... that the SRQ's limit is reached
  kWriteUnbound,       ///< what is to fail by a window goes by the region
  kFlipUnbound,        ///< a byte of what was a window changes
  kRepeatAtomic,       ///< what is added is added twice
  kTwoWinners,         ///< a compare-and-swap is undone
  kGoOnEarly,          ///< a QP goes on while its program believes it in SQD
  kSwallowDrained,     ///< a program never hears that its QP is drained
  kJumpQueue,          ///< who waits longest for a receive of the SRQ becomes the last
  kLateLimit,          ///< the SRQ's limit is told one receive late
  kForgetStream,       ///< a window of type 2 is everybody's in its PD
  kIgnoreAccess,       ///< a QP permits everything, whatever its access flags are
  kKeepAccess,         ///< it goes on with the flags that it had when it was connected
  kNoAccess,           ///< it permits nothing once its flags are changed
  kMutations,
};
const char* mutation_name(Mutation m);

/// A number as %llu and %llx of printf() take it.
inline unsigned long long ull(uint64_t number) { return number; }

/// Events of a scenario that the program `sim` adds up over all seeds.
enum Total : unsigned {
  kSent,        ///< DATA and SHUTDOWN
  kRepeated,    ///< those among them that were retransmissions
  kMoves,       ///< of connections, to the other port
  kForbidden,   ///< connections that ended because raw packets were forbidden
  kTrespasses,  ///< posted work requests that name a window of another connection
  kOfLiving,    ///< those among them whose window belongs to a connected QP
  kRefusals,    ///< work requests that the access flags of a QP refused
  kTotals,
};

/// For as long as its owner lives, what was put off on its behalf is still to be done.
using Life = std::shared_ptr<int>;
using LifeOf = std::weak_ptr<int>;

class World {
 public:
  World(const Scenario& scenario, Mutation damage, size_t trace_lines)
      : sc(scenario), mutation(damage), rng(scenario.seed * 31 + 7), wire(clock, scenario.seed * 77 + 1),
        trace_lines_(trace_lines) {}

  /// Does @p what in @p ns, unless @p life has ended by then.
  void after(uint64_t ns, const LifeOf& life, std::function<void()> what) {
    later_.push({clock.now + ns, order_++, life, std::move(what)});
  }
  bool run_due();
  uint64_t next_due() const { return later_.empty() ? UINT64_MAX : later_.top().at; }

  /// Notes down the first rule that is broken. @p rule is one word, for the reduction.
  void fail(const char* rule, const char* fmt, ...) __attribute__((format(printf, 3, 4)));
  bool failed() const { return !rule.empty(); }

  bool tracing() const { return trace_lines_ != 0; }
  void trace(const char* fmt, ...) __attribute__((format(printf, 2, 3)));

  const Scenario& sc;
  const Mutation mutation;
  Rng rng;  ///< of hosts and applications; the wire has its own
  SimClock clock;
  SimWire wire;
  std::string rule, why;
  std::deque<std::string> lines;  ///< the trace's end
  uint64_t digest = 0xcbf29ce484222325ull;
  void mix(uint64_t v) { digest = (digest ^ v) * 0x100000001b3ull; }
  /// Ports that are dead: [host][raw packets, socket][out, in].
  bool dead[kMaxSides][2][2] = {};
  bool mtu_known = false;  ///< kernels know that the path takes less: sockets send fragments
  std::array<uint64_t, kTotals> totals{};
  uint64_t mutated = 0;  ///< times that the mutation did its damage

 private:
  struct Later {
    uint64_t at, order;
    LifeOf life;
    std::function<void()> what;
    bool operator<(const Later& o) const { return at != o.at ? at > o.at : order > o.order; }
  };
  void add_line(const char* fmt, va_list args);
  std::priority_queue<Later> later_;
  uint64_t order_ = 0;
  const size_t trace_lines_;
};

std::string describe(std::span<const std::byte> datagram);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_WORLD_H
