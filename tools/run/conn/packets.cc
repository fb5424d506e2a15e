// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.cc
/// The routes and neighbours of connections that use raw packets. The kernel maintains routes and neighbours for
/// sockets, but it does not see raw packets. So this file does two things, off the data path:
/// - It follows the routes. When rtnetlink reports a change, each connection looks up its route again.
/// - It keeps the neighbours fresh. The kernel verifies the entry of a neighbour only while the kernel itself sends to
///   that neighbour. So every kUseUs, this file sends an empty datagram to each neighbour through a UDP socket.
#include "tools/run/conn/packets.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "port/permitted.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/qp.h"
#include "tools/run/host/never_destroyed.h"
#include "tools/run/host/rtnetlink.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/file.h"

namespace usiw::run {

/// The connections that use raw packets or may use them later, and the watch for changes of their routes.
struct Packets {
  bool given_up = false;
  std::set<Conn*> conns;
  Fd fd;  ///< rtnetlink socket, open while there are connections; empty if start() has failed
  CmWatch watch;
  CmTimer look{[this] { follow(); }};
  CmTimer use{[this] { use_next_hops(); }};
  uint64_t looked_us = 0;

  void look_soon();
  void start();
  void stop();
  void read_messages();
  bool changes_path(const nlmsghdr& message) const;
  void follow();
  void use_next_hops();
};

namespace {

/// Delays of the look-up after a route change, in microseconds. The look-up follows the first change after at least
/// kGatherUs, and also serves the changes that arrive in between. Two such look-ups are at least kApartUs apart.
constexpr uint64_t kGatherUs = 10'000, kApartUs = 200'000;
/// Interval between empty datagrams to each neighbour, in microseconds. The datagrams make the kernel verify the entry
/// of the neighbour as for any traffic (REACHABLE, STALE, PROBE). If the neighbour does not answer, the kernel resolves
/// the MAC again, and rtnetlink reports the result.
constexpr uint64_t kUseUs = 5'000'000;

/// The rtnetlink group for policy rules of IPv6, for which the headers of Linux have no macro RTMGRP_*.
constexpr uint32_t kIpv6Rules = 1u << (RTNLGRP_IPV6_RULE - 1);

Packets& packets() { return never_destroyed<Packets>(); }

/// Returns true if choose_port() selects raw packets: the interface is Ethernet, the process may open raw ports, raw
/// packets were not given up, and neither socket nor shm was requested. Passes same_host = false, because this function
/// decides for the interface, not for a peer: not_packet_by_route() excludes a peer on this host.
bool packets_possible(const usiw_link_info& link) {
  const bool ethernet = std::to_array(link.mac) != std::array<uint8_t, 6>{};
  const PortWish requested = settings().port == PortWish::kPacket ? PortWish::kAuto : settings().port;
  const PortFacts facts{.not_packet = ethernet ? USIW_NOT_PACKET_NONE : USIW_NOT_PACKET_NETDEV,
                        .permitted = packets_permitted(),
                        .broken = packets().given_up,
                        .socket = true,
                        .same_host = false};
  return choose_port(requested, facts).kind == PortKind::kPacket;
}

/// Returns the reason why raw packets cannot use the kernel's route to the peer, or USIW_NOT_PACKET_NONE if they can.
/// Sets the interface and the neighbour of @p hop, but not its MAC.
usiw_not_packet not_packet_by_route(const Tuple& tuple, const usiw_link_info& link, NextHop& hop) {
  const int error = route_of(tuple.local, tuple.remote, hop);
  if (error == -EPROTONOSUPPORT) return USIW_NOT_PACKET_ENCAP;
  return error == 0 && hop.ifindex == link.ifindex ? USIW_NOT_PACKET_NONE : USIW_NOT_PACKET_NETDEV;
}

}  // namespace

void packets_give_up() { packets().given_up = true; }

bool packets_reach(const Tuple& tuple) {
  const usiw_link_info link = link_info();
  NextHop hop;
  return packets_possible(link) && not_packet_by_route(tuple, link, hop) == USIW_NOT_PACKET_NONE;
}

void packets_abandon() {
  packets().conns.clear();
  packets().stop();
  packets_give_up();
}

// ---- A connection ---------------------------------------------------------------------------

/// Sets @p route to the present route of the connection. If raw packets cannot use that route, sets route.reason to the
/// cause. Raw packets are not used to a peer on this host, because IP drops received packets whose source is an address
/// of the host. Always returns 0.
int Conn::look_up_route(usiw_cm_route& route) {
  const usiw_link_info link = link_info();
  const bool begins = engine < USIW_CM_ENGINE_GIVEN;
  NextHop hop = hop_;
  route.reason = not_packet_by_route(tuple_, link, hop);
  route.local = hop.local;
  route.hop_limit = 64;
  ::usiw::run::Route kernels;
  route.mtu = route_to(tuple_.local, tuple_.remote, kernels) == 0 ? static_cast<uint16_t>(kernels.mtu) : cm.mtu;
  if (begins && !packets_possible(link)) route.reason = USIW_NOT_PACKET_OWN;
  if (route.reason == USIW_NOT_PACKET_NONE) {
    const bool moved_here = !begins && std::memcmp(info.local_mac, link.mac, sizeof link.mac) != 0;
    route.mac_known = resolve(hop) == 0;
    if (!route.mac_known) hop.mac = hop_.mac;
    // The empty datagram makes the kernel resolve an unknown MAC. If this host has a new MAC, the kernel has to ask for
    // the MAC of the next hop again, and the next hop learns the new MAC from that request.
    if (!begins && (!route.mac_known || moved_here)) use_next_hop();
    std::memcpy(route.local_mac, link.mac, sizeof route.local_mac);
    std::memcpy(route.remote_mac, hop.mac.data(), sizeof route.remote_mac);
  }
  if (begins || route.reason == USIW_NOT_PACKET_NONE) hop_ = hop;
  return 0;
}

/// Starts to follow the route, unless the connection can never use raw packets: because the peer is on this host,
/// because this process cannot use raw packets, or because the ends have agreed on MERGED.
void Conn::follow_packets(const usiw_cm_route& route) {
  Packets& p = packets();
  if (route.local || route.reason == USIW_NOT_PACKET_OWN || !p.conns.insert(this).second) return;
  qp_->events->push_link(link_info());
  if (p.conns.size() == 1) p.start();
  // The route may have changed after the look-up, before p.start() subscribed to changes. For later connections there
  // is a message of each change. A look-up takes all connections, so it must not follow each of thousands.
  if (p.conns.size() == 1 || p.fd < 0) p.look_soon();
}

void Conn::leave_packets() {
  if (packets().conns.erase(this) != 0 && packets().conns.empty()) packets().stop();
}

/// Sends an empty datagram through the UDP socket, so that the kernel verifies the next hop. The peer drops it.
void Conn::use_next_hop() { sock->send(tuple_.local, tuple_.remote, tos, nullptr, 0); }

// ---- All connections --------------------------------------------------------------------------

void Packets::look_soon() {
  if (look.at_us() == 0) look.set(std::max(now_us() + kGatherUs, looked_us + kApartUs));
}

/// Starts to watch for changes of routes. If that fails, routes are looked up again only shortly after a connection has
/// begun, and a connection whose raw packets no longer arrive moves to its socket.
void Packets::start() {
  fd = out_of_the_way(rtnetlink_socket(RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE |
                                       RTMGRP_IPV4_RULE | kIpv6Rules));
  if (fd >= 0 && watch.start(fd, CmWatch::kKeepsNothing, [this](uint32_t) { read_messages(); }) != 0) fd = {};
  use.set(now_us() + kUseUs);
}

void Packets::stop() {
  watch.stop();
  fd = {};
  look.set(0);
  use.set(0);
}

void Packets::read_messages() {
  alignas(nlmsghdr) char buf[8192];
  for (int burst = 0; burst < 64; burst++) {
    const ssize_t n = recv(fd, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && errno == ENOBUFS) return look_soon();  // the kernel has dropped messages
    if (n <= 0) return;
    auto left = static_cast<unsigned>(n);
    for (auto* nl = reinterpret_cast<nlmsghdr*>(buf); NLMSG_OK(nl, left); nl = NLMSG_NEXT(nl, left))
      if (changes_path(*nl)) look_soon();
  }
}

/// Returns true if @p message may change the path of a connection. Messages about routes, rules and changed interfaces
/// may. A message about a neighbour may if the neighbour is the next hop of a connection, its MAC is known, and either
/// the MAC has changed or the connection may not use raw packets now.
bool Packets::changes_path(const nlmsghdr& message) const {
  switch (message.nlmsg_type) {
    case RTM_NEWLINK:
    case RTM_NEWROUTE:
    case RTM_DELROUTE:
    case RTM_NEWRULE:
    case RTM_DELRULE: return true;
    default: break;
  }
  NextHop reported;
  return neighbour_in(message, reported) && std::any_of(conns.begin(), conns.end(), [&](const Conn* conn) {
           return conn->hop_.ifindex == reported.ifindex && conn->hop_.address == reported.address &&
                  (conn->hop_.mac != reported.mac || (conn->info.flags & USIW_CONN_F_PACKET) == 0);
         });
}

void Packets::follow() {
  looked_us = now_us();
  const usiw_link_info link = link_info();
  std::vector<std::shared_ptr<Conn>> alive;  // references, because a look-up may end connections
  for (Conn* conn : conns) alive.push_back(conn->shared_from_this());
  for (const std::shared_ptr<Conn>& conn : alive) {
    if (conn->qp_) conn->qp_->events->push_link(link);
    usiw_cm_end_follow(conn.get(), now_us());
  }
}

void Packets::use_next_hops() {
  use.set(now_us() + kUseUs);
  std::set<std::array<uint8_t, 16>> used;
  for (Conn* conn : conns)
    if (used.insert(std::to_array(conn->hop_.address.addr.s6_addr)).second) conn->use_next_hop();
}

}  // namespace usiw::run
