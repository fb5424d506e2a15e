// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/port_set.h"

#include <net/if.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/link_local.h"
#include "base/say.h"
#include "port/ethdev_port.h"
#include "port/fault_port.h"
#include "port/permitted.h"
#include "port/shm_port.h"
#include "port/socket_port.h"
#include "runtime/context.h"
#include "runtime/port_wish.h"
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

std::unique_ptr<NetPort> with_faults(std::unique_ptr<NetPort> port) {
  const Faults& faults = Faults::from_environment();
  return faults.on_wire() ? std::make_unique<FaultPort>(std::move(port), faults) : std::move(port);
}

}  // namespace

PortSet::PortSet(EngineGate& gate, const std::string& device, const usiw_link_info& link, uint32_t port_kind)
    : gate_(gate),
      device_(device),
      ifindex_(link.ifindex),
      port_kind_(port_kind),
      wish_(port_wish()),
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

/// What carries raw packets: to this host (@p local) or to others.
PortScope PortSet::packet_scope(bool local) const {
  return local || link().is_loopback != 0 ? PortScope::kLoopback : PortScope::kNetdev;
}

/// What carries datagrams of data sockets. Of usiw-run several connections share one, and only one port can read it:
/// that which has memory for some of them.
PortScope PortSet::socket_scope() const {
  return port_kind_ == USIW_PORT_SHM ? PortScope::kMemory : PortScope::kSockets;
}

int PortSet::open_first(bool sockets) {
  const usiw_link_info now = link();
  int error = 0;
  std::string why;
  std::lock_guard hold(lock_);
  if (port_kind_ != USIW_PORT_PACKET) {
    if (port_for(socket_scope(), now.mtu, error, why) != nullptr) return 0;
  } else {
    const bool must = !sockets || wish_ == PortWish::kPacket;
    if (!must && (now.is_loopback != 0 || wish_ != PortWish::kAuto || !packets_permitted())) return 0;
    if (port_for(packet_scope(false), now.mtu, error, why) != nullptr) return 0;
    packets_broken_ = true;
    if (!must) return 0;
  }
  say_once(device_ + ": " + why);
  return error;
}

/// Raw packets do not say which link they have come by, nor need they: those of the netdev have come by that one. So
/// what cannot go by a raw port is marked with its link. The module's raw port on lo has all links of this host.
bool PortSet::is_marked(const usiw_conn_info& conn) const {
  const bool raw_on_lo = port_kind_ == USIW_PORT_PACKET && (conn.flags & USIW_CONN_F_LOCAL) != 0;
  return conn.scope != 0 && conn.scope != ifindex_ && !raw_on_lo && is_link_local(conn.local_addr);
}

usiw_not_packet PortSet::not_packet(const usiw_conn_info& conn) const {
  return is_marked(conn) ? USIW_NOT_PACKET_NETDEV : not_packet_of(conn);
}

/// [lock_] What is possible for a connection that begins. (Of usiw-run the port may have the socket already, from
/// another connection that shares it, where no descriptor could be made.)
PortFacts PortSet::facts_of(const usiw_conn_info& conn) const {
  return {.not_packet = not_packet(conn),
          .permitted = packets_permitted(),
          .broken = packets_broken_,
          .socket = conn.data_fd >= 0 || port_kind_ != USIW_PORT_PACKET,
          .same_host = (conn.flags & USIW_CONN_F_LOCAL) != 0};
}

/// [lock_] Which port a connection goes by, of those that the control path offers.
PortChoice PortSet::choose(const usiw_conn_info& conn) const {
  if ((conn.flags & USIW_CONN_F_SOCKET) == 0)
    return {PortKind::kPacket, wish_ == PortWish::kPacket ? USIW_PORT_WHY_WISH : USIW_PORT_WHY_ONLY};
  if (port_kind_ == USIW_PORT_SOCKET)  // usiw-run's user has chosen
    return {PortKind::kSocket, USIW_PORT_WHY_WISH};
  return choose_port(wish_, facts_of(conn));
}

/// [lock_] The port, or none and an errno value. A raw port that cannot be made has a data socket in its place.
VQp::By PortSet::port_of(const usiw_conn_info& conn, PortChoice& choice, int& error) {
  const uint32_t mtu = std::min<uint32_t>(conn.mtu, USIW_MAX_MTU);
  std::string why;
  choice = choose(conn);
  if (choice.kind == PortKind::kPacket) {
    if (Slot* slot = port_for(packet_scope((conn.flags & USIW_CONN_F_LOCAL) != 0), mtu, error, why)) return slot->by();
    packets_broken_ = true;
    if ((conn.flags & USIW_CONN_F_SOCKET) != 0) {
      if (port_kind_ != USIW_PORT_PACKET) say_once(device_ + ": " + why);  // the first that is heard of it
      choice = choose(conn);
      error = 0;
    }
  }
  switch (choice.kind) {
    case PortKind::kSocket:
      if (Slot* slot = port_for(socket_scope(), mtu, error, why)) return slot->by();
      break;
    case PortKind::kShm:
      if (Slot* slot = port_for(PortScope::kMemory, mtu, error, why)) return slot->by();
      break;
    case PortKind::kNone:
      if (error == 0) error = conn.data_fd < 0 ? -conn.data_fd : EPERM;
      if (why.empty())
        why = wish_ == PortWish::kPacket ? "USIW_PORT=packet, and a connection cannot go by raw packets"
                                         : std::string("no data socket for a connection: ") + strerror(error);
      break;
    case PortKind::kPacket:
      break;
  }
  say_once(device_ + ": " + why);
  return {};
}

/// [lock_] A port for the data socket of a connection by raw packets, which keeps it for what does not come by these,
/// and to move to. None: as before, it ends when raw packets do not get there any more.
VQp::By PortSet::beside_packets(const VQp& qp, const usiw_conn_info& conn) {
  int error = 0;
  std::string why;
  if ((qp.context->caps & USIW_CAP_PORT_MOVE) == 0 || (conn.flags & USIW_CONN_F_SOCKET) == 0 ||
      !facts_of(conn).socket)
    return {};
  Slot* slot = port_for(socket_scope(), std::min<uint32_t>(conn.mtu, USIW_MAX_MTU), error, why);
  return slot != nullptr ? slot->by() : VQp::By{};
}

int PortSet::give(VQp& qp, const usiw_conn_info& conn, const Path& path) {
  release(qp);
  int error = 0;
  const int fd = (conn.flags & USIW_CONN_F_SOCKET) != 0 ? conn.data_fd : -1;
  bool kept = false;  // the descriptor
  PortChoice choice{};
  {
    std::lock_guard hold(lock_);
    VQp::By by = port_of(conn, choice, error), socket;
    const bool by_packets = choice.kind == PortKind::kPacket;
    if (by.port != nullptr && by_packets) socket = beside_packets(qp, conn);
    const EngineGate::Held held = gate_.hold();
    const bool merges = merges_at_times(conn);
    qp.moves.begin(wish_, {}, choice, conn.mtu, merges);  // without a socket to move to
    if (by.port != nullptr) {
      qp.path = path;
      qp.path.marked = is_marked(conn);
      if (qp.path.marked) put_link(qp.path.flow.local_addr.data(), conn.scope);
      if (by_packets) {
        error = qp.path.marked ? ENETUNREACH : by.port->add_flow(qp.path, -1);
        if (error == 0) qp.packet = by;
      } else {
        std::swap(by, socket);
      }
      if (error == 0 && socket.port != nullptr) {
        kept = true;  // the port's, also if it cannot use it
        const int rc = socket.port->add_flow(qp.path, fd);
        if (rc == 0) qp.socket = socket;
        if (rc == 0 && by_packets) socket.port->sends(qp.path, false);
        if (rc != 0 && !by_packets) error = rc;
      }
      if (qp.socket.port != nullptr && port_kind_ != USIW_PORT_SOCKET &&
          (qp.context->caps & USIW_CAP_PORT_MOVE) != 0)
        qp.moves.begin(wish_, facts_of(conn), choice, conn.mtu, merges);
    }
  }
  if (fd >= 0 && !kept) close(fd);
  return error;
}

void PortSet::give_packets(VQp& qp, uint32_t conn_id, const usiw_conn_info& conn) {
  if (is_marked(conn)) return;
  const uint32_t mtu = std::max<uint32_t>(link().mtu, std::min<uint32_t>(conn.mtu, USIW_MAX_MTU));
  std::lock_guard hold(lock_);
  const auto wanted = [&] {
    return qp.qp != nullptr && qp.conn_id == conn_id && qp.packet.port == nullptr && qp.moves.leaves_choice();
  };
  {
    const EngineGate::Held held = gate_.hold();
    if (!wanted()) return;
  }
  int error = EPERM;
  std::string why;
  Slot* slot = nullptr;
  if (packets_permitted() && !packets_broken_) {
    slot = port_for(packet_scope((conn.flags & USIW_CONN_F_LOCAL) != 0), mtu, error, why);
    packets_broken_ = slot == nullptr;
  }
  const EngineGate::Held held = gate_.hold();
  if (!wanted()) return;
  if (slot != nullptr) error = slot->port->add_flow(qp.path, -1);
  if (error == 0 && (error = held->qp_also(qp.qp, slot->number)) != 0) slot->port->remove_flow(qp.path);
  if (error == 0)
    qp.packet = slot->by();
  else
    qp.moves.broken();
}

void PortSet::release(VQp& qp) {
  std::lock_guard hold(lock_);
  const EngineGate::Held held = gate_.hold();
  qp.moves.end();
  for (VQp::By* by : {&qp.packet, &qp.socket}) {
    if (by->port != nullptr) by->port->remove_flow(qp.path);
    *by = {};
  }
}

/// [lock_] The port to there, for packets of up to @p mtu bytes, or nullptr.
PortSet::Slot* PortSet::find_port(PortScope scope, uint32_t mtu) {
  for (Slot& slot : ports_)
    if (slot.scope == scope && slot.port->mtu() >= mtu) return &slot;
  return nullptr;
}

/// [lock_] A port to there, for packets of up to @p mtu bytes: made when first needed (a
/// connection of the host to itself, a netdev whose MTU has grown).
PortSet::Slot* PortSet::port_for(PortScope scope, uint32_t mtu, int& error, std::string& why) {
  if (Slot* slot = find_port(scope, mtu)) return slot;
  try {
    std::unique_ptr<NetPort> port = make_port(scope, mtu, error, why);
    if (!port) return nullptr;
    return &add(with_faults(std::move(port)), scope);
  } catch (const std::bad_alloc&) {
    error = ENOMEM;
    why = "no memory for another port";
    return nullptr;
  }
}

/// [lock_] The engine and the progress thread use @p port from here on. std::bad_alloc: neither does, and @p port is
/// gone.
PortSet::Slot& PortSet::add(std::unique_ptr<NetPort> port, PortScope scope) {
  ports_.reserve(ports_.size() + 1);
  int number;
  {
    const EngineGate::Held held = gate_.hold();
    to_arm_.reserve(to_arm_.size() + 1);
    number = held->add_port(*port);
    if (number < 0) throw std::bad_alloc();
    to_arm_.push_back(port.get());
  }
  try {
    gate_.progress().watch({{port->wait_fd(), Progress::Kind::kPacket, this},
                            {port->control_fd(), Progress::Kind::kPort, &control_}});
  } catch (const std::bad_alloc&) {
    const EngineGate::Held held = gate_.hold();
    to_arm_.pop_back();
    held->remove_last_port();
    throw;
  }
  return ports_.emplace_back(Slot{std::move(port), number, scope});
}

std::unique_ptr<NetPort> PortSet::make_port(PortScope scope, uint32_t mtu, int& error, std::string& why) {
  if (scope == PortScope::kSockets || scope == PortScope::kMemory)
    return make_socket_port(scope == PortScope::kMemory, error, why);
  return EthdevPort::create(packet_spec(scope == PortScope::kLoopback, mtu), why, error);
}

/// One for all: the kernel routes.
std::unique_ptr<NetPort> PortSet::make_socket_port(bool memory, int& error, std::string& why) {
  std::unique_ptr<NetPort> port;
  if (memory)
    port = ShmPort::create(USIW_MAX_MTU, error, ifindex_);
  else
    port = SocketPort::create(USIW_MAX_MTU, error, ifindex_);
  if (!port) why = std::string("no memory or descriptors for a port: ") + strerror(error);
  return port;
}

EthdevPort::Spec PortSet::packet_spec(bool loopback, uint32_t mtu) const {
  std::lock_guard hold(link_lock_);
  if (loopback) return {"lo", if_nametoindex("lo"), std::max(mtu, link_.lo_mtu), nullptr};
  return {link_.ifname, ifindex_, std::max(mtu, link_.mtu), &link_mtu_};
}

// ---- A raw port that takes long -----------------------------------------------------------

bool PortSet::packets_take_long(const VQp& qp, const usiw_conn_info& conn) {
  std::lock_guard hold(lock_);
  return (qp.context->caps & USIW_CAP_PORT_MOVE) != 0 && (conn.flags & USIW_CONN_F_SOCKET) != 0 &&
         facts_of(conn).socket && wish_ != PortWish::kPacket && choose(conn).kind == PortKind::kPacket &&
         find_port(packet_scope((conn.flags & USIW_CONN_F_LOCAL) != 0), conn.mtu) == nullptr;
}

PacketOpener::Open PortSet::packet_opener(const usiw_conn_info& conn) const {
  const PortScope scope = packet_scope((conn.flags & USIW_CONN_F_LOCAL) != 0);
  const EthdevPort::Spec spec = packet_spec(scope == PortScope::kLoopback, conn.mtu);
  return [spec](std::string& why) -> std::unique_ptr<NetPort> {
    int error = 0;
    return EthdevPort::create(spec, why, error);
  };
}

void PortSet::adopt_packets(const usiw_conn_info& conn, std::unique_ptr<NetPort> port, const std::string& why) {
  const PortScope scope = packet_scope((conn.flags & USIW_CONN_F_LOCAL) != 0);
  std::lock_guard hold(lock_);
  if (find_port(scope, conn.mtu) != nullptr) return;  // another connection has made one
  try {
    if (port)
      add(with_faults(std::move(port)), scope);
    else
      packets_broken_ = true;
  } catch (const std::bad_alloc&) {
    packets_broken_ = true;
  }
  if (packets_broken_) say_once(device_ + ": " + why);
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
