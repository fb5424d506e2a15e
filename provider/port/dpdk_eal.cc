// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "port/dpdk_eal.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <cstdlib>
#include <mutex>
#include <set>
#include <vector>

#include "base/quiet_thread.h"

namespace usiw {
namespace {

/// Address space for every mempool and ring of the process; pages are touched as used.
constexpr unsigned kMemoryMib = 256;

/// Without a rank, like the next one: whoever holds it waits for init_thread(), which takes no lock of the provider's
/// but g_log_lock, a leaf.
std::mutex g_lock;
pid_t g_owner = 0;  ///< process that initialised EAL
std::string g_failure;

std::mutex g_log_lock;
std::string g_log_line;

ssize_t note_log(void*, const char* buf, size_t len) {
  std::lock_guard hold(g_log_lock);
  g_log_line.assign(buf, len);
  while (!g_log_line.empty() && g_log_line.back() == '\n') g_log_line.pop_back();
  return static_cast<ssize_t>(len);
}

/// "0@(cpus of the calling process)": the main lcore may run wherever the process may.
std::string lcores_argument() {
  cpu_set_t set;
  std::string cpus;
  if (sched_getaffinity(getpid(), sizeof set, &set) == 0)
    for (int i = 0; i < CPU_SETSIZE; i++)
      if (CPU_ISSET(i, &set)) cpus += (cpus.empty() ? "" : ",") + std::to_string(i);
  return "0@(" + (cpus.empty() ? std::string("0") : cpus) + ")";
}

/// Descriptors of this process that are timers, event polls or pipes: what EAL opens.
std::set<int> internal_descriptors() {
  std::set<int> found;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return found;
  while (dirent* entry = readdir(folder)) {
    char target[64] = {};
    if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) > 0 &&
        (strncmp(target, "anon_inode:", 11) == 0 || strncmp(target, "pipe:", 5) == 0))
      found.insert(atoi(entry->d_name));
  }
  closedir(folder);
  return found;
}

/// What EAL changes in the process beside what it is asked for, put back: it raises the
/// limit of open files, and its descriptors would survive an exec.
class Undo {
 public:
  Undo() : before_(internal_descriptors()) { getrlimit(RLIMIT_NOFILE, &files_); }
  ~Undo() {
    setrlimit(RLIMIT_NOFILE, &files_);
    for (int fd : internal_descriptors())
      if (!before_.contains(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

 private:
  std::set<int> before_;
  rlimit files_{};
};

void* init_thread(void*) {
  std::vector<std::string> args = {
      "usiw",          "--no-huge",        "--no-shconf",
      "--no-pci",      "--no-telemetry",   "--log-level=*:error",
      "-m",            std::to_string(kMemoryMib),
      "--lcores",      lcores_argument(),  "--file-prefix",
      "usiw-" + std::to_string(getpid())};
  std::vector<char*> argv;
  for (auto& a : args) argv.push_back(a.data());
  argv.push_back(nullptr);
  // EAL permutes argv: a copy of the pointers is its own, the strings stay ours.
  if (rte_eal_init(static_cast<int>(args.size()), argv.data()) < 0) {
    std::string why = eal_last_error();
    g_failure = why.empty() ? rte_strerror(rte_errno) : why;
  }
  return nullptr;
}

}  // namespace

std::string eal_last_error() {
  std::lock_guard hold(g_log_lock);
  std::string line;
  line.swap(g_log_line);
  return line;
}

std::string eal_init() {
  std::lock_guard hold(g_lock);
  if (g_owner != 0)
    return g_owner == getpid() ? g_failure
                               : "the parent of this process has initialised DPDK before fork()";
  g_owner = getpid();

  cookie_io_functions_t io{};
  io.write = note_log;
  if (FILE* log = fopencookie(nullptr, "w", io)) {
    setvbuf(log, nullptr, _IOLBF, 256);
    rte_openlog_stream(log);
  }

  Undo undo;
  pthread_t thread;
  if (int rc = start_quiet_thread(thread, init_thread, nullptr); rc != 0)
    g_failure = strerror(rc);
  else
    pthread_join(thread, nullptr);
  return g_failure;
}

}  // namespace usiw
