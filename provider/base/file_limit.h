// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file file_limit.h
/// RLIMIT_FSIZE (ulimit -f, systemd's LimitFSIZE=) as an error, not as the end of the process. A call that makes a file
/// longer than the limit fails with EFBIG and raises SIGXFSZ in the calling thread. Memory that processes share
/// (memfd_create) is a file to the limit, and a program that never writes a file does not expect the signal.
#ifndef USIW_BASE_FILE_LIMIT_H
#define USIW_BASE_FILE_LIMIT_H

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <ctime>

namespace usiw {

/// While it lives, SIGXFSZ is blocked in this thread; one that was raised meanwhile goes with it.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigset_t pending;
    sigemptyset(&only_);
    sigaddset(&only_, SIGXFSZ);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &only_, &before_);
  }
  ~NoFileSizeSignal() {
    const int error = errno;
    constexpr timespec kNoWait{};
    if (!was_pending_)
      while (sigtimedwait(&only_, nullptr, &kNoWait) < 0 && errno == EINTR) {
      }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;

 private:
  sigset_t only_, before_;
  bool was_pending_;
};

/// ftruncate(2) of shared memory: 0, or -errno; -EFBIG if the limit forbids it.
inline int resize_memory(int fd, off_t bytes) {
  const NoFileSizeSignal no_signal;
  return ftruncate(fd, bytes) == 0 ? 0 : -errno;
}

}  // namespace usiw

#endif  // USIW_BASE_FILE_LIMIT_H
