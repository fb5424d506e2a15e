// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Tests of usiw_rx_alloc() (kmod/usiw_admission.c) and its callers: who pays for memory that peers make the module use.
#include "listen.h"

namespace kuser {
namespace {

/// The listener is charged for memory that peers make the module use. No process is the current one then.
class Charge : public Listen {
 protected:
  static constexpr u16 kAt = 7500;
  void TearDown() override {
    own.destroy();
    foreign.destroy();
    drop_sent();
    Listen::TearDown();
  }
  void listen(CmId& id, Process& process, const char* addr) {
    process.enter();
    ASSERT_EQ(id.listen(process.device, ipv4(addr), kAt), 0);
  }
  /// Sends a REQ to @p addr, which waits for the worker of the port.
  void come(u8 host, const char* addr = "192.0.2.2") {
    mock_datagram d = request(host);
    d.to = ipv4(addr);
    d.to_port = cpu_to_be16(kAt);
    deliver(d);
  }
  size_t of(const Process& process) const { return mock_charged(&process.mm); }
  CmId own, foreign;
};

TEST_F(Charge, request__is_its_listeners) {
  listen(own, *server, "192.0.2.2");
  client->enter();
  const size_t before = of(*server), others = of(*client);
  come(1);
  mock_run();
  ASSERT_EQ(own.requests.size(), 1u);
  EXPECT_EQ(of(*server), before + sizeof(usiw_conn));
  own.requests[0]->reject();
  mock_advance_ms(60000);
  mock_grace_period();
  EXPECT_EQ(of(*server), before);
  EXPECT_EQ(of(*client), others);
}

// The first user of a port pays for its bounded queue, but not for REQs that wait for the listener of another user.
TEST_F(Charge, queue__what_waits_for_a_listener_is_the_listeners) {
  listen(foreign, *client, "192.0.2.1");
  listen(own, *server, "192.0.2.2");
  const size_t before = of(*server), others = of(*client);
  for (u8 host = 1; host <= 40; host++) come(host);
  EXPECT_EQ(of(*server), before);
  EXPECT_GE(of(*client), others + 40 * sizeof(usiw_rx));
  mock_run();
  ASSERT_EQ(own.requests.size(), 2u);  // half of its backlog
  EXPECT_EQ(of(*client), others);
  EXPECT_GE(of(*server), before + 2 * sizeof(usiw_conn) + 38 * sizeof(usiw_rx));
  mock_advance_ms(2 * USIW_CM_STALE_US / 1000);
  EXPECT_EQ(of(*server), before + 2 * sizeof(usiw_conn));
}

TEST_F(Charge, queue__no_memory_for_the_copy) {
  listen(own, *server, "192.0.2.2");
  come(1);
  mock_errors[MOCK_ALLOC] = 1;
  mock_run();
  EXPECT_TRUE(own.requests.empty());
  EXPECT_EQ(mock_sent(), 0u);
  come(1);
  mock_run();
  EXPECT_EQ(own.requests.size(), 1u);
}

TEST_F(Charge, request__no_memory_for_the_connection) {
  listen(own, *server, "192.0.2.2");
  auto* places = &static_cast<usiw_listener*>(own.id.provider_data)->places;
  atomic64_t* full = &to_usiw_dev(server->device)->kcounters[USIW_KCNT_CM_BACKLOG_FULL];
  const auto before = atomic64_read(full);
  come(1);
  mock_errors[MOCK_ALLOC] = 2;
  mock_run();
  EXPECT_TRUE(own.requests.empty());
  EXPECT_EQ(places->open, 0u);
  EXPECT_EQ(atomic64_read(full), before + 1);
  come(1);
  mock_run();
  EXPECT_EQ(own.requests.size(), 1u);
}

// A process that adds a device does not pay for the listeners that rdma_cm repeats on it.
TEST_F(Charge, request__of_a_listener_that_is_older_than_the_device) {
  mutex& moving = server->device->unregistration_lock;
  moving.dep.held = 1;
  server->enter();
  ASSERT_EQ(own.listen(server->device, ipv4("0.0.0.0"), kAt), 0);
  moving.dep.held = 0;
  const size_t before = of(*server);
  come(1);
  mock_run();
  EXPECT_EQ(own.requests.size(), 1u);
  EXPECT_EQ(of(*server), before);
}

}  // namespace
}  // namespace kuser
