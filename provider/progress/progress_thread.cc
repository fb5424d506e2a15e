// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file progress_thread.cc
/// The progress thread: its states and when it changes between them (see progress.h).
#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>

#include "progress/progress.h"
#include "progress/times.h"

namespace usiw {
namespace {

/// POLLING goes on for so long after the last work.
constexpr uint64_t kPollWindowNs = 50 * kUs;
/// A yield that takes longer found somebody else on this core: do not poll for a while.
/// Doubled each time that it is found so again.
constexpr uint64_t kCrowdedYieldNs = 50 * kUs, kCrowdedMinNs = 100 * kMs, kCrowdedMaxNs = 1600 * kMs;
/// Between two looks at the control fds while polling.
constexpr uint64_t kControlPeriodNs = 20 * kUs;
/// EngineDriver by the application for so long, with so many looks: STANDBY. So many looks in a
/// row that saw no run end the streak.
constexpr uint64_t kStreakNs = 50 * kUs;
constexpr unsigned kStreakSamples = 8, kStreakMisses = 3;
constexpr uint64_t kStandbyMinNs = 1 * kMs, kStandbyMaxNs = 4 * kMs;
/// A nap that turns out to be a mistake costs at most this part of the STANDBY before it, or kStandbyMinNs.
constexpr uint64_t kNapPart = 8;
/// How long a thread that stopped driving, and left work behind, is not trusted: least_ns, doubled at each mistake up
/// to most_ns. One that had driven for good_ns before its mistake begins with least_ns again.
struct Penalty {
  uint64_t least_ns, most_ns, good_ns;

  /// Behind one more mistake. @p last: after the one before, or 0.
  uint64_t after(uint64_t last) const { return std::clamp(2 * last, least_ns, most_ns); }
};
/// For an application that polled, and waits for a byte in memory now, say. While it is not trusted each packet wakes
/// this thread, which delays a program that shares its core and makes the next mistake likely: so the time is short.
/// It grows where each STANDBY is a mistake, as in a ping-pong of WRITEs of several segments on two processors.
constexpr Penalty kPolling = {4 * kMs, 100 * kMs, 8 * kMs};
constexpr Penalty kBlocked = {100 * kMs, 1600 * kMs, 1600 * kMs};
/// An application that polls runs the engine every few microseconds of its processor time;
/// one that takes longer on average is busy elsewhere.
constexpr uint64_t kMaxRunGapNs = 200 * kUs;
/// A thread that blocks finds a completion queue empty once or twice for each event. So many times for each of its runs
/// are somebody else's.
constexpr uint32_t kPollsPerBlockedRun = 16;
/// So often work is found that a blocked thread ought to have seen, before it is taken for stopped.
constexpr unsigned kInVain = 3;

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

}  // namespace

void Progress::run() {
  pthread_setname_np(pthread_self(), "usiw");
  prctl(PR_SET_TIMERSLACK, 1000UL, 0, 0, 0);
  now_ = last_work_ = clock_.now_ns();
  while (!stopping_.load(std::memory_order_seq_cst)) {
    refresh(self_, Kind::kControl);  // while frozen, too: unwatch() waits for it
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
    const bool woken = std::exchange(port_woke_, false);
    if (blocked_thread_drives() || (woken && leaves_packets_to_others())) {
      behind(woken);
      continue;
    }
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
  self_.seen = UINT64_MAX;
  watch_changed_.notify_all();
}

/// Polls the doorbell and what is watched of kinds up to @p last until @p until_ns (0: look only) and calls the
/// watchers. True if anything was ready.
bool Progress::wait(Kind last, uint64_t until_ns, bool* rung) {
  const size_t count = count_up_to(self_, last);
  const timespec timeout = until_ns == 0 ? timespec{} : time_left(until_ns, clock_.now_ns());
  int n = ppoll(self_.pollfds.data(), count, until_ns == UINT64_MAX ? nullptr : &timeout, nullptr);
  now_ = clock_.now_ns();
  last_control_ = now_;
  *rung = false;
  if (n <= 0) return false;
  port_woke_ = serve(self_, count, rung) || port_woke_;
  return true;
}

/// Drives as the progress thread, again while others kick. Returns the work done.
unsigned Progress::thread_drive() {
  unsigned work = 0;
  do {
    if (!try_acquire()) return work;
    count(stats_.runs);
    work += drive_held();
    const uint64_t deadline = driven_.next_deadline_ns();
    release();
    tell_deadline(deadline);
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
  if (now_ - last_control_ > kControlPeriodNs && wait(Kind::kPort, 0, &rung)) last_work_ = now_;
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

/// Counts a mistake; returns when it is over.
uint64_t Progress::mistaken(uint64_t penalty_ns) {
  count(stats_.penalties);
  stats_.distrusted_ns.fetch_add(penalty_ns, std::memory_order_relaxed);
  return now_ + penalty_ns;
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
    if (blocked_tid_.load(std::memory_order_seq_cst) != 0) wake_blocked();  // packets are not for it now
    // An application that armed a CQ before it could see STANDBY rang no doorbell.
    if (arms_.load(std::memory_order_seq_cst) != arms_seen_) break;
    wait(Kind::kPort, now_ + nap, &rung);
    if (rung || stopping_.load(std::memory_order_seq_cst)) break;
    if (watch_gen_.load(std::memory_order_acquire) != self_.seen) break;  // a watcher has changed what is watched
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
      nap = behind ? kStandbyMinNs : std::clamp((now_ - began) / kNapPart, kStandbyMinNs, kStandbyMaxNs);
      continue;
    }
    nap = kStandbyMinNs;
    if (!thread_is_runnable(tid)) break;
    thread_drive();  // preempted: stand in for it
  }
  state_.store(State::kPolling, std::memory_order_seq_cst);
  streak_since_ = streak_samples_ = 0;
  runs_seen_ = inline_runs_.load(std::memory_order_relaxed);
  if (now_ - began > kPolling.good_ns) standby_penalty_ = 0;
  if (busy && thread_drive() != 0) {
    standby_penalty_ = kPolling.after(standby_penalty_);
    no_standby_until_ = mistaken(standby_penalty_);
  }
  last_work_ = now_;
}

/// True if a thread that blocks, and is there, has driven since the last look.
bool Progress::blocked_thread_drives() {
  const uint32_t runs = blocked_runs_.load(std::memory_order_relaxed);
  return std::exchange(blocked_runs_seen_, runs) != runs && leaves_packets_to_others();
}

bool Progress::leaves_packets_to_others() const {
  return blocked_tid_.load(std::memory_order_seq_cst) != 0 && blocking_.load(std::memory_order_seq_cst) <= 1 &&
         now_ >= refuse_until_.load(std::memory_order_relaxed);
}

void Progress::distrust_blocked() {
  blocked_penalty_ = kBlocked.after(blocked_penalty_);
  refuse_until_.store(mistaken(blocked_penalty_), std::memory_order_relaxed);
}

/// Sleeps while a thread that blocks drives, which has left when it does not drive for a whole nap and is not there,
/// unless it is only preempted. @p woken: packets wait for it, and that it is there is all that is known.
void Progress::behind(bool woken) {
  count(stats_.behinds);
  const uint64_t began = now_;
  uint64_t nap = woken ? kHeldNapNs : kStandbyMinNs, moved = now_;
  uint32_t runs = blocked_runs_.load(std::memory_order_relaxed);
  uint32_t polls = polled_runs_.load(std::memory_order_relaxed);
  pid_t tid = blocked_last_.load(std::memory_order_relaxed);
  uint64_t cpu = thread_cpu_ns(tid);
  unsigned in_vain = 0;
  for (;;) {
    bool rung;
    state_.store(State::kBehind, std::memory_order_seq_cst);
    wait(Kind::kControl, now_ + nap, &rung);
    if (rung || stopping_.load(std::memory_order_seq_cst) || frozen_.load(std::memory_order_seq_cst)) break;
    if (watch_gen_.load(std::memory_order_acquire) != self_.seen) break;
    const uint32_t runs_now = blocked_runs_.load(std::memory_order_relaxed);
    const uint32_t polls_now = polled_runs_.load(std::memory_order_relaxed);
    if (polls_now - polls > kPollsPerBlockedRun * (runs_now - runs + 1)) {  // somebody polls, and takes the packets
      distrust_blocked();
      break;
    }
    polls = polls_now;
    if (runs_now != runs) {
      runs = runs_now;
      moved = now_;
      nap = kStandbyMinNs;
      in_vain = 0;
      tid = blocked_last_.load(std::memory_order_relaxed);
      cpu = thread_cpu_ns(tid);
      continue;
    }
    const bool there = blocked_tid_.load(std::memory_order_seq_cst) != 0;
    const bool work = thread_drive() != 0;
    if (blocked_runs_.load(std::memory_order_relaxed) != runs) continue;
    if (work || !there) {
      const bool busy = thread_cpu_ns(tid) > cpu + kMaxRunGapNs;
      // Preempted, or woken this moment: stand in for it. Once or twice it may only seem to be there in vain.
      if ((!busy && thread_is_runnable(tid)) || (there && ++in_vain < kInVain)) {
        nap = kStandbyMinNs;
        continue;
      }
      if (work) distrust_blocked();
      break;
    }
    if (now_ - moved > kRecentNs) break;
    nap = std::min(2 * nap, kStandbyMaxNs);
  }
  state_.store(State::kPolling, std::memory_order_seq_cst);
  if (now_ - began > kBlocked.good_ns) blocked_penalty_ = 0;
  streak_since_ = streak_samples_ = 0;
  runs_seen_ = inline_runs_.load(std::memory_order_relaxed);
  blocked_runs_seen_ = blocked_runs_.load(std::memory_order_relaxed);
  port_woke_ = false;
  last_work_ = now_;
}

/// Sleeps until a packet, an event of the kernel, the doorbell, or a deadline. Drives first;
/// if that found work, more may follow soon: only where it is @p crowded it sleeps then, too.
void Progress::sleep(bool crowded) {
  sleep_until_.store(UINT64_MAX, std::memory_order_seq_cst);
  state_.store(State::kSleeping, std::memory_order_seq_cst);
  const bool held = acquire_or_kick();
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
    wait(packets ? Kind::kPacket : Kind::kPort, until, &rung);
  }
  state_.store(State::kPolling, std::memory_order_seq_cst);
}

}  // namespace usiw
