// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file face_run.h
/// One run of the program `face`: the programs of the QPs, the wire, the strangers, and the rules.
///
/// A QP number stays the same in all sessions. A **life** of a QP is the time from one move to RTR until the QP is
/// reset, destroyed or dies. At most one life of another QP, the **partner**, may exchange data with a life. Each
/// message has the sender's life and a number, so the rules see data of any other life.
#ifndef USIW_TESTS_SIM_FACE_RUN_H
#define USIW_TESTS_SIM_FACE_RUN_H

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "face_plan.h"
#include "face_process.h"
#include "world.h"

namespace usiw::sim {

constexpr uint32_t kNoLife = UINT32_MAX;

struct FaceLife {
  uint32_t id, slot, names;  ///< names: slot of the peer
  const FaceEndPlan* plan;
  bool psn_fits = true;  ///< the program gives the PSNs that the other end gives
  uint32_t partner = kNoLife;
  uint64_t rtr_at = 0, rts_at = 0, last_progress = 0;  ///< ns; rts_at 0: not yet
  uint64_t connected_at = 0;                           ///< since when both engines have the connection; 0: not
  bool over = false, killed = false;
  bool by_program = false;  ///< the program has put the QP into ERR
  bool failed = false;      ///< a work request has completed with an error
  bool bad = false;         ///< an access may be refused, because it names memory of a process that is gone
  bool partner_bad = false;
  bool receives_posted = false, sending = false;
  bool in_sqd = false, drained = false;
  size_t before_sqd = 0;  ///< work requests that were posted before SQD
  uint32_t added = 0;     ///< fetch-and-adds that have succeeded
  struct Posted {
    WrOpcode op;
    uint32_t size;
    uint64_t at;
    bool foreign;  ///< names memory of a process that is gone
  };
  std::vector<Posted> posted;
  size_t completed = 0, succeeded = 0, sends = 0, adds = 0;
  size_t receives = 0, received = 0, flushed = 0;  ///< receives posted, completed with success, flushed
};

class FaceRun {
 public:
  FaceRun(const FacePlan& plan, Mutation mutation, size_t trace_lines);
  bool go();

  World w;

 private:
  struct Machine {
    int side;
    unsigned born = 0;  ///< number of processes that this host has had
    std::unique_ptr<FaceProcess> process;
    Cq* cq = nullptr;
  };
  /// The memory of a QP and what its program does now.
  struct Slot {
    uint32_t number, qpn;
    int side;
    std::vector<size_t> todo;  ///< sessions, the next one last
    const FaceSession* session = nullptr;
    int end = 0;
    bool exists = false;      ///< there is a QP
    uint32_t life = kNoLife;  ///< the present one
    uint32_t step = 0;        ///< changes when what was planned is void
    uint32_t stag = 0;
    uint64_t waits_since = 0;
    std::vector<std::byte> memory, shadow;
  };

  FaceLife& life(uint32_t id) { return lives_.at(id); }
  FaceLife* life_of(const Slot& s) { return s.life == kNoLife ? nullptr : &lives_[s.life]; }
  FaceProcess* process(const Slot& s) { return machines_[static_cast<size_t>(s.side)].process.get(); }
  void later(Slot& s, uint64_t ns, void (FaceRun::*what)(Slot&));

  // ---- Programs ----
  void next_session(Slot& s);
  void begin(Slot& s);
  void to_init(Slot& s);
  void to_rtr(Slot& s);
  void to_rts(Slot& s);
  void post_receives(Slot& s);
  void to_sqd(Slot& s);
  void leave_sqd(Slot& s);
  void post(Slot& s);
  void watch_stay(Slot& s);
  void end_session(Slot& s);
  void end_life(Slot& s, bool killed);
  void after_error(Slot& s);
  bool done(const FaceLife& l);
  void poll(Machine& m);
  void on_cqe(const Cqe& c);
  void on_received(Slot& s, FaceLife& l, const Cqe& c);
  void on_added(FaceLife& l, uint64_t found);
  void on_drained(uint32_t qpn);
  void check_status(Slot& s, FaceLife& l, const FaceLife::Posted& p, WcStatus status);

  // ---- Memory ----
  void fill(std::byte* at, const FaceLife& l, uint32_t number, uint32_t size) const;
  bool holds(const std::byte* at, uint32_t life_id, uint32_t number, uint32_t size) const;
  void check_written(Slot& s);
  void check_word(Slot& s);
  void link(FaceLife& a, uint32_t other, const char* how);

  // ---- Hosts, wire and strangers ----
  struct Captured {
    int side;
    Datagram data;
    FlowKey flow;
  };
  void start(Machine& m);
  void kill(Machine& m);
  void incident(const Incident& i, bool on);
  void arrivals();
  void forge();
  void capture(Captured c);
  void replay();
  bool step();

  // ---- Rules ----
  void inspect();
  void inspect(Slot& s, FaceLife& l);
  void inspect_pair(Slot& a, Slot& b);
  bool busy(const Slot& s, const Slot& other);
  bool quiet(uint64_t since) const { return incidents_open_ == 0 && last_incident_ <= since; }
  uint64_t connect_limit() const;
  void final_checks();

  const FacePlan& plan_;
  Scenario scenario_;
  const Life alive_ = std::make_shared<int>(0);
  std::vector<Machine> machines_;
  std::vector<Slot> slots_;
  std::vector<FaceLife> lives_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> installed_;  ///< lives by {own ISN, peer's ISN}
  std::vector<Captured> captured_[2];                            ///< data, datagrams of handshakes
  Rng strangers_;
  unsigned incidents_open_ = 0;
  uint64_t last_incident_ = 0;
  size_t over_ = 0;
};

}  // namespace usiw::sim

#endif  // USIW_TESTS_SIM_FACE_RUN_H
