// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file settle_test.cc
/// The kernel names CQs and SRQs by handles, and gives the handle of a destroyed object to the next one. An event that
/// one thread raises while another destroys the object must not reach the next one: the handle stays taken until the
/// event has been raised. Here the kernel is a table of handles in which an event can be stopped.
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/context.h"
#include "runtime/kernel_methods.h"
#include "runtime/runtime.h"

namespace {

using namespace usiw;

class Kernel {
 public:
  uint32_t create() {
    std::lock_guard lock(lock_);
    uint32_t handle = 1;
    while (objects_.count(handle) != 0) ++handle;
    objects_[handle] = next_++;
    return handle;
  }
  void destroy(uint32_t handle) {
    std::lock_guard lock(lock_);
    objects_.erase(handle);
    changed_.notify_all();
  }
  int raise(uint32_t handle) {
    std::unique_lock lock(lock_);
    inside_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !stopped_; });
    if (objects_.count(handle) == 0) return EINVAL;
    ++events_[objects_[handle]];
    return 0;
  }

  /// Events come no further than into the kernel, until go_on().
  void stop() {
    std::lock_guard lock(lock_);
    stopped_ = true;
    inside_ = false;
  }
  void wait_for_event() {
    std::unique_lock lock(lock_);
    changed_.wait(lock, [&] { return inside_; });
  }
  void go_on() {
    std::lock_guard lock(lock_);
    stopped_ = false;
    changed_.notify_all();
  }
  /// True if it has not been destroyed for 0.1 s.
  bool stays(uint32_t handle) {
    std::unique_lock lock(lock_);
    return !changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return objects_.count(handle) == 0; });
  }
  /// Number of the object, 0 for the first.
  int object(uint32_t handle) {
    std::lock_guard lock(lock_);
    return objects_.at(handle);
  }
  int events(int object) {
    std::lock_guard lock(lock_);
    return events_[object];
  }

 private:
  std::mutex lock_;
  std::condition_variable changed_;
  std::map<uint32_t, int> objects_;  ///< by handle
  std::map<int, int> events_;        ///< raised so far, by object
  int next_ = 0;
  bool stopped_ = false, inside_ = false;
};
Kernel* kernel = nullptr;

}  // namespace

// ---- In place of kernel_methods.cc and rdma_core/commands.c ----

namespace usiw {
int kernel_event_file(int) { return -ENODEV; }
int kernel_cq_event(int, uint32_t handle, usiw_cq_event_kind) { return kernel->raise(handle); }
int kernel_srq_event(int, uint32_t handle, usiw_srq_event_kind) { return kernel->raise(handle); }
int kernel_qp_report(int, uint32_t, const usiw_qp_report&) { return 0; }
}  // namespace usiw

extern "C" {
int usiw_cmd_create_cq(ibv_context* ctx, int cqe, ibv_comp_channel*, int, ibv_cq* cq) {
  cq->context = ctx;
  cq->cqe = cqe;
  cq->handle = kernel->create();
  return 0;
}
int usiw_cmd_resize_cq(ibv_cq*, int) { return 0; }
int usiw_cmd_destroy_cq(ibv_cq* cq) {
  kernel->destroy(cq->handle);
  return 0;
}
int usiw_cmd_create_srq(ibv_pd* pd, ibv_srq* srq, ibv_srq_init_attr*) {
  srq->context = pd->context;
  srq->pd = pd;
  srq->handle = kernel->create();
  return 0;
}
int usiw_cmd_modify_srq(ibv_srq*, ibv_srq_attr*, int) { return 0; }
int usiw_cmd_query_srq(ibv_srq*, ibv_srq_attr*) { return 0; }
int usiw_cmd_destroy_srq(ibv_srq* srq) {
  kernel->destroy(srq->handle);
  return 0;
}
int usiw_cmd_dealloc_pd(ibv_pd*) { return 0; }
int usiw_cmd_query_qp(ibv_qp*, ibv_qp_attr*, int, ibv_qp_init_attr*) { return 0; }
}

namespace {

class Settle : public testing::Test {
 protected:
  Settle() {
    kernel = &kernel_;
    context_.runtime = &runtime_;
    device_.state = &context_;
    pd_.ibv.context = ibv();
    pd_.number = 1;
  }
  ibv_context* ibv() { return &device_.ibv; }
  ibv_cq* cq() {
    ibv_cq* made = usiw_verb_create_cq(ibv(), 16, &channel_, 0);
    EXPECT_NE(made, nullptr);
    return made;
  }
  ibv_srq* srq() {
    ibv_srq_init_attr attr{};
    attr.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
    ibv_srq* made = usiw_verb_create_srq(&pd_.ibv, &attr);
    EXPECT_NE(made, nullptr);
    return made;
  }

  /// One thread destroys the object 0 while another one, in event(), raises an event of it; a third makes the next.
  template <typename Object, typename Event, typename Destroy, typename Make>
  Object* next_one(Object* object, Event event, Destroy destroy, Make make) {
    const uint32_t handle = object->handle;
    kernel_.stop();
    std::thread raises(event);
    kernel_.wait_for_event();
    std::thread destroys([&] { EXPECT_EQ(0, destroy(object)); });
    EXPECT_TRUE(kernel_.stays(handle)) << "destroyed before its event had been raised";
    Object* next = nullptr;
    std::thread makes([&] { next = make(); });
    EXPECT_TRUE(kernel_.stays(handle));
    kernel_.go_on();
    raises.join();
    destroys.join();
    makes.join();
    EXPECT_EQ(1, kernel_.events(0));
    EXPECT_EQ(0, kernel_.events(kernel_.object(next->handle))) << "the event of the one before";
    return next;
  }

  Kernel kernel_;
  Runtime runtime_{"usiw_test", {}, 0};
  usiw_context device_{};
  Context context_{ibv(), -1, eventfd(0, EFD_CLOEXEC), {}};
  ibv_comp_channel channel_{};
  VPd pd_{};
};

TEST_F(Settle, event_of_a_cq_does_not_reach_the_next_one) {
  ibv_cq* const first = cq();
  VQp owner{};
  owner.context = &context_;
  QpAttr attr{};
  attr.qpn = 1;
  attr.pd = pd_.number;
  attr.send_cq = attr.recv_cq = from(first)->cq;
  attr.max_send_wr = attr.max_recv_wr = 4;
  attr.max_send_sge = attr.max_recv_sge = 1;
  attr.owner = &owner;
  Qp* const qp = runtime_.hold()->qp_create(attr);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(0, qp->post_recv(1, {}));
  qp->ring_recv();
  ASSERT_EQ(0, usiw_verb_req_notify_cq(first, 0));
  const auto flush = [&] {
    const EngineGate::Held held = runtime_.hold();
    held->qp_abort(qp);
    held->qp_destroy(qp);
  };
  EXPECT_EQ(0, usiw_verb_destroy_cq(next_one(first, flush, usiw_verb_destroy_cq, [&] { return cq(); })));
}

TEST_F(Settle, limit_event_of_an_srq_does_not_reach_the_next_one) {
  ibv_srq* const first = srq();
  const auto arm = [&] { runtime_.hold()->srq_arm(from(first)->srq, 3); };  // nothing is posted: it is reached at once
  EXPECT_EQ(0, usiw_verb_destroy_srq(next_one(first, arm, usiw_verb_destroy_srq, [&] { return srq(); })));
}

}  // namespace
