// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lent_engine.h
/// The engine of a context, which the provider lends to this library (base/engine_loan.h). A thread that waits for an
/// event of a completion channel drives the engine meanwhile. So a message needs one wake-up only, that of the thread
/// that waits for it.
#ifndef USIW_RUN_LENT_ENGINE_H
#define USIW_RUN_LENT_ENGINE_H

#include <pthread.h>

#include <vector>

#include "base/engine_loan.h"

namespace usiw::run {

/// The lent engine of a context, if there is one. The context and its completion channels share the object.
class LentEngine {
 public:
  /// A file on which a thread waits while the thread drives the engine. The caller of each function holds the big lock.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Wakes all threads that wait, as if an event had come.
    virtual void wake() = 0;
    /// Makes the remaining events visible to other threads, after a thread that drove the engine has ended its wait.
    virtual void show_rest() = 0;
  };

  /// [big lock] Stores the engine that the provider lends. Returns false if there is an engine already.
  bool lend(usiw_engine_loan& loan);
  /// [big lock not held] Gives the engine back to the provider. Threads that drive it continue their wait without it.
  /// The call returns when no thread drives it any more.
  void take_back();
  /// [big lock] Notifies the engine of a change of @p word, on which a thread may wait.
  void changed(const std::atomic<uint32_t>& word) const {
    if (lent_ != nullptr) lent_->changed(lent_->engine, &word);
  }

  /// The use of the engine by one thread. It begins in blocks(). It ends with the scope, or in a later blocks() that
  /// finds that the engine was given back.
  class Use {
   public:
    Use(LentEngine* engine, Waiter& waiter) : engine_(engine), waiter_(waiter) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    /// [big lock not held] Begins the use, because the thread is going to block. Returns the engine for the thread to
    /// drive, or null. The engine stays valid until the next call or the end of the scope.
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
