// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file engine_gate.h
/// The engine behind its token: nobody calls it who does not hold it.
#ifndef USIW_RUNTIME_ENGINE_GATE_H
#define USIW_RUNTIME_ENGINE_GATE_H

#include "base/lock_rank.h"
#include "engine/engine.h"
#include "progress/progress.h"

namespace usiw {

class EngineGate {
 public:
  EngineGate(EngineDriver& driver, Clock& clock, EngineEvents& events, uint64_t* counters)
      : engine_(clock, events, counters), progress_(driver, clock, Progress::mode_from_environment()) {}

  /// The right to call the engine, for one thread and as long as it lives. A function that takes one by reference is
  /// called with the engine held.
  class Held {
   public:
    explicit Held(EngineGate& gate) : hold_(gate.progress_), engine_(gate.engine_) {}
    Engine* operator->() const { return &engine_; }

   private:
    Progress::Hold hold_;
    Engine& engine_;
  };
  /// Waits for whoever holds it.
  [[nodiscard]] Held hold() { return Held(*this); }

  Progress& progress() { return progress_; }

  /// What the driver does when Progress, which holds the token then, calls it.
  unsigned drive() {
    lock_rank::assert_held(LockRank::kEngine);
    return engine_.progress();
  }
  uint64_t next_deadline_ns() const {
    lock_rank::assert_held(LockRank::kEngine);
    return engine_.next_deadline_ns();
  }

 private:
  Engine engine_;
  Progress progress_;  ///< last: its thread ends first
};

}  // namespace usiw

#endif  // USIW_RUNTIME_ENGINE_GATE_H
