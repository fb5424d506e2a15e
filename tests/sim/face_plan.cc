// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "face_plan.h"

#include <algorithm>
#include <array>

namespace usiw::sim {
namespace {

constexpr std::array kNames = {"loss", "reorder", "duplicate", "late",  "replay",   "forger",
                               "cut",  "freeze",  "kill",      "claim", "wrongpsn", "slowevents"};
static_assert(kNames.size() == kFaceFaults);

/// Some limits of a program: finite ones in most cases.
QpLimits make_limits(Rng& rng) {
  QpLimits l{.retry_ns = kForEver, .rnr_ns = kForEver, .first_ns = kForEver, .ord = rng.range(1, uint16_t{16})};
  if (rng.chance(80)) {
    l.retry_ns = rng.range(2 * kSec, 5 * kSec);
    l.first_ns = rng.chance(50) ? 10 * kSec : l.retry_ns;
  }
  if (rng.chance(30)) l.rnr_ns = rng.log_range(10 * kMs, 2 * kSec);
  return l;
}

FaceEndPlan make_end(Rng& rng) {
  FaceEndPlan e;
  const auto wait = [&] { return rng.chance(70) ? rng.log_range(kUs, 20 * kMs) : rng.log_range(20 * kMs, 8 * kSec); };
  e.init = wait();
  e.rtr = wait();
  e.rts = rng.chance(50) ? rng.below(100 * kUs) : wait();
  e.first_send = rng.chance(60) ? 0 : wait();
  e.pause = rng.chance(50) ? 0 : rng.log_range(10 * kUs, 500 * kMs);
  static constexpr WrOpcode kOps[] = {WrOpcode::kSend, WrOpcode::kSend, WrOpcode::kRdmaWrite, WrOpcode::kRdmaRead};
  for (size_t n = rng.chance(20) ? 0 : rng.log_range(1, 30); n > 0; --n) {
    e.ops.push_back(kOps[rng.below(4u)]);
    e.sizes.push_back(rng.range(32, rng.chance(80) ? 200u : 4000u));
  }
  e.receives = rng.chance(75) ? 0 : rng.log_range(kMs, 3 * kSec);
  e.stay = rng.chance(30) ? rng.log_range(kUs, 50 * kMs) : rng.log_range(50 * kMs, 40 * kSec);
  e.until_done = rng.chance(50);
  e.together = rng.chance(60);
  const unsigned how = rng.below(100u);
  e.ending = how < 60 ? FaceEnding::kReset : how < 80 ? FaceEnding::kError : FaceEnding::kDestroy;
  e.gap = rng.chance(60) ? 0 : rng.log_range(kUs, 3 * kSec);
  e.limits = make_limits(rng);
  return e;
}

FaceSession make_face_session(Rng& rng, const FacePlan& plan) {
  FaceSession s;
  const auto slots = static_cast<int>(plan.slots.size());
  // Few QPs, so that most sessions are of a pair that was connected before.
  s.slot[0] = rng.below(slots);
  s.slot[1] = rng.chance(4) ? s.slot[0] : (s.slot[0] + 1 + rng.below(slots - 1)) % slots;
  s.claim = rng.chance(25) && s.slot[0] != s.slot[1];
  for (uint32_t& psn : s.psn) psn = rng.chance(50) ? 0 : static_cast<uint32_t>(rng()) & 0xffffff;
  const bool wrong = rng.chance(20);
  const uint32_t by = rng.range(1, 0xfffffeu);
  if (wrong) s.wrong_psn = by;
  for (FaceEndPlan& e : s.end) e = make_end(rng);
  if (s.slot[0] == s.slot[1]) s.end[0].together = false, s.claim = false, s.wrong_psn = 0;
  return s;
}

/// Replaces some READs by fetch-and-add, and lets some programs pause in SQD.
void add_atomics_and_pauses(Rng rng, FacePlan& plan) {
  for (FaceSession& s : plan.sessions)
    for (FaceEndPlan& e : s.end) {
      for (WrOpcode& op : e.ops)
        if (op == WrOpcode::kRdmaRead && rng.chance(40)) op = WrOpcode::kFetchAdd;
      const bool pauses = rng.chance(25);
      const uint64_t at = rng.log_range(kUs, 3 * kSec), length = rng.log_range(kUs, 6 * kSec);
      if (pauses) e.sqd_at = at, e.sqd = length;
    }
}

void make_face_wire(Rng& rng, FacePlan& plan) {
  WireFaults& w = plan.base.wire;
  w.delay = rng.log_range(kUs, 200 * kUs);
  const uint64_t r[] = {rng(), rng(), rng(), rng(), rng(), rng()};
  const auto share = [&](int i, double most) { return most * static_cast<double>(r[i] % 1000 + 1) / 1000; };
  if (plan.has(kFaceLoss)) w.loss = share(0, r[0] >> 20 & 1 ? 0.10 : 0.02);
  if (plan.has(kFaceReorder)) w.reorder = share(1, 0.3), w.reorder_by = Rng(r[2]).log_range(10 * kUs, 50 * kMs);
  if (plan.has(kFaceDuplicate)) w.duplicate = share(3, r[3] >> 20 & 1 ? 1.0 : 0.1);
  if (plan.has(kFaceLate)) plan.late = Rng(r[4]).log_range(10 * kMs, 20 * kSec);
  plan.event_pause = plan.has(kFaceSlowEvents) ? Rng(r[5]).log_range(kMs, 500 * kMs) : r[5] % (100 * kUs);
}

void make_face_incidents(Rng& rng, FacePlan& plan) {
  const auto hosts = static_cast<int>(plan.base.hosts.size());
  for (int n = 0; n < 6; ++n)
    for (const FaceFault f : {kFaceCut, kFaceFreeze, kFaceKill}) {
      // The same random numbers are drawn with and without the fault, so that removing it changes nothing else.
      const Incident i{rng.log_range(10 * kMs, 100 * kSec), rng.log_range(kMs, 4 * kSec), static_cast<Fault>(f),
                       rng.below(hosts), rng()};
      if (plan.has(f) && (n == 0 || i.value % 2 == 0)) plan.incidents.push_back(i);
    }
}

}  // namespace

const char* face_fault_name(unsigned fault) { return kNames[fault]; }

FacePlan make_face_plan(uint64_t seed, const FaceCuts& cuts) {
  Rng rng(seed ^ 0x6fa3c0de11);  // another stream than that of the other scenarios
  FacePlan plan;
  plan.base.seed = seed;
  static constexpr unsigned kHowMany[] = {0, 1, 2, 2, 3, 3, 4, 6};
  for (unsigned n = kHowMany[rng.below(std::size(kHowMany))]; n > 0; --n)
    plan.faults |= 1u << rng.below(unsigned{kFaceFaults});
  plan.ipv6 = rng.chance(20);
  plan.base.hosts.resize(rng.chance(30) ? 3 : 2);
  for (HostPlan& h : plan.base.hosts) h.timer_slop = rng.below(8 * kMs);
  const auto hosts = static_cast<int>(plan.base.hosts.size());
  for (int n = rng.range(2, 4), i = 0; i < n; ++i) plan.slots.push_back(i < hosts ? i : rng.below(hosts));
  for (size_t n = rng.range(1, size_t{8}); n > 0; --n) plan.sessions.push_back(make_face_session(rng, plan));
  add_atomics_and_pauses(Rng(seed ^ 0x5bd0a7031c), plan);
  Rng more(rng());
  plan.faults &= ~cuts.without;
  make_face_wire(more, plan);
  make_face_incidents(more, plan);
  for (FaceSession& s : plan.sessions) {
    if (!plan.has(kFaceClaim)) s.claim = false;
    if (!plan.has(kFaceWrongPsn)) s.wrong_psn = 0;
    for (FaceEndPlan& e : s.end)
      if (plan.has(kFaceKill) && e.ending == FaceEnding::kDestroy && e.gap != 0) e.ending = FaceEnding::kKill;
  }
  if (plan.sessions.size() > cuts.sessions) plan.sessions.resize(cuts.sessions);
  return plan;
}

std::string summary(const FacePlan& plan) {
  std::string names;
  for (unsigned f = 0; f < kFaceFaults; ++f)
    if ((plan.faults >> f & 1) != 0) names += std::string(names.empty() ? "" : ",") + face_fault_name(f);
  return std::to_string(plan.base.hosts.size()) + " hosts, " + std::to_string(plan.slots.size()) + " QPs, " +
         std::to_string(plan.sessions.size()) + " sessions, faults: " + (names.empty() ? "none" : names);
}

}  // namespace usiw::sim
