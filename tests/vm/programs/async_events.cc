// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Asynchronous events of the port and the device: A_NETDEV is taken down and up, its MAC changed. Those of QPs and CQs
// are in states.cc and errors_*.cc.
#include <cstdlib>

#include "rig.h"

namespace {

std::string netdev() {
  const char* name = std::getenv("A_NETDEV");
  return name ? name : "lo";
}

void shell(const std::string& command) {
  if (std::system(command.c_str())) FAIL("%s", command.c_str());
}

/// Neighbour discovery begins anew, and rdma_cm would take its whole time-out for it.
void wait_for_peer() {
  shell("for i in 1 2 3 4 5 6 7 8; do ping -q -c 1 -W 1 -I " + site_a().ip + " " + site_b().ip + " >/dev/null && exit 0; done; exit 1");
}

/// Puts the interface up again, however the case ends.
struct UpAgain {
  ~UpAgain() {
    if (std::system(("ip link set " + netdev() + " up").c_str())) tap::note("the interface stays down");
  }
};

bool under_usiw_run() {
  const char* world = std::getenv("WORLD");
  return world && std::string(world) == "run";
}

}  // namespace

CASE(async_port, "async/port-goes-down-and-up", .seconds = 90) {
  Listener listener(site_a().ip);  // under usiw-run the thread behind rdma_cm reads what happens to interfaces
  ibv_context* context = context_of(site_a().device);
  drain_async(context);
  ibv_port_attr port;
  {
    UpAgain up;
    shell("ip link set " + netdev() + " down");
    expect_async(context, IBV_EVENT_PORT_ERR, nullptr);
    CHECK_EQ(ibv_query_port(context, 1, &port), 0);
    CHECK_EQ(port.state, IBV_PORT_DOWN);
    CHECK_EQ(port.phys_state, 3);  // disabled
  }
  expect_async(context, IBV_EVENT_PORT_ACTIVE, nullptr);
  CHECK_EQ(ibv_query_port(context, 1, &port), 0);
  CHECK_EQ(port.state, IBV_PORT_ACTIVE);
  CHECK_EQ(port.phys_state, 5);
  wait_for_peer();
  Pair fresh;
  exercise(fresh);
  fresh.close();
}

// Under usiw-run the GID is the one that the device had when it was chosen: it has to stay, because librdmacm knows the
// device by it.
CASE(async_gid, "async/gid-changes", .seconds = 60) {
  ibv_context* context = context_of(site_a().device);
  ibv_gid before, after;
  CHECK_EQ(ibv_query_gid(context, 1, 0, &before), 0);
  drain_async(context);
  char mac[18], other[18];
  std::snprintf(mac, sizeof mac, "%02x:%02x:%02x:%02x:%02x:%02x", before.raw[0], before.raw[1], before.raw[2], before.raw[3],
                before.raw[4], before.raw[5]);
  std::snprintf(other, sizeof other, "%.15s%02x", mac, before.raw[5] ^ 0x40);
  if (netdev() == "lo") {
    CHECK(under_usiw_run());
    CHECK_EQ(ibv_query_gid(context, 1, 0, &after), 0);
    CHECK_EQ(std::memcmp(before.raw, after.raw, sizeof before.raw), 0);
    return;
  }
  shell("ip link set " + netdev() + " address " + other);
  expect_async(context, IBV_EVENT_GID_CHANGE, nullptr);
  CHECK_EQ(ibv_query_gid(context, 1, 0, &after), 0);
  CHECK_EQ(after.raw[5], before.raw[5] ^ 0x40);
  shell("ip link set " + netdev() + " address " + mac);
  expect_async(context, IBV_EVENT_GID_CHANGE, nullptr);
  wait_for_peer();
  Pair fresh;
  exercise(fresh);
  fresh.close();
}
