// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_plan.h
/// The plan of one seed of the program `face`: hosts, QPs of the RoCE face, what the program of each QP does, and the
/// faults of the wire. A QP takes part in some sessions, one after the other. In a session it moves to RTR with the
/// other QP as its peer, works, and ends in one of several ways.
#ifndef USIW_TESTS_SIM_FACE_PLAN_H
#define USIW_TESTS_SIM_FACE_PLAN_H

#include <cstdint>
#include <string>
#include <vector>

#include "engine/types.h"
#include "scenario.h"

namespace usiw::sim {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;
constexpr uint64_t kForEver = UINT64_MAX;  ///< as a limit of QpLimits

/// Kinds of trouble of a face scenario. --without removes them.
enum FaceFault : unsigned {
  kFaceLoss,  ///< up to 10 % of the datagrams
  kFaceReorder,
  kFaceDuplicate,
  kFaceLate,        ///< some datagrams arrive again after seconds
  kFaceReplay,      ///< somebody sends captured datagrams again
  kFaceForger,      ///< somebody who knows all that programs exchange sends REQs from any address
  kFaceCut,         ///< nothing passes in one direction for a while
  kFaceFreeze,      ///< a process is stopped for a while
  kFaceKill,        ///< a process dies and comes back with the same QP numbers
  kFaceClaim,       ///< QPs name peers that do not name them
  kFaceWrongPsn,    ///< some ends give PSNs that do not fit
  kFaceSlowEvents,  ///< events between kernel and provider take up to 0.5 s
  kFaceFaults,
};
const char* face_fault_name(unsigned fault);

enum class FaceEnding : uint8_t { kReset, kError, kDestroy, kKill };

/// The moves and the work of one end in a session.
struct FaceEndPlan {
  uint64_t init = 0, rtr = 0, rts = 0;  ///< ns of waiting before each move
  uint64_t first_send = 0, pause = 0;   ///< ns until the first work request, and between two, at most
  std::vector<WrOpcode> ops;
  std::vector<uint32_t> sizes;   ///< bytes of each SEND
  uint64_t receives = 0;         ///< ns after RTR at which receives are posted; 0: in INIT
  uint64_t stay = 0;             ///< ns in RTS, at most
  bool until_done = false;       ///< ends earlier if all has been sent and received
  bool together = false;         ///< begins when the other end has come to this session
  uint64_t sqd_at = 0, sqd = 0;  ///< ns after RTS of the move to SQD, and ns in SQD; 0 and 0: never
  FaceEnding ending = FaceEnding::kReset;
  uint64_t gap = 0;  ///< ns after the end, in ERR or without a QP
  QpLimits limits{};
};

struct FaceSession {
  int slot[2] = {0, 1};  ///< may be the same: the QP is its own peer
  bool claim = false;    ///< only the first end takes part; the other one is busy elsewhere
  uint32_t psn[2] = {0, 0};
  uint32_t wrong_psn = 0;  ///< added to the PSN that the second end expects; 0: right
  FaceEndPlan end[2];
};

struct FacePlan {
  Scenario base;  ///< seed, hosts and wire
  unsigned faults = 0;
  bool ipv6 = false;
  std::vector<int> slots;  ///< host of each QP
  std::vector<FaceSession> sessions;
  std::vector<Incident> incidents;
  uint64_t event_pause = 0;  ///< ns between kernel and provider, at most
  uint64_t late = 0;         ///< ns of delay of a late copy, at most

  bool has(FaceFault f) const { return (faults >> f & 1) != 0; }
};

struct FaceCuts {
  unsigned without = 0;
  size_t sessions = SIZE_MAX;
};

FacePlan make_face_plan(uint64_t seed, const FaceCuts& cuts);
std::string summary(const FacePlan& plan);

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FACE_PLAN_H
