// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_path.cc
/// Interposes the calls of libc that open or query a path. A path in an emulated directory leads into the tree
/// (sysfs.h). open(2) opens a device node in the tree as a file of this library, and stat(2) describes the node as a
/// character device, whether the program names the node by an absolute or a relative path.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "base/quiet_thread.h"
#include "tools/run/entry/sysfs.h"
#include "tools/run/libc/device_nodes.h"
#include "tools/run/libc/real.h"

using namespace usiw::run;

namespace {

bool needs_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

void make_nonblocking(int fd) {
  USIW_REAL(fcntl)(fd, F_SETFL, USIW_REAL(fcntl)(fd, F_GETFL) | O_NONBLOCK);
}

/// Reports once on stderr if this process is forbidden to make a memfd, which the file uverbs0 needs.
void explain_if_forbidden() {
  static std::atomic<bool> done;
  const int memory = memfd_create("usiw-run", MFD_CLOEXEC), error = errno;
  if (memory >= 0) USIW_REAL(close)(memory);
  if (memory >= 0 || error == EMFILE || error == ENFILE || done.exchange(true)) return;
  fprintf(stderr,
          "usiw-run: cannot open the RDMA device: memfd_create: %s; allow memfd_create(2) in the seccomp profile\n",
          strerror(error));
}

/// Opens @p path: a device node as a file of this library, every other path by @p real, libc's function. With O_PATH,
/// opens a device node by @p real, too.
template <typename Real>
int open_path(int dir, const char* path, int flags, Real real) {
  const Path there(path);
  const Node node = (flags & O_PATH) == 0 ? node_at(dir, there) : Node::kNone;
  if (node == Node::kNone) return real(there);
  pthread_testcancel();  // open(2) is a cancellation point
  usiw::NoCancel no_cancel;
  const int fd = node == Node::kUverbs ? open_uverbs() : open_rdma_cm();
  if (fd >= 0 && (flags & O_NONBLOCK) != 0) make_nonblocking(fd);
  if (fd >= 0) return fd;
  explain_if_forbidden();
  errno = -fd;
  return -1;
}

/// Describes @p path in @p st by @p real, libc's function. A device node gets the type and number of a character
/// device.
template <typename Real>
int stat_path(const char* path, struct stat* st, Real real) {
  const Path there(path);
  const int ret = real(there);
  if (ret != 0 || !S_ISREG(st->st_mode)) return ret;
  const Node node = node_of(there, st->st_dev, st->st_ino);
  if (node == Node::kNone) return ret;
  st->st_mode = S_IFCHR | 0666;
  st->st_rdev = node == Node::kUverbs ? uverbs_device() : rdma_cm_device();
  return ret;
}

/// Checks access to @p path by @p real, libc's function. Everybody may read and write a device node.
template <typename Real>
int access_path(int dir, const char* path, int how, Real real) {
  const Path there(path);
  return (how & X_OK) == 0 && node_at(dir, there) != Node::kNone ? 0 : real(there);
}

/// Versions of struct stat that programs built against a glibc before 2.33 name in their calls. On the processors that
/// usiw supports there are no others.
constexpr int kStatVersion = 1, kStatVersionKernel = 0;

template <typename Call>
int stat_of_version(int version, Call call) {
  if (version == kStatVersion || version == kStatVersionKernel) return call();
  errno = EINVAL;
  return -1;
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
  return open_path(AT_FDCWD, path, flags, [&](const char* there) { return USIW_REAL(open)(there, flags, mode); });
}

EXPORT int openat(int dir, const char* path, int flags, ...) {
  MODE_ARGUMENT(flags)
  return open_path(dir, path, flags, [&](const char* there) { return USIW_REAL(openat)(dir, there, flags, mode); });
}

/// Programs that were built with _FORTIFY_SOURCE call these two if the flags are not a constant and the call has no
/// mode. Flags that need a mode are a fault of the program, so the program ends.
EXPORT int __open_2(const char* path, int flags) {
  if (needs_mode(flags)) __builtin_trap();
  return open(path, flags);
}
EXPORT int __openat_2(int dir, const char* path, int flags) {
  if (needs_mode(flags)) __builtin_trap();
  return openat(dir, path, flags);
}

EXPORT FILE* fopen(const char* path, const char* how) { return USIW_REAL(fopen)(Path(path), how); }
EXPORT FILE* freopen(const char* path, const char* how, FILE* file) {
  return USIW_REAL(freopen)(Path(path), how, file);
}
EXPORT int access(const char* path, int how) noexcept {
  return access_path(AT_FDCWD, path, how, [&](const char* there) { return USIW_REAL(access)(there, how); });
}

EXPORT int euidaccess(const char* path, int how) noexcept {
  return access_path(AT_FDCWD, path, how, [&](const char* there) { return USIW_REAL(euidaccess)(there, how); });
}

EXPORT int eaccess(const char* path, int how) noexcept { return euidaccess(path, how); }

EXPORT int faccessat(int dir, const char* path, int how, int flags) noexcept {
  return access_path(dir, path, how, [&](const char* there) { return USIW_REAL(faccessat)(dir, there, how, flags); });
}

EXPORT int stat(const char* path, struct stat* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(stat)(there, st); });
}

EXPORT int lstat(const char* path, struct stat* st) noexcept {
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(lstat)(there, st); });
}

/// Describes a path, or with AT_EMPTY_PATH and an empty path the descriptor @p dir. A descriptor is described by
/// fstat(), which knows the files of this library.
EXPORT int fstatat(int dir, const char* path, struct stat* st, int flags) noexcept {
  const bool of_descriptor = dir >= 0 && (flags & AT_EMPTY_PATH) != 0 && is_empty(path);
  // Since Linux 6.11 a null pointer counts as an empty path. An older kernel refuses it, so the kernel is asked first.
  if (of_descriptor && USIW_REAL(fstatat)(dir, path, st, flags) == 0) return fstat(dir, st);
  return stat_path(path, st, [&](const char* there) { return USIW_REAL(fstatat)(dir, there, st, flags); });
}

/// Programs that were built against a glibc before 2.33 call these in place of stat(2), lstat(2), fstat(2), fstatat(2).
EXPORT int __xstat(int version, const char* path, struct stat* st) noexcept {
  return stat_of_version(version, [&] { return stat(path, st); });
}
EXPORT int __lxstat(int version, const char* path, struct stat* st) noexcept {
  return stat_of_version(version, [&] { return lstat(path, st); });
}
EXPORT int __fxstat(int version, int fd, struct stat* st) noexcept {
  return stat_of_version(version, [&] { return fstat(fd, st); });
}
EXPORT int __fxstatat(int version, int dir, const char* path, struct stat* st, int flags) noexcept {
  return stat_of_version(version, [&] { return fstatat(dir, path, st, flags); });
}

EXPORT_64(open);
EXPORT_64(openat);
EXPORT_64(fopen);
EXPORT_64(freopen);
EXPORT_64(stat);
EXPORT_64(lstat);
EXPORT_64(fstatat);
EXPORT int __open64_2(const char* path, int flags) { return __open_2(path, flags); }
EXPORT int __openat64_2(int dir, const char* path, int flags) { return __openat_2(dir, path, flags); }
EXPORT_64_AS(__xstat, __xstat);
EXPORT_64_AS(__lxstat, __lxstat);
EXPORT_64_AS(__fxstat, __fxstat);
EXPORT_64_AS(__fxstatat, __fxstatat);

/// Describes a path or a descriptor for ls(1) and find(1), with device nodes as character devices.
EXPORT int statx(int dir, const char* path, int flags, unsigned mask, struct statx* stx) noexcept {
  const Path there(path);
  const int ret = USIW_REAL(statx)(dir, there, flags, mask, stx);
  if (ret != 0) return ret;
  dev_t device = 0;
  if ((flags & AT_EMPTY_PATH) != 0 && is_empty(path)) {
    struct stat st;
    if (!S_ISCHR(stx->stx_mode) && dir >= 0 && fstat(dir, &st) == 0 && S_ISCHR(st.st_mode)) device = st.st_rdev;
  } else if (S_ISREG(stx->stx_mode)) {
    const Node node = node_of(there, makedev(stx->stx_dev_major, stx->stx_dev_minor), stx->stx_ino);
    device = node == Node::kUverbs ? uverbs_device() : node == Node::kRdmaCm ? rdma_cm_device() : 0;
  }
  if (device == 0) return ret;
  stx->stx_mode = S_IFCHR | 0666;
  stx->stx_rdev_major = major(device);
  stx->stx_rdev_minor = minor(device);
  return ret;
}
