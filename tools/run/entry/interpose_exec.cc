// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file interpose_exec.cc
/// Interposes the calls of libc that execute a program. If the dynamic linker cannot load this library into the new
/// program, a line on stderr names the program, which then runs without RDMA. The caller may be a child of vfork(2), so
/// this code allocates no memory and takes no lock.
#undef _FORTIFY_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <alloca.h>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "base/machine.h"
#include "tools/run/host/loadable.h"
#include "tools/run/libc/real.h"

using namespace usiw::run;

namespace {

/// Returns true if LD_PRELOAD in @p envp names this library. If it does not, the program has removed the library on
/// purpose.
bool passes_library_on(char* const envp[]) {
  constexpr char kPreload[] = "LD_PRELOAD=";
  for (; envp != nullptr && *envp != nullptr; envp++)
    if (strncmp(*envp, kPreload, sizeof kPreload - 1) == 0) return strstr(*envp, "libusiw-run.so") != nullptr;
  return false;
}

iovec part(const char* text) { return {const_cast<char*>(text), strlen(text)}; }

void warn_if_lost(const char* path, char* const envp[]) {
  const int before = errno;
  char which[PATH_MAX];
  if (path != nullptr && passes_library_on(envp) && syscall(SYS_faccessat, AT_FDCWD, path, X_OK) == 0) {
    const Loadable loadable = is_loadable(path, which);
    const char* why = loadable == Loadable::kStatic        ? " is statically linked"
                      : loadable == Loadable::kGainsRights ? " is set-user-ID, set-group-ID or has file capabilities"
                      : loadable == Loadable::kForeign     ? " is not a " USIW_MACHINE " program"
                                                           : nullptr;
    if (why != nullptr) {
      const iovec line[] = {part("usiw-run: "), part(which), part(why), part(": it runs without RDMA\n")};
      [[maybe_unused]] const ssize_t n = writev(STDERR_FILENO, line, 4);
    }
  }
  errno = before;
}

/// Calls warn_if_lost() for the program that execvp(3) finds by @p name in PATH.
void warn_if_lost_by_name(const char* name, char* const envp[]) {
  const int before = errno;
  char path[PATH_MAX];
  if (name != nullptr && find_program(name, path)) warn_if_lost(path, envp);
  errno = before;
}

}  // namespace

EXPORT int execve(const char* path, char* const argv[], char* const envp[]) noexcept {
  warn_if_lost(path, envp);
  return USIW_REAL(execve)(path, argv, envp);
}

EXPORT int execv(const char* path, char* const argv[]) noexcept { return execve(path, argv, environ); }

EXPORT int execvpe(const char* name, char* const argv[], char* const envp[]) noexcept {
  warn_if_lost_by_name(name, envp);
  return USIW_REAL(execvpe)(name, argv, envp);
}

EXPORT int execvp(const char* name, char* const argv[]) noexcept { return execvpe(name, argv, environ); }

EXPORT int fexecve(int fd, char* const argv[], char* const envp[]) noexcept {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  warn_if_lost(path, envp);
  return USIW_REAL(fexecve)(fd, argv, envp);
}

EXPORT int posix_spawn(pid_t* pid, const char* path, const posix_spawn_file_actions_t* actions,
                       const posix_spawnattr_t* attr, char* const argv[], char* const envp[]) {
  warn_if_lost(path, envp);
  return USIW_REAL(posix_spawn)(pid, path, actions, attr, argv, envp);
}

EXPORT int posix_spawnp(pid_t* pid, const char* name, const posix_spawn_file_actions_t* actions,
                        const posix_spawnattr_t* attr, char* const argv[], char* const envp[]) {
  warn_if_lost_by_name(name, envp);
  return USIW_REAL(posix_spawnp)(pid, name, actions, attr, argv, envp);
}

/// Declares @p ap and @p argv, an array on the caller's stack. Copies @p first and the arguments that follow to the
/// array, up to and with the null pointer. The next va_arg(ap) returns the argument after the null pointer.
#define TAKE_WORDS(first, ap, argv)                                           \
  va_list ap;                                                                 \
  size_t argv##_count = 1;                                                    \
  va_start(ap, first);                                                        \
  while (va_arg(ap, char*) != nullptr) argv##_count++;                        \
  va_end(ap);                                                                 \
  auto** argv = static_cast<char**>(alloca((argv##_count + 1) * sizeof(char*))); \
  argv[0] = const_cast<char*>(first);                                         \
  va_start(ap, first);                                                        \
  for (size_t i = 1; i <= argv##_count; i++) argv[i] = va_arg(ap, char*)

EXPORT int execl(const char* path, const char* first, ...) noexcept {
  TAKE_WORDS(first, ap, argv);
  va_end(ap);
  return execv(path, argv);
}

EXPORT int execlp(const char* name, const char* first, ...) noexcept {
  TAKE_WORDS(first, ap, argv);
  va_end(ap);
  return execvp(name, argv);
}

EXPORT int execle(const char* path, const char* first, ...) noexcept {
  TAKE_WORDS(first, ap, argv);
  char* const* envp = va_arg(ap, char* const*);
  va_end(ap);
  return execve(path, argv, envp);
}
