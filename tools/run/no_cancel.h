// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file no_cancel.h
/// pthread_cancel(3): libc's calls act on it, and would unwind out of what they are used for here.
#ifndef USIW_RUN_NO_CANCEL_H
#define USIW_RUN_NO_CANCEL_H

#include <pthread.h>

namespace usiw::run {

/// The thread is not cancelled while this exists.
class NoCancel {
 public:
  NoCancel() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancel() { pthread_setcancelstate(before_, nullptr); }
  NoCancel(const NoCancel&) = delete;
  NoCancel& operator=(const NoCancel&) = delete;

 private:
  int before_;
};

}  // namespace usiw::run

#endif  // USIW_RUN_NO_CANCEL_H
