// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file progress_thread.cc
/// The progress thread: its states and when it changes between them (see progress.h).
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "progress/progress.h"

namespace usiw {
namespace {

constexpr uint64_t kUs = 1000, kMs = 1'000'000;

/// POLLING goes on for so long after the last work.
constexpr uint64_t kPollWindowNs = 50 * kUs;
/// A yield that takes longer found somebody else on this core: do not poll for a while.
/// Doubled each time that it is found so again.
constexpr uint64_t kCrowdedYieldNs = 50 * kUs, kCrowdedMinNs = 100 * kMs, kCrowdedMaxNs = 1600 * kMs;
/// Between two looks at the control fds while polling.
constexpr uint64_t kControlPeriodNs = 20 * kUs;
/// Right after work the thread wakes this often even without a deadline, so that the next
/// post (which sets a deadline) needs no doorbell.
constexpr uint64_t kRecentNs = 50 * kMs, kRecentNapNs = 1 * kMs;
/// For the holder of the engine to take the packets that woke this thread. He may have been
/// preempted by it, and poll(2) would not sleep while they wait.
constexpr uint64_t kHeldNapNs = 100 * kUs;
/// EngineDriver by the application for so long, with so many looks: STANDBY. So many looks in a
/// row that saw no run end the streak.
constexpr uint64_t kStreakNs = 50 * kUs;
constexpr unsigned kStreakSamples = 8, kStreakMisses = 3;
constexpr uint64_t kStandbyMinNs = 1 * kMs, kStandbyMaxNs = 4 * kMs;
/// An application that stopped driving and left work behind (it waits for a byte in memory,
/// say) is not trusted for so long, doubled each time.
constexpr uint64_t kPenaltyMinNs = 100 * kMs, kPenaltyMaxNs = 1600 * kMs;
/// An application that polls runs the engine every few microseconds of its processor time;
/// one that takes longer on average is busy elsewhere.
constexpr uint64_t kMaxRunGapNs = 200 * kUs;
/// What the thread asks of the scheduler: to run soon when it wakes, for a short time. It
/// stands in for a NIC; a program that spins in memory waits for it.
constexpr int kNice = -10;
constexpr uint64_t kSliceNs = 100 * kUs;

void count(std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }

/// Processor time that a thread of this process has used, ns; 0 if there is no such thread.
uint64_t thread_cpu_ns(pid_t tid) {
  // The kernel's encoding of a thread's CPU clock: ~tid, "per thread", "scheduler clock".
  auto clock = static_cast<clockid_t>((~static_cast<unsigned>(tid) << 3) | 4 | 2);
  timespec t;
  if (tid == 0 || clock_gettime(clock, &t) != 0) return 0;
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

/// True if a thread of this process runs or waits for a processor.
bool thread_is_runnable(pid_t tid) {
  char path[64], text[256];
  snprintf(path, sizeof path, "/proc/self/task/%d/stat", static_cast<int>(tid));
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = '\0';
  const char* name_end = strrchr(text, ')');  // "tid (name) state ..."
  return name_end != nullptr && name_end[1] == ' ' && name_end[2] == 'R';
}

/// Both are wishes: without CAP_SYS_NICE the nice value stays, and kernels before 6.12 do
/// not know slices. Under the default scheduling policy only.
void prefer_early_wakeup() {
  struct {
    uint32_t size = 48, policy = SCHED_OTHER;
    uint64_t flags = 0;
    int32_t nice = 0;
    uint32_t priority = 0;
    uint64_t runtime = kSliceNs, deadline = 0, period = 0;
  } attr;
  static_assert(sizeof attr == 48);  // SCHED_ATTR_SIZE_VER0
  if (sched_getscheduler(0) != SCHED_OTHER) return;
  const int nice_now = getpriority(PRIO_PROCESS, 0);
  attr.nice = std::max(nice_now + kNice, -20);
  if (syscall(SYS_sched_setattr, 0, &attr, 0) == 0) return;
  attr.nice = nice_now;
  syscall(SYS_sched_setattr, 0, &attr, 0);
}

}  // namespace

void Progress::run() {
  pthread_setname_np(pthread_self(), "usiw");
  prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  if (mode_ == Mode::kAdaptive) prefer_early_wakeup();
  now_ = last_work_ = clock_.now_ns();
  while (!stopping_.load(std::memory_order_seq_cst)) {
    refresh_watched();  // while frozen, too: unwatch() waits for it
    if (frozen_.load(std::memory_order_seq_cst)) {
      usleep(10'000);  // the process is exiting
      continue;
    }
    if (mode_ == Mode::kThread) {
      look_at_control();
      if (thread_drive() != 0) last_work_ = now_;
      yield();
      continue;
    }
    bool driven = look();
    // Where cores are scarce it would spin on the core of a thread that waits for it.
    bool crowded = scarce_cores_ || now_ < crowded_until_;
    if (!driven && !crowded && thread_drive() != 0) last_work_ = now_;
    if (streak_since_ != 0 && now_ - streak_since_ > kStreakNs && streak_samples_ >= kStreakSamples &&
        polled_runs_.load(std::memory_order_relaxed) != polls_seen_ && now_ >= no_standby_until_)
      standby();
    else if (crowded || now_ - last_work_ > kPollWindowNs)
      sleep(crowded);
    else
      yield();
  }
  std::lock_guard hold(watch_lock_);
  watch_seen_ = UINT64_MAX;
  watch_changed_.notify_all();
}

void Progress::refresh_watched() {
  std::lock_guard hold(watch_lock_);
  uint64_t gen = watch_gen_.load(std::memory_order_acquire);
  if (gen == watch_seen_) return;
  active_ = watched_;
  // Packet sockets last: poll() gets a prefix of the list while an application drives.
  std::stable_sort(active_.begin(), active_.end(),
                   [](const Watched& a, const Watched& b) { return a.kind < b.kind; });
  pollfds_.clear();
  pollfds_.push_back({doorbell_, POLLIN, 0});
  for (const Watched& w : active_) pollfds_.push_back({w.fd, POLLIN, 0});
  watch_seen_ = gen;
  watch_changed_.notify_all();
}

/// Polls the doorbell, the control fds and, if @p packets, the packet sockets until
/// @p until_ns (0: look only) and calls the watchers. True if anything was ready.
bool Progress::wait(bool packets, uint64_t until_ns, bool* rung) {
  nfds_t count = 1;
  for (const Watched& w : active_) count += packets || w.kind == Kind::kControl;
  timespec timeout{0, 0};
  if (until_ns != 0 && until_ns != UINT64_MAX) {
    uint64_t now = clock_.now_ns();
    uint64_t left = until_ns > now ? until_ns - now : 0;
    timeout = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  }
  int n = ppoll(pollfds_.data(), count, until_ns == UINT64_MAX ? nullptr : &timeout, nullptr);
  now_ = clock_.now_ns();
  last_control_ = now_;
  *rung = false;
  if (n <= 0) return false;
  if (pollfds_[0].revents != 0) {
    uint64_t value;
    [[maybe_unused]] ssize_t got = read(doorbell_, &value, sizeof value);
    rung_.store(false, std::memory_order_seq_cst);
    *rung = true;
  }
  // Until refresh_watched() runs again an entry may be gone from watched_, but its owner
  // still waits in unwatch(): the watcher is alive.
  for (nfds_t i = 1; i < count; i++) {
    if (pollfds_[i].revents == 0) continue;
    const Watched& w = active_[i - 1];
    if (!w.watcher->ready(w.fd, pollfds_[i].revents)) {
      std::lock_guard hold(watch_lock_);
      std::erase_if(watched_, [&](const Watched& other) { return other.fd == w.fd; });
      watch_gen_.fetch_add(1, std::memory_order_release);
    }
  }
  return true;
}

/// Drives as the progress thread, again while others kick. Returns the work done.
unsigned Progress::thread_drive() {
  unsigned work = 0;
  do {
    if (!try_acquire()) return work;
    count(stats_.runs);
    work += drive_held();
    release();
  } while (kicked());
  return work;
}

void Progress::yield() {
  sched_yield();
  uint64_t after = clock_.now_ns();
  if (after - now_ > kCrowdedYieldNs) {
    bool again = after < crowded_until_ + crowded_for_;
    crowded_for_ = again ? std::min(2 * crowded_for_, kCrowdedMaxNs) : kCrowdedMinNs;
    crowded_until_ = after + crowded_for_;
  }
  now_ = after;
}

void Progress::look_at_control() {
  bool rung;
  now_ = clock_.now_ns();
  if (now_ - last_control_ > kControlPeriodNs && wait(false, 0, &rung)) last_work_ = now_;
}

/// True if an application thread that polls has driven the engine since the last look.
bool Progress::look() {
  look_at_control();
  uint32_t runs = inline_runs_.load(std::memory_order_relaxed);
  if (runs == runs_seen_) {
    if (++streak_misses_ >= kStreakMisses) streak_since_ = streak_samples_ = 0;
    return false;
  }
  runs_seen_ = runs;
  streak_misses_ = 0;
  streak_samples_++;
  if (streak_since_ == 0) {
    streak_since_ = now_;
    polls_seen_ = polled_runs_.load(std::memory_order_relaxed);
    arms_seen_ = arms_.load(std::memory_order_seq_cst);
  }
  last_work_ = now_;
  return true;
}

/// Sleeps while the application drives. It has stopped when it did not drive for a whole
/// nap, unless it is only preempted, or when it spends its time on something else; if it
/// left work behind then, it is not to be trusted for a while.
void Progress::standby() {
  bool rung = false, busy = false;
  count(stats_.standbys);
  uint64_t began = now_, nap = kStandbyMinNs;
  pid_t tid = driver_tid_.load(std::memory_order_relaxed);
  uint32_t runs = inline_runs_.load(std::memory_order_relaxed);
  uint64_t cpu = thread_cpu_ns(tid);
  for (;;) {
    state_.store(State::kStandby, std::memory_order_seq_cst);
    // An application that armed a CQ before it could see STANDBY rang no doorbell.
    if (arms_.load(std::memory_order_seq_cst) != arms_seen_) break;
    wait(false, now_ + nap, &rung);
    if (rung || stopping_.load(std::memory_order_seq_cst)) break;
    if (watch_gen_.load(std::memory_order_acquire) != watch_seen_) break;  // a watcher has changed what is watched
    // posted_behind(), and the run that it waits for has not come: soon, then, and look more often.
    const bool behind = kicked();
    if (behind) thread_drive();
    uint32_t runs_now = inline_runs_.load(std::memory_order_relaxed);
    uint64_t cpu_now = thread_cpu_ns(tid);
    pid_t tid_now = driver_tid_.load(std::memory_order_relaxed);
    busy = tid_now == tid && cpu_now > cpu + kMaxRunGapNs * (runs_now - runs + 1);
    if (busy) break;
    if (runs_now != runs) {
      runs = runs_now;
      tid = tid_now;
      cpu = thread_cpu_ns(tid);
      nap = behind ? kStandbyMinNs : std::min(2 * nap, kStandbyMaxNs);
      continue;
    }
    nap = kStandbyMinNs;
    if (!thread_is_runnable(tid)) break;
    thread_drive();  // preempted: stand in for it
  }
  state_.store(State::kPolling, std::memory_order_seq_cst);
  streak_since_ = streak_samples_ = 0;
  runs_seen_ = inline_runs_.load(std::memory_order_relaxed);
  if (now_ - began > kPenaltyMaxNs) standby_penalty_ = 0;
  if (busy && thread_drive() != 0) {
    count(stats_.penalties);
    standby_penalty_ = std::clamp(2 * standby_penalty_, kPenaltyMinNs, kPenaltyMaxNs);
    no_standby_until_ = now_ + standby_penalty_;
  }
  last_work_ = now_;
}

/// Sleeps until a packet, an event of the kernel, the doorbell, or a deadline. Drives first;
/// if that found work, more may follow soon: only where it is @p crowded it sleeps then, too.
void Progress::sleep(bool crowded) {
  sleep_until_.store(UINT64_MAX, std::memory_order_seq_cst);
  state_.store(State::kSleeping, std::memory_order_seq_cst);
  bool held = try_acquire();
  if (!held) {
    kicks_.fetch_add(1, std::memory_order_seq_cst);  // the packets that woke this thread
    held = try_acquire();
  }
  const bool packets = held || napped_;
  napped_ = !packets;
  uint64_t until = now_ + (packets ? kRecentNapNs : kHeldNapNs);
  bool work = false;
  if (held) {
    count(stats_.runs);
    work = drive_held() != 0;
    if (work) last_work_ = now_;
    until = driven_.next_deadline_ns();
    if (now_ - last_work_ < kRecentNs) until = std::min(until, now_ + kRecentNapNs);
  }
  const bool more = held && ((work && !crowded) || !driven_.arm());
  // Whoever drives from here on compares the engine's deadline with this time.
  sleep_until_.store(until, std::memory_order_seq_cst);
  if (held) release();
  bool again = more || (held && kicked());
  if (!again && until > now_ && !stopping_.load(std::memory_order_seq_cst)) {
    bool rung;
    count(stats_.sleeps);
    wait(packets, until, &rung);
  }
  state_.store(State::kPolling, std::memory_order_seq_cst);
}

}  // namespace usiw
