// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_fd.cc
/// Interposes read(2), write(2), ioctl(2) and fstat(2), the calls of libc that close or duplicate descriptors, and
/// socket(2). A call that is a cancellation point in libc is a cancellation point for files of this library, too.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <utility>

#include "base/quiet_thread.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

using namespace usiw::run;

namespace {

template <typename T>
T answer(T ret) {
  if (ret >= 0) return ret;
  errno = static_cast<int>(-ret);
  return -1;
}

/// errno before the latest refusal of an ioctl method of uverbs in this thread. It is -1 if there was no refusal, or if
/// a write(2) to a file of this library came later. After a refusal libibverbs repeats the command by write(2). If the
/// command then succeeds, write() restores this errno, so that the program does not find EPROTONOSUPPORT in errno.
thread_local int t_errno_before_refusal = -1;

void as_device(int fd, struct stat* st) {
  if (std::shared_ptr<File> file = file_of(fd))
    if (dev_t device = file->device(); device != 0) {
      st->st_mode = S_IFCHR | 0666;
      st->st_rdev = device;
    }
}

}  // namespace

EXPORT ssize_t read(int fd, void* buf, size_t count) {
  if (std::shared_ptr<File> file = file_of(fd)) {
    pthread_testcancel();
    return answer(file->read(fd, buf, count));
  }
  return USIW_REAL(read)(fd, buf, count);
}

EXPORT ssize_t __read_chk(int fd, void* buf, size_t count, size_t space) {
  if (count > space) __builtin_trap();
  return read(fd, buf, count);
}

EXPORT ssize_t write(int fd, const void* buf, size_t count) {
  if (std::shared_ptr<File> file = file_of(fd)) {
    pthread_testcancel();
    const ssize_t ret = file->write(fd, buf, count);
    const int before = std::exchange(t_errno_before_refusal, -1);
    if (ret >= 0 && before >= 0) errno = before;
    return answer(ret);
  }
  return USIW_REAL(write)(fd, buf, count);
}

EXPORT int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list ap;
  va_start(ap, request);
  void* arg = va_arg(ap, void*);
  va_end(ap);
  if (std::shared_ptr<File> file = file_of(fd)) {
    const int before = errno, ret = file->ioctl(fd, request, arg);
    // If errno still has the value of an earlier refusal, the errno before that refusal stays stored.
    if (ret == -EPROTONOSUPPORT && (before != EPROTONOSUPPORT || t_errno_before_refusal < 0))
      t_errno_before_refusal = before;
    if (ret != -ENOTTY) return answer(ret);
  }
  return USIW_REAL(ioctl)(fd, request, arg);
}

EXPORT int close(int fd) {
  if (!file_of(fd)) return USIW_REAL(close)(fd);
  pthread_testcancel();
  usiw::NoCancel no_cancel;  // the descriptor is closed and forgotten, or neither
  file_forget(fd);
  return USIW_REAL(close)(fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags) noexcept {
  if ((flags & CLOSE_RANGE_CLOEXEC) == 0) files_forget_range(first, last);
  return USIW_REAL(close_range)(first, last, flags);
}

EXPORT void closefrom(int first) noexcept { close_range(static_cast<unsigned>(first), ~0u, 0); }

EXPORT int dup(int fd) noexcept {
  int to = USIW_REAL(dup)(fd);
  if (to >= 0) file_dup(fd, to);
  return to;
}

EXPORT int dup2(int fd, int to) noexcept {
  if (fd != to && fcntl(fd, F_GETFD) >= 0) file_forget(to);
  int ret = USIW_REAL(dup2)(fd, to);
  if (ret >= 0 && fd != to) file_dup(fd, to);
  return ret;
}

EXPORT int dup3(int fd, int to, int flags) noexcept {
  if (fd != to && fcntl(fd, F_GETFD) >= 0) file_forget(to);
  int ret = USIW_REAL(dup3)(fd, to, flags);
  if (ret >= 0) file_dup(fd, to);
  return ret;
}

EXPORT int fcntl(int fd, int command, ...) {
  va_list ap;
  va_start(ap, command);
  void* arg = va_arg(ap, void*);
  va_end(ap);
  int ret = USIW_REAL(fcntl)(fd, command, arg);
  if (ret >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) file_dup(fd, ret);
  return ret;
}

EXPORT_64(fcntl);

EXPORT int fstat(int fd, struct stat* st) noexcept {
  int ret = USIW_REAL(fstat)(fd, st);
  if (ret == 0) as_device(fd, st);
  return ret;
}

EXPORT_64(fstat);

/// Refuses RDMA netlink sockets, because they would show the program the devices of the real kernel. libibverbs and
/// librdmacm then find devices by sysfs.
EXPORT int socket(int family, int type, int protocol) noexcept {
  if (family == AF_NETLINK && protocol == NETLINK_RDMA) {
    errno = EPROTONOSUPPORT;
    return -1;
  }
  return USIW_REAL(socket)(family, type, protocol);
}
