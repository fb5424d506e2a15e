// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/port_events.h"

#include <infiniband/verbs.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "tools/run/host/host.h"
#include "tools/run/libc/desc_file.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

constexpr uint64_t kPort = 1;

struct PortEvents {
  int fd = -1;
  bool up = false;
  std::vector<std::weak_ptr<AsyncFile>> files;
};

PortEvents& port_events() {
  static auto& one = *new PortEvents;
  return one;
}

}  // namespace

void port_events_to(const std::shared_ptr<AsyncFile>& file) {
  std::erase_if(port_events().files, [](const auto& other) { return other.expired(); });
  port_events().files.push_back(file);
}

int port_events_open() {
  PortEvents& p = port_events();
  p.fd = fd_out_of_the_way(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_LINK;
  if (p.fd >= 0 && bind(p.fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) port_events_close();
  p.up = link_info().up != 0;
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
  if (std::exchange(p.up, up) == up) return;
  for (const std::weak_ptr<AsyncFile>& file : p.files)
    if (std::shared_ptr<AsyncFile> f = file.lock())
      f->push({kPort, static_cast<uint32_t>(up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR), 0}, nullptr);
}

void port_events_close() {
  PortEvents& p = port_events();
  if (p.fd >= 0) USIW_REAL(close)(p.fd);
  p.fd = -1;
}

}  // namespace usiw::run
