// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file fd.h
/// The class Fd, which owns a file descriptor.
#ifndef USIW_RUN_FD_H
#define USIW_RUN_FD_H

#include <unistd.h>

#include <utility>

namespace usiw::run {

/// A descriptor that is closed at the end of its scope. A negative number stands for no descriptor. A thread
/// must not be cancelled while it owns one, because close(2) is a cancellation point.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  operator int() const { return fd_; }
  /// Returns the descriptor and gives it to the caller, who has to close it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace usiw::run

#endif  // USIW_RUN_FD_H
