// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// pthread_cancel(3), for usiw-run: calls that wait end by it as read(2) and write(2) do, and none is left in the
// middle.
#include <pthread.h>
#include <unistd.h>

#include <csignal>

#include "rig.h"
#include "run_thread.h"

namespace {

/// A thread that has been cancelled before it makes @p call; then others still can call.
void cancelled_before(const std::function<void()>& call) {
  volatile bool go = false;
  Thread thread([&] {
    while (!go) {  // no cancellation point
    }
    call();
  });
  thread.cancel();
  go = true;
  CHECK(thread.was_cancelled());
  EventChannel events;
  CHECK_CALL(rdma_destroy_id(events.create_id()));
}

}  // namespace

CASE(waits, "cancel/waits-for-events") {
  signal(SIGUSR1, [](int) {});  // restarts what it interrupts
  EventChannel events;
  rdma_cm_id* id = events.create_id();
  Thread cm([&] {
    rdma_cm_event* event;
    rdma_get_cm_event(events.get(), &event);
  });
  ibv_comp_channel* channel = ibv_create_comp_channel(context_of(site_a().device));
  Thread cq([&] {
    ibv_cq* which;
    void* of;
    ibv_get_cq_event(channel, &which, &of);
  });
  for (Thread* thread : {&cm, &cq}) {
    settle();
    pthread_kill(thread->id(), SIGUSR1);
    settle();
    thread->cancel();
    CHECK(thread->was_cancelled());
  }
  make_event(id);  // and nothing is lost
  events.expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  CHECK_CALL(rdma_destroy_id(id));
  CHECK_EQ(ibv_destroy_comp_channel(channel), 0);
}

CASE(not_now, "cancel/not-while-it-is-off") {
  EventChannel events;
  rdma_cm_id* id = events.create_id();
  int got = -1, type = -1;
  Thread thread([&] {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, nullptr);
    rdma_cm_event* event;
    got = rdma_get_cm_event(events.get(), &event);
    if (got == 0) rdma_ack_cm_event(event);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, nullptr);
    pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type);
    pthread_testcancel();
  });
  settle();
  thread.cancel();
  settle();
  CHECK_EQ(got, -1);
  make_event(id);
  CHECK(thread.was_cancelled());
  CHECK_EQ(got, 0);
  CHECK_EQ(type, PTHREAD_CANCEL_DEFERRED);
  CHECK_CALL(rdma_destroy_id(id));
}

CASE(before_cm, "cancel/before-rdma-cm") {
  EventChannel events;
  rdma_cm_id *one = events.create_id(), *other = events.create_id();
  cancelled_before([&] { make_event(one); });
  cancelled_before([&] {
    sockaddr_in at = ipv4(site_b().ip, 0);
    rdma_bind_addr(other, reinterpret_cast<sockaddr*>(&at));
  });
  CHECK_CALL(rdma_destroy_id(one));
  CHECK_CALL(rdma_destroy_id(other));
}

CASE(before_verbs, "cancel/before-verbs") {
  ibv_pd* pd = pd_a();
  std::vector<char> memory(4096);
  cancelled_before([&] { ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE); });
}
