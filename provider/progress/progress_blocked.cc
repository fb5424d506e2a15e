// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file progress_blocked.cc
/// A thread that blocks until a word in memory changes, and drives the engine meanwhile (see progress.h).
#include <pthread.h>

#include <algorithm>
#include <cerrno>

#include "progress/progress.h"
#include "progress/times.h"

namespace usiw {
namespace {

/// poll(2) as the program's threads may be cancelled in it, if @p cancel_state lets them be: where that is of the
/// asynchronous type at any instruction, so this is a frame of its own, in which nothing needs to be undone.
[[gnu::noinline]] int poll_cancellable(pollfd* fds, size_t count, const timespec* timeout, int cancel_state) {
  int off;
  pthread_setcancelstate(cancel_state, nullptr);
  const int n = ppoll(fds, count, timeout, nullptr);
  const int error = errno;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &off);
  errno = error;
  return n;
}

}  // namespace

/// The place of the thread that blocks and drives, and cancellation off: as the program has it again afterwards.
class Progress::Driver {
 public:
  explicit Driver(Progress& p) : p_(p) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    const pid_t self = own_tid();
    pid_t before = 0;
    // The place is its own already if a signal handler has jumped out of the last call.
    taken_ = p_.blocked_tid_.compare_exchange_strong(before, self, std::memory_order_seq_cst) || before == self;
    if (taken_) p_.blocked_last_.store(self, std::memory_order_relaxed);
  }
  ~Driver() {
    if (taken_) leave();
    pthread_setcancelstate(cancel_state_, nullptr);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  bool taken() const { return taken_; }
  int cancel_state() const { return cancel_state_; }
  uint64_t deadline = UINT64_MAX;  ///< the engine's, after this thread's last run

 private:
  void leave() {
    p_.blocked_word_.store(nullptr, std::memory_order_seq_cst);
    p_.blocked_until_.store(0, std::memory_order_seq_cst);
    const uint64_t seen = p_.blocked_.seen;  // the next one's, from here on
    p_.blocked_tid_.store(0, std::memory_order_seq_cst);
    if (p_.watch_gen_.load(std::memory_order_seq_cst) != seen) {  // unwatch() may wait for this thread
      std::lock_guard hold(p_.watch_lock_);
      p_.watch_changed_.notify_all();
    }
    p_.tell_deadline(deadline);
  }

  Progress& p_;
  int cancel_state_ = 0;
  bool taken_ = false;
};

void Progress::end_blocking() {
  // Who is left waits in another way, and this thread will not be back at once: the packets are the progress thread's.
  if (blocking_.fetch_sub(1, std::memory_order_seq_cst) > 1 && state_.load(std::memory_order_seq_cst) == State::kBehind)
    ring_doorbell();
}

void Progress::changed(const std::atomic<uint32_t>& word) {
  if (blocked_word_.load(std::memory_order_seq_cst) == &word) wake_blocked();
}

void Progress::wake_blocked() { blocked_.bell.ring(); }

Progress::Blocked Progress::drive_until(const std::atomic<uint32_t>& word, uint32_t seen) {
  if (mode_ == Mode::kThread || blocked_.bell.fd < 0) return Blocked::kElsewhere;
  Driver driver(*this);
  if (!driver.taken()) return Blocked::kElsewhere;
  bool napped = false;
  for (bool first = true;; first = false) {
    const uint64_t now = clock_.now_ns();
    if (frozen_.load(std::memory_order_seq_cst) || state_.load(std::memory_order_seq_cst) == State::kStandby ||
        now < refuse_until_.load(std::memory_order_relaxed) ||
        (first && blocking_.load(std::memory_order_seq_cst) > 1))
      return Blocked::kElsewhere;
    if (watch_gen_.load(std::memory_order_seq_cst) != blocked_.seen) refresh(blocked_, Kind::kPort);

    blocked_until_.store(UINT64_MAX, std::memory_order_seq_cst);
    const bool held = acquire_or_kick();
    const bool packets = held || napped;
    napped = !packets;
    uint64_t until = now + (packets ? kRecentNapNs : kHeldNapNs);
    bool quiet = true;
    if (held) {
      if (drive_held() != 0) blocked_work_ = now;
      stats_.blocked_runs.fetch_add(1, std::memory_order_relaxed);
      blocked_runs_.fetch_add(1, std::memory_order_relaxed);
      driver.deadline = until = driven_.next_deadline_ns();
      if (now - blocked_work_ < kRecentNs) until = std::min(until, now + kRecentNapNs);
      quiet = driven_.arm();
      blocked_until_.store(until, std::memory_order_seq_cst);
      release();
      if (kicked()) quiet = false;
    } else {
      blocked_until_.store(until, std::memory_order_seq_cst);
    }
    blocked_word_.store(&word, std::memory_order_seq_cst);
    if (word.load(std::memory_order_seq_cst) != seen) return Blocked::kChanged;
    if (!quiet) {
      blocked_word_.store(nullptr, std::memory_order_seq_cst);
      continue;
    }

    const size_t count = packets ? blocked_.pollfds.size() : 1;
    const timespec timeout = time_left(until, clock_.now_ns());
    const int n = poll_cancellable(blocked_.pollfds.data(), count, until == UINT64_MAX ? nullptr : &timeout,
                                   driver.cancel_state());
    const bool interrupted = n < 0 && errno == EINTR;
    blocked_word_.store(nullptr, std::memory_order_seq_cst);
    blocked_until_.store(0, std::memory_order_seq_cst);
    bool rung;
    if (n > 0) serve(blocked_, count, &rung);
    if (word.load(std::memory_order_seq_cst) != seen) return Blocked::kChanged;
    if (interrupted) return Blocked::kSignal;
  }
}

}  // namespace usiw
