// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file progress_fixture.h
/// What tests of Progress drive, and what they watch.
#ifndef USIW_TESTS_PROGRESS_FIXTURE_H
#define USIW_TESTS_PROGRESS_FIXTURE_H

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "progress/clock.h"
#include "progress/progress.h"

namespace usiw {

using namespace std::chrono_literals;

/// An "engine" whose work is a counter; sees whether two threads ever drive at once.
class FakeEngine final : public EngineDriver {
 public:
  unsigned drive() override {
    EXPECT_EQ(inside_.fetch_add(1), 0) << "two drivers at once";
    runs_.fetch_add(1, std::memory_order_relaxed);
    uint64_t none;
    if (packets >= 0) [[maybe_unused]] ssize_t n = read(packets, &none, sizeof none);
    unsigned work = posted.exchange(0);
    spin(spins);
    done.fetch_add(work);
    if (deadline.load() <= clock.now_ns()) {
      deadline = UINT64_MAX;
      timers.fetch_add(1);
      work++;
    }
    if (!in_control_.load()) last_driver = pthread_self();
    inside_.fetch_sub(1);
    return work;
  }
  uint64_t next_deadline_ns() override { return deadline; }
  void released() override { releases.fetch_add(1); }

  uint64_t runs() const { return runs_.load(); }
  static void spin(unsigned n) {
    for (; n != 0; n--) __asm__ volatile("");
  }

  MonotonicClock clock;
  int packets = -1;    ///< a descriptor that is readable until a run begins
  unsigned spins = 0;  ///< from taking what is posted to having done it
  std::atomic<unsigned> posted{0};
  std::atomic<uint64_t> done{0}, timers{0}, releases{0}, deadline{UINT64_MAX};
  std::atomic<pthread_t> last_driver{};

 private:
  std::atomic<int> inside_{0};
  std::atomic<bool> in_control_{false};
  std::atomic<uint64_t> runs_{0};
};

/// True once @p condition holds, within two seconds.
template <typename F>
bool eventually(F condition) {
  for (int i = 0; i < 2000; i++) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

struct ProgressTest : testing::Test {
  FakeEngine engine;
  MonotonicClock clock;
  Progress progress{engine, clock, Progress::Mode::kAdaptive};
};

/// A packet socket: readable until the engine has taken what came.
class FakePackets final : public Watcher {
 public:
  explicit FakePackets(FakeEngine& engine) : engine_(engine) {}
  ~FakePackets() override { close(fd); }
  void arrive() {
    engine_.posted.fetch_add(1);
    uint64_t one = 1;
    EXPECT_EQ(write(fd, &one, sizeof one), 8);
  }
  bool ready(int, short) override {
    uint64_t v;
    if (fd != engine_.packets) [[maybe_unused]] ssize_t n = read(fd, &v, sizeof v);  // two threads may be here
    return true;
  }
  const int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

 private:
  FakeEngine& engine_;
};

}  // namespace usiw

#endif  // USIW_TESTS_PROGRESS_FIXTURE_H
