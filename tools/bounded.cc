// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/bounded.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace usiw::tools {
namespace {

using Clock = std::chrono::steady_clock;

/// Time that a killed child gets to end. A child that takes longer is blocked in the kernel, and is abandoned.
constexpr std::chrono::milliseconds kDying{500};

[[noreturn]] void run_child(const std::function<int()>& body, int out) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int in = open("/dev/null", O_RDONLY);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  const int status = body();
  std::fflush(stdout);
  _exit(status);
}

/// Appends the contents of the pipe to @p out. Returns an empty string, or the reason why the end of the pipe was not
/// reached: time, or the limit of the output.
std::string read_all(int fd, Clock::time_point end, std::string& out) {
  char buffer[4096];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready{fd, POLLIN, 0};
    const int n = left <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "did not end in time";
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got <= 0) return {};
    out.append(buffer, std::min(static_cast<size_t>(got), kBoundedOutput - out.size()));
    if (out.size() == kBoundedOutput) return "printed more than is shown here";
  }
}

/// Waits for the child until @p end. Returns true and sets @p status if the child has ended.
bool wait_for(pid_t child, Clock::time_point end, int& status) {
  pid_t ended;
  while ((ended = waitpid(child, &status, WNOHANG)) == 0 && Clock::now() < end) usleep(1000);
  return ended != 0;
}

/// Waits for the child until @p end. Kills the child if it still runs then. Returns an empty string, or the reason why
/// the child failed.
std::string end_of(pid_t child, Clock::time_point end) {
  int status = 0;
  if (!wait_for(child, end, status)) {
    kill(-child, SIGKILL);
    wait_for(child, Clock::now() + kDying, status);
    return "did not end in time";
  }
  if (WIFSIGNALED(status)) return std::string("was killed: ") + strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "failed: exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

std::string bounded(const std::function<int()>& body, std::chrono::milliseconds limit) {
  const auto end = Clock::now() + limit;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::string("(no pipe: ") + strerror(errno) + ")\n";
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) run_child(body, ends[1]);
  close(ends[1]);
  std::string out, why = std::string("did not start: ") + strerror(errno);
  if (child > 0) {
    setpgid(child, child);
    why = read_all(ends[0], end, out);
    const std::string ended = end_of(child, why.empty() ? end : Clock::now());
    if (why.empty()) why = ended;
  }
  close(ends[0]);
  if (!out.empty() && out.back() != '\n') out += '\n';
  if (!why.empty()) return out + "(this part " + why + ")\n";
  return out.empty() ? "(nothing)\n" : out;
}

}  // namespace usiw::tools
