// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file blocked_test.cc
/// Threads that block until a completion event comes, and drive meanwhile.
#include <setjmp.h>
#include <signal.h>

#include <memory>
#include <utility>

#include "progress_fixture.h"

namespace usiw {
namespace {

/// What a thread blocks for: an event that the engine's work brings.
struct BlockedTest : ProgressTest {
  /// A program's thread in the call that waits, again and again until it is told to stop, or once.
  class Blocker {
   public:
    explicit Blocker(BlockedTest& test, bool once = false) : test_(test), once_(once) {
      EXPECT_EQ(0, pthread_create(&thread_, nullptr, [](void* self) -> void* {
        static_cast<Blocker*>(self)->run();
        return nullptr;
      }, this));
    }
    ~Blocker() { end(); }
    void event() {
      word.fetch_add(1);
      test_.progress.changed(word);
    }
    void end() {
      stop = true;
      if (joined_) return;
      while (!ended) {
        event();
        std::this_thread::sleep_for(1ms);
      }
      join();
    }
    void* join() {
      void* result = nullptr;
      if (!joined_) {
        EXPECT_EQ(0, pthread_join(thread_, &result));
      }
      joined_ = true;
      return result;
    }
    pthread_t thread() const { return thread_; }

    std::atomic<uint32_t> word{0}, events{0};  ///< that have come, and that have been seen
    std::atomic<unsigned> elsewhere{0}, signals{0};
    std::atomic<bool> stop{false}, ended{false};

   private:
    void run() {
      struct Ended {
        ~Ended() { flag = true; }
        std::atomic<bool>& flag;
      } at_the_end{ended};
      struct Blocking {
        explicit Blocking(Progress& p) : progress(p) { progress.begin_blocking(); }
        ~Blocking() { progress.end_blocking(); }
        Progress& progress;
      };
      do {
        Blocking blocking(test_.progress);
        for (;;) {
          const uint32_t now = word;
          if (now != events || stop) {
            events = now;
            break;
          }
          const Progress::Blocked how = test_.progress.drive_until(word, now);
          if (how == Progress::Blocked::kSignal) signals++;
          if (how != Progress::Blocked::kElsewhere) continue;
          elsewhere++;
          while (word == now && !stop) usleep(200);  // as by futex(2)
        }
      } while (!once_ && !stop);
    }

    BlockedTest& test_;
    const bool once_;
    pthread_t thread_{};
    bool joined_ = false;
  };

  BlockedTest() {
    engine.packets = packets.fd;
    progress.watch(packets.fd, Progress::Kind::kPacket, packets);
    EXPECT_EQ(0, progress.start());
  }
  ~BlockedTest() override {
    progress.unwatch(packets.fd);
    Progress::Hold hold(progress);
    engine.packets = -1;
  }
  /// What arrives is driven by @p blocker some time: it may be stood in for, or not be trusted for a while, and then it
  /// tries again with the next event only.
  bool drives(Blocker& blocker) {
    return eventually([&] {
      if (handles_packets() && pthread_equal(engine.last_driver, blocker.thread()) != 0) return true;
      blocker.event();
      return false;
    });
  }
  bool handles_packets() {
    packets.arrive();
    return eventually([&] { return engine.posted == 0; });
  }

  FakePackets packets{engine};
};

TEST_F(BlockedTest, AThreadThatBlocksDrives) {
  Blocker blocker(*this);
  EXPECT_TRUE(drives(blocker));
  EXPECT_TRUE(eventually([&] { return progress.stats().behinds != 0; }));
  blocker.event();
  EXPECT_TRUE(eventually([&] { return blocker.events == blocker.word; }));
}

TEST_F(BlockedTest, WithNothingToDoNobodyRuns) {
  Blocker blocker(*this);
  EXPECT_TRUE(drives(blocker));
  uint64_t runs = 0;
  const bool quiet = eventually([&] {
    std::this_thread::sleep_for(100ms);
    return std::exchange(runs, engine.runs()) == engine.runs();
  });
  EXPECT_TRUE(quiet);
  EXPECT_TRUE(drives(blocker));
}

TEST_F(BlockedTest, ADeadlineIsMet) {
  Blocker blocker(*this);
  EXPECT_TRUE(drives(blocker));
  for (unsigned i = 1; i <= 3; i++) {
    std::this_thread::sleep_for(60ms);  // everybody sleeps without a limit
    engine.deadline = clock.now_ns() + 5'000'000;
    progress.posted();
    EXPECT_TRUE(eventually([&] { return engine.timers == i; }));
  }
}

TEST_F(BlockedTest, WhatAHoldLeavesBehindIsDriven) {
  Blocker blocker(*this);
  for (unsigned i = 1; i <= 20; i++) {
    if (i % 2 == 0) {
      EXPECT_TRUE(handles_packets());
    }
    {
      Progress::Hold hold(progress);
      engine.deadline = clock.now_ns();
    }
    EXPECT_TRUE(eventually([&] { return engine.timers == i; }));
  }
}

TEST_F(BlockedTest, WhenItLeavesPacketsAreHandled) {
  for (int round = 0; round < 5; round++) {
    Blocker blocker(*this, true);
    for (int i = 0; i < 50; i++) EXPECT_TRUE(handles_packets());
    blocker.event();
    blocker.join();
    for (int i = 0; i < 5; i++) EXPECT_TRUE(handles_packets());
  }
}

TEST_F(BlockedTest, ASecondOneIsServed) {
  Blocker first(*this);
  EXPECT_TRUE(handles_packets());
  {
    Blocker second(*this);
    EXPECT_TRUE(eventually([&] { return second.elsewhere != 0; }));
    for (int i = 0; i < 20; i++) EXPECT_TRUE(handles_packets());
    first.event();
    EXPECT_TRUE(eventually([&] { return first.elsewhere != 0; }));  // not alone any more
    for (int i = 0; i < 20; i++) EXPECT_TRUE(handles_packets());
  }
  EXPECT_TRUE(drives(first));  // alone again
}

TEST_F(BlockedTest, ItIsCancelledWithNothingHeld) {
  for (int round = 0; round < 50; round++) {
    Blocker blocker(*this);
    if (round % 3 != 0) {
      EXPECT_TRUE(handles_packets());
    }
    if (round % 2 != 0) packets.arrive();
    pthread_cancel(blocker.thread());
    EXPECT_EQ(blocker.join(), PTHREAD_CANCELED);
    EXPECT_TRUE(handles_packets());
  }
  Blocker next(*this);
  EXPECT_TRUE(drives(next));
  Progress::Hold hold(progress);
}

TEST_F(BlockedTest, ItIsNotCancelledWhileThatIsOff) {
  struct Job {
    Progress& progress;
    std::atomic<uint32_t> word{0};
    std::atomic<int> state{-1};
  } job{progress};
  pthread_t thread;
  ASSERT_EQ(0, pthread_create(&thread, nullptr, [](void* argument) -> void* {
    auto& j = *static_cast<Job*>(argument);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    j.progress.drive_until(j.word, 0);
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    j.state = state;
    return nullptr;
  }, &job));
  pthread_cancel(thread);
  EXPECT_TRUE(handles_packets());
  job.word = 1;
  progress.changed(job.word);
  void* result = nullptr;
  EXPECT_EQ(0, pthread_join(thread, &result));
  EXPECT_EQ(result, nullptr);
  EXPECT_EQ(job.state, PTHREAD_CANCEL_DISABLE);
}

TEST_F(BlockedTest, ASignalEndsIt) {
  struct sigaction act {}, old;
  act.sa_handler = [](int) {};
  sigaction(SIGUSR1, &act, &old);
  {
    Blocker blocker(*this);
    EXPECT_TRUE(eventually([&] {
      pthread_kill(blocker.thread(), SIGUSR1);
      return blocker.signals != 0;
    }));
    EXPECT_TRUE(handles_packets());
  }
  sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(BlockedTest, WhatIsUnwatchedIsNotTouchedAnyMore) {
  Blocker blocker(*this);
  for (int round = 0; round < 50; round++) {
    auto other = std::make_unique<FakePackets>(engine);
    progress.watch(other->fd, Progress::Kind::kPacket, *other);
    other->arrive();
    if (round % 2 != 0) {
      EXPECT_TRUE(eventually([&] { return engine.posted == 0; }));
    }
    progress.unwatch(other->fd);
  }
  EXPECT_TRUE(handles_packets());
  EXPECT_TRUE(drives(blocker));
}

TEST_F(BlockedTest, FrozenItWaitsInAnotherWay) {
  Blocker blocker(*this);
  EXPECT_TRUE(handles_packets());
  EXPECT_TRUE(progress.freeze());
  EXPECT_TRUE(eventually([&] { return blocker.elsewhere != 0; }));
  engine.posted = 1;
  progress.posted();
  EXPECT_EQ(engine.posted, 1u);
}

/// A signal handler has jumped out of the call: the announcement stands, and nobody is there.
TEST_F(BlockedTest, OneThatJumpedAwayIsFoundOut) {
  static thread_local sigjmp_buf t_out;
  static std::atomic<bool> away, done;
  away = done = false;
  struct sigaction act {}, old;
  act.sa_handler = [](int) { siglongjmp(t_out, 1); };
  sigaction(SIGUSR1, &act, &old);
  pthread_t thread;
  std::atomic<uint32_t> word{0};
  struct Job {
    Progress& progress;
    std::atomic<uint32_t>& word;
  } job{progress, word};
  const uint64_t before = progress.stats().blocked_runs;
  ASSERT_EQ(0, pthread_create(&thread, nullptr, [](void* argument) -> void* {
    auto& j = *static_cast<Job*>(argument);
    if (sigsetjmp(t_out, 1) == 0) j.progress.drive_until(j.word, 0);
    away = true;
    while (!done) usleep(1000);
    while (j.progress.drive_until(j.word, 0) != Progress::Blocked::kChanged) usleep(1000);
    return nullptr;
  }, &job));
  EXPECT_TRUE(eventually([&] { return progress.stats().blocked_runs != before; }));
  std::this_thread::sleep_for(20ms);  // it is in poll(2), not in the engine
  pthread_kill(thread, SIGUSR1);
  EXPECT_TRUE(eventually([&] { return away.load(); }));
  sigaction(SIGUSR1, &old, nullptr);
  for (int i = 0; i < 20; i++) EXPECT_TRUE(handles_packets());
  done = true;  // and it may come back
  EXPECT_TRUE(eventually([&] {
    word.fetch_add(word == 0 && pthread_equal(engine.last_driver, thread) != 0);
    progress.changed(word);
    packets.arrive();
    return word != 0;
  }));
  pthread_join(thread, nullptr);
}

TEST_F(BlockedTest, WhileAnApplicationPollsItIsLeftAlone) {
  Blocker blocker(*this);
  EXPECT_TRUE(drives(blocker));
  EXPECT_TRUE(eventually([&] {
    const auto until = std::chrono::steady_clock::now() + 10ms;
    for (unsigned i = 0; std::chrono::steady_clock::now() < until; i++) progress.polled_empty(i);
    return blocker.elsewhere != 0;
  }));
  EXPECT_TRUE(handles_packets());
}

/// Events that one thread brings while the other goes to sleep, and posts of a third, whoever drives.
TEST_F(BlockedTest, NoEventIsEverLost) {
  Blocker blocker(*this);
  std::atomic<bool> stop{false};
  std::thread poster([&] {
    for (unsigned i = 0; !stop; i++) {
      engine.posted.fetch_add(1);
      progress.posted();
      FakeEngine::spin(i * 37 % 50000);
    }
  });
  std::thread arrivals([&] {
    for (unsigned i = 0; !stop; i++) {
      packets.arrive();
      FakeEngine::spin(i * 53 % 200000);
    }
  });
  for (unsigned i = 0; i < 500; i++) {
    blocker.event();
    const bool came = eventually([&] { return blocker.events == blocker.word; });
    EXPECT_TRUE(came);
    if (!came) break;
    FakeEngine::spin(i * 37 % 100000);
  }
  stop = true;
  poster.join();
  arrivals.join();
  EXPECT_TRUE(eventually([&] { return engine.posted == 0; }));
}

}  // namespace
}  // namespace usiw
