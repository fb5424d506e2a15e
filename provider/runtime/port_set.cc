// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/port_set.h"

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/say.h"
#include "port/ethdev_port.h"
#include "port/fault_port.h"
#include "port/shm_port.h"
#include "port/socket_port.h"
#include "uapi/usiw_wire.h"

namespace usiw {
namespace {

/// As the rest counts on it: ports have room for USIW_MAX_MTU, the name has an end.
usiw_link_info usable(usiw_link_info link) {
  link.mtu = std::min<uint32_t>(link.mtu, USIW_MAX_MTU);
  link.lo_mtu = std::min<uint32_t>(link.lo_mtu, USIW_MAX_MTU);
  link.ifname[sizeof link.ifname - 1] = 0;
  return link;
}

}  // namespace

PortSet::PortSet(EngineGate& gate, const std::string& device, const usiw_link_info& link, uint32_t port_kind)
    : gate_(gate),
      device_(device),
      ifindex_(link.ifindex),
      port_kind_(port_kind),
      link_(usable(link)),
      link_mtu_(link_.mtu) {}

void PortSet::set_link(const usiw_link_info& link) {
  std::lock_guard hold(link_lock_);
  link_ = usable(link);
  link_mtu_.store(link_.mtu, std::memory_order_relaxed);
}

usiw_link_info PortSet::link() const {
  std::lock_guard hold(link_lock_);
  return link_;
}

PortScope PortSet::packet_scope(bool local) const {
  return local || link().is_loopback != 0 ? PortScope::kLoopback : PortScope::kNetdev;
}

int PortSet::open_first() {
  const PortScope scope = port_kind_ != USIW_PORT_PACKET ? PortScope::kSockets : packet_scope(false);
  int error = 0;
  std::lock_guard hold(lock_);
  return port_for(scope, link().mtu, error) == nullptr ? error : 0;
}

int PortSet::give(VQp& qp, PortScope scope, uint32_t mtu, const Path& path, int fd, int& number) {
  release(qp);
  int error = 0;
  std::lock_guard hold(lock_);
  Slot* slot = port_for(scope, mtu, error);
  if (slot == nullptr) {
    if (fd >= 0) close(fd);
    return error;
  }
  const EngineGate::Held held = gate_.hold();
  qp.path = path;
  error = slot->port->add_flow(qp.path, fd);
  if (error != 0) return error;
  qp.port = slot->port.get();
  number = slot->number;
  return 0;
}

void PortSet::release(VQp& qp) {
  std::lock_guard hold(lock_);
  if (qp.port == nullptr) return;
  const EngineGate::Held held = gate_.hold();
  qp.port->remove_flow(qp.path);
  qp.port = nullptr;
}

/// [lock_] A port to there, for packets of up to @p mtu bytes: made when first needed (a
/// connection of the host to itself, a netdev whose MTU has grown).
PortSet::Slot* PortSet::port_for(PortScope scope, uint32_t mtu, int& error) {
  for (Slot& slot : ports_)
    if (slot.scope == scope && slot.port->mtu() >= mtu) return &slot;

  std::unique_ptr<NetPort> port = make_port(scope, mtu, error);
  if (!port) return nullptr;
  if (const Faults& faults = Faults::from_environment(); faults.on_wire())
    port = std::make_unique<FaultPort>(std::move(port), faults);
  int number;
  {
    const EngineGate::Held held = gate_.hold();
    number = held->add_port(*port);
    if (number >= 0) to_arm_.push_back(port.get());
  }
  if (number < 0) {
    error = ENOMEM;
    return nullptr;
  }
  gate_.progress().watch(port->wait_fd(), Progress::Kind::kPacket, *this);
  if (port->control_fd() >= 0) gate_.progress().watch(port->control_fd(), Progress::Kind::kControl, control_);
  ports_.push_back({std::move(port), number, scope});
  return &ports_.back();
}

std::unique_ptr<NetPort> PortSet::make_port(PortScope scope, uint32_t mtu, int& error) {
  if (scope == PortScope::kSockets) return make_socket_port(error);
  return make_packet_port(scope == PortScope::kLoopback, mtu, error);
}

/// One for all: the kernel routes.
std::unique_ptr<NetPort> PortSet::make_socket_port(int& error) {
  std::unique_ptr<NetPort> port;
  if (port_kind_ == USIW_PORT_SOCKET)
    port = SocketPort::create(USIW_MAX_MTU, error);
  else
    port = ShmPort::create(USIW_MAX_MTU, error);
  if (!port) say_once(device_ + ": no memory or descriptors for a port: " + strerror(error));
  return port;
}

std::unique_ptr<NetPort> PortSet::make_packet_port(bool loopback, uint32_t mtu, int& error) {
  EthdevPort::Spec spec;
  {
    std::lock_guard hold(link_lock_);
    if (loopback)
      spec = {"lo", if_nametoindex("lo"), std::max(mtu, link_.lo_mtu), nullptr};
    else
      spec = {link_.ifname, ifindex_, std::max(mtu, link_.mtu), &link_mtu_};
  }
  std::string why;
  auto port = EthdevPort::create(spec, why, error);
  if (!port) say_once(device_ + ": " + why);
  return port;
}

bool PortSet::arm() {
  bool quiet = true;
  for (NetPort* port : to_arm_) quiet = port->arm() && quiet;
  return quiet;
}

bool PortSet::ready(int fd, short revents) {
  if ((revents & POLLNVAL) != 0) return false;
  if ((revents & (POLLERR | POLLHUP)) != 0) {  // ENETDOWN, once per going down
    std::lock_guard hold(lock_);
    for (Slot& slot : ports_)
      if (slot.port->wait_fd() == fd) slot.port->clear_error();
  }
  return true;
}

bool PortSet::Control::ready(int fd, short revents) {
  if ((revents & POLLNVAL) != 0) return false;
  std::lock_guard hold(set.lock_);
  for (Slot& slot : set.ports_) {
    if (slot.port->control_fd() != fd) continue;
    const EngineGate::Held held = set.gate_.hold();
    slot.port->control();
  }
  return true;
}

}  // namespace usiw
