// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "progress/progress.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/backoff.h"
#include "base/lock_rank.h"
#include "base/quiet_thread.h"
#include "base/say.h"
#include "progress/times.h"

namespace usiw {
namespace {

/// Empty polls in a row after which an application thread yields, if cores are scarce.
constexpr unsigned kEmptyPollsPerYield = 64;
/// Times that one thread drives again for others before it leaves that to the thread.
constexpr unsigned kMaxReruns = 8;

bool cores_are_scarce() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) <= 2;
}

thread_local const Progress* t_progress = nullptr;  ///< whose thread this is

}  // namespace

Progress::Mode Progress::mode_from_environment() {
  const char* value = getenv("USIW_PROGRESS");
  if (value == nullptr || *value == '\0' || strcmp(value, "adaptive") == 0) return Mode::kAdaptive;
  if (strcmp(value, "thread") == 0) return Mode::kThread;
  say_once(std::string("USIW_PROGRESS=") + value + " is neither 'adaptive' nor 'thread'; using adaptive");
  return Mode::kAdaptive;
}

Progress::Progress(EngineDriver& driven, Clock& clock, Mode mode)
    : driven_(driven), clock_(clock), mode_(mode), scarce_cores_(cores_are_scarce()) {
  for (Sleeper* sleeper : {&self_, &blocked_}) sleeper->bell.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
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
  for (Sleeper* sleeper : {&self_, &blocked_})
    if (sleeper->bell.fd >= 0) close(sleeper->bell.fd);
}

// ---- The token --------------------------------------------------------------

bool Progress::try_acquire() {
  if (waiters_.load(std::memory_order_seq_cst) != 0 ||
      token_.load(std::memory_order_seq_cst) != 0 ||
      token_.exchange(1, std::memory_order_seq_cst) != 0)
    return false;
  if (!frozen_.load(std::memory_order_seq_cst)) {
    lock_rank::took(LockRank::kEngine);
    return true;
  }
  token_.store(0, std::memory_order_seq_cst);
  return false;
}

/// The token for a thread that packets have woken. False: somebody holds it, and will see to them.
bool Progress::acquire_or_kick() {
  if (try_acquire()) return true;
  kicks_.fetch_add(1, std::memory_order_seq_cst);
  return try_acquire();
}

void Progress::acquire() {
  lock_rank::check(LockRank::kEngine);
  waiters_.fetch_add(1, std::memory_order_seq_cst);
  for (Backoff backoff; token_.exchange(1, std::memory_order_seq_cst) != 0;) backoff.wait();
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
  const State state = progress_.state_.load(std::memory_order_seq_cst);
  if (state == State::kSleeping) progress_.ring_doorbell();
  if (state == State::kBehind && progress_.blocked_until_.load(std::memory_order_seq_cst) != 0)
    progress_.wake_blocked();
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
    tell_deadline(deadline);
    if (!kicked()) break;
    if (reruns == kMaxReruns) {
      ring_doorbell();
      break;
    }
  }
  return drove;
}

bool Progress::is_own_thread() const { return t_progress == this; }

bool Progress::Bell::ring() {
  if (rung.exchange(true, std::memory_order_seq_cst)) return false;
  const uint64_t one = 1;
  // Not by write(3): cancelled in there, a thread would leave a bell that counts as rung.
  [[maybe_unused]] long n = syscall(SYS_write, fd, &one, sizeof one);
  return true;
}

void Progress::Bell::hear() {
  uint64_t value;
  [[maybe_unused]] long n = syscall(SYS_read, fd, &value, sizeof value);
  rung.store(false, std::memory_order_seq_cst);
}

void Progress::ring_doorbell() {
  if (!is_own_thread() && self_.bell.ring()) stats_.doorbells.fetch_add(1, std::memory_order_relaxed);
}

/// The engine wants to run at @p deadline, and this thread does not see to that: one that sleeps must.
void Progress::tell_deadline(uint64_t deadline) {
  if (deadline == UINT64_MAX) return;
  if (state_.load(std::memory_order_seq_cst) == State::kSleeping) {
    if (deadline + kDeadlineSlackNs < sleep_until_.load(std::memory_order_seq_cst)) ring_doorbell();
  } else if (deadline + kDeadlineSlackNs < blocked_until_.load(std::memory_order_seq_cst)) {
    wake_blocked();
  }
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

void Progress::watch(std::initializer_list<Watched> all) {
  bool for_who_drives = false;
  {
    std::lock_guard hold(watch_lock_);
    watched_.reserve(watched_.size() + all.size());
    for (const Watched& w : all) {
      if (w.fd < 0) continue;
      watched_.push_back(w);
      for_who_drives |= w.kind != Kind::kControl;
    }
    watch_gen_.fetch_add(1, std::memory_order_seq_cst);
  }
  ring_doorbell();
  if (for_who_drives && blocked_tid_.load(std::memory_order_seq_cst) != 0) wake_blocked();
}

void Progress::unwatch(int fd) {
  NoCancel no_cancel;  // the caller is about to free what the watcher uses
  std::unique_lock hold(watch_lock_);
  std::erase_if(watched_, [fd](const Watched& w) { return w.fd == fd; });
  const uint64_t gen = watch_gen_.fetch_add(1, std::memory_order_seq_cst) + 1;
  const bool sleeps_itself = !running_ || pthread_equal(pthread_self(), thread_);
  if (!sleeps_itself) ring_doorbell();
  const auto blocked = [this] { return blocked_tid_.load(std::memory_order_seq_cst) != 0; };
  if (blocked()) wake_blocked();
  if (sleeps_itself && !blocked()) return;
  lock_rank::assert_none_up_to(LockRank::kEngine);  // they may be in a watcher, which takes them
  watch_changed_.wait(hold, [&] {
    return (sleeps_itself || self_.seen >= gen) && (!blocked() || blocked_.seen >= gen);
  });
}

/// The sleeper's list is as the watchers are now.
void Progress::refresh(Sleeper& sleeper, Kind first) {
  std::lock_guard hold(watch_lock_);
  const uint64_t gen = watch_gen_.load(std::memory_order_acquire);
  if (gen == sleeper.seen) return;
  sleeper.active.clear();
  for (const Watched& w : watched_)
    if (w.kind >= first) sleeper.active.push_back(w);
  // Packet sockets last: poll() gets a prefix of the list while somebody else drives.
  std::stable_sort(sleeper.active.begin(), sleeper.active.end(),
                   [](const Watched& a, const Watched& b) { return a.kind < b.kind; });
  sleeper.pollfds.clear();
  sleeper.pollfds.push_back({sleeper.bell.fd, POLLIN, 0});
  for (const Watched& w : sleeper.active) sleeper.pollfds.push_back({w.fd, POLLIN, 0});
  sleeper.seen = gen;
  watch_changed_.notify_all();
}

/// How many of its pollfds are the bell's or of these kinds.
size_t Progress::count_up_to(const Sleeper& sleeper, Kind last) {
  return 1 + static_cast<size_t>(std::count_if(sleeper.active.begin(), sleeper.active.end(),
                                               [last](const Watched& w) { return w.kind <= last; }));
}

/// Hears the bell and calls the watchers of what poll(2) has found among the first @p count. True if a port's was
/// there.
bool Progress::serve(Sleeper& sleeper, size_t count, bool* rung) {
  bool port = false;
  *rung = sleeper.pollfds[0].revents != 0;
  if (*rung) sleeper.bell.hear();
  // Until refresh() runs again an entry may be gone from watched_, but its owner still waits in unwatch(): the watcher
  // is alive.
  for (size_t i = 1; i < count; i++) {
    const pollfd& found = sleeper.pollfds[i];
    if (found.revents == 0) continue;
    const Watched& w = sleeper.active[i - 1];
    port = port || w.kind != Kind::kControl;
    if (!w.watcher->ready(w.fd, found.revents)) {
      std::lock_guard hold(watch_lock_);
      std::erase_if(watched_, [&](const Watched& other) { return other.fd == w.fd; });
      watch_gen_.fetch_add(1, std::memory_order_seq_cst);
    }
  }
  return port;
}

bool Progress::freeze() {
  frozen_.store(true, std::memory_order_seq_cst);
  wake_blocked();
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
  if (self_.bell.fd < 0 || blocked_.bell.fd < 0) return EMFILE;
  std::lock_guard hold(watch_lock_);
  if (running_) return 0;
  const int rc = start_quiet_thread(thread_, thread_entry, this);
  running_ = rc == 0;
  return rc;
}

}  // namespace usiw
