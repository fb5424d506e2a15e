// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lent_engine.h
/// The engine of a context, which the provider lends to this library (base/engine_loan.h). A thread that blocks in a
/// completion channel of the context drives the engine while it waits. So a message costs one wake-up, that of the
/// thread that wants it.
#ifndef USIW_RUN_LENT_ENGINE_H
#define USIW_RUN_LENT_ENGINE_H

#include <pthread.h>

#include <vector>

#include "base/engine_loan.h"

namespace usiw::run {

/// Shared by a context and its channels.
class LentEngine {
 public:
  /// A file in which a thread waits and drives the engine. All calls [big lock].
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Wakes all threads that wait, as if an event had come.
    virtual void wake() = 0;
    /// A thread that drove the engine does not wait any more. Other threads get the events that it has not taken.
    virtual void show_rest() = 0;
  };

  /// [big lock] Returns false if there is an engine already.
  bool lend(usiw_engine_loan& loan);
  /// Takes the engine back. Threads that drive it go on without it, and the call returns when none does any more.
  void take_back();
  /// [big lock] Notifies the engine of a change of @p word, on which a thread may wait.
  void changed(const std::atomic<uint32_t>& word) const {
    if (lent_ != nullptr) lent_->changed(lent_->engine, &word);
  }

  /// The use of the engine by a thread, from blocks() to the end of the scope.
  class Use {
   public:
    Use(LentEngine* engine, Waiter& waiter) : engine_(engine), waiter_(waiter) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    /// [big lock not held] The thread is going to block. Returns the engine that it can drive, or null. The engine
    /// stays until the next call.
    const usiw_engine_loan* blocks();

   private:
    void leave();
    LentEngine* const engine_;
    Waiter& waiter_;
    bool in_ = false;
  };

 private:
  struct User {
    Waiter* waiter;
    pthread_t thread;
  };
  void forget_this_thread();
  static bool is_this_thread(const User& user) { return pthread_equal(user.thread, pthread_self()) != 0; }
  usiw_engine_loan* lent_ = nullptr;  ///< [big lock]
  std::vector<User> users_;           ///< [big lock]
};

}  // namespace usiw::run

#endif  // USIW_RUN_LENT_ENGINE_H
