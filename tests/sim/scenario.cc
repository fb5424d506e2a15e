// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "scenario.h"

#include <algorithm>
#include <array>

#include "engine/operations.h"

namespace usiw::sim {
namespace {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;
constexpr std::array kNames = {"loss",       "burst",    "reorder",  "duplicate",  "jitter",   "corrupt",
                               "truncate",   "raw",      "mtu",      "cut",        "longcut",  "freeze",
                               "slowpoll",   "laterecv", "fullport", "shortqueue", "slowline", "fewbuffers",
                               "slowkernel", "kill",     "crash",    "badop",      "midclose", "abort",
                               "reject",     "port",     "late",     "srq",        "mw",       "word",
                               "sqd",        "scarce",   "foreign",  "access",     "ecn",      "early"};
static_assert(kNames.size() == kFaults);

/// Most messages are small, because many seeds find more than many bytes.
uint32_t message_size(Rng& rng) {
  const uint64_t d = rng.below(1000);
  if (d < 80) return 0;
  if (d < 420) return rng.range(1, 64);
  if (d < 640) return rng.range(65, 1024);
  if (d < 850) return rng.range(1, 8192);
  if (d < 970) return rng.range(8192, 65536);
  if (d < 998) return rng.range(65536, 512 * 1024);
  return rng.range(512 * 1024, 8 * 1024 * 1024);
}

LanePlan make_lane(Rng& rng, const SessionPlan& s, const Scenario& sc) {
  LanePlan lane;
  const bool late = sc.has(kLateRecv) && rng.chance(70);
  lane.pause = rng.chance(50) ? 0 : rng.log_range(kUs, 300 * kUs);
  lane.burst = 1 + rng.below(16);
  lane.ahead = !late;
  lane.recv_pause = late ? rng.log_range(kUs, 20 * kMs) : rng.log_range(100, 5 * kUs);
  const size_t n = rng.chance(10) ? rng.below(3) : rng.log_range(3, 60);
  const unsigned one_kind = rng.chance(20) ? 1 + rng.below(3) : 0;
  std::vector<int> writes;
  for (size_t i = 0; i < n; ++i) {
    static constexpr WrOpcode kinds[] = {WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead};
    OpPlan op;
    op.opcode = kinds[one_kind != 0 ? one_kind - 1 : rng.below(3)];
    op.size = message_size(rng);
    op.signalled = rng.chance(70) || i + 1 == n;
    op.inlined = op.opcode != WrOpcode::kRdmaRead && op.size <= s.max_inline && rng.chance(50);
    op.solicited = rng.chance(20);
    op.fence = rng.chance(10);
    if (op.opcode == WrOpcode::kRdmaRead && !writes.empty() && rng.chance(40)) {
      op.read_of = writes[rng.below(writes.size())];
      op.size = lane.ops[op.read_of].size;
    }
    if (op.opcode == WrOpcode::kRdmaWrite) writes.push_back(static_cast<int>(i));
    op.local = split(rng, op.size, s.max_sge);
    op.recv = split(rng, op.size, s.max_sge);
    lane.ops.push_back(std::move(op));
  }
  return lane;
}

void make_atomic(OpPlan& op, bool swap) {
  op.opcode = swap ? WrOpcode::kCompareSwap : WrOpcode::kFetchAdd;
  op.size = kAtomicBytes;
  op.local = op.recv = {kAtomicBytes};
}

/// Adds immediate data to some work requests, and makes atomics of some READs.
void vary(Rng& rng, LanePlan& lane) {
  for (OpPlan& op : lane.ops) {
    const bool now = rng.chance(25);
    const bool swap = rng.chance(50);
    if (!now) continue;
    switch (op.opcode) {
      case WrOpcode::kSend: op.opcode = WrOpcode::kSendImm; break;
      case WrOpcode::kRdmaWrite: op.opcode = WrOpcode::kRdmaWriteImm; break;
      default:
        if (op.read_of >= 0) break;
        make_atomic(op, swap);
        break;
    }
  }
}

/// One operation is wrong, somewhere.
void spoil(Rng& rng, LanePlan& lane) {
  if (lane.ops.empty()) return;
  const size_t at = rng.below(lane.ops.size());
  OpPlan& op = lane.ops[at];
  for (const OpPlan& o : lane.ops)
    if (o.read_of == static_cast<int>(at)) return;
  op.size = std::max(op.size, 1u);  // an atomic's is as it must be
  op.local = {op.size};
  op.recv = {op.size};
  op.inlined = false;
  op.read_of = -1;
  static constexpr Wrong kTagged[] = {Wrong::kRkey, Wrong::kBounds, Wrong::kRights, Wrong::kLkey};
  static constexpr Wrong kSend[] = {Wrong::kLkey, Wrong::kShortRecv, Wrong::kNoRecv};
  const bool send = op.opcode == WrOpcode::kSend || op.opcode == WrOpcode::kSendImm;
  op.wrong = send ? kSend[rng.below(3)] : kTagged[rng.below(4)];
}

SessionPlan make_session(Rng& rng, const Scenario& sc, const SessionPlan* before) {
  const bool first = before == nullptr;
  SessionPlan s;
  s.max_send_wr = rng.range(1, 40);
  s.max_recv_wr = rng.range(1, 40);
  s.max_sge = rng.range(1, rng.chance(10) ? 32 : 6);
  s.max_inline = rng.below(rng.chance(20) ? 1025 : 257);
  s.sig_all = rng.chance(20);
  s.reset_qp = rng.chance(30) && !first;
  if (s.reset_qp) {  // the QP is the same, so its limits are
    s.max_send_wr = before->max_send_wr;
    s.max_recv_wr = before->max_recv_wr;
    s.max_sge = before->max_sge;
    s.max_inline = before->max_inline;
    s.sig_all = before->sig_all;
  }
  static constexpr uint16_t kMtus[] = {576, 1280, 1500, 1500, 4096, 9000};
  for (int i : {0, 1}) {
    s.ird[i] = rng.range(1, rng.chance(20) ? 128 : 16);
    s.ord[i] = rng.range(1, rng.chance(20) ? 128 : 16);
    s.mtu[i] = kMtus[rng.below(std::size(kMtus))];
    // The PSNs of a pair's first connection often wrap. Later ones have PSNs far from its late datagrams.
    s.isn[i] = first && rng.chance(50) ? 0u - rng.below(600u) : static_cast<uint32_t>(rng());
  }
  for (int i : {0, 1}) s.lane[i] = make_lane(rng, s, sc);
  // Numbers of their own: every other seed stays what it was.
  Rng more(sc.seed ^ 0x3c1f8e27 ^ uint64_t{s.isn[0]} << 32 ^ s.isn[1]);
  for (LanePlan& lane : s.lane) vary(more, lane);
  if (sc.has(kBadOp) && rng.chance(70)) spoil(rng, s.lane[rng.below(2)]);
  s.closer = rng.below(2);
  s.ending = rng.chance(80) ? Ending::kDisconnect : Ending::kBoth;
  s.think = rng.chance(80) ? rng.log_range(kUs, 2 * kMs) : rng.log_range(kMs, 3 * kSec);
  s.gap = rng.chance(60) ? rng.log_range(kUs, 10 * kMs) : rng.log_range(10 * kMs, 4 * kSec);
  const uint64_t early = rng.log_range(kUs, 30 * kMs);
  const bool end_early = rng.chance(70), destroy = rng.chance(50);
  if ((sc.has(kMidClose) || sc.has(kAbort)) && end_early) s.early_end = early;
  if (sc.has(kAbort)) s.ending = destroy ? Ending::kDestroy : Ending::kError;
  return s;
}

/// Makes some atomics, and some READs, contended atomics on the words of the responder's host.
void contend(Rng& rng, LanePlan& lane) {
  for (size_t i = 0; i < lane.ops.size(); ++i) {
    OpPlan& op = lane.ops[i];
    const bool now = rng.chance(is_atomic(op.opcode) ? 70 : 30), swap = rng.chance(50);
    if (!now || !is_answered(op.opcode) || op.wrong != Wrong::kNone || op.window >= 0 || op.read_of >= 0) continue;
    op.contended = true;
    make_atomic(op, swap);
  }
}

std::vector<PausePlan> make_pauses(Rng& rng) {
  std::vector<PausePlan> out;
  for (unsigned n = 1 + rng.below(4); n > 0; --n)
    out.push_back({.end = rng.below(2),
                   .at = rng.log_range(kUs, 20 * kMs),
                   .length = rng.log_range(100, 5 * kMs),
                   .tell = rng.chance(70)});
  return out;
}

SrqPlan make_srq(Rng& rng, const Scenario& sc) {
  SrqPlan q;
  q.wr = rng.log_range(4, 64);
  q.lengths = split(rng, rng.log_range(16, 32768), 4);
  q.limit = rng.chance(30) ? 0 : 1 + rng.below(q.wr);
  q.eager = q.limit == 0 || rng.chance(40);
  q.pause = sc.has(kLateRecv) ? rng.log_range(kUs, 20 * kMs) : rng.log_range(100, 5 * kUs);
  return q;
}

/// Leaves so few receives that QPs wait for them most of the time.
void make_scarce(Rng& rng, SrqPlan& q) {
  q.wr = 1 + rng.below(3);
  q.most = q.wr == 3 || rng.chance(70) ? q.wr : 0;
  q.limit = rng.chance(30) ? 0 : 1 + rng.below(q.wr);
  q.eager = q.limit == 0 || rng.chance(40);
  q.early = rng.chance(40);
}

/// The receives of a lane come from an SRQ. SENDs become short enough for them, except one that has to be too long.
void share(Rng& rng, LanePlan& lane, const SessionPlan& s, uint32_t bytes) {
  lane.shared = true;
  for (OpPlan& op : lane.ops) {
    const auto size = 1 + rng.below(bytes);
    if (op.wrong == Wrong::kNoRecv) op.wrong = Wrong::kShortRecv;
    if (op.wrong == Wrong::kShortRecv) {
      op.size = bytes + size;
      op.local = {op.size};
    } else if (takes_receive(op.opcode) && !is_tagged(op.opcode) && op.size > bytes) {
      op.size = size;
      op.local = op.wrong == Wrong::kNone ? split(rng, size, s.max_sge) : std::vector{size};
    }
  }
}

/// Gives some hosts an SRQ, from which most connections to them take their receives.
void share_receives(Rng& rng, Scenario& sc) {
  for (HostPlan& h : sc.hosts)
    if (rng.chance(70) || &h == &sc.hosts.back()) h.srq = make_srq(rng, sc);
  for (PairPlan& pair : sc.pairs)
    for (const int end : {0, 1}) {
      const SrqPlan& q = sc.hosts[pair.host[end]].srq;
      if (q.wr == 0 || rng.chance(15)) continue;
      for (SessionPlan& s : pair.sessions) share(rng, s.lane[1 - end], s, q.bytes());
    }
}

PairPlan make_pair(Rng& rng, const Scenario& sc, size_t number) {
  PairPlan pair;
  pair.host[0] = rng.below(sc.hosts.size());
  pair.host[1] = (pair.host[0] + 1 + rng.below(sc.hosts.size() - 1)) % sc.hosts.size();
  pair.ipv6 = rng.chance(20);
  pair.port = static_cast<uint16_t>(1000 + number);
  pair.start = rng.log_range(100, 5 * kMs);
  for (int end : {0, 1})
    for (int which : {0, 1}) pair.cq[end][which] = rng.below(sc.hosts[pair.host[end]].cqs);
  const size_t sessions = rng.chance(60) ? 1 : 1 + rng.below(3);
  for (size_t s = 0; s < sessions; ++s)
    pair.sessions.push_back(make_session(rng, sc, s == 0 ? nullptr : &pair.sessions.back()));
  if (sc.has(kReject)) pair.sessions[0].reject = true;
  return pair;
}

void make_wire(Rng& rng, Scenario& sc) {
  WireFaults& w = sc.wire;
  w.delay = rng.log_range(500, 200 * kUs);
  const uint64_t r[] = {rng(), rng(), rng(), rng(), rng(), rng(), rng(), rng(), rng(), rng()};
  const auto share = [&](int i, double most) { return most * static_cast<double>(r[i] % 1000 + 1) / 1000; };
  if (sc.has(kLoss)) w.loss = share(0, r[0] >> 20 & 1 ? 0.30 : 0.03);
  if (sc.has(kBurst)) w.burst = share(1, 0.01), w.burst_ns = Rng(r[1]).log_range(10 * kUs, 20 * kMs);
  if (sc.has(kReorder)) w.reorder = share(2, 0.3), w.reorder_by = Rng(r[2]).log_range(kUs, 3 * kMs);
  if (sc.has(kDuplicate)) w.duplicate = share(3, r[3] >> 20 & 1 ? 1.0 : 0.1);
  if (sc.has(kJitter)) w.jitter = Rng(r[4]).log_range(kUs, 2 * kMs);
  if (sc.has(kCorrupt)) w.corrupt = share(5, 0.1);
  if (sc.has(kTruncate)) w.truncate = share(6, 0.1);
  if (sc.has(kRaw)) {
    w.checksum = false;
    w.corrupt = share(7, r[7] >> 20 & 1 ? 0.3 : 0.01);
    w.truncate = share(6, 0.05);
  }
  if (sc.has(kShortQueue)) w.queue = 20 + r[8] % 200;
  w.per_packet = sc.has(kSlowLine) ? 500 + r[9] % 5'000 : r[9] % 400;
}

void make_incidents(Rng& rng, Scenario& sc) {
  const auto hosts = static_cast<int>(sc.hosts.size());
  for (unsigned f : {kMtu, kCut, kLongCut, kFreeze, kKill, kCrash, kPort}) {
    // The same random numbers are drawn with and without the fault, so that removing it changes nothing else.
    Incident i{rng.log_range(20 * kUs, 200 * kMs), rng.log_range(kMs, 1'500 * kMs), static_cast<Fault>(f),
               rng.chance(40) && f != kFreeze && f < kKill ? -1 : rng.below(hosts), rng()};
    if (f == kLongCut) i.length = rng.range(5 * kSec, 30 * kSec);
    if (f == kMtu) i.side = -1;
    if (f == kPort) i.at = rng.log_range(20 * kUs, 20 * kMs);
    if (f == kPort && rng.chance(60)) i.length = rng.range(5 * kSec, 20 * kSec);
    if (f == kKill || f == kCrash) i.length = rng.chance(50) ? i.length / 100 : i.length * 4;
    if (sc.has(static_cast<Fault>(f))) sc.incidents.push_back(i);
  }
  std::sort(sc.incidents.begin(), sc.incidents.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
}

}  // namespace

std::vector<uint32_t> split(Rng& rng, uint32_t size, unsigned max_sge) {
  std::vector<uint32_t> out;
  for (unsigned n = 1 + rng.below(max_sge); n > 1; --n) {
    const auto len = rng.below(size + 1);
    out.push_back(len);
    size -= len;
  }
  out.push_back(size);
  return out;
}

const char* fault_name(unsigned fault) { return kNames[fault]; }

bool Scenario::may_break() const {
  constexpr Faults kBreaks = bit(kRaw) | bit(kLongCut) | bit(kKill) | bit(kCrash) | bit(kBadOp) | bit(kMidClose) |
                             bit(kAbort) | bit(kLate);
  return (faults & kBreaks) != 0;
}

Scenario make_scenario(uint64_t seed, const Cuts& cuts) {
  Rng rng(seed);
  Scenario sc;
  sc.seed = seed;
  static constexpr unsigned kHowMany[] = {0, 1, 1, 1, 2, 2, 2, 3, 4, 6};
  for (unsigned n = kHowMany[rng.below(std::size(kHowMany))]; n > 0; --n) sc.faults |= bit(rng.below(unsigned{kDrawn}));
  // Numbers of their own: every other seed stays what it was.
  Rng ports(seed ^ 0x9d0f5a11);
  sc.two_ports = ports.chance(35);
  if (sc.two_ports && ports.chance(70)) sc.faults |= bit(kPort);
  // Each addition has a generator of its own, so that a scenario without it is the same as before it existed.
  Rng srq(seed ^ 0x51a2b3c4), mw(seed ^ 0x67e21d09), word(seed ^ 0x1b5d77c3), sqd(seed ^ 0x2f90a6e5);
  Rng scarce(seed ^ 0x73a91f55), foreign(seed ^ 0x4cd0b7e9), rights(seed ^ 0x5e8b3a61), ecn(seed ^ 0x38d1f7c2);
  Rng early(seed ^ 0x1f6e92b7), late(seed ^ 0x45c30d8a);
  const auto also = [&](Rng& more, Fault kind, Fault with) {
    const bool worse = more.chance(50);
    if (more.chance(25) && (cuts.without >> kind & 1) == 0) sc.faults |= bit(kind) | (worse ? bit(with) : 0);
  };
  also(srq, kSrq, kAbort);
  also(mw, kMw, kBadOp);
  also(word, kWord, kMidClose);
  also(sqd, kSqd, kMidClose);
  if ((cuts.without >> kSrq & 1) == 0) also(scarce, kScarce, kSrq);
  if (sc.has(kScarce)) sc.faults |= bit(kSrq);
  also(foreign, kForeign, kAbort);
  if (sc.has(kForeign)) sc.faults |= bit(kBadOp);
  also(rights, kQpAccess, kBadOp);
  also(ecn, kEcn, kBurst);
  also(early, kEarly, kReject);
  if (sc.has(kPort) && late.chance(30) && (cuts.without >> kLate & 1) == 0) sc.faults |= bit(kLate);
  // The plan is made with all faults, and a removed fault only has no effect.
  const Faults all = sc.faults;
  const bool three = rng.chance(20);
  for (int i = 0; i < (three ? 3 : 2); ++i) {
    HostPlan h;
    h.cqs = 1 + rng.below(3);
    h.timer_slop = rng.below(8 * kMs);
    const uint64_t r[] = {rng(), rng(), rng(), rng()};
    sc.faults = all & ~cuts.without;
    if (sc.has(kFewBuffers)) h.buffers = 80 + r[0] % 100;
    if (sc.has(kFullPort)) h.tx_limit = 1 + r[1] % 12, h.ring = 8 + r[1] / 16 % 100;
    if (sc.has(kSlowPoll)) h.poll_pause = Rng(r[2]).log_range(10 * kUs, 20 * kMs);
    h.kernel_pause = sc.has(kSlowKernel) ? Rng(r[3]).log_range(kMs, 2 * kSec) : r[3] % (100 * kUs);
    sc.faults = all;
    sc.hosts.push_back(h);
  }
  const size_t pairs = rng.chance(50) ? 1 : 1 + rng.below(4);
  for (size_t p = 0; p < pairs; ++p) sc.pairs.push_back(make_pair(rng, sc, p));
  Rng wire_rng(rng());
  const auto add_pairs = [&](Rng& more, size_t most, unsigned percent) {
    while (sc.pairs.size() < most && more.chance(percent)) sc.pairs.push_back(make_pair(more, sc, sc.pairs.size()));
  };
  const auto each_session = [&](auto what) {
    for (PairPlan& pair : sc.pairs)
      for (SessionPlan& s : pair.sessions) what(s);
  };
  if (sc.has(kSrq)) add_pairs(srq, 4, 60);
  if (sc.has(kScarce)) add_pairs(scarce, 7, 75);
  if (sc.has(kMw)) each_session([&](SessionPlan& s) { plan_windows(mw, s, sc.has(kBadOp) && mw.chance(60)); });
  if (sc.has(kForeign)) {
    add_pairs(foreign, 4, 60);
    // The words of contended atomics are in one PD.
    for (PairPlan& pair : sc.pairs)
      plan_foreign(foreign, pair, !sc.has(kWord), &pair == &sc.pairs.front() || foreign.chance(25));
  }
  if (sc.has(kSrq)) share_receives(srq, sc);
  if (sc.has(kScarce))
    for (HostPlan& h : sc.hosts)
      if (h.srq.wr != 0) make_scarce(scarce, h.srq);
  if (sc.has(kWord)) {
    add_pairs(word, 4, 60);
    each_session([&](SessionPlan& s) {
      for (LanePlan& lane : s.lane) contend(word, lane);
    });
  }
  if (sc.has(kSqd)) each_session([&](SessionPlan& s) { s.pauses = make_pauses(sqd); });
  if (sc.has(kQpAccess)) each_session([&](SessionPlan& s) { plan_rights(rights, s); });
  sc.faults &= ~cuts.without;
  make_wire(wire_rng, sc);
  if (sc.has(kEcn)) {
    sc.wire.drops_ect = ecn.chance(25);
    sc.wire.mark = ecn.range(1, 1000) / 1000.0;
  }
  make_incidents(wire_rng, sc);

  // ---- Cuts ----
  for (PairPlan& pair : sc.pairs) {
    if (pair.sessions.size() > cuts.sessions) pair.sessions.resize(cuts.sessions);
    for (SessionPlan& s : pair.sessions) {
      if (!sc.has(kMidClose) && !sc.has(kAbort)) s.early_end = 0;
      if (!sc.has(kAbort) && s.ending >= Ending::kError) s.ending = Ending::kDisconnect;
      if (!sc.has(kReject)) s.reject = false;
      size_t first_recv[2];
      for (LanePlan& lane : s.lane) {
        // Such an access is the last of its lane.
        if (!sc.has(kBadOp)) std::erase_if(lane.ops, [](const OpPlan& o) { return o.wrong == Wrong::kForeign; });
        if (!sc.has(kLateRecv)) lane.ahead = true;
        if (lane.ops.size() > cuts.ops) lane.ops.resize(cuts.ops);
        const auto first = std::min(cuts.first_op, lane.ops.size());
        const auto kept = lane.ops.begin() + static_cast<ptrdiff_t>(first);
        first_recv[&lane - s.lane] = static_cast<size_t>(
            std::count_if(lane.ops.begin(), kept, [](const OpPlan& o) { return takes_receive(o.opcode); }));
        lane.ops.erase(lane.ops.begin(), kept);
        for (OpPlan& op : lane.ops)
          if (op.read_of >= 0) op.read_of = std::max(-1, op.read_of - static_cast<int>(first));
        if (!lane.ops.empty()) lane.ops.back().signalled = true;
      }
      if (!sc.has(kBadOp)) use_rightly(s);
      if (cuts.ops != SIZE_MAX || cuts.first_op != 0) cut_windows(s, first_recv);
      if (!sc.has(kBadOp)) refuse_nothing(s);
    }
  }
  for (auto it = cuts.drop_pairs.rbegin(); it != cuts.drop_pairs.rend(); ++it)
    if (static_cast<size_t>(*it) < sc.pairs.size()) sc.pairs.erase(sc.pairs.begin() + *it);
  return sc;
}

}  // namespace usiw::sim
