// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/port_events.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "tools/run/host/gid_table.h"
#include "tools/run/host/host.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/rtnetlink.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/desc_file.h"
#include "tools/run/libc/file.h"

namespace usiw::run {
namespace {

constexpr uint64_t kPort = 1;

struct PortEvents {
  Fd fd;
  bool up = false;
  uint64_t gid_changes = 0;
  std::vector<std::weak_ptr<AsyncFile>> files;
};

PortEvents& port_events() { return never_destroyed<PortEvents>(); }

/// Returns true on the RoCE face. An RNIC has only one GID, which does not change.
bool has_gid_table() { return settings().face == FaceKind::kRoce; }

/// Raises an event of the port in all contexts.
void raise(ibv_event_type type) {
  for (const std::weak_ptr<AsyncFile>& file : port_events().files)
    if (std::shared_ptr<AsyncFile> f = file.lock()) f->push({kPort, static_cast<uint32_t>(type), 0}, nullptr);
}

}  // namespace

void port_events_to(const std::shared_ptr<AsyncFile>& file) {
  std::erase_if(port_events().files, [](const auto& other) { return other.expired(); });
  port_events().files.push_back(file);
}

int port_events_open() {
  PortEvents& p = port_events();
  p.fd = out_of_the_way(rtnetlink_socket(RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR));
  p.up = link_info().up != 0;
  if (has_gid_table()) p.gid_changes = gid_table().changes;
  return p.fd;
}

void port_events_ready() {
  PortEvents& p = port_events();
  char buf[8192];
  ssize_t n;
  do
    n = recv(p.fd, buf, sizeof buf, MSG_DONTWAIT);
  while (n > 0 || (n < 0 && errno == ENOBUFS));
  const bool up = link_info().up != 0;
  if (std::exchange(p.up, up) != up) raise(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  if (!has_gid_table()) return;
  const uint64_t changes = gid_table().changes;
  if (std::exchange(p.gid_changes, changes) != changes) raise(IBV_EVENT_GID_CHANGE);
}

void port_events_close() { port_events().fd = {}; }

}  // namespace usiw::run
