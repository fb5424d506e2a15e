// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/next_hop.h"

#include <linux/neighbour.h>

#include <cerrno>

#include "tools/run/host/rtnetlink.h"

namespace usiw::run {
namespace {

/// States of a neighbour in which the kernel uses its MAC.
constexpr uint16_t kKnown = NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;

}  // namespace

int route_of(const Endpoint& from, const Endpoint& to, NextHop& out) {
  rtmsg header{};
  header.rtm_family = static_cast<unsigned char>(to.family());
  header.rtm_dst_len = header.rtm_src_len = static_cast<unsigned char>(8 * to.length());
  RtnetlinkRequest route(RTM_GETROUTE, 0, header);
  route.add(RTA_DST, to.bytes(), to.length());
  route.add(RTA_SRC, from.bytes(), from.length());
  if (to.scope != 0) route.add(RTA_OIF, &to.scope, sizeof to.scope);
  if (int ret = route.ask(); ret != 0) return ret;
  const unsigned char type = route.header().rtm_type;
  out.local = type == RTN_LOCAL;
  if (uint16_t encap; route.get(RTA_ENCAP_TYPE, &encap, sizeof encap)) return -EPROTONOSUPPORT;
  if (type != RTN_UNICAST || !route.get(RTA_OIF, &out.ifindex, sizeof out.ifindex)) return -EHOSTUNREACH;
  out.address = to;
  out.address.port = 0;
  out.address.scope = 0;
  route.get(RTA_GATEWAY, out.address.bytes(), out.address.length());
  return 0;
}

int resolve(NextHop& hop) {
  ndmsg header{};
  header.ndm_family = static_cast<unsigned char>(hop.address.family());
  header.ndm_ifindex = static_cast<int>(hop.ifindex);
  RtnetlinkRequest neighbour(RTM_GETNEIGH, 0, header);
  neighbour.add(NDA_DST, hop.address.bytes(), hop.address.length());
  if (int ret = neighbour.ask(); ret != 0) return ret == -ENOENT ? -EHOSTUNREACH : ret;
  if ((neighbour.header().ndm_state & kKnown) == 0 || !neighbour.get(NDA_LLADDR, hop.mac.data(), hop.mac.size()))
    return -EHOSTUNREACH;
  return 0;
}

bool neighbour_in(const nlmsghdr& message, NextHop& out) {
  if (message.nlmsg_type != RTM_NEWNEIGH || message.nlmsg_len < NLMSG_LENGTH(sizeof(ndmsg))) return false;
  const auto& nd = *static_cast<const ndmsg*>(NLMSG_DATA(&message));
  if ((nd.ndm_family != AF_INET && nd.ndm_family != AF_INET6) || (nd.ndm_state & kKnown) == 0) return false;
  out.ifindex = static_cast<uint32_t>(nd.ndm_ifindex);
  out.address = endpoint_any(nd.ndm_family == AF_INET);
  return get_attribute(message, sizeof nd, NDA_DST, out.address.bytes(), out.address.length()) &&
         get_attribute(message, sizeof nd, NDA_LLADDR, out.mac.data(), out.mac.size());
}

}  // namespace usiw::run
