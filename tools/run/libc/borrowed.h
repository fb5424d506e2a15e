// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file borrowed.h
/// The provider's engine of a context, which threads drive that block in the context's channels (base/engine_loan.h).
#ifndef USIW_RUN_BORROWED_H
#define USIW_RUN_BORROWED_H

#include <pthread.h>

#include <vector>

#include "base/engine_loan.h"

namespace usiw::run {

class EventFile;

/// Shared by a context and its channels.
class BorrowedEngine {
 public:
  /// [big lock] False: there is one already.
  bool take(usiw_engine_loan& loan);
  /// Lets go of it; threads that use it go on without.
  void give_back();
  /// [big lock] @p word has changed.
  void changed(const std::atomic<uint32_t>& word) const {
    if (loan_ != nullptr) loan_->changed(loan_->engine, &word);
  }

  /// The use of it by a thread, from where it begins to block until the end of the scope.
  class Use {
   public:
    Use(BorrowedEngine* engine, EventFile& file) : engine_(engine), file_(file) {}
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    /// [big lock not held] The engine, if there is one still; it stays until the next call.
    const usiw_engine_loan* blocks();

   private:
    void leave();
    void leave_as_user();
    BorrowedEngine* const engine_;
    EventFile& file_;
    bool in_ = false;
  };

 private:
  struct User {
    EventFile* file;
    pthread_t thread;
  };
  static bool is_this_thread(const User& user) { return pthread_equal(user.thread, pthread_self()) != 0; }
  usiw_engine_loan* loan_ = nullptr;  ///< [big lock]
  std::vector<User> users_;           ///< [big lock]
};

}  // namespace usiw::run

#endif  // USIW_RUN_BORROWED_H
