// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file scenario.h
/// What one seed means: hosts, connections, the programs of verbs on them, what the wire does
/// and what happens at which time. Made once, before anything runs, so that a failing
/// scenario can be cut down (fault kinds, sessions, operations) and run again.
#ifndef USIW_TESTS_SIM_SCENARIO_H
#define USIW_TESTS_SIM_SCENARIO_H

#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/types.h"
#include "tests/support/sim_wire.h"

namespace usiw::sim {

constexpr uint32_t kPd = 7, kOtherPd = 8;
constexpr uint32_t kLentBytes = 16384;  ///< of a window that connections use which have not bound it

/// Small, fast and the same everywhere.
class Rng {
 public:
  explicit Rng(uint64_t seed) : s_(mix(seed + 1)) {}
  uint64_t operator()() { return mix(s_ += 0x9e3779b97f4a7c15ull); }
  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return n == 0 ? 0 : (*this)() % n; }
  uint64_t range(uint64_t from, uint64_t to) { return from + below(to - from + 1); }
  bool chance(unsigned percent) { return below(100) < percent; }
  /// From @p from to @p to, each order of magnitude as likely as the next.
  uint64_t log_range(uint64_t from, uint64_t to);

 private:
  uint64_t s_;
};

/// Kinds of trouble; a scenario has some of them, and --without takes them away.
enum Fault : unsigned {
  kLoss,   ///< up to 30 % of the datagrams
  kBurst,  ///< all of them for a while, now and then
  kReorder,
  kDuplicate,
  kJitter,         ///< delay varies
  kCorrupt,        ///< a bit of any byte; the checksum sees it
  kTruncate,       ///< the checksum sees it
  kRaw,            ///< damage that no checksum sees
  kMtu,            ///< the path's MTU shrinks for a while
  kCut,            ///< one direction, or both, for a short while
  kLongCut,        ///< ... for longer than anybody waits
  kFreeze,         ///< a process is stopped for a while
  kSlowPoll,       ///< completions are looked at late
  kLateRecv,       ///< receives are posted late
  kFullPort,       ///< the port takes and gives a few datagrams at a time
  kShortQueue,     ///< the wire's queue is short
  kSlowLine,       ///< the wire is slow
  kFewBuffers,     ///< the port has few buffers
  kSlowKernel,     ///< events between kernel and process take long
  kKill,           ///< a process dies and comes back
  kCrash,          ///< a host dies without a word and comes back
  kBadOp,          ///< one operation is wrong
  kMidClose,       ///< disconnect in the middle of it
  kAbort,          ///< ... by QP state ERR or by destroying the QP
  kReject,         ///< the server does not want the first connection
  kDrawn,          ///< those before it are drawn for each seed
  kPort = kDrawn,  ///< of the two ports of a connection one is dead, one way or both: Incident::value says how
  kLate,           ///< a process does not leave raw packets in time when they are forbidden: kPort may forbid them
  // No trouble, but behind the others for the same reason: seeds of before are what they were without them.
  kAdded,
  kSrq = kAdded,  ///< hosts have a shared receive queue, and connections that take from it
  kMw,            ///< memory windows
  kWord,          ///< atomics of all connections to a host work on the same words
  kSqd,           ///< QPs go to SQD and back amid their work
  kScarce,        ///< an SRQ has one to three receives, and more connections take from it
  kForeign,       ///< windows are used by others than the connections that have bound them
  kQpAccess,      ///< QPs permit their peers less than everything, and other things under way
  kEcn,           ///< the wire marks what may be marked, or loses it
  kEarly,         ///< servers post as soon as they have accepted
  kFaults,
};
const char* fault_name(unsigned fault);

using Faults = uint64_t;  ///< a bit for each
constexpr Faults bit(unsigned fault) { return Faults{1} << fault; }
constexpr Faults kAllAdded = ~Faults{0} << kAdded;
static_assert(kFaults <= 64);

enum class Wrong : uint8_t {
  kNone,
  kRkey,        ///< unknown STag
  kBounds,      ///< beyond the region
  kRights,      ///< not registered for that
  kLkey,        ///< own memory is not registered
  kShortRecv,   ///< the receive is too small
  kNoRecv,      ///< the receive is never posted
  kBeyond,      ///< beyond the window
  kUnbound,     ///< by a window that is not bound any more
  kBadBind,     ///< a bind to more than there is
  kForeign,     ///< by a window of another connection
  kRisk,        ///< the window may be unbound under way: of a plan; its work requests are OpPlan::risky
};

struct OpPlan {
  WrOpcode opcode = WrOpcode::kSend;
  uint32_t size = 0;
  bool signalled = true, inlined = false, solicited = false, fence = false;
  Wrong wrong = Wrong::kNone;
  int read_of = -1;                        ///< READ: of what this WRITE has written
  int window = -1;                         ///< by this one of the lane; BIND_MW, LOCAL_INV: of the other lane
  bool unbind = false;                     ///< LOCAL_INV, or BIND_MW to nothing
  bool risky = false;                      ///< may fail, since the window may be unbound under way
  bool foreign = false;                    ///< BIND_MW of what others use, or wrong: such a use
  bool contended = false;                  ///< an atomic, and its word is that of the responder's host
  bool alone = false;                      ///< posted when all before it have completed
  bool living = false;                     ///< by a window of another connection: of one that lives, if there is one
  uint32_t after = 0;                      ///< ... when so many messages of the other lane have been received
  std::vector<uint32_t> local, recv;       ///< lengths of the SGEs
};

/// A memory window as it is bound once.
struct WindowPlan {
  bool type2 = true, zero_based = false;
  int slot = 0;      ///< windows with the same one are one window, with other keys
  uint32_t cut = 0;  ///< bytes by which it is too short
};

struct LanePlan {
  std::vector<OpPlan> ops;
  std::vector<WindowPlan> windows;  ///< of the responder
  uint64_t pause = 0;   ///< ns between bursts of posting, at most
  unsigned burst = 1;   ///< work requests per burst, at most
  bool ahead = true;    ///< all receives are posted before the connection
  uint64_t recv_pause = 0;  ///< otherwise: ns between posting receives, at most
  bool shared = false;  ///< the receives are those of the SRQ of the responder's host
  bool lent = false;    ///< the responder binds a window that others use
};

struct PausePlan {
  int end = 0;
  uint64_t at = 0;      ///< ns after ESTABLISHED
  uint64_t length = 0;  ///< ns until it goes on, behind being told if it wants to
  bool tell = false;
};

/// Other access flags of a QP.
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
  uint64_t early_end = 0;  ///< ns after ESTABLISHED; 0: when all is done
  bool reject = false;
  uint64_t think = 0;      ///< ns until the server accepts
  uint64_t gap = 0;        ///< ns between this session and the next
  std::vector<PausePlan> pauses;
  uint32_t access[2] = {0, 0};  ///< flags of the QP of each end; 0: those of a connection
  std::vector<PermitPlan> permits;
  bool reset_qp = false;   ///< the client uses the QP of the session before again
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
  uint32_t wr = 0;                ///< receives that it takes at least; 0: there is no SRQ
  std::vector<uint32_t> lengths;  ///< of the SGEs of each
  uint32_t limit = 0;             ///< it is armed with up to that many; 0: never
  bool eager = true;              ///< receives are posted when they can be; else when the limit is reached
  uint64_t pause = 1;             ///< ns until they are, at most
  uint32_t most = 0;              ///< receives that there are; 0: more than it takes
  bool early = false;             ///< the limit is armed before they are posted, not behind that

  uint32_t sges() const { return static_cast<uint32_t>(lengths.size()); }
  uint32_t bytes() const { return std::accumulate(lengths.begin(), lengths.end(), 0u); }
};

struct HostPlan {
  unsigned cqs = 1;
  uint32_t cqe = 4096;
  size_t buffers = 2048;
  uint32_t max_payload = 9216 - 28;
  size_t tx_limit = SIZE_MAX, ring = SIZE_MAX;
  uint64_t poll_pause = 0;     ///< ns between looks at a CQ, at most
  uint64_t kernel_pause = 0;   ///< ns of delay between kernel and process, at most
  uint64_t timer_slop = 0;     ///< ns that the kernel's timers are late
  SrqPlan srq;
};

struct Scenario {
  uint64_t seed = 0;
  Faults faults = 0;
  bool two_ports = false;  ///< connections have raw packets and a socket, and may move
  WireFaults wire;
  std::vector<HostPlan> hosts;
  std::vector<PairPlan> pairs;
  std::vector<Incident> incidents;

  bool has(Fault f) const { return (faults >> f & 1) != 0; }
  /// Connections may end before their time.
  bool may_break() const;
  /// The wire and the processes do nothing bad at all.
  bool clean() const {
    constexpr Faults kHarmless = bit(kSlowLine) | bit(kReject) | bit(kDuplicate) | kAllAdded;
    return (faults & ~kHarmless) == 0;
  }
};

std::vector<uint32_t> split(Rng& rng, uint32_t size, unsigned max_sge);
/// Adds windows to a connection. @p bad: one is used wrongly.
void plan_windows(Rng& rng, SessionPlan& session, bool bad);
/// Windows of which some are used by other connections. @p lender: not by this one, which waits for them.
void plan_foreign(Rng& rng, PairPlan& pair, bool two_pds, bool lender);
/// Access flags of the QPs of a connection, of which some refuse what its lanes do.
void plan_rights(Rng& rng, SessionPlan& session);
/// Behind that, and behind all cutting: no flags refuse anything of the lanes.
void refuse_nothing(SessionPlan& session);
/// Nothing in it is wrong, the use of windows included.
void use_rightly(SessionPlan& session);
/// Behind the cutting of work requests. @p first: messages that each lane lacks at its beginning.
void cut_windows(SessionPlan& session, const size_t first[2]);

/// What is left out of a scenario.
struct Cuts {
  Faults without = 0;
  std::vector<int> drop_pairs;
  size_t sessions = SIZE_MAX;     ///< of each pair, at most
  size_t ops = SIZE_MAX;          ///< of each lane, at most
  size_t first_op = 0;            ///< those before it are dropped
};

Scenario make_scenario(uint64_t seed, const Cuts& cuts);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_SCENARIO_H
