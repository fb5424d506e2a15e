// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// Asynchronous events of the port and the device. Those of QPs and CQs are in states.cc and errors_*.cc.
//
// With the module they come of a device and a netdev that the case makes for itself: a link that goes down takes routes
// and addresses with it, which the other cases need. Under usiw-run there is one device, and lo gets back what it
// needs.
#include <cstdlib>

#include "rig.h"

namespace {

bool under_usiw_run() {
  const char* world = std::getenv("WORLD");
  return world && std::string(world) == "run";
}

void shell(const std::string& command) {
  if (std::system(command.c_str())) FAIL("%s", command.c_str());
}

ibv_context* open_device(const std::string& name) {
  int n = 0;
  ibv_device** list = ibv_get_device_list(&n);
  ibv_context* context = nullptr;
  for (int i = 0; i < n; ++i)
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  ibv_free_device_list(list);
  if (!context) FAIL("no device %s", name.c_str());
  return context;
}

/// The device whose port changes, for the time of a case.
class OwnPort {
 public:
  OwnPort() {
    if (under_usiw_run()) {
      netdev_ = "lo";
      context_ = context_of(site_a().device);
    } else {
      shell("ip link add asyncd0 type dummy && ip link set asyncd0 up");
      netdev_ = "asyncd0";
      shell("rdma link add asyncr0 type usiw netdev asyncd0");
      context_ = open_device("asyncr0");
    }
    drain_async(context_);
  }
  ~OwnPort() {
    if (under_usiw_run()) {
      if (std::system("ip link set lo up")) tap::note("lo stays down");
      return;
    }
    ibv_close_device(context_);
    if (std::system("rdma link delete asyncr0; ip link del asyncd0")) tap::note("a device or netdev stays");
  }
  ibv_context* context() const { return context_; }
  void set(const std::string& what) const { shell("ip link set " + netdev_ + " " + what); }
  ibv_port_attr port() const {
    ibv_port_attr attr;
    CHECK_EQ(ibv_query_port(context_, 1, &attr), 0);
    return attr;
  }
  ibv_gid gid() const {
    ibv_gid gid;
    CHECK_EQ(ibv_query_gid(context_, 1, 0, &gid), 0);
    return gid;
  }

 private:
  std::string netdev_;
  ibv_context* context_ = nullptr;
};

}  // namespace

CASE(async_port, "async/port-goes-down-and-up", .seconds = 90) {
  Listener listener(site_a().ip);  // under usiw-run the thread behind rdma_cm reads what happens to interfaces
  OwnPort site;
  site.set("down");
  expect_async(site.context(), IBV_EVENT_PORT_ERR, nullptr);
  CHECK_EQ(site.port().state, IBV_PORT_DOWN);
  CHECK_EQ(site.port().phys_state, 3);  // disabled
  site.set("up");
  expect_async(site.context(), IBV_EVENT_PORT_ACTIVE, nullptr);
  CHECK_EQ(site.port().state, IBV_PORT_ACTIVE);
  CHECK_EQ(site.port().phys_state, 5);
  Pair p;
  exercise(p);
  p.close();
}

// The kernel's core tells of another GID only where GIDs are addresses (RoCE): a program of an iWARP device has to ask.
// Under usiw-run the GID is the one that the device had when it was chosen: it has to stay, because librdmacm knows the
// device by it.
CASE(async_gid, "async/gid-changes", .seconds = 60) {
  OwnPort site;
  const ibv_gid before = site.gid();
  if (under_usiw_run()) {
    site.set("address 02:00:00:00:00:05");  // for good: the kernel gives lo no MAC of zeros
    const ibv_gid after = site.gid();
    CHECK_EQ(std::memcmp(before.raw, after.raw, sizeof before.raw), 0);
    return;
  }
  char other[18];
  std::snprintf(other, sizeof other, "%02x:%02x:%02x:%02x:%02x:%02x", before.raw[0], before.raw[1], before.raw[2],
                before.raw[3], before.raw[4], before.raw[5] ^ 0x40);
  site.set("address " + std::string(other));
  wait_until("another GID", [&] { return site.gid().raw[5] == (before.raw[5] ^ 0x40); });
}
