// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Programs that fork, for usiw-run: which plays the kernel in the same process, and so has locks that fork() could copy
// while another thread has them.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "tap.h"

CASE(fork_and_open, "fork/children-open-while-threads-call", .seconds = 120) {
  const int fd = open("/dev/infiniband/rdma_cm", O_RDWR);
  if (fd < 0) FAIL("open: %s", std::strerror(errno));
  std::atomic<bool> stop = false;
  auto call = [&] {
    char byte = 0;
    while (!stop) [[maybe_unused]] ssize_t n = write(fd, &byte, 1);  // too short for a command
  };
  std::thread one(call), two(call);
  int hung = 0, failed = 0;
  for (int i = 0; i < 400 && hung == 0 && failed == 0; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(5 * tap::patience());
      _exit(open("/dev/infiniband/rdma_cm", O_RDWR) < 0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) ++hung;
    else if (status != 0) ++failed;
  }
  stop = true;
  one.join();
  two.join();
  CHECK_EQ(hung, 0);
  CHECK_EQ(failed, 0);
}
