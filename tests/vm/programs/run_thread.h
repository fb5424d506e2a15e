// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file run_thread.h
/// A thread that can be cancelled.
#ifndef USIW_TESTS_RUN_THREAD_H
#define USIW_TESTS_RUN_THREAD_H

#include <pthread.h>
#include <unistd.h>

#include <ctime>
#include <functional>
#include <utility>

#include "tap.h"

/// Until a thread that has been started blocks where it is meant to, as a rule.
inline void settle() { usleep(100000 * tap::patience()); }

/// A thread that runs @p body, and how it ended.
class Thread {
 public:
  explicit Thread(std::function<void()> body) : body_(std::move(body)) {
    CHECK_EQ(pthread_create(&id_, nullptr, [](void* self) -> void* {
      static_cast<Thread*>(self)->body_();
      return nullptr;
    }, this), 0);
  }
  pthread_t id() const { return id_; }
  void cancel() { pthread_cancel(id_); }
  /// False: it has returned.
  bool was_cancelled() {
    timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5 * static_cast<time_t>(tap::patience());
    void* result;
    if (pthread_timedjoin_np(id_, &result, &until) != 0) FAIL("the thread does not end");
    return result == PTHREAD_CANCELED;
  }

 private:
  std::function<void()> body_;
  pthread_t id_;
};

#endif  // USIW_TESTS_RUN_THREAD_H
