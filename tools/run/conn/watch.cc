// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/watch.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "base/file_limit.h"
#include "tools/run/conn/watch_table.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/print_line.h"
#include "tools/run/libc/real.h"

/// libc's clone(2) under its second name. ThreadSanitizer interposes the first name and treats the call as a fork(2),
/// at which it ends a program that has threads. The program need not end here, because the child only executes another
/// program.
extern "C" int __clone(int (*run)(void*), void* stack, int flags, void* arg, ...);

namespace usiw::run {
namespace {

WatchEntry* g_watched = nullptr;
size_t g_watch_entries = 0;
int g_watch_socket = -1;
bool g_watch_failed = false;

constexpr size_t kStackSize = 64 << 10;

struct WatcherStart {
  const char* path;
  int socket, memory;
  char* second_stack;
};

/// Executes the watcher in a child process. The child shares its memory with the program until execve(2), so it only
/// makes system calls. It calls syscall(2), not libc's functions for them: another preloaded library may interpose
/// those functions and keep tables of the program's descriptors, which the child must not change.
int exec_watcher(void* arg) {
  auto& s = *static_cast<WatcherStart*>(arg);
  char* const argv[] = {const_cast<char*>(s.path), const_cast<char*>(kWatchArgument), nullptr};
  char* const envp[] = {nullptr};
  // Both descriptors are first copied to numbers above the two targets, so that neither dup3 overwrites the source of
  // the other.
  const long socket = syscall(SYS_fcntl, s.socket, F_DUPFD, kWatchMemory + 1);
  const long memory = syscall(SYS_fcntl, s.memory, F_DUPFD, kWatchMemory + 1);
  if (syscall(SYS_dup3, socket, kWatchSocket, 0) >= 0 && syscall(SYS_dup3, memory, kWatchMemory, 0) >= 0) {
    const uint64_t none = 0;  // the kernel's sigset_t
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
    syscall(SYS_execve, s.path, argv, envp);
  }
  syscall(SYS_exit_group, 127);
  __builtin_unreachable();
}

/// Starts the watcher from an intermediate process, which then exits. So the program's wait(2) and SIGCHLD do not
/// concern the watcher, unless the program adopts orphans (as PID 1 or by PR_SET_CHILD_SUBREAPER). The intermediate
/// process has no exit signal, so the program does not notice its end either.
int start_and_leave(void* arg) {
  auto& s = *static_cast<WatcherStart*>(arg);
  __clone(exec_watcher, s.second_stack + kStackSize, CLONE_VM | CLONE_VFORK | SIGCHLD, arg);
  syscall(SYS_exit_group, 0);
  __builtin_unreachable();
}

bool spawn(int socket, int memory) {
  size_t size = 2 * kStackSize;
  void* stacks = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) return false;
  WatcherStart start{settings().watcher.c_str(), socket, memory, static_cast<char*>(stacks) + kStackSize};
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  int pid = __clone(start_and_leave, static_cast<char*>(stacks) + kStackSize, CLONE_VM | CLONE_VFORK, &start);
  if (pid > 0)
    while (waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  munmap(stacks, size);
  return pid > 0;
}

/// Resizes @p memory, the memfd of the table, for kWatchEntries entries. Halves the number of entries while that fails,
/// down to kLeastWatchEntries. Returns the number for which it succeeds, or 0.
size_t size_table(int memory) {
  for (size_t entries = kWatchEntries; entries >= kLeastWatchEntries; entries /= 2)
    if (resize_memory(memory, static_cast<off_t>(entries * sizeof(WatchEntry))) == 0) return entries;
  return 0;
}

bool start_watcher() {
  int pair[2];
  const Fd memory(memfd_create("usiw-watch", MFD_CLOEXEC));
  if (memory < 0 || (g_watch_entries = size_table(memory)) == 0 ||
      socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return false;
  const Fd watchers(pair[1]);
  g_watch_socket = out_of_the_way(Fd(pair[0])).release();
  void* at = mmap(nullptr, g_watch_entries * sizeof(WatchEntry), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  const bool started = at != MAP_FAILED && spawn(watchers, memory);
  if (started) g_watched = static_cast<WatchEntry*>(at);
  return started;
}

}  // namespace

int watch_add(const Tuple& tuple, uint32_t local_isn, uint32_t peer_isn) {
  if (settings().watcher.empty() || g_watch_failed) return -1;
  if (g_watched == nullptr && !start_watcher()) {
    g_watch_failed = true;
    const int error = errno;
    print_line(std::string("usiw-run: no watcher: ") + strerror(error) + (error == EFBIG ? " (raise ulimit -f)" : "") +
               "; if this process is killed, its peers wait for USIW_PEER_TIMEOUT\n");
    return -1;
  }
  static size_t next = 0;
  for (size_t tries = 0; tries < g_watch_entries; tries++) {
    size_t i = next++ % g_watch_entries;
    WatchEntry& e = g_watched[i];
    if (e.live.load(std::memory_order_relaxed) != 0) continue;
    e.local_isn = local_isn;
    e.peer_isn = peer_isn;
    e.ends = tuple;
    if (tuple.local.scope == 0) e.ends.local.scope = tuple.remote.scope;  // as cm_tuple() does
    e.live.store(1, std::memory_order_release);
    return static_cast<int>(i);
  }
  return -1;
}

void watch_remove(int entry) {
  if (entry >= 0 && g_watched != nullptr) g_watched[entry].live.store(0, std::memory_order_release);
}

void watch_abandon() {
  if (g_watch_socket >= 0) USIW_REAL(close)(g_watch_socket);
  if (g_watched != nullptr) munmap(g_watched, g_watch_entries * sizeof(WatchEntry));
  g_watch_socket = -1;
  g_watched = nullptr;
}

}  // namespace usiw::run
