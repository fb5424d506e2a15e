// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_path.cc
/// Calls of libc that take a path. Those into the played parts of /sys go to the tree that plays
/// them, those to the device nodes open files of this library, all others pass.
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/quiet_thread.h"
#include "real.h"
#include "sysfs.h"

using namespace usiw::run;

namespace {

/// The path to use in place of the program's.
class Path {
 public:
  explicit Path(const char* path) : path_(path) {
    if (is_played(path)) {
      played_ = played(path);
      path_ = played_.c_str();
    }
  }
  operator const char*() const { return path_; }

 private:
  std::string played_;
  const char* path_;
};

bool needs_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

void make_nonblocking(int fd) {
  USIW_REAL(fcntl)(fd, F_SETFL, USIW_REAL(fcntl)(fd, F_GETFL) | O_NONBLOCK);
}

/// open(2), which @p real does for all but device nodes.
template <typename Real>
int open_path(const char* path, int flags, Real real) {
  Node node = node_of(path);
  if (node == Node::kOther) return real(Path(path));
  pthread_testcancel();  // as open(2)
  usiw::NoCancel no_cancel;
  const int fd = node == Node::kAbsent ? -ENOENT : node == Node::kUverbs ? open_uverbs() : open_rdma_cm();
  if (fd >= 0 && (flags & O_NONBLOCK) != 0) make_nonblocking(fd);
  if (fd >= 0) return fd;
  errno = -fd;
  return -1;
}

int stat_of_node(const char* path, struct stat* st) {
  Node node = node_of(path);
  if (node == Node::kAbsent) {
    errno = ENOENT;
    return -1;
  }
  memset(st, 0, sizeof *st);
  st->st_mode = S_IFCHR | 0666;
  st->st_rdev = node == Node::kUverbs ? uverbs_device() : rdma_cm_device();
  st->st_nlink = 1;
  st->st_blksize = 4096;
  return 0;
}

/// stat(2), which @p real does for all but device nodes.
template <typename Stat, typename Real>
int stat_path(const char* path, Stat* st, Real real) {
  static_assert(sizeof *st == sizeof(struct stat));
  if (node_of(path) != Node::kOther) return stat_of_node(path, reinterpret_cast<struct stat*>(st));
  return real(Path(path));
}

}  // namespace

#define MODE_ARGUMENT(flags)            \
  mode_t mode = 0;                      \
  if (needs_mode(flags)) {              \
    va_list ap;                         \
    va_start(ap, flags);                \
    mode = va_arg(ap, mode_t);          \
    va_end(ap);                         \
  }

EXPORT int open(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return open_path(path, flags, [&](const char* there) { return USIW_REAL(open)(there, flags, mode); });
}

EXPORT int open64(const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return open_path(path, flags, [&](const char* there) { return USIW_REAL(open64)(there, flags, mode); });
}

EXPORT int openat(int dir, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return open_path(path, flags, [&](const char* there) { return USIW_REAL(openat)(dir, there, flags, mode); });
}

EXPORT int openat64(int dir, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return open_path(path, flags, [&](const char* there) { return USIW_REAL(openat64)(dir, there, flags, mode); });
}

EXPORT FILE* fopen(const char* path, const char* how) { return USIW_REAL(fopen)(Path(path), how); }
EXPORT FILE* fopen64(const char* path, const char* how) { return USIW_REAL(fopen64)(Path(path), how); }
EXPORT DIR* opendir(const char* path) { return USIW_REAL(opendir)(Path(path)); }

EXPORT int access(const char* path, int how) noexcept {
  if (node_of(path) != Node::kOther) {
    struct stat st;
    return stat_of_node(path, &st);
  }
  return USIW_REAL(access)(Path(path), how);
}

EXPORT ssize_t readlink(const char* path, char* buf, size_t size) noexcept {
  return USIW_REAL(readlink)(Path(path), buf, size);
}

EXPORT int stat(const char* path, struct stat* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(stat)(there, st); });
}

EXPORT int lstat(const char* path, struct stat* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(lstat)(there, st); });
}

EXPORT int stat64(const char* path, struct stat64* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(stat64)(there, st); });
}

EXPORT int lstat64(const char* path, struct stat64* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(lstat64)(there, st); });
}

EXPORT int fstatat(int dir, const char* path, struct stat* st, int flags) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(fstatat)(dir, there, st, flags); });
}

EXPORT int fstatat64(int dir, const char* path, struct stat64* st, int flags) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(fstatat64)(dir, there, st, flags); });
}

/// What ls(1) asks.
EXPORT int statx(int dir, const char* path, int flags, unsigned mask, struct statx* stx) noexcept {
  if (node_of(path) == Node::kOther) return USIW_REAL(statx)(dir, Path(path), flags, mask, stx);
  struct stat st;
  if (stat_of_node(path, &st) != 0) return -1;
  memset(stx, 0, sizeof *stx);
  stx->stx_mask = STATX_TYPE | STATX_MODE | STATX_NLINK;
  stx->stx_mode = static_cast<uint16_t>(st.st_mode);
  stx->stx_nlink = 1;
  stx->stx_blksize = static_cast<uint32_t>(st.st_blksize);
  stx->stx_rdev_major = major(st.st_rdev);
  stx->stx_rdev_minor = minor(st.st_rdev);
  return 0;
}
