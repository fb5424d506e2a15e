// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lifecycle.h
/// How far a connection has come, and its end: a SHUTDOWN or a Terminate, which has the last PSN.
#ifndef USIW_ENGINE_LIFECYCLE_H
#define USIW_ENGINE_LIFECYCLE_H

#include <cstdint>

#include "engine/psn.h"
#include "engine/timers.h"
#include "engine/types.h"

namespace usiw {

enum class Phase : uint8_t {
  kIdle,          ///< no connection yet
  kOpen,
  kDraining,      ///< qp_shutdown(): finishing the send queue
  kShutdownSent,  ///< the SHUTDOWN is on its way, or next
  kTerminating,   ///< our Terminate is on its way; nothing more is accepted
  kDead,          ///< flushed
};

class Lifecycle {
 public:
  Phase phase() const { return phase_; }
  bool is(Phase phase) const { return phase_ == phase; }
  bool connected() const { return phase_ != Phase::kIdle && phase_ != Phase::kDead; }

  void open() { phase_ = Phase::kOpen; }
  void drain() {
    closing_ = true;
    phase_ = Phase::kDraining;
  }
  /// All is drained. The end comes at @p deadline at the latest.
  void shut(uint64_t deadline) {
    phase_ = Phase::kShutdownSent;
    deadline_ = deadline;
  }
  /// @p event: told to the owner with the end.
  void terminate(AsyncEvent event) {
    phase_ = Phase::kTerminating;
    event_ = event;
  }
  void die() { phase_ = Phase::kDead; }

  /// qp_shutdown() was called: the end is told by qp_closed().
  bool closing() const { return closing_; }
  void close() { closing_ = true; }
  AsyncEvent event() const { return event_; }
  uint64_t deadline() const { return deadline_; }

  /// kDead: repetitions of the peer's end are acknowledged.
  bool answers() const { return answers_; }
  void answer(bool yes) { answers_ = yes; }

  // ---- The end on the wire ----

  bool shutdown_sent() const { return shutdown_sent_; }
  bool terminate_sent() const { return terminate_sent_; }
  /// It has been sent as one that the peer gets to ahead of @p psn.
  bool terminated_before(uint32_t psn) const { return terminate_sent_ && psn_lt(end_psn_, psn); }
  /// Either, for the first time or again, as @p psn.
  void send_shutdown(uint32_t psn) {
    shutdown_sent_ = true;
    if (!terminate_sent_) end_psn_ = psn;  // else a repetition behind a READ response that has become the Terminate
  }
  void send_terminate(uint32_t psn) {
    if (!terminate_sent_ || psn_lt(psn, end_psn_)) end_psn_ = psn;
    terminate_sent_ = true;
  }
  void end_by(uint64_t deadline) { deadline_ = deadline; }
  /// It has been acknowledged; all before @p una is.
  bool end_acknowledged(uint32_t una) const {
    const bool sent = (phase_ == Phase::kShutdownSent && shutdown_sent_) ||
                      (phase_ == Phase::kTerminating && terminate_sent_);
    return sent && psn_lt(end_psn_, una);
  }

 private:
  Phase phase_ = Phase::kIdle;
  bool closing_ = false;
  bool shutdown_sent_ = false;
  bool terminate_sent_ = false;
  bool answers_ = false;
  uint32_t end_psn_ = 0;
  AsyncEvent event_ = AsyncEvent::kNone;
  uint64_t deadline_ = kNever;
};

}  // namespace usiw

#endif  // USIW_ENGINE_LIFECYCLE_H
