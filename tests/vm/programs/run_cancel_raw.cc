// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// pthread_cancel(3) at any time, for usiw-run: what is cancelled in a call has done all of it or nothing. Without
// librdmacm, whose own locks would stay locked.
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "run_thread.h"

namespace {

uint64_t now_us() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000 + static_cast<uint64_t>(t.tv_nsec) / 1000;
}

}  // namespace

CASE(any_time, "cancel/at-any-time", .seconds = 120) {
  for (int i = 0; i < 500; ++i) {
    const int fd = open("/dev/infiniband/rdma_cm", O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0);
    std::atomic<bool> started = false;
    Thread thread([&] {
      started = true;
      for (;;) {
        struct {
          rdma_ucm_cmd_hdr header;
          rdma_ucm_create_id body;
        } create = {};
        rdma_ucm_create_id_resp id;
        create.header = {RDMA_USER_CM_CMD_CREATE_ID, sizeof create.body, sizeof id};
        create.body.response = reinterpret_cast<uintptr_t>(&id);
        create.body.ps = RDMA_PS_TCP;
        if (write(fd, &create, sizeof create) != sizeof create) return;
        struct {
          rdma_ucm_cmd_hdr header;
          rdma_ucm_bind body;
        } bind = {};
        sockaddr_in at = {};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        bind.header = {RDMA_USER_CM_CMD_BIND, sizeof bind.body, 0};
        bind.body.id = id.id;
        bind.body.addr_size = sizeof at;
        std::memcpy(&bind.body.addr, &at, sizeof at);
        if (write(fd, &bind, sizeof bind) != sizeof bind) return;
      }
    });
    while (!started) {
    }
    const uint64_t until = now_us() + static_cast<uint64_t>(i % 200);
    while (now_us() < until) {
    }
    thread.cancel();
    CHECK(thread.was_cancelled());
    CHECK_EQ(close(fd), 0);
  }
}
