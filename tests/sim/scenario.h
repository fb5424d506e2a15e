// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file scenario.h
/// The plan that follows from one seed: hosts, connections, work requests, faults of the wire, and incidents with their
/// times. The whole plan is made before the run. So a failing scenario can be reduced, by kinds of faults, sessions and
/// work requests, and run again.
#ifndef USIW_TESTS_SIM_SCENARIO_H
#define USIW_TESTS_SIM_SCENARIO_H

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "engine/types.h"
#include "tests/support/sim_wire.h"

namespace usiw::sim {

constexpr uint32_t kPd = 7, kOtherPd = 8;
constexpr uint32_t kLentBytes = 16384;  ///< size of a window that other connections try to use

/// A generator of random numbers that is small, fast and the same on every machine. A number has the type of its bound.
class Rng {
 public:
  explicit Rng(uint64_t seed) : s_(mix(seed + 1)) {}
  uint64_t operator()() { return mix(s_ += 0x9e3779b97f4a7c15ull); }
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  template <std::integral T>
  T below(T n) {
    return static_cast<T>(n == 0 ? 0 : (*this)() % static_cast<uint64_t>(n));
  }
  /// Returns a number from @p from to @p to.
  template <std::integral T>
  T range(uint64_t from, T to) {
    return static_cast<T>(from + below(static_cast<uint64_t>(to) - from + 1));
  }
  bool chance(unsigned percent) { return below(100u) < percent; }
  /// Returns a number from @p from to @p to; each order of magnitude is equally likely.
  template <std::integral T>
  T log_range(uint64_t from, T to) {
    const auto most = static_cast<uint64_t>(to);
    unsigned steps = 0;
    while (from << (steps + 1) < most) ++steps;
    const uint64_t low = from << below(steps + 1);
    return static_cast<T>(std::min(most, low + below(low + 1)));
  }

 private:
  uint64_t s_;
};

/// Kinds of faults. A scenario has some of them, and --without removes them.
enum Fault : unsigned {
  kLoss,   ///< up to 30 % of the datagrams
  kBurst,  ///< now and then all datagrams for a while
  kReorder,
  kDuplicate,
  kJitter,         ///< delay varies
  kCorrupt,        ///< a bit changes, which the checksum detects
  kTruncate,       ///< bytes are missing, which the checksum detects
  kRaw,            ///< damage that no checksum detects
  kMtu,            ///< the path's MTU shrinks for a while
  kCut,            ///< no datagram passes in one direction, or both, for a short while
  kLongCut,        ///< the same for longer than any end waits
  kFreeze,         ///< a process is stopped for a while
  kSlowPoll,       ///< completions are polled late
  kLateRecv,       ///< receives are posted late
  kFullPort,       ///< the port sends and receives a few datagrams at a time
  kShortQueue,     ///< the wire's queue is short
  kSlowLine,       ///< the wire is slow
  kFewBuffers,     ///< the port has few buffers
  kSlowKernel,     ///< events between kernel and process take long
  kKill,           ///< a process dies and comes back
  kCrash,          ///< a host dies without sending anything and comes back
  kBadOp,          ///< one operation is wrong
  kMidClose,       ///< a program disconnects amid its work
  kAbort,          ///< a program ends the connection by QP state ERR, or destroys the QP
  kReject,         ///< the server rejects the first connection
  kDrawn,          ///< the kinds before it are drawn for each seed
  kPort = kDrawn,  ///< one of a connection's two ports is dead, as Incident::value has it
  kLate,           ///< a process goes on with raw packets for too long after kPort has forbidden them
  // These are additions rather than faults. They come last, so that older seeds without them give the same scenarios.
  kAdded,
  kSrq = kAdded,  ///< hosts have a shared receive queue, and connections that take from it
  kMw,            ///< memory windows
  kWord,          ///< the atomics of all connections to a host work on the same words
  kSqd,           ///< QPs go to SQD and back while they work
  kScarce,        ///< an SRQ has one to three receives, and more connections take from it
  kForeign,       ///< connections try to use windows that other connections have bound
  kQpAccess,      ///< QPs grant their peers some rights only, and change them under way
  kEcn,           ///< the wire marks datagrams with ECT, or loses them
  kEarly,         ///< servers post as soon as they have accepted
  kFaults,
};
const char* fault_name(unsigned fault);

using Faults = uint64_t;  ///< one bit for each kind
constexpr Faults bit(unsigned fault) { return Faults{1} << fault; }
constexpr Faults kAllAdded = ~Faults{0} << kAdded;
static_assert(kFaults <= 64);

enum class Wrong : uint8_t {
  kNone,
  kRkey,       ///< unknown STag
  kBounds,     ///< beyond the region
  kRights,     ///< the region does not have the right
  kLkey,       ///< own memory is not registered
  kShortRecv,  ///< the receive is too small
  kNoRecv,     ///< the receive is never posted
  kBeyond,     ///< beyond the window
  kUnbound,    ///< names a window that is not bound any more
  kBadBind,    ///< binds more than the region has
  kForeign,    ///< names a window of another connection
  kRisk,       ///< the window may be unbound under way; the work requests are OpPlan::risky
};

struct OpPlan {
  WrOpcode opcode = WrOpcode::kSend;
  uint32_t size = 0;
  bool signalled = true, inlined = false, solicited = false, fence = false;
  Wrong wrong = Wrong::kNone;
  int read_of = -1;                        ///< READ: number of the WRITE whose bytes it reads; -1: none
  int window = -1;                         ///< window of the lane (BIND_MW, LOCAL_INV: of the other lane); -1: none
  bool unbind = false;                     ///< LOCAL_INV, or BIND_MW to nothing
  bool risky = false;                      ///< may fail, since the window may be unbound under way
  bool foreign = false;                    ///< BIND_MW of a lent window; if wrong is kForeign, an access by one
  bool contended = false;                  ///< an atomic on a word that all connections to the host use
  bool alone = false;                      ///< posted after all before it have completed
  bool living = false;                     ///< prefers the window of a connection that lives
  uint32_t after = 0;                      ///< posted after so many messages of the other lane have been received
  std::vector<uint32_t> local = {}, recv = {};  ///< lengths of the SGEs, bytes
};

/// One binding of a memory window.
struct WindowPlan {
  bool type2 = true, zero_based = false;
  int slot = 0;      ///< bindings with the same slot are of one window, with other keys
  uint32_t cut = 0;  ///< bytes by which it is too short
};

struct LanePlan {
  std::vector<OpPlan> ops;
  std::vector<WindowPlan> windows;  ///< windows of the responder
  uint64_t pause = 0;   ///< ns between bursts of posting, at most
  unsigned burst = 1;   ///< work requests per burst, at most
  bool ahead = true;    ///< all receives are posted before the connection is made
  uint64_t recv_pause = 0;  ///< if not ahead: ns between posting receives, at most
  bool shared = false;      ///< the receives come from the SRQ of the responder's host
  bool lent = false;    ///< the responder binds a window that others use
};

struct PausePlan {
  int end = 0;
  uint64_t at = 0;      ///< ns after ESTABLISHED
  uint64_t length = 0;  ///< ns until the QP is resumed; with tell, counted from SQ_DRAINED
  bool tell = false;    ///< requests SQ_DRAINED
};

/// A change of the access flags of a QP.
struct PermitPlan {
  int end;
  uint64_t at;  ///< ns after ESTABLISHED
  uint32_t access;
};

enum class Ending : uint8_t { kDisconnect, kBoth, kError, kDestroy };

struct SessionPlan {
  LanePlan lane[2];  ///< 0: the client's work requests
  uint32_t max_send_wr = 16, max_recv_wr = 16, max_sge = 4, max_inline = 64;
  uint16_t ird[2] = {16, 16}, ord[2] = {16, 16}, mtu[2] = {1500, 1500};
  uint32_t isn[2] = {0, 0};
  bool sig_all = false;
  int closer = 0;
  Ending ending = Ending::kDisconnect;
  uint64_t early_end = 0;  ///< ns after ESTABLISHED; 0: after all work requests
  bool reject = false;
  uint64_t think = 0;      ///< ns until the server accepts
  uint64_t gap = 0;        ///< ns between this session and the next
  std::vector<PausePlan> pauses;
  uint32_t access[2] = {0, 0};  ///< first flags of the QP of each end; 0: those that a connection gives
  std::vector<PermitPlan> permits;
  bool reset_qp = false;  ///< the client resets and reuses the QP of the session before
};

struct PairPlan {
  int host[2] = {0, 1};  ///< client, server
  bool ipv6 = false;
  uint16_t port = 0;     ///< the client's
  uint64_t start = 0;    ///< ns
  int cq[2][2] = {};     ///< [client, server][send, recv]: which CQ
  uint32_t pd[2] = {kPd, kPd};
  std::vector<SessionPlan> sessions;
};

struct Incident {
  uint64_t at, length;  ///< ns
  Fault kind;
  int side;             ///< the host; -1: all
  uint64_t value;
};

struct SrqPlan {
  uint32_t wr = 0;                ///< minimum capacity; 0: there is no SRQ
  std::vector<uint32_t> lengths;  ///< lengths of the SGEs of each receive, bytes
  uint32_t limit = 0;             ///< the largest limit with which it is armed; 0: never armed
  bool eager = true;              ///< receives are posted as soon as possible; if false, when the limit is reached
  uint64_t pause = 1;             ///< ns until they are posted, at most
  uint32_t most = 0;              ///< number of buffers; 0: more than fit in the SRQ
  bool early = false;             ///< the limit is armed before the receives are posted, not after

  uint32_t sges() const { return static_cast<uint32_t>(lengths.size()); }
  uint32_t bytes() const { return std::accumulate(lengths.begin(), lengths.end(), 0u); }
};

struct HostPlan {
  unsigned cqs = 1;
  size_t buffers = 2048;
  size_t tx_limit = SIZE_MAX, ring = SIZE_MAX;
  uint64_t poll_pause = 0;     ///< ns between two polls of a CQ, at most
  uint64_t kernel_pause = 0;   ///< ns of delay between kernel and process, at most
  uint64_t timer_slop = 0;     ///< ns that the kernel's timers are late
  SrqPlan srq;
};

struct Scenario {
  uint64_t seed = 0;
  Faults faults = 0;
  bool two_ports = false;  ///< connections have raw packets and a socket, and may move between them
  WireFaults wire;
  std::vector<HostPlan> hosts;
  std::vector<PairPlan> pairs;
  std::vector<Incident> incidents;

  bool has(Fault f) const { return (faults >> f & 1) != 0; }
  /// Returns true if connections may end before their time.
  bool may_break() const;
  /// Returns true if neither the wire nor a process makes trouble.
  bool clean() const {
    constexpr Faults kHarmless = bit(kSlowLine) | bit(kReject) | bit(kDuplicate) | kAllAdded;
    return (faults & ~kHarmless) == 0;
  }
};

/// Splits @p size bytes into up to @p max_sge SGEs.
std::vector<uint32_t> split(Rng& rng, uint32_t size, unsigned max_sge);
/// Adds windows to a session. @p bad: one is used wrongly.
void plan_windows(Rng& rng, SessionPlan& session, bool bad);
/// Adds lent windows to a pair, and accesses by windows of others. A @p lender makes no such access, and waits for
/// those of others.
void plan_foreign(Rng& rng, PairPlan& pair, bool two_pds, bool lender);
/// Adds access flags, some of which refuse work requests of the lanes.
void plan_rights(Rng& rng, SessionPlan& session);
/// After plan_rights() and all cuts: makes all flags permit all work requests of the lanes.
void refuse_nothing(SessionPlan& session);
/// Makes every work request right, including the use of windows.
void use_rightly(SessionPlan& session);
/// Repairs the use of windows after work requests were cut. @p first: messages cut from the beginning of each lane.
void cut_windows(SessionPlan& session, const size_t first[2]);

/// The parts that are left out of a scenario.
struct Cuts {
  Faults without = 0;
  std::vector<int> drop_pairs;
  size_t sessions = SIZE_MAX;  ///< sessions that remain of each pair, at most
  size_t ops = SIZE_MAX;       ///< work requests that remain of each lane, at most
  size_t first_op = 0;         ///< work requests before it are dropped
};

Scenario make_scenario(uint64_t seed, const Cuts& cuts);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SCENARIO_H
