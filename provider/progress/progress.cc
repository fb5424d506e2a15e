// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "progress/progress.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/lock_rank.h"
#include "base/quiet_thread.h"
#include "base/spinlock.h"

namespace usiw {
namespace {

/// A deadline may be missed by this much rather than pay for a doorbell.
constexpr uint64_t kDeadlineSlackNs = 200'000;
/// Empty polls in a row after which an application thread yields, if cores are scarce.
constexpr unsigned kEmptyPollsPerYield = 64;
/// Times that one thread drives again for others before it leaves that to the thread.
constexpr unsigned kMaxReruns = 8;

bool cores_are_scarce() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) <= 2;
}

thread_local const Progress* t_progress = nullptr;  ///< whose thread this is

pid_t own_tid() {
  static thread_local pid_t tid = gettid();
  return tid;
}

}  // namespace

Progress::Mode Progress::mode_from_environment() {
  const char* value = getenv("USIW_PROGRESS");
  if (value == nullptr || *value == '\0' || strcmp(value, "adaptive") == 0) return Mode::kAdaptive;
  if (strcmp(value, "thread") == 0) return Mode::kThread;
  fprintf(stderr, "usiw: USIW_PROGRESS=%s is neither 'adaptive' nor 'thread'; using adaptive\n", value);
  return Mode::kAdaptive;
}

Progress::Progress(EngineDriver& driven, Clock& clock, Mode mode)
    : driven_(driven), clock_(clock), mode_(mode), scarce_cores_(cores_are_scarce()) {
  doorbell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

Progress::~Progress() {
  bool running;
  {
    std::lock_guard hold(watch_lock_);
    running = running_;
  }
  if (running) {
    stopping_.store(true, std::memory_order_seq_cst);
    ring_doorbell();
    pthread_join(thread_, nullptr);
  }
  if (doorbell_ >= 0) close(doorbell_);
}

// ---- The token --------------------------------------------------------------

bool Progress::try_acquire() {
  if (waiters_.load(std::memory_order_seq_cst) != 0 ||
      token_.load(std::memory_order_relaxed) != 0 ||
      token_.exchange(1, std::memory_order_seq_cst) != 0)
    return false;
  if (!frozen_.load(std::memory_order_seq_cst)) {
    lock_rank::took(LockRank::kEngine);
    return true;
  }
  token_.store(0, std::memory_order_seq_cst);
  return false;
}

void Progress::acquire() {
  lock_rank::check(LockRank::kEngine);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  for (unsigned spins = 0; token_.exchange(1, std::memory_order_seq_cst) != 0; spins++) {
    if (spins < 64)
      cpu_pause();
    else
      sched_yield();
  }
  waiters_.fetch_sub(1, std::memory_order_seq_cst);
  lock_rank::took(LockRank::kEngine);
}

void Progress::release() {
  lock_rank::released(LockRank::kEngine);
  token_.store(0, std::memory_order_seq_cst);
  driven_.released();
}

unsigned Progress::drive_held() {
  kicks_seen_.store(kicks_.load(std::memory_order_seq_cst), std::memory_order_relaxed);
  return driven_.drive();
}

bool Progress::kicked() const {
  return kicks_.load(std::memory_order_seq_cst) != kicks_seen_.load(std::memory_order_relaxed);
}

Progress::Hold::Hold(Progress& p) : progress_(p) { progress_.acquire(); }

Progress::Hold::~Hold() {
  progress_.release();
  // The thread may have gone to sleep because it found the engine held; and the call may
  // have left work behind.
  if (progress_.state_.load(std::memory_order_seq_cst) == State::kSleeping) progress_.ring_doorbell();
  if (progress_.kicked()) progress_.drive_inline(false);
}

/// Drives as an application thread. False: somebody else holds the engine. Only runs of a
/// thread that is @p polling say that it will be back soon.
bool Progress::drive_inline(bool polling) {
  NoCancel no_cancel;  // sendto(2) in the port is a cancellation point: cancelled there, it would keep the token
  bool drove = false;
  for (unsigned reruns = 0; try_acquire(); reruns++) {
    drove = true;
    drive_held();
    uint64_t deadline = driven_.next_deadline_ns();
    driver_tid_.store(own_tid(), std::memory_order_relaxed);
    inline_runs_.store(inline_runs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (polling) polled_runs_.store(polled_runs_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    release();
    if (state_.load(std::memory_order_seq_cst) == State::kSleeping && deadline != UINT64_MAX &&
        deadline + kDeadlineSlackNs < sleep_until_.load(std::memory_order_seq_cst))
      ring_doorbell();
    if (!kicked()) break;
    if (reruns == kMaxReruns) {
      ring_doorbell();
      break;
    }
  }
  return drove;
}

bool Progress::is_own_thread() const { return t_progress == this; }

void Progress::ring_doorbell() {
  if (is_own_thread()) return;
  NoCancel no_cancel;  // cancelled in write(2), it would leave a doorbell that counts as rung
  if (rung_.exchange(true, std::memory_order_seq_cst)) return;
  stats_.doorbells.fetch_add(1, std::memory_order_relaxed);
  uint64_t one = 1;
  [[maybe_unused]] ssize_t n = write(doorbell_, &one, sizeof one);
}

// ---- Application threads ------------------------------------------------------

void Progress::posted() {
  if (mode_ == Mode::kThread || drive_inline(false)) return;
  kicks_.fetch_add(1, std::memory_order_seq_cst);
  drive_inline(false);
}

void Progress::polled_empty(unsigned empty_polls) {
  if (mode_ == Mode::kAdaptive) drive_inline(true);
  if (scarce_cores_ && empty_polls % kEmptyPollsPerYield == kEmptyPollsPerYield - 1) sched_yield();
}

void Progress::arming() {
  arms_.fetch_add(1, std::memory_order_seq_cst);
  if (state_.load(std::memory_order_seq_cst) == State::kStandby) ring_doorbell();
  // What was posted behind other work need not wait for that: this thread will not look for completions for a while.
  if (mode_ == Mode::kAdaptive && kicked()) drive_inline(false);
}

// ---- Watched file descriptors ---------------------------------------------------

void Progress::watch(int fd, Kind kind, Watcher& watcher) {
  {
    std::lock_guard hold(watch_lock_);
    watched_.push_back({fd, kind, &watcher});
    watch_gen_.fetch_add(1, std::memory_order_release);
  }
  ring_doorbell();
}

void Progress::unwatch(int fd) {
  NoCancel no_cancel;  // the caller is about to free what the watcher uses
  std::unique_lock hold(watch_lock_);
  std::erase_if(watched_, [fd](const Watched& w) { return w.fd == fd; });
  uint64_t gen = watch_gen_.fetch_add(1, std::memory_order_release) + 1;
  if (!running_ || pthread_equal(pthread_self(), thread_)) return;
  lock_rank::assert_none_up_to(LockRank::kEngine);  // the thread may be in a watcher, which takes them
  ring_doorbell();
  watch_changed_.wait(hold, [&] { return watch_seen_ >= gen; });
}

bool Progress::freeze() {
  frozen_.store(true, std::memory_order_seq_cst);
  for (int i = 0; i < 50 && token_.load(std::memory_order_seq_cst) != 0; i++) usleep(1000);
  return token_.load(std::memory_order_seq_cst) == 0;
}

// ---- The thread's beginning -------------------------------------------------------

void* Progress::thread_entry(void* self) {
  t_progress = static_cast<const Progress*>(self);
  static_cast<Progress*>(self)->run();
  return nullptr;
}

int Progress::start() {
  if (doorbell_ < 0) return EMFILE;
  std::lock_guard hold(watch_lock_);
  if (running_) return 0;
  const int rc = start_quiet_thread(thread_, thread_entry, this);
  running_ = rc == 0;
  return rc;
}

}  // namespace usiw
