// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Children of fork() that use the parent's channels, for usiw-run: nothing is behind these descriptors there, but they
// are the parent's.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "rig.h"

namespace {

void in_a_child(const std::function<void()>& body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(status, 0);
}

}  // namespace

CASE(child_reads, "fork/child-reads-the-channel", .seconds = 10) {
  EventChannel events;
  rdma_cm_id *one = events.create_id(), *other = events.create_id();
  make_event(one);
  CHECK(events.ready(1000));
  in_a_child([&] {
    uint64_t value;
    [[maybe_unused]] ssize_t n = read(events.get()->fd, &value, sizeof value);
  });
  make_event(other);
  CHECK(events.ready(1000));
  for (rdma_cm_id* id : {one, other}) {
    rdma_cm_event* event;  // at once: events.wait() would ask poll(2) first
    CHECK_CALL(rdma_get_cm_event(events.get(), &event));
    CHECK(event->id == id);
    CHECK_CALL(rdma_ack_cm_event(event));
    in_a_child([&] {  // drained again: what the parent has not read is not there
      fcntl(events.get()->fd, F_SETFL, O_NONBLOCK);
      uint64_t value;
      [[maybe_unused]] ssize_t n = read(events.get()->fd, &value, sizeof value);
      fcntl(events.get()->fd, F_SETFL, 0);
    });
  }
  CHECK(!events.ready(0));
  for (rdma_cm_id* id : {one, other}) CHECK_CALL(rdma_destroy_id(id));
}

CASE(child_writes, "fork/child-writes-to-the-channel", .seconds = 10) {
  EventChannel events;
  rdma_cm_id* id = events.create_id();
  in_a_child([&] {
    const uint64_t all = UINT64_MAX - 1;  // what an eventfd holds at most
    [[maybe_unused]] ssize_t n = write(events.get()->fd, &all, sizeof all);
  });
  make_event(id);
  events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK(!events.ready(0));
  CHECK_CALL(rdma_destroy_id(id));
}
