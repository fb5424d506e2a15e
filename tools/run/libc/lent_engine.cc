// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/lent_engine.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "tools/run/host/big_lock.h"

namespace usiw::run {

bool LentEngine::lend(usiw_engine_loan& loan) {
  if (lent_ != nullptr) return false;
  lent_ = &loan;
  return true;
}

void LentEngine::take_back() {
  {
    HoldBigLock hold;
    for (const User& user : users_) {
      user.waiter->wake();
      lent_->end(lent_->engine);
    }
    lent_ = nullptr;
  }
  for (Backoff backoff;; backoff.wait()) {
    HoldBigLock hold;
    // If a signal handler ended a wait of this thread by longjmp(3), its entry is still in the list, and nobody else
    // would remove it.
    std::erase_if(users_, is_this_thread);
    if (users_.empty()) return;
  }
}

/// [big lock] Ends this thread's use of the engine, if there is one.
void LentEngine::forget_this_thread() {
  if (std::erase_if(users_, is_this_thread) != 0 && lent_ != nullptr) lent_->end(lent_->engine);
}

const usiw_engine_loan* LentEngine::Use::blocks() {
  if (engine_ == nullptr) return nullptr;
  HoldBigLock hold;
  if (engine_->lent_ == nullptr) {
    leave();
    return nullptr;
  }
  if (!in_) {
    engine_->forget_this_thread();  // its last wait may have ended by longjmp(3) in a signal handler
    engine_->users_.push_back({&waiter_, pthread_self()});
    in_ = true;
    engine_->lent_->begin(engine_->lent_->engine);
  }
  return engine_->lent_;
}

LentEngine::Use::~Use() {
  if (!in_) return;
  HoldBigLock hold;
  leave();
  waiter_.show_rest();
}

/// [big lock] Ends this use of the engine.
void LentEngine::Use::leave() {
  if (std::exchange(in_, false)) engine_->forget_this_thread();
}

}  // namespace usiw::run
