// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// What the program itself owns must not change by opening a device and using it: signals, affinity,
// output, children; and how much CPU is used while nothing happens.
#include <dirent.h>
#include <fcntl.h>
#include <locale.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "rig.h"

namespace {

std::string read_file(const std::string& path) {
  std::string text;
  if (FILE* f = std::fopen(path.c_str(), "r")) {
    char buffer[4096];
    size_t n;
    while ((n = std::fread(buffer, 1, sizeof buffer, f)) > 0) text.append(buffer, n);
    std::fclose(f);
  }
  return text;
}

std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> names;
  if (DIR* d = opendir(folder.c_str())) {
    while (dirent* e = readdir(d))
      if (e->d_name[0] != '.') names.push_back(e->d_name);
    closedir(d);
  }
  return names;
}

/// CPU time of each thread of this process in ms.
std::map<std::string, long> thread_cpu() {
  std::map<std::string, long> cpu;
  for (const std::string& tid : list("/proc/self/task")) {
    const std::string stat = read_file("/proc/self/task/" + tid + "/stat");
    const size_t at = stat.rfind(')');
    unsigned long user = 0, system = 0;
    if (at == std::string::npos ||
        std::sscanf(stat.c_str() + at + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
      continue;
    cpu[tid] = static_cast<long>((user + system) * 1000 / static_cast<unsigned long>(sysconf(_SC_CLK_TCK)));
  }
  return cpu;
}

long process_cpu_ms() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1000;
}

volatile sig_atomic_t alarms;

struct Before {
  sigset_t mask;
  struct sigaction actions[65];
  cpu_set_t affinity;
  std::string limits, cwd, locale;
  mode_t umask_bits;

  Before() {
    sigprocmask(SIG_SETMASK, nullptr, &mask);
    for (int s = 1; s < 65; ++s) sigaction(s, nullptr, &actions[s]);
    sched_getaffinity(0, sizeof affinity, &affinity);
    limits = read_file("/proc/self/limits");
    char path[4096];
    cwd = getcwd(path, sizeof path);
    locale = setlocale(LC_ALL, nullptr);
    umask_bits = umask(022);
    umask(umask_bits);
  }

  void compare() const {
    const Before now;
    for (int s = 1; s < 65; ++s) {
      if (s == SIGALRM || s == 32 || s == 33) continue;  // the watch of tap_main.cc, the C library
      CHECK_EQ(sigismember(&now.mask, s), sigismember(&mask, s));
      if (now.actions[s].sa_handler != actions[s].sa_handler) FAIL("the handler of signal %d has changed", s);
    }
    CHECK(CPU_EQUAL(&now.affinity, &affinity));
    for (size_t at = 0, end; at < limits.size(); at = end + 1) {
      end = limits.find('\n', at);
      if (now.limits.substr(at, end - at) != limits.substr(at, end - at))
        FAIL("'%s' has become '%s'", limits.substr(at, end - at).c_str(), now.limits.substr(at, end - at).c_str());
    }
    CHECK(now.cwd == cwd);
    CHECK(now.locale == locale);
    CHECK_EQ(now.umask_bits, umask_bits);
  }
};

}  // namespace

// First of all cases, so that this process has not opened a device yet.
CASE(untouched, "process/state-before-and-after", .core = true) {
  signal(SIGUSR1, [](int) {});
  signal(SIGPIPE, SIG_IGN);
  sigset_t some;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR2);
  sigprocmask(SIG_BLOCK, &some, nullptr);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(1, &one);
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  if (CPU_COUNT(&all) > 1) sched_setaffinity(0, sizeof one, &one);
  const Before before;

  // Output of a library would come in the way of a program's own: catch all of it.
  FILE* caught = std::tmpfile();
  CHECK(caught != nullptr);
  std::fflush(stdout);
  std::fflush(stderr);
  const int out = dup(1), err = dup(2);
  dup2(fileno(caught), 1);
  dup2(fileno(caught), 2);
  std::string problem;
  try {
    Pair p;
    exercise(p);
    p.close();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  std::fflush(stdout);
  std::fflush(stderr);
  dup2(out, 1);
  dup2(err, 2);
  close(out);
  close(err);
  char text[200] = {};
  std::rewind(caught);
  const size_t n = std::fread(text, 1, sizeof text - 1, caught);
  std::fclose(caught);
  if (n) FAIL("output of the libraries: %s", text);
  if (!problem.empty()) FAIL("%s", problem.c_str());
  before.compare();
  sched_setaffinity(0, sizeof all, &all);
}

// Threads that are not the program's have all signals blocked, so that none is delivered there.
CASE(thread_signals, "process/no-signal-goes-to-other-threads", .core = true) {
  Pair p;
  exercise(p);
  for (const std::string& tid : list("/proc/self/task")) {
    if (std::stoi(tid) == getpid()) continue;
    const std::string status = read_file("/proc/self/task/" + tid + "/status");
    const size_t at = status.find("SigBlk:\t");
    CHECK(at != std::string::npos);
    const uint64_t blocked = std::stoull(status.substr(at + 8, 16), nullptr, 16);
    for (int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGHUP, SIGIO})
      if (!(blocked & (1ull << (s - 1))))
        FAIL("thread %s takes signal %d (it blocks %llx)", tid.c_str(), s, static_cast<unsigned long long>(blocked));
  }
  p.close();
}

CASE(descriptors, "process/descriptors-close-on-exec", .core = true) {
  Pair p;
  exercise(p);
  for (const std::string& name : list("/proc/self/fd")) {
    const int fd = std::stoi(name);
    const int flags = fcntl(fd, F_GETFD);
    if (fd <= 2 || flags < 0 || (flags & FD_CLOEXEC)) continue;
    char target[256] = {};
    if (readlink(("/proc/self/fd/" + name).c_str(), target, sizeof target - 1) < 0) continue;
    // What the test driver handed down is not a library's. (The event poll of DPDK's interrupt thread is
    // made anew at any time, and holds nothing that would survive.)
    if (std::strstr(target, "[eventpoll]")) continue;
    if (std::strncmp(target, "pipe:", 5) == 0 || (target[0] == '/' && std::strncmp(target, "/dev/infiniband/", 16)))
      continue;
    FAIL("descriptor %d (%s) would survive exec", fd, target);
  }
  p.close();
}

// Signals that interrupt system calls again and again disturb nothing.
CASE(interrupted, "process/interrupted-every-millisecond", .core = true) {
  struct sigaction action = {}, old;
  action.sa_handler = [](int) { alarms = alarms + 1; };
  sigaction(SIGVTALRM, &action, &old);
  itimerval every = {{0, 1000}, {0, 1000}}, none = {};
  setitimer(ITIMER_VIRTUAL, &every, nullptr);
  std::string problem;
  try {
    for (int i = 0; i < 5 || alarms < 20; ++i) {  // the timer counts processor time: where all is fast, more rounds
      Pair p;
      for (int k = 0; k < 10; ++k) exercise(p);
      p.close();
    }
  } catch (const std::exception& e) {
    problem = e.what();
  }
  setitimer(ITIMER_VIRTUAL, &none, nullptr);
  sigaction(SIGVTALRM, &old, nullptr);
  if (!problem.empty()) FAIL("%s", problem.c_str());
  tap::note("%d signals", static_cast<int>(alarms));
  CHECK(alarms > 0);
}

CASE(forks, "process/children-that-exit-or-exec", .core = true) {
  Pair p;
  for (int i = 0; i < 9; ++i) {
    exercise(p);
    std::fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      if (i % 3 == 0) std::exit(0);
      if (i % 3 == 1) execl("/bin/true", "true", nullptr);
      _exit(0);
    }
    exercise(p);  // while the child may still be there
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    if (status) FAIL("child %d ended with wait status 0x%x", i, status);
    exercise(p);
  }
  p.close();
}

// A child that lives on holds nothing of the parent's: connections close, and data is not taken away.
CASE(fork_lives, "process/child-that-lives-on", .core = true) {
  Pair p;
  exercise(p);
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  std::string problem;
  try {
    for (int i = 0; i < 20; ++i) exercise(p);
    p.close();
    Pair other;
    exercise(other);
    other.close();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  if (!problem.empty()) FAIL("%s", problem.c_str());
}

// Waiting in completion channels costs next to nothing, with connections open.
CASE(idle_events, "cpu/idle-in-event-mode", .core = true) {
  Options options;
  options.with_channel = true;
  Pair p(options);
  exercise(p);
  CHECK_EQ(ibv_req_notify_cq(p.a.recv_cq, 0), 0);
  usleep(300000);
  const long before = process_cpu_ms();
  CHECK(!wait_cq_event(p.a.recv_channel, 4000));
  const long used = process_cpu_ms() - before;
  tap::note("%ld ms of CPU in 4 s of waiting", used);
  if (used > 400 * static_cast<long>(tap::patience())) FAIL("%ld ms of CPU in 4 s of waiting for an event", used);
  p.close();
}

// A device that is open and not used costs nothing either.
CASE(idle_open, "cpu/idle-without-connections", .core = true) {
  (void)pd_a();
  (void)pd_b();
  usleep(300000);
  const long before = process_cpu_ms();
  usleep(3000000);
  const long used = process_cpu_ms() - before;
  if (used > 300 * static_cast<long>(tap::patience())) FAIL("%ld ms of CPU in 3 s of doing nothing", used);
}

// A program that polls keeps one CPU busy, its own thread's, and no other thread beside it.
CASE(one_poller, "cpu/polling-burns-one-thread", .core = true) {
  Pair p;
  exercise(p);
  usleep(300000);
  const auto before = thread_cpu();
  expect_no_wc(p.a.recv_cq, 3000);
  int burning = 0;
  for (const auto& [tid, cpu] : thread_cpu()) {
    const auto was = before.find(tid);
    const long used = cpu - (was == before.end() ? 0 : was->second);
    tap::note("thread %s: %ld ms", tid.c_str(), used);
    if (used > 900) ++burning;
  }
  if (burning > 1) FAIL("%d threads burn CPU while one polls", burning);
  p.close();
}
