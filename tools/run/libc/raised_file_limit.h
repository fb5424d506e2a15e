// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file raised_file_limit.h
/// Descriptors above the soft limit of open files. On the RoCE face each QP has a UDP socket, of which the program does
/// not know. Its own descriptors, for which it may have chosen the limit, must not become fewer by these.
#ifndef USIW_RUN_RAISED_FILE_LIMIT_H
#define USIW_RUN_RAISED_FILE_LIMIT_H

#include <sys/resource.h>

#include "tools/run/libc/file.h"

namespace usiw::run {

/// [big lock] While it lives, the soft limit of the process is its hard limit, and out_of_the_way() returns numbers
/// above the old soft limit. Does nothing if the soft limit is high or cannot be raised. Other threads see the raised
/// limit meanwhile. If one of them changes the limit, its value stays.
class RaisedFileLimit {
 public:
  explicit RaisedFileLimit(bool raise = true) {
    rlimit now{};
    if (!raise || getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur > kHigh || now.rlim_cur >= now.rlim_max) return;
    before_ = now.rlim_cur;
    now.rlim_cur = now.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &now) != 0) return;
    raised_to_ = now.rlim_cur;
    least_own_descriptor = static_cast<int>(before_);
  }
  ~RaisedFileLimit() {
    if (raised_to_ == 0) return;
    least_own_descriptor = 0;
    rlimit now{};
    if (getrlimit(RLIMIT_NOFILE, &now) != 0 || now.rlim_cur != raised_to_) return;
    now.rlim_cur = before_;
    setrlimit(RLIMIT_NOFILE, &now);
  }
  RaisedFileLimit(const RaisedFileLimit&) = delete;
  RaisedFileLimit& operator=(const RaisedFileLimit&) = delete;

 private:
  static constexpr rlim_t kHigh = 65536;

  rlim_t before_ = 0, raised_to_ = 0;
};

}  // namespace usiw::run

#endif  // USIW_RUN_RAISED_FILE_LIMIT_H
