// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Processes whose main thread ends before the others, for usiw-run.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "rig.h"
#include "run_thread.h"

namespace {

/// Runs @p body in a process whose main thread has ended; how that process ends, as waitpid(2) says it.
int without_main(const std::function<void()>& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(10 * tap::patience());
    static std::function<void()> rest = body;  // beyond main's frames
    new Thread([] {
      usleep(100000);
      try {
        rest();
      } catch (const std::exception& e) {
        std::printf("%s\n", e.what());
        std::fflush(stdout);
        _exit(1);
      }
    });
    pthread_exit(nullptr);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

CASE(calls, "exit/calls-after-main") {
  const int status = without_main([] {
    EventChannel events;
    rdma_cm_id* id;
    CHECK_CALL(rdma_create_id(events.get(), &id, nullptr, RDMA_PS_TCP));
    std::vector<char> memory(4096);
    ibv_mr* mr = ibv_reg_mr(pd_a(), memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    CHECK(mr != nullptr);
    CHECK_EQ(ibv_dereg_mr(mr), 0);
    errno = 0;
    CHECK(ibv_reg_mr(pd_a(), nullptr, 4096, IBV_ACCESS_LOCAL_WRITE) == nullptr);
    CHECK_EQ(errno, EFAULT);
    CHECK_CALL(rdma_destroy_id(id));
    _exit(0);
  });
  CHECK_EQ(status, 0);
}
