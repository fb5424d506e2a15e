// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file conn_packets.cc
/// Connections whose data may go by raw packets. The kernel does not know of these packets, so what it does for those
/// of sockets is done here, off the data path: routes and next hops are followed, and unused neighbours are verified.
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <vector>

#include "port/permitted.h"
#include "tools/run/conn/cm_thread.h"
#include "tools/run/conn/conn.h"
#include "tools/run/conn/event_stream.h"
#include "tools/run/conn/packets.h"
#include "tools/run/conn/qp.h"
#include "tools/run/host/clock.h"
#include "tools/run/host/settings.h"
#include "tools/run/libc/file.h"
#include "tools/run/libc/real.h"

namespace usiw::run {
namespace {

/// Changes are gathered for this long, and looked at no more often than that.
constexpr uint64_t kGatherUs = 10'000, kApartUs = 200'000;
/// Every so often the kernel is made to use each neighbour. It then verifies it as it does for anybody's traffic
/// (REACHABLE, STALE, PROBE), asks for it anew when it does not answer, and what it learns comes as a message.
constexpr uint64_t kUseUs = 5'000'000;

/// For which there is no macro.
constexpr uint32_t kIpv6Rules = 1u << (RTNLGRP_IPV6_RULE - 1);

bool g_given_up = false;

struct Follower {
  std::set<Conn*> conns;
  int fd = -1;           ///< rtnetlink's messages, while there are connections
  uint64_t look_us = 0;  ///< when the next hops are looked at; 0: no need
  uint64_t looked_us = 0;
  uint64_t use_us = 0;
};

Follower& follower() {
  static Follower& once = *new Follower;
  return once;
}

void look_soon() {
  Follower& f = follower();
  if (f.look_us == 0) f.look_us = std::max(now_us() + kGatherUs, f.looked_us + kApartUs);
}

/// Without it connections go on as they began, and by their sockets when nothing gets through.
void start_listening() {
  Follower& f = follower();
  f.fd = fd_out_of_the_way(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE | RTMGRP_IPV4_RULE | kIpv6Rules;
  if (f.fd >= 0 && (bind(f.fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 ||
                    cm_thread_watch(f.fd, kCmThreadRoutes) != 0)) {
    USIW_REAL(close)(f.fd);
    f.fd = -1;
  }
  f.use_us = now_us() + kUseUs;
  cm_thread_kick();
}

void stop_listening() {
  Follower& f = follower();
  if (f.fd >= 0) USIW_REAL(close)(f.fd);
  f.fd = -1;
  f.look_us = f.use_us = 0;
}

/// The same rule as with the module; only what is possible differs. (Shared memory is the socket port's own matter
/// here.)
bool packets_possible(const usiw_link_info& link) {
  const bool ethernet = std::to_array(link.mac) != std::array<uint8_t, 6>{};
  const PortWish wish = settings().port == PortWish::kPacket ? PortWish::kAuto : settings().port;
  const PortFacts facts{.not_packet = ethernet ? USIW_NOT_PACKET_NONE : USIW_NOT_PACKET_NETDEV,
                        .permitted = packets_permitted(),
                        .broken = g_given_up,
                        .socket = true,
                        .same_host = false};
  return choose_port(wish, facts).kind == PortKind::kPacket;
}

/// Why raw packets do not get there by the kernel's route, which has an interface and a neighbour in @p hop (the MAC is
/// left alone); NONE: they do.
usiw_not_packet not_packet_by_route(const Tuple& tuple, const usiw_link_info& link, NextHop& hop) {
  const int error = route_of(tuple.local, tuple.remote, hop);
  if (error == -EPROTONOSUPPORT) return USIW_NOT_PACKET_ENCAP;
  return error == 0 && hop.ifindex == link.ifindex ? USIW_NOT_PACKET_NONE : USIW_NOT_PACKET_NETDEV;
}

}  // namespace

void packets_give_up() { g_given_up = true; }

bool packets_possible() { return packets_possible(link_info()); }

bool packets_reach(const Tuple& tuple) {
  const usiw_link_info link = link_info();
  NextHop hop;
  return packets_possible(link) && not_packet_by_route(tuple, link, hop) == USIW_NOT_PACKET_NONE;
}

// ---- A connection ---------------------------------------------------------------------------

/// The route as the kernel has it now. Raw packets never reach this host itself: the kernel takes none on lo.
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
    // The neighbour was never used, or the peer does not know this host's new MAC yet and learns it when it is asked.
    if (!begins && (!route.mac_known || moved_here)) use_next_hop();
    std::memcpy(route.local_mac, link.mac, sizeof route.local_mac);
    std::memcpy(route.remote_mac, hop.mac.data(), sizeof route.remote_mac);
  }
  if (begins || route.reason == USIW_NOT_PACKET_NONE) hop_ = hop;
  return 0;
}

/// Has the route followed, unless the connection uses its socket for good: to this host itself, and where raw packets
/// are impossible or the peer was promised to be sent none.
void Conn::follow_packets(const usiw_cm_route& route) {
  Follower& f = follower();
  if (route.local || route.reason == USIW_NOT_PACKET_OWN || !f.conns.insert(this).second) return;
  qp_->events->push_link(link_info());
  if (f.conns.size() == 1) start_listening();
  look_soon();  // it may have moved between the question and the subscription
}

void Conn::leave_packets() {
  Follower& f = follower();
  if (f.conns.erase(this) != 0 && f.conns.empty()) stop_listening();
}

/// Makes the kernel use the neighbour, by a datagram that means nothing to anybody.
void Conn::use_next_hop() { sock_->send(tuple_.local, tuple_.remote, tos, nullptr, 0); }

/// Returns whether @p reported is news about the next hop of this connection.
bool Conn::is_news(const NextHop& reported) const {
  return hop_.ifindex == reported.ifindex && hop_.address == reported.address &&
         (hop_.mac != reported.mac || (info.flags & USIW_CONN_F_PACKET) == 0);
}

// ---- All of them ------------------------------------------------------------------------------

void conns_follow() {
  const usiw_link_info link = link_info();
  std::vector<std::shared_ptr<Conn>> conns;  // one of them may end by it
  for (Conn* conn : follower().conns) conns.push_back(conn->shared_from_this());
  for (const std::shared_ptr<Conn>& conn : conns) {
    if (conn->qp_) conn->qp_->events->push_link(link);
    usiw_cm_end_follow(conn.get(), now_us());
  }
}

void conns_use_next_hops() {
  std::set<std::array<uint8_t, 16>> used;
  for (Conn* conn : follower().conns) {
    std::array<uint8_t, 16> address;
    std::memcpy(address.data(), &conn->hop_.address.addr, address.size());
    if (used.insert(address).second) conn->use_next_hop();
  }
}

/// Returns whether @p reported, from a message about a neighbour, is news to a connection.
static bool is_news(const NextHop& reported) {
  return std::any_of(follower().conns.begin(), follower().conns.end(),
                     [&](const Conn* conn) { return conn->is_news(reported); });
}

void packets_ready() {
  Follower& f = follower();
  if (f.fd < 0) return;
  alignas(nlmsghdr) char buf[8192];
  for (int burst = 0; burst < 64; burst++) {
    ssize_t n = recv(f.fd, buf, sizeof buf, MSG_DONTWAIT);
    if (n < 0 && errno == ENOBUFS) return look_soon();  // some were lost
    if (n <= 0) return;
    auto left = static_cast<unsigned>(n);
    for (auto* nl = reinterpret_cast<nlmsghdr*>(buf); NLMSG_OK(nl, left); nl = NLMSG_NEXT(nl, left)) {
      NextHop reported;
      switch (nl->nlmsg_type) {
        case RTM_NEWNEIGH:
          if (neighbour_in(*nl, nl->nlmsg_len, reported) && is_news(reported)) look_soon();
          break;
        case RTM_NEWLINK:
        case RTM_NEWROUTE:
        case RTM_DELROUTE:
        case RTM_NEWRULE:
        case RTM_DELRULE:
          look_soon();
          break;
        default:
          break;
      }
    }
  }
}

uint64_t packets_next_deadline_us() {
  const Follower& f = follower();
  if (f.look_us == 0 || f.use_us == 0) return f.look_us + f.use_us;
  return std::min(f.look_us, f.use_us);
}

void packets_run_timers() {
  Follower& f = follower();
  const uint64_t now = now_us();
  if (f.look_us != 0 && f.look_us <= now) {
    f.look_us = 0;
    f.looked_us = now;
    conns_follow();
  }
  if (f.use_us != 0 && f.use_us <= now) {
    f.use_us = now + kUseUs;
    conns_use_next_hops();
  }
}

void packets_abandon() {
  follower().conns.clear();
  stop_listening();
  packets_give_up();
}

}  // namespace usiw::run
