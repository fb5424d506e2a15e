// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_dir.cc
/// Interposes the calls of libc on directories, links and attributes, which shells, ls(1) and find(1) use besides
/// open(2) and stat(2). libc makes some of these calls inside other functions, where they cannot be interposed. So the
/// outer functions are interposed, too.
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tools/run/entry/sysfs.h"
#include "tools/run/entry/static_verbs.h"
#include "tools/run/libc/real.h"

using namespace usiw::run;

namespace {

/// Marks @p entry as a character device if it is a device node of the tree, because a host with the module has
/// character devices there. Returns @p entry.
dirent* as_node(DIR* dir, dirent* entry) {
  if (entry != nullptr && entry->d_type == DT_REG && node_at(dirfd(dir), entry->d_name) != Node::kNone)
    entry->d_type = DT_CHR;
  return entry;
}

char* program_name(char* path) {
  if (path != nullptr) to_program_name(path);
  return path;
}

/// Makes glob(3) call this library's functions on directories in place of libc's, if @p pattern contains "infiniband"
/// or "rdma_cm". Every emulated path contains one of these words. Does nothing if the program has set functions of its
/// own. Returns the flags to pass to glob(3).
int use_own_functions(const char* pattern, glob_t& out, int flags) {
  if ((flags & GLOB_ALTDIRFUNC) != 0) return flags;
  if (strstr(pattern, "infiniband") == nullptr && strstr(pattern, "rdma_cm") == nullptr) return flags;
  out.gl_opendir = [](const char* path) -> void* { return opendir(path); };
  out.gl_readdir = [](void* dir) { return readdir(static_cast<DIR*>(dir)); };
  out.gl_closedir = [](void* dir) { closedir(static_cast<DIR*>(dir)); };
  out.gl_lstat = [](const char* path, struct stat* st) { return lstat(path, st); };
  out.gl_stat = [](const char* path, struct stat* st) { return stat(path, st); };
  return flags | GLOB_ALTDIRFUNC;
}

}  // namespace

EXPORT DIR* opendir(const char* path) {
  if (strcmp(path, "/sys/class/infiniband_verbs") == 0)  // the path by which libibverbs lists the devices
    warn_if_static_verbs(__builtin_return_address(0));
  return USIW_REAL(opendir)(Path(path));
}
EXPORT dirent* readdir(DIR* dir) { return as_node(dir, USIW_REAL(readdir)(dir)); }
EXPORT_64(readdir);

EXPORT int scandir(const char* path, dirent*** list, int (*wanted)(const dirent*),
                   int (*order)(const dirent**, const dirent**)) {
  return USIW_REAL(scandir)(Path(path), list, wanted, order);
}
EXPORT_64(scandir);

EXPORT int glob(const char* pattern, int flags, int (*failed)(const char*, int), glob_t* out) noexcept {
  return USIW_REAL(glob)(pattern, use_own_functions(pattern, *out, flags), failed, out);
}
EXPORT_64(glob);

EXPORT int chdir(const char* path) noexcept { return USIW_REAL(chdir)(Path(path)); }
EXPORT char* getcwd(char* buf, size_t size) noexcept { return program_name(USIW_REAL(getcwd)(buf, size)); }
EXPORT char* get_current_dir_name() noexcept { return program_name(USIW_REAL(get_current_dir_name)()); }
EXPORT char* __getcwd_chk(char* buf, size_t size, size_t space) noexcept {
  if (size > space) __builtin_trap();
  return getcwd(buf, size);
}

EXPORT char* realpath(const char* path, char* out) noexcept {
  return program_name(USIW_REAL(realpath)(Path(path), out));
}
EXPORT char* __realpath_chk(const char* path, char* out, size_t space) noexcept {
  if (space < PATH_MAX) __builtin_trap();
  return realpath(path, out);
}
EXPORT char* canonicalize_file_name(const char* path) noexcept { return realpath(path, nullptr); }

EXPORT ssize_t readlink(const char* path, char* buf, size_t size) noexcept {
  return USIW_REAL(readlink)(Path(path), buf, size);
}
EXPORT ssize_t __readlink_chk(const char* path, char* buf, size_t size, size_t space) noexcept {
  if (size > space) __builtin_trap();
  return readlink(path, buf, size);
}
EXPORT ssize_t readlinkat(int dir, const char* path, char* buf, size_t size) noexcept {
  return USIW_REAL(readlinkat)(dir, Path(path), buf, size);
}
EXPORT ssize_t __readlinkat_chk(int dir, const char* path, char* buf, size_t size, size_t space) noexcept {
  if (size > space) __builtin_trap();
  return readlinkat(dir, path, buf, size);
}

/// Interposes the calls by which `ls -l` reads access control lists.
EXPORT ssize_t getxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return USIW_REAL(getxattr)(Path(path), name, value, size);
}
EXPORT ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  return USIW_REAL(lgetxattr)(Path(path), name, value, size);
}
EXPORT ssize_t listxattr(const char* path, char* list, size_t size) noexcept {
  return USIW_REAL(listxattr)(Path(path), list, size);
}
EXPORT ssize_t llistxattr(const char* path, char* list, size_t size) noexcept {
  return USIW_REAL(llistxattr)(Path(path), list, size);
}

EXPORT int statfs(const char* path, struct statfs* st) noexcept { return USIW_REAL(statfs)(Path(path), st); }
EXPORT_64(statfs);
EXPORT int statvfs(const char* path, struct statvfs* st) noexcept { return USIW_REAL(statvfs)(Path(path), st); }
EXPORT_64(statvfs);

EXPORT int inotify_add_watch(int fd, const char* path, uint32_t mask) noexcept {
  return USIW_REAL(inotify_add_watch)(fd, Path(path), mask);
}
