// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file port_set_test.cc
/// Ports that cannot be made because there is no memory: nothing of them stays in the engine or with the progress
/// thread, and the next attempt works.
#include <dirent.h>
#include <gtest/gtest.h>

#include "runtime/runtime.h"
#include "tests/support/failing_new.h"

namespace usiw {
namespace {

size_t descriptors() {
  size_t n = 0;
  DIR* const dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

class PortsWithoutMemory : public testing::TestWithParam<usiw_port_kind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, PortsWithoutMemory, testing::Values(USIW_PORT_SOCKET, USIW_PORT_SHM),
                         [](const auto& p) { return p.param == USIW_PORT_SHM ? "shm" : "socket"; });

TEST_P(PortsWithoutMemory, are_not_half_there) {
  usiw_link_info link{};
  link.ifindex = 1;
  link.mtu = 1500;
  unsigned failures = 0;
  for (uint32_t n = 0;; ++n) {
    SCOPED_TRACE(testing::Message() << "allocation " << n << " fails");
    Runtime runtime("usiw_test", link, GetParam());
    ASSERT_EQ(0, runtime.progress().start());
    const size_t before = descriptors();
    int rc;
    bool failed;
    {
      const FailingNew failing(n);
      rc = runtime.ports().open_first(true);
      failed = FailingNew::has_failed();
    }
    if (!failed) {
      EXPECT_EQ(0, rc);
      break;
    }
    ++failures;
    EXPECT_EQ(ENOMEM, rc);
    EXPECT_EQ(before, descriptors());
    const auto goes_on = [&] {
      const EngineGate::Held held = runtime.hold();
      held->progress();  // asks each port, of which those that failed are gone
      runtime.ports().arm();
    };
    goes_on();
    EXPECT_EQ(0, runtime.ports().open_first(true));
    goes_on();
  }
  EXPECT_GE(failures, 5u) << "the port, two lists of ports, the engine's, and what is watched";
}

}  // namespace
}  // namespace usiw
