// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file backoff_test.cc
/// A thread that waits for another one (base/backoff.h).
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>

#include <thread>

#include "base/backoff.h"

namespace usiw {
namespace {

constexpr int kNaps = 20, kBeforeNaps = 128;

/// Times that this thread has slept.
long sleeps() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

void wait_long() {
  Backoff backoff;
  for (int i = 0; i < kBeforeNaps + kNaps; i++) backoff.wait();
}

// Whom it waits for may need this very processor, and be of lower real-time priority: no yield lets that one run.
TEST(Backoff, SleepsWhenYieldsDoNotHelp) {
  const long before = sleeps();
  wait_long();
  EXPECT_GE(sleeps() - before, kNaps);
}

TEST(Backoff, DoesNotSleepForAShortWait) {
  const long before = sleeps();
  Backoff backoff;
  for (int i = 0; i < 32; i++) backoff.wait();
  EXPECT_EQ(sleeps(), before);
}

// It waits for locks, in calls that POSIX does not let end a cancelled thread.
TEST(Backoff, IsNoCancellationPoint) {
  bool finished = false;
  std::thread waiter([&finished] {
    pthread_cancel(pthread_self());
    wait_long();
    finished = true;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
  });
  waiter.join();
  EXPECT_TRUE(finished);
}

}  // namespace
}  // namespace usiw
