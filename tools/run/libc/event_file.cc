// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/libc/event_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <climits>

#include "tools/run/host/big_lock.h"
#include "tools/run/host/clock.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

long futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr,
                 nullptr, 0);
}

/// The file for whose next event this thread drives the engine, or null. Events that this thread itself adds to the
/// file do not make the eventfd readable. If the thread does not take all of them, show_rest() makes the eventfd
/// readable.
thread_local const EventFile* t_drives_for = nullptr;

/// Waits while @p word has @p value. Returns false if a signal has ended the wait. The call has no timeout, so after a
/// handler with SA_RESTART the kernel restarts it, as it restarts read(2). The thread may be cancelled here at any
/// instruction. So this is a separate function, in which there is nothing to clean up.
[[gnu::noinline]] bool futex_wait(std::atomic<uint32_t>& word, uint32_t value) {
  int type;
  pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
  const bool interrupted = futex(word, FUTEX_WAIT, value) != 0 && errno == EINTR;
  pthread_setcanceltype(type, nullptr);
  return !interrupted;
}

// A thread that drives the engine waits in poll(2). Unlike read(2), poll(2) ends after a handler with SA_RESTART, too,
// and does not show which handler has run. So a thread drives the engine only if that makes no difference: all handlers
// have SA_RESTART, or none has.

constexpr unsigned kRestarts = 1, kInterrupts = 2;  ///< kinds of signal handlers, by their effect on a system call

/// Returns the kinds of handlers that exist for signals which this thread does not block. Signals of faults, such as
/// SIGSEGV, do not count.
unsigned kinds_of_handlers() {
  unsigned kinds = 0;
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  for (int sig = 1; sig <= SIGRTMAX; sig++) {
    struct sigaction act;
    if (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP || sig == SIGSYS ||
        sig == SIGABRT || sigismember(&blocked, sig) != 0 || sigaction(sig, nullptr, &act) != 0 ||
        ((act.sa_flags & SA_SIGINFO) == 0 && (act.sa_handler == SIG_DFL || act.sa_handler == SIG_IGN)))
      continue;
    kinds |= (act.sa_flags & SA_RESTART) != 0 ? kRestarts : kInterrupts;
  }
  return kinds;
}

/// Returns the result of kinds_of_handlers() from at most a second ago, because that function makes a system call for
/// each signal.
unsigned recent_kinds_of_handlers() {
  static thread_local unsigned kinds = 0;
  static thread_local uint64_t as_of = 0;
  if (const uint64_t now = now_us(); as_of == 0 || now - as_of > 1'000'000) {
    kinds = kinds_of_handlers();
    as_of = now;
  }
  return kinds;
}

// glibc may deliver the signal that cancels a thread just after futex(2) has woken the thread. The signal then takes
// effect at the next cancellation point of libc, although cancellation has been disabled by then (glibc 2.36 checks
// only the cancellation type). The thread would end with an event that nobody acknowledges. So the functions below use
// syscall(2), which is no cancellation point.
//
// The counter of the eventfd is 0 or 1, unless a child of fork() uses the descriptor that it has inherited. A read or
// write that waits for such a child could wait forever, with the big lock held. O_NONBLOCK would prevent that, but the
// program would see the flag.

constexpr uint64_t kOne = 1;

bool is_readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  const timespec at_once{};
  return syscall(SYS_ppoll, &p, 1, &at_once, nullptr, 0) > 0;
}

/// Sets the counter of the eventfd to 0. Does not wait. Without RWF_NOWAIT it could wait if a child of fork() read the
/// counter at the same moment.
void drain(int fd) {
  uint64_t value;
  iovec to{&value, sizeof value};
  if (syscall(SYS_preadv2, fd, &to, 1, -1L, -1L, RWF_NOWAIT) >= 0 || errno == EAGAIN) return;
  // The kernel is older than Linux 5.8, or a sandbox forbids the flag.
  if (is_readable(fd)) [[maybe_unused]] long n = syscall(SYS_read, fd, &value, sizeof value);
}

}  // namespace

int EventFile::open(const std::shared_ptr<EventFile>& file) {
  Fd fd(with_descriptors([] { return eventfd(0, EFD_CLOEXEC); }));
  if (fd < 0) return -errno;
  file->own_fd_ = out_of_the_way(Fd(with_descriptors([&] { return USIW_REAL(fcntl)(fd, F_DUPFD_CLOEXEC, 0); })));
  if (file->own_fd_ < 0 || !file_install(fd, file)) return -EMFILE;
  return fd.release();
}

EventFile::~EventFile() {
  NoCancel no_cancel;
  own_fd_ = {};
}

void EventFile::wake() {
  changes_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(changes_, FUTEX_WAKE, INT_MAX);
  if (engine_) engine_->changed(changes_);
}

void EventFile::set_readable(bool readable) {
  const bool before = std::exchange(readable_, readable);
  if (readable) {
    wake();
    if (t_drives_for != this) show();
  } else if (before && std::exchange(shown_, false)) {
    drain(own_fd_);
  }
}

/// [big lock] Makes the eventfd readable.
void EventFile::show() {
  shown_ = true;
  if (!is_readable(own_fd_))  // otherwise the counter may be so high that the call would wait
      [[maybe_unused]]
    long n = syscall(SYS_write, int{own_fd_}, &kOne, sizeof kOne);
}

/// Waits by futex while changes_ is @p seen. Returns false if a signal has ended the wait. Counts the thread in
/// sleepers_, so that wake() calls futex(2) only while a thread may sleep.
bool EventFile::sleep(uint32_t seen) {
  struct Counted {
    explicit Counted(std::atomic<uint32_t>& n) : number(n) { number.fetch_add(1, std::memory_order_seq_cst); }
    ~Counted() { number.fetch_sub(1, std::memory_order_relaxed); }
    std::atomic<uint32_t>& number;
  } counted(sleepers_);
  return futex_wait(changes_, seen);
}

/// Waits while changes_ is @p seen. Returns false if a signal has ended the wait in a way that would interrupt read(2).
/// The thread drives the engine if there is one and either all handlers interrupt a read(2) or none does. If the engine
/// refuses, the thread waits by futex.
bool EventFile::wait(LentEngine::Use& engine, uint32_t seen) {
  const usiw_engine_loan* loan = engine.blocks();
  if (loan == nullptr) return sleep(seen);
  const unsigned handlers = recent_kinds_of_handlers();
  if (handlers == (kRestarts | kInterrupts)) return sleep(seen);
  struct Drives {
    explicit Drives(EventFile* file) { t_drives_for = file; }
    ~Drives() { t_drives_for = nullptr; }
  };
  const auto drive = [&] {
    Drives drives(this);
    return loan->drive_until(loan->engine, &changes_, seen);
  };
  switch (drive()) {
    case 0:
      return true;
    case EINTR:
      return (handlers | kinds_of_handlers()) == kRestarts;
    default:
      return sleep(seen);
  }
}

ssize_t EventFile::wait_for(const std::function<ssize_t()>& take) {
  LentEngine::Use engine(engine_.get(), *this);
  for (;;) {
    uint32_t seen;
    {
      HoldBigLock hold;
      ssize_t n = take();
      show_rest();
      if (n != -EAGAIN) return n;
      seen = changes_.load(std::memory_order_acquire);
    }
    // Read the flags through own_fd_, because another thread may have closed the program's descriptor while this thread
    // was waiting. Such a close need not end the wait.
    int flags = USIW_REAL(fcntl)(own_fd_, F_GETFL);
    if ((flags & O_NONBLOCK) != 0) return -EAGAIN;
    if (!wait(engine, seen)) return -EINTR;
  }
}

}  // namespace usiw::run
