// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file lock_order_test.cc
/// The check of the lock order (base/lock_rank.h): the order that runtime.h writes down passes, each kind of breach
/// aborts and names the locks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <thread>

#include "base/lock_rank.h"
#include "base/spinlock.h"
#include "base/turn.h"
#include "progress/clock.h"
#include "runtime/engine_gate.h"
#include "uapi/usiw_abi.h"

namespace usiw {
namespace {

template <LockRank kRank>
using Spin = Ranked<Spinlock, kRank>;

class Quiet final : public EngineEvents {
 public:
  void cq_ready(Cq&) override {}
  void cq_overrun(Cq&) override {}
  void qp_peer_closed(Qp&) override {}
  void qp_closed(Qp&) override {}
  void qp_failed(Qp&, int, AsyncEvent) override {}
};

/// An engine that nothing is connected to; letting go of it takes the reports' lock, as the runtime does.
struct World final : EngineDriver {
  unsigned drive() override { return gate.drive(); }
  uint64_t next_deadline_ns() override { return gate.next_deadline_ns(); }
  void released() override {
    std::lock_guard lock(reports);
    ++releases;
  }

  RankedMutex<LockRank::kRegistry> registry;
  RankedMutex<LockRank::kPorts> ports;
  RankedMutex<LockRank::kQps> qps;
  RankedMutex<LockRank::kReports> reports;
  RankedMutex<LockRank::kLink> link;
  Spin<LockRank::kPending> pending;
  Turn turn;
  unsigned releases = 0;
  std::array<uint64_t, USIW_COUNTERS_SIZE / 8> counters{};
  MonotonicClock clock;
  Quiet quiet;
  EngineGate gate{*this, clock, quiet, counters.data()};
};

class LockOrderDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  World w;
};

TEST_F(LockOrderDeathTest, OrderOfTheRuntimePasses) {
  std::lock_guard registry(w.registry);
  std::lock_guard ports(w.ports);
  std::lock_guard qps(w.qps);
  {
    auto engine = w.gate.hold();
    EXPECT_NE(engine->cq_create(16, nullptr), nullptr);
    std::lock_guard pending(w.pending);
  }
  EXPECT_EQ(w.releases, 1u);
  w.gate.hold()->progress();  // and again: nothing was left behind as held
  std::lock_guard link(w.link);
}

TEST_F(LockOrderDeathTest, AThreadKnowsOnlyItsOwnLocks) {
  std::lock_guard qps(w.qps);
  std::thread([&] { std::lock_guard registry(w.registry); }).join();
}

TEST_F(LockOrderDeathTest, TryLockMayComeOutOfOrder) {
  std::lock_guard qps(w.qps);
  std::unique_lock registry(w.registry, std::try_to_lock);
  EXPECT_TRUE(registry.owns_lock());
}

TEST_F(LockOrderDeathTest, WrongOrderAborts) {
  EXPECT_DEATH(
      {
        std::lock_guard qps(w.qps);
        std::lock_guard registry(w.registry);
      },
      "out of order: 'registry'; held: 'qps'");
}

TEST_F(LockOrderDeathTest, MutexUnderTheEngineAborts) {
  EXPECT_DEATH(
      {
        auto engine = w.gate.hold();
        std::lock_guard ports(w.ports);
      },
      "out of order: 'ports'; held: 'engine'");
}

TEST_F(LockOrderDeathTest, ReportsUnderTheEngineAbort) {
  EXPECT_DEATH(
      {
        auto engine = w.gate.hold();
        w.released();
      },
      "out of order: 'reports'; held: 'engine'");
}

TEST_F(LockOrderDeathTest, EngineHeldTwiceByOneThreadAborts) {
  EXPECT_DEATH(
      {
        auto engine = w.gate.hold();
        auto again = w.gate.hold();
      },
      "out of order: 'engine'; held: 'engine'");
}

TEST_F(LockOrderDeathTest, NothingIsTakenUnderALeaf) {
  EXPECT_DEATH(
      {
        std::lock_guard pending(w.pending);
        std::lock_guard link(w.link);
      },
      "out of order: 'link'; held: 'pending'");
  EXPECT_DEATH(
      {
        std::lock_guard link(w.link);
        auto engine = w.gate.hold();
      },
      "out of order: 'engine'; held: 'link'");
}

TEST_F(LockOrderDeathTest, AnythingMayBeTakenInATurn) {
  Turn other;
  std::lock_guard turn(w.turn);
  std::lock_guard of_another_queue(other);
  std::lock_guard registry(w.registry);
  EXPECT_NE(w.gate.hold()->cq_create(16, nullptr), nullptr);
}

TEST_F(LockOrderDeathTest, ATurnIsNotWaitedForUnderALock) {
  EXPECT_DEATH(
      {
        auto engine = w.gate.hold();
        std::lock_guard turn(w.turn);
      },
      "may need up to 'watch'; held: 'engine'");
}

TEST_F(LockOrderDeathTest, ATurnThatNobodyElseWantsIsFree) {
  w.turn.never_contended();
  std::lock_guard once(w.turn);
  std::lock_guard again(w.turn);
}

TEST_F(LockOrderDeathTest, DrivingWithoutTheTokenAborts) {
  EXPECT_DEATH(w.drive(), "needed and not held: 'engine'");
}

struct Ignores final : Watcher {
  bool ready(int, short) override { return true; }
};

TEST_F(LockOrderDeathTest, WaitingForTheThreadWithALockAborts) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_DEATH(
      {
        World fresh;
        Ignores ignores;
        fresh.gate.progress().watch(ends[0], Progress::Kind::kControl, ignores);
        fresh.gate.progress().start();
        std::lock_guard ports(fresh.ports);
        fresh.gate.progress().unwatch(ends[0]);
      },
      "may need up to 'engine'; held: 'ports'");
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace usiw
