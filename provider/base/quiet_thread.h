// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file quiet_thread.h
/// Threads of our own in somebody else's program, and theirs in our calls.
#ifndef USIW_BASE_QUIET_THREAD_H
#define USIW_BASE_QUIET_THREAD_H

#include <pthread.h>

#include <csignal>

namespace usiw {

/// pthread_create(3) of a thread that takes no signal: the program's are for the program's threads.
inline int start_quiet_thread(pthread_t& thread, void* (*entry)(void*), void* argument) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  const int rc = pthread_create(&thread, nullptr, entry, argument);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return rc;
}

/// A thread of the program's that is cancelled in a call would leave ours half done.
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_;
};

}  // namespace usiw

#endif  // USIW_BASE_QUIET_THREAD_H
