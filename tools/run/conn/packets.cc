// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.cc
/// The kernel does not see raw packets. So its services to sockets are done here for the connections that use raw
/// packets, off the data path. The routes are followed: rtnetlink reports changes, and then each connection looks up
/// its route again. The neighbours are kept fresh: the kernel verifies an entry only while it uses it itself, so from
/// time to time a datagram without meaning goes to each neighbour by a socket.
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

/// All connections that use raw packets or may do so.
struct Packets {
  bool given_up = false;
  std::set<Conn*> conns;
  Fd fd;  ///< rtnetlink's messages, while there are connections
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

/// Changes are gathered for kGatherUs. Routes are looked up no more often than every kApartUs.
constexpr uint64_t kGatherUs = 10'000, kApartUs = 200'000;
/// Interval at which the kernel is made to use each neighbour. The kernel then verifies the entry as for any traffic
/// (REACHABLE, STALE, PROBE), asks for the MAC again if there is no answer, and reports what it learns.
constexpr uint64_t kUseUs = 5'000'000;

/// The headers of Linux have no macro for this group.
constexpr uint32_t kIpv6Rules = 1u << (RTNLGRP_IPV6_RULE - 1);

Packets& packets() { return never_destroyed<Packets>(); }

/// Returns true if raw packets are possible and permitted, by the same rule as with the module. Shared memory is the
/// socket port's own matter here.
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

/// Returns why raw packets do not get to the peer by the kernel's route, or NONE if they do. Sets interface and
/// neighbour in @p hop, but not its MAC.
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

/// Looks up the route as the kernel has it now. Raw packets never reach this host itself, because the kernel takes none
/// on lo.
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
    // The kernel has never used the neighbour. Or this host has a new MAC, which the peer learns from a packet.
    if (!begins && (!route.mac_known || moved_here)) use_next_hop();
    std::memcpy(route.local_mac, link.mac, sizeof route.local_mac);
    std::memcpy(route.remote_mac, hop.mac.data(), sizeof route.remote_mac);
  }
  if (begins || route.reason == USIW_NOT_PACKET_NONE) hop_ = hop;
  return 0;
}

/// Follows the route from now on, unless the connection uses its socket for good. It does so to this host itself, where
/// raw packets are impossible, and where the handshake promised the peer not to send any.
void Conn::follow_packets(const usiw_cm_route& route) {
  Packets& p = packets();
  if (route.local || route.reason == USIW_NOT_PACKET_OWN || !p.conns.insert(this).second) return;
  qp_->events->push_link(link_info());
  if (p.conns.size() == 1) p.start();
  p.look_soon();  // the route may have changed between the look-up and the subscription
}

void Conn::leave_packets() {
  if (packets().conns.erase(this) != 0 && packets().conns.empty()) packets().stop();
}

/// Makes the kernel use the neighbour, by an empty datagram, which every receiver drops.
void Conn::use_next_hop() { sock->send(tuple_.local, tuple_.remote, tos, nullptr, 0); }

// ---- All of them ------------------------------------------------------------------------------

void Packets::look_soon() {
  if (look.at_us() == 0) look.set(std::max(now_us() + kGatherUs, looked_us + kApartUs));
}

/// If this fails, connections stay on the route on which they began, and move to their sockets when nothing gets
/// through.
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

/// Returns true if the message may be about the route of a connection. A message about a neighbour is, if the MAC is
/// new.
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
  std::vector<std::shared_ptr<Conn>> alive;  // the look-up may end connections
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
