// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include <signal.h>
#include <sys/resource.h>

#include <memory>
#include <utility>

#include "progress_fixture.h"
#include "tests/support/failing_new.h"

namespace usiw {
namespace {

TEST_F(ProgressTest, APostIsDrivenByThePoster) {
  engine.posted = 3;
  progress.posted();
  EXPECT_EQ(engine.done, 3u);
  EXPECT_TRUE(pthread_equal(engine.last_driver, pthread_self()));
}

TEST_F(ProgressTest, AnIdleThreadSleeps) {
  ASSERT_EQ(progress.start(), 0);
  std::this_thread::sleep_for(50ms);
  uint64_t before = engine.runs();
  rusage a{}, b{};
  getrusage(RUSAGE_SELF, &a);
  std::this_thread::sleep_for(300ms);
  getrusage(RUSAGE_SELF, &b);
  EXPECT_LT(engine.runs() - before, 20u);
  auto us = [](const rusage& r) {
    return r.ru_utime.tv_usec + r.ru_stime.tv_usec + 1'000'000 * (r.ru_utime.tv_sec + r.ru_stime.tv_sec);
  };
  EXPECT_LT(us(b) - us(a), 30'000);
}

TEST_F(ProgressTest, ADeadlineSetInlineWakesTheThread) {
  ASSERT_EQ(progress.start(), 0);
  std::this_thread::sleep_for(60ms);  // asleep without a limit
  engine.deadline = clock.now_ns() + 20'000'000;
  engine.posted = 1;
  progress.posted();
  EXPECT_TRUE(eventually([&] { return engine.timers == 1; }));
}

TEST_F(ProgressTest, TheThreadTakesOverWhenAnApplicationStopsPolling) {
  FakePackets packets(engine);
  progress.watch(packets.fd, Progress::Kind::kPacket, packets);
  ASSERT_EQ(progress.start(), 0);
  for (int round = 0; round < 5; round++) {
    auto until = std::chrono::steady_clock::now() + 20ms;
    for (unsigned i = 0; std::chrono::steady_clock::now() < until; i++) progress.polled_empty(i);
    packets.arrive();
    auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(eventually([&] { return engine.posted == 0; }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 200ms);
  }
  progress.unwatch(packets.fd);
}

/// A ping-pong of WRITEs polls for its completions and, now and then, waits in memory: that costs it a few milliseconds,
/// not seconds in which each packet wakes the thread.
TEST_F(ProgressTest, WhoPollsAndSeldomWaitsInMemoryIsTrustedAgainSoon) {
  FakePackets packets(engine);
  progress.watch(packets.fd, Progress::Kind::kPacket, packets);
  ASSERT_EQ(progress.start(), 0);
  constexpr unsigned kRounds = 8;
  constexpr uint64_t kMostNs = kRounds * 100'000'000ull;
  const Progress::Stats& stats = progress.stats();
  unsigned polls = 0;
  const auto poll = [&] {
    if (polls % 64 == 0) packets.arrive();
    progress.polled_empty(polls++);
  };
  for (unsigned round = 0; round < kRounds; round++) {
    const uint64_t before = stats.standbys;
    const auto start = std::chrono::steady_clock::now();
    while (stats.standbys == before && std::chrono::steady_clock::now() - start < 1s) poll();
    const auto until = std::chrono::steady_clock::now() + 20ms;
    while (std::chrono::steady_clock::now() < until) poll();
    packets.arrive();
    while (engine.posted != 0) FakeEngine::spin(100);
  }
  EXPECT_GT(stats.penalties, 0u);
  EXPECT_LE(stats.distrusted_ns, kMostNs);
  progress.unwatch(packets.fd);
}

TEST_F(ProgressTest, WhileAnApplicationPollsTheThreadStaysAway) {
  ASSERT_EQ(progress.start(), 0);
  auto until = std::chrono::steady_clock::now() + 100ms;
  unsigned i = 0;
  uint64_t foreign = 0, runs = 0;
  while (std::chrono::steady_clock::now() < until) {
    progress.polled_empty(i++);
    runs++;
    if (!pthread_equal(engine.last_driver, pthread_self())) foreign++;
  }
  EXPECT_LT(foreign, runs / 4);
}

/// A stream of messages: the program's runs are those of posting, mostly, and something arrives all the time.
TEST_F(ProgressTest, WhileAnApplicationPostsAndNowAndThenPollsTheThreadStaysAway) {
  FakePackets packets(engine);
  const uint64_t one = 1;
  ASSERT_EQ(write(packets.fd, &one, sizeof one), 8);  // never read: like a socket that always has something
  struct : Watcher {
    bool ready(int, short) override { return true; }
  } unread;
  progress.watch(packets.fd, Progress::Kind::kPacket, unread);
  ASSERT_EQ(progress.start(), 0);
  engine.spins = 50'000;
  constexpr unsigned kRuns = 4000, kPerPoll = 100, kMostSleeps = kRuns / 10, kRounds = 20;
  uint64_t least = UINT64_MAX;  // where this thread has to give its processor away the other one stands in for it
  for (unsigned round = 0; round < kRounds && least >= kMostSleeps; round++) {
    const uint64_t before = progress.stats().sleeps;
    for (unsigned i = 0; i < kRuns; i++) i % kPerPoll == 0 ? progress.polled_empty(i) : progress.posted();
    least = std::min(least, progress.stats().sleeps - before);
  }
  EXPECT_LT(least, kMostSleeps);
  progress.unwatch(packets.fd);
}

TEST_F(ProgressTest, ArmingInStandbyWakesTheThreadAtOnce) {
  ASSERT_EQ(progress.start(), 0);
  auto until = std::chrono::steady_clock::now() + 50ms;
  for (unsigned i = 0; std::chrono::steady_clock::now() < until; i++) progress.polled_empty(i);
  progress.arming();
  engine.posted = 1;
  EXPECT_TRUE(eventually([&] { return engine.done == 1; }));
}

TEST_F(ProgressTest, NoPostIsEverLost) {
  ASSERT_EQ(progress.start(), 0);
  std::vector<std::thread> threads;
  constexpr int kThreads = 4, kPosts = 5000;
  std::atomic<uint64_t> total{0};
  for (int t = 0; t < kThreads; t++)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kPosts; i++) {
        engine.posted.fetch_add(1);
        total.fetch_add(1);
        progress.posted();
        if (i % 64 == t) std::this_thread::sleep_for(100us);
        if (i % 97 == 0) Progress::Hold hold(progress);
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_TRUE(eventually([&] { return engine.posted == 0; }));
  EXPECT_EQ(engine.done, total);
}

/// A post behind other work is driven by the very run that completes that, however the two meet, or by posted() if it
/// is complete already: in each round there is one run, and no thread to help.
TEST_F(ProgressTest, NoPostBehindOthersIsEverLost) {
  constexpr unsigned kRounds = 4000;
  std::atomic<unsigned> begun{0}, ended{0};
  std::thread other([&] {
    for (unsigned round = 1; round <= kRounds; round++) {
      while (begun != round) std::this_thread::yield();
      progress.polled_empty(0);
      ended = round;
    }
  });
  unsigned lost = 0;
  engine.spins = 20000;
  for (unsigned round = 1; round <= kRounds; round++) {
    const uint64_t before = engine.done;
    engine.posted = 1;
    begun = round;
    FakeEngine::spin(round * 37 % 50000);
    engine.posted.fetch_add(1);
    progress.posted_behind();
    if (engine.done != before) progress.posted();
    while (ended != round) std::this_thread::yield();
    lost += engine.done != before + 2;
    engine.posted = 0;
  }
  other.join();
  EXPECT_EQ(lost, 0u);
}

/// The application has polled, so the thread stands by; then it posts behind others and calls nothing any more.
TEST_F(ProgressTest, InStandbyAPostBehindOthersIsDrivenSoon) {
  ASSERT_EQ(progress.start(), 0);
  const auto until = std::chrono::steady_clock::now() + 20ms;
  for (unsigned i = 0; std::chrono::steady_clock::now() < until; i++) progress.polled_empty(i);
  engine.posted = 1;
  progress.posted_behind();
  EXPECT_TRUE(eventually([&] { return engine.done == 1; }));
}

/// Who arms a completion queue does not look into it any more, and there is no thread to help.
TEST_F(ProgressTest, ArmingDrivesWhatWaitsBehindOthers) {
  engine.posted = 1;
  progress.posted_behind();
  EXPECT_EQ(engine.done, 0u);
  progress.arming();
  EXPECT_EQ(engine.done, 1u);
}

TEST_F(ProgressTest, APostDuringAHoldIsDrivenAfterIt) {
  std::thread poster;
  {
    Progress::Hold hold(progress);
    poster = std::thread([&] {
      engine.posted = 1;
      progress.posted();
    });
    poster.join();
    EXPECT_EQ(engine.done, 0u);
  }
  EXPECT_EQ(engine.done, 1u);
}

class CountingWatcher final : public Watcher {
 public:
  bool ready(int fd, short) override {
    uint64_t v;
    EXPECT_EQ(read(fd, &v, sizeof v), 8);
    calls.fetch_add(1);
    return go_on;
  }
  std::atomic<int> calls{0};
  std::atomic<bool> go_on{true};
};

/// A watcher that makes a control call, and one that has something else watched: the thread is awake, and needs no
/// doorbell for either.
TEST_F(ProgressTest, TheThreadRingsNoDoorbellForItself) {
  class Caller final : public Watcher {
   public:
    Caller(Progress& p, int other, Watcher& watcher) : progress_(p), other_(other), watcher_(watcher) {}
    bool ready(int fd, short) override {
      uint64_t v;
      EXPECT_EQ(read(fd, &v, sizeof v), 8);
      { Progress::Hold hold(progress_); }
      if (calls.fetch_add(1) == 0) progress_.watch(other_, Progress::Kind::kControl, watcher_);
      return true;
    }
    std::atomic<int> calls{0};

   private:
    Progress& progress_;
    int other_;
    Watcher& watcher_;
  };
  const int a = eventfd(0, EFD_NONBLOCK), b = eventfd(0, EFD_NONBLOCK);
  CountingWatcher second;
  Caller caller(progress, b, second);
  ASSERT_EQ(progress.start(), 0);
  progress.watch(a, Progress::Kind::kControl, caller);
  std::this_thread::sleep_for(20ms);
  const uint64_t before = progress.stats().doorbells;
  const uint64_t one = 1;
  for (int i = 1; i <= 5; i++) {
    ASSERT_EQ(write(a, &one, 8), 8);
    EXPECT_TRUE(eventually([&] { return caller.calls == i; }));
  }
  ASSERT_EQ(write(b, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return second.calls == 1; }));
  EXPECT_EQ(progress.stats().doorbells, before);

  // The same while an application drives, and the thread stands by.
  std::atomic<bool> stop{false};
  std::thread application([&] {
    for (unsigned i = 0; !stop; i++) progress.polled_empty(i);
  });
  progress.unwatch(b);
  caller.calls = 0;
  std::this_thread::sleep_for(20ms);
  ASSERT_EQ(write(a, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return caller.calls == 1; }));
  ASSERT_EQ(write(b, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return second.calls == 2; }));
  stop = true;
  application.join();
  progress.unwatch(a);
  progress.unwatch(b);
  close(a);
  close(b);
}

TEST_F(ProgressTest, WatchersAreCalledAndLetGo) {
  ASSERT_EQ(progress.start(), 0);
  CountingWatcher control, packet;
  int a = eventfd(0, EFD_NONBLOCK), b = eventfd(0, EFD_NONBLOCK);
  progress.watch(a, Progress::Kind::kControl, control);
  progress.watch(b, Progress::Kind::kPacket, packet);
  uint64_t one = 1;
  std::this_thread::sleep_for(20ms);
  ASSERT_EQ(write(a, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return control.calls == 1; }));
  ASSERT_EQ(write(b, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return packet.calls == 1; }));
  progress.unwatch(a);
  ASSERT_EQ(write(a, &one, 8), 8);
  packet.go_on = false;
  ASSERT_EQ(write(b, &one, 8), 8);
  EXPECT_TRUE(eventually([&] { return packet.calls == 2; }));
  ASSERT_EQ(write(b, &one, 8), 8);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(control.calls, 1);
  EXPECT_EQ(packet.calls, 2);
  close(a);
  close(b);
}

TEST_F(ProgressTest, WithoutMemoryNoneOfSeveralIsWatched) {
  ASSERT_EQ(progress.start(), 0);
  CountingWatcher control, packet;
  const int a = eventfd(1, EFD_NONBLOCK), b = eventfd(1, EFD_NONBLOCK);
  unsigned failures = 0;
  for (bool watched = false; !watched;) {
    try {
      const FailingNew failing(failures);
      progress.watch({{a, Progress::Kind::kControl, &control},
                      {-1, Progress::Kind::kControl, &control},
                      {b, Progress::Kind::kPacket, &packet}});
      watched = true;
    } catch (const std::bad_alloc&) {
      ++failures;
      std::this_thread::sleep_for(20ms);
      ASSERT_EQ(control.calls + packet.calls, 0);
    }
  }
  EXPECT_NE(failures, 0u);
  EXPECT_TRUE(eventually([&] { return control.calls == 1 && packet.calls == 1; }));
  progress.unwatch(a);
  progress.unwatch(b);
  close(a);
  close(b);
}

/// Runs @p call in a thread that has been cancelled already. True if it returned: no cancellation point
/// on its way was taken.
template <typename F>
bool returns_though_cancelled(F call) {
  struct Job {
    F& call;
    bool returned = false;
  } job{call};
  pthread_t cancelled;
  EXPECT_EQ(0, pthread_create(&cancelled, nullptr, [](void* argument) -> void* {
    auto& j = *static_cast<Job*>(argument);
    pthread_cancel(pthread_self());
    j.call();
    j.returned = true;
    pthread_testcancel();
    return nullptr;
  }, &job));
  void* result = nullptr;
  EXPECT_EQ(0, pthread_join(cancelled, &result));
  EXPECT_EQ(PTHREAD_CANCELED, result);
  return job.returned;
}

TEST_F(ProgressTest, ACancelledThreadLeavesTheDoorbellInOrder) {
  CountingWatcher watcher;
  int fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_EQ(progress.start(), 0);
  std::this_thread::sleep_for(60ms);  // asleep without a limit
  EXPECT_TRUE(returns_though_cancelled([&] { progress.watch(fd, Progress::Kind::kControl, watcher); }));
  const bool heard = eventually([&] { return watcher.calls == 1; });
  EXPECT_TRUE(heard);
  if (!heard) _exit(1);  // nothing would wake the thread any more
  std::this_thread::sleep_for(60ms);
  engine.deadline = clock.now_ns() + 20'000'000;
  engine.posted = 1;
  progress.posted();
  EXPECT_TRUE(eventually([&] { return engine.timers == 1; }));
  progress.unwatch(fd);
  close(fd);
}

TEST_F(ProgressTest, ACancelledThreadStillWaitsForItsWatcher) {
  CountingWatcher watcher;
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_EQ(progress.start(), 0);
  progress.watch(fd, Progress::Kind::kControl, watcher);
  progress.freeze();
  std::this_thread::sleep_for(20ms);  // the thread does not answer at once
  EXPECT_TRUE(returns_though_cancelled([&] { progress.unwatch(fd); }));
  close(fd);
}

TEST_F(ProgressTest, ThreadModeDrivesAlone) {
  FakeEngine own;
  Progress threaded(own, clock, Progress::Mode::kThread);
  ASSERT_EQ(threaded.start(), 0);
  for (int i = 0; i < 100; i++) {
    own.posted = 1;
    threaded.posted();
    threaded.polled_empty(0);
    EXPECT_TRUE(eventually([&] { return own.posted == 0; }));
    EXPECT_FALSE(pthread_equal(own.last_driver, pthread_self()));
  }
}

TEST_F(ProgressTest, FrozenNobodyDrivesButHoldsWork) {
  ASSERT_EQ(progress.start(), 0);
  progress.freeze();
  engine.posted = 1;
  progress.posted();
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(engine.posted, 1u);
  Progress::Hold hold(progress);
}

/// A device that a destructor of the program closes, behind the exit handler.
TEST_F(ProgressTest, FrozenItStillLetsGoOfWhatItWatches) {
  CountingWatcher watcher;
  int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  ASSERT_EQ(progress.start(), 0);
  progress.watch(fd, Progress::Kind::kControl, watcher);
  EXPECT_TRUE(progress.freeze());
  std::this_thread::sleep_for(30ms);
  std::atomic<bool> done{false};
  std::thread closer([&] {
    progress.unwatch(fd);
    done = true;
  });
  const bool in_time = eventually([&] { return done.load(); });
  EXPECT_TRUE(in_time);
  if (!in_time) _exit(1);  // nothing would end it
  closer.join();
  uint64_t one = 1;
  ASSERT_EQ(write(fd, &one, sizeof one), 8);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(watcher.calls, 0);
  close(fd);
}

TEST_F(ProgressTest, TheThreadTakesNoSignals) {
  ASSERT_EQ(progress.start(), 0);
  static std::atomic<int> hits{0};
  static std::atomic<pthread_t> where{};
  struct sigaction act {};
  act.sa_handler = [](int) {
    hits++;
    where = pthread_self();
  };
  struct sigaction old;
  sigaction(SIGUSR1, &act, &old);
  for (int i = 0; i < 20; i++) kill(getpid(), SIGUSR1);
  EXPECT_TRUE(eventually([&] { return hits > 0; }));
  EXPECT_TRUE(pthread_equal(where, pthread_self()));
  sigaction(SIGUSR1, &old, nullptr);
}

}  // namespace
}  // namespace usiw
