// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Processes whose main thread ends before the others, for usiw-run.
#include <signal.h>
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
  try {
    wait_until("the end of the process", [&] { return waitpid(child, &status, WNOHANG) == child; });
  } catch (...) {
    kill(child, SIGKILL);  // nothing less may do
    waitpid(child, &status, 0);
    throw;
  }
  return status;
}

}  // namespace

CASE(calls, "exit/calls-after-main") {
  const int status = without_main([] {
    EventChannel events;
    rdma_cm_id* id = events.create_id();
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

CASE(ends, "exit/ends-after-its-last-thread") {
  const int status = without_main([] {
    for (int i = 0; i < 3; ++i) {
      EventChannel events;
      rdma_cm_id* id = events.create_id();
      sockaddr_in any = ipv4("0.0.0.0", 0);
      CHECK_CALL(rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&any)));
      if (i % 2 == 0) usleep(50000);  // the library's thread sleeps
      CHECK_CALL(rdma_destroy_id(id));
    }
  });
  CHECK_EQ(status, 0);
}

// The library's thread comes and goes with what it is for.
CASE(comes_and_goes, "exit/listeners-come-and-go", .seconds = 120) {
  for (int i = 0; i < 300; ++i) {
    Listener listener(site_b().ip);
    if (i % 10 != 0) continue;
    Endpoint end;
    end.resolve(site_a().ip, site_b().ip, listener.port());
    end.create_qp({});
    rdma_conn_param param = conn_param({});
    CHECK_CALL(rdma_connect(end.id, &param));
    CmEvent request = listener.wait_request();
    CHECK_CALL(rdma_reject(request.id, nullptr, 0));
    end.events.expect(RDMA_CM_EVENT_REJECTED);
    CHECK_CALL(rdma_destroy_id(request.id));
    end.destroy();
  }
}
