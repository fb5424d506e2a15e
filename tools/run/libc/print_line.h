// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file print_line.h
/// Prints lines for people on standard error, from code that must not wait.
#ifndef USIW_RUN_PRINT_LINE_H
#define USIW_RUN_PRINT_LINE_H

#include <poll.h>
#include <unistd.h>

#include <string>

#include "tools/run/libc/real.h"

namespace usiw::run {

/// Prints @p line, which ends with a newline. Does not wait: if standard error is a full pipe, the line is lost. So a
/// thread may call it with the big lock, for which all threads of the program would wait.
inline void print_line(const std::string& line) {
  pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&out, 1, 0) != 1 || (out.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const ssize_t n = USIW_REAL(write)(STDERR_FILENO, line.data(), line.size());
}

}  // namespace usiw::run

#endif  // USIW_RUN_PRINT_LINE_H
