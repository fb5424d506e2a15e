// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file quiet_thread.h
/// Threads of our own in somebody else's program.
#ifndef USIW_QUIET_THREAD_H
#define USIW_QUIET_THREAD_H

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

}  // namespace usiw

#endif  // USIW_QUIET_THREAD_H
