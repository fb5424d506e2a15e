// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of kmod/usiw_user.c: the limit of a user, whatever the number of its processes and listeners.
#include "listen.h"

namespace kuser {
namespace {

/// Requests that programs have got, and whose listeners go.
class Orphans : public Listen {
 protected:
  static constexpr int kMost = USIW_MAX_ORPHANS;
  void TearDown() override {
    for (auto& id : listeners_) id->destroy();
    listeners_.clear();
    mock_user = 0;
    drop_sent();
    Listen::TearDown();
  }
  CmId& listen_as(u32 user, u16 port) {
    mock_user = user;
    listeners_.push_back(std::make_unique<CmId>());
    EXPECT_EQ(listeners_.back()->listen(server->device, ipv4("0.0.0.0"), port, 2 * kMost + 40), 0);
    return *listeners_.back();
  }
  /// Sends @p n requests to @p id, which then stops listening.
  void orphan(CmId& id, u16 port, int n) {
    for (int i = 0; i < n; i++) {
      mock_datagram d = request(100 + i % 128, 9000 + i / 128);
      d.to_port = cpu_to_be16(port);
      deliver(d);
      mock_run();
    }
    drop_sent();
    ASSERT_EQ(id.requests.size(), static_cast<size_t>(n));
    ASSERT_EQ(id.id.device->ops->iw_destroy_listen(&id.id), 0);
    mock_run();
    drop_sent();
  }
  /// Returns the requests of @p id that can still be accepted.
  static int alive(const CmId& id) {
    int n = 0;
    for (const auto& request : id.requests) {
      usiw_conn* conn = usiw_iw_request_conn(&request->id);
      if (!conn) continue;
      n += conn->end.cm.state == USIW_CM_REQ_RCVD;
      usiw_conn_put(conn);
    }
    return n;
  }

 private:
  std::vector<std::unique_ptr<CmId>> listeners_;
};

TEST_F(Orphans, orphan__a_user_has_a_bounded_number) {
  CmId &first = listen_as(1000, 7400), &second = listen_as(1000, 7401);
  orphan(first, 7400, kMost + 5);
  EXPECT_EQ(alive(first), kMost);
  orphan(second, 7401, 3);
  EXPECT_EQ(alive(second), 0);
  // One request is rejected, so another one may follow.
  for (const auto& request : first.requests)
    if (alive(first) == kMost) request->reject();
  CmId& third = listen_as(1000, 7402);
  orphan(third, 7402, 3);
  EXPECT_EQ(alive(third), 1);
}

// A user who leaves its requests unanswered does not keep those of other users from outliving a listener.
TEST_F(Orphans, orphan__one_user_does_not_use_up_anothers) {
  CmId &mine = listen_as(1000, 7400), &others = listen_as(1001, 7401);
  orphan(mine, 7400, kMost + 5);
  orphan(others, 7401, 3);
  EXPECT_EQ(alive(mine), kMost);
  EXPECT_EQ(alive(others), 3);
  EXPECT_EQ(others.requests[0]->accept(*server), 0);
}

TEST_F(Orphans, orphan__accepted_ones_count_no_more) {
  CmId &first = listen_as(1000, 7400), &second = listen_as(1000, 7401);
  orphan(first, 7400, kMost);
  EXPECT_EQ(first.requests[0]->accept(*server), 0);
  orphan(second, 7401, 2);
  EXPECT_EQ(alive(second), 1);
}

TEST_F(Orphans, orphan__forgotten_ones_end_by_time_out) {
  CmId &first = listen_as(1000, 7400), &second = listen_as(1000, 7401);
  orphan(first, 7400, kMost);
  mock_advance_ms(USIW_CM_REQ_RCVD_US / 1000 + 1);
  EXPECT_EQ(alive(first), 0);
  orphan(second, 7401, 2);
  EXPECT_EQ(alive(second), 2);
}

// The owner of listeners that rdma_cm repeats on a new device is unknown. It is not the user who adds the device.
TEST_F(Orphans, orphan__listeners_of_a_device_that_is_added) {
  mutex& moving = server->device->unregistration_lock;
  moving.dep.held = 1;
  CmId &first = listen_as(0, 7400), &second = listen_as(0, 7401);
  moving.dep.held = 0;
  orphan(first, 7400, USIW_MAX_ORPHANS_ALONE + 5);
  orphan(second, 7401, 3);
  EXPECT_EQ(alive(first), USIW_MAX_ORPHANS_ALONE);
  EXPECT_EQ(alive(second), 3);
}

}  // namespace
}  // namespace kuser
