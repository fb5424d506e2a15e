// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/borrowed.h"

#include <algorithm>
#include <utility>

#include "base/backoff.h"
#include "tools/run/host/big_lock.h"
#include "tools/run/libc/event_file.h"

namespace usiw::run {

bool BorrowedEngine::take(usiw_engine_loan& loan) {
  if (loan_ != nullptr) return false;
  loan_ = &loan;
  return true;
}

void BorrowedEngine::give_back() {
  usiw_engine_loan* before = nullptr;
  for (Backoff backoff;; backoff.wait()) {
    {
      HoldBigLock hold;
      if (before == nullptr) {
        for (const User& user : users_) {
          user.file->look_again();
          loan_->end(loan_->engine);
        }
        before = std::exchange(loan_, nullptr);
      }
      // This thread itself may have jumped out of its wait, by a signal handler.
      std::erase_if(users_, is_this_thread);
      if (users_.empty()) return;
    }
  }
}

const usiw_engine_loan* BorrowedEngine::Use::blocks() {
  if (engine_ == nullptr) return nullptr;
  HoldBigLock hold;
  if (engine_->loan_ == nullptr) {
    leave();
    return nullptr;
  }
  if (!in_) {
    leave_as_user();  // a signal handler has jumped out of its last wait
    engine_->users_.push_back({&file_, pthread_self()});
    in_ = true;
    engine_->loan_->begin(engine_->loan_->engine);
  }
  return engine_->loan_;
}

BorrowedEngine::Use::~Use() {
  if (!in_) return;
  HoldBigLock hold;
  leave();
  file_.show_rest();
}

/// [big lock]
void BorrowedEngine::Use::leave() {
  if (in_) leave_as_user();
  in_ = false;
}

void BorrowedEngine::Use::leave_as_user() {
  if (std::erase_if(engine_->users_, is_this_thread) == 0) return;
  if (engine_->loan_ != nullptr) engine_->loan_->end(engine_->loan_->engine);
}

}  // namespace usiw::run
