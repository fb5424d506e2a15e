// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if_arp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "tools/run/host/interface.h"
#include "tools/run/host/settings.h"
#include "uapi/usiw_wire.h"

namespace usiw::run {
namespace {

Fd udp_socket(int family) { return Fd(socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0)); }

/// Calls @p visit(interface, endpoint) for each address of this host's interfaces. Returns false if they cannot be read.
template <typename Visit>
bool each_address(Visit visit) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return false;
  for (ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    sockaddr_storage sa{};
    std::memcpy(&sa, i->ifa_addr, i->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
    Endpoint have;
    if (endpoint_from(sa, have) == 0) visit(*i, have);
  }
  freeifaddrs(list);
  return true;
}

/// Returns the name of the interface that has the address, or an empty string.
std::string interface_of(const Endpoint& e) {
  std::string found;
  each_address([&](const ifaddrs& i, const Endpoint& have) {
    if (IN6_ARE_ADDR_EQUAL(&have.addr, &e.addr)) found = i.ifa_name;
  });
  return found;
}

/// Returns the name of a running interface that has an IP address and is not a loopback interface. Returns "lo" if
/// there is none.
std::string first_running_interface() {
  std::string found = "lo";
  constexpr unsigned kWanted = IFF_UP | IFF_RUNNING;
  each_address([&](const ifaddrs& i, const Endpoint&) {
    if (found == "lo" && (i.ifa_flags & (kWanted | IFF_LOOPBACK)) == kWanted) found = i.ifa_name;
  });
  return found;
}

std::string choose_interface() {
  if (Endpoint own; parse_address(settings().address, own)) {
    if (std::string name = interface_of(own); !name.empty()) return name;
  }
  std::ifstream routes("/proc/net/route");
  std::string line, name, destination;
  std::getline(routes, line);
  while (routes >> name >> destination) {
    std::getline(routes, line);
    if (destination == "00000000") return name;
  }
  return first_running_interface();
}

/// Returns the name of the device's interface. Each process chooses the interface once. The GUID of the device is made
/// from the MAC of the interface, and librdmacm identifies the device by its GUID.
const std::string& the_interface() {
  static const std::string& once = *new std::string(choose_interface());
  return once;
}

/// Returns a MAC made from a hash of @p of. Two texts rarely give the same MAC.
std::array<uint8_t, 6> mac_by_hash(const std::string& of) {
  uint64_t h = 1469598103934665603ull;  // FNV-1a
  for (unsigned char c : of) h = (h ^ c) * 1099511628211ull;
  std::array<uint8_t, 6> mac;
  for (size_t i = 0; i < 6; i++) mac[i] = static_cast<uint8_t>(h >> (8 * i));
  mac[0] = static_cast<uint8_t>((mac[0] & 0xfc) | 2);  // local, unicast
  return mac;
}

}  // namespace

bool Endpoint::any() const {
  return ipv4() ? addr.s6_addr32[3] == 0 : IN6_IS_ADDR_UNSPECIFIED(&addr);
}

bool Endpoint::loopback() const {
  return ipv4() ? ntohl(addr.s6_addr32[3]) >> 24 == IN_LOOPBACKNET : IN6_IS_ADDR_LOOPBACK(&addr);
}

bool Endpoint::unicast() const {
  if (any()) return false;
  if (!ipv4()) return !IN6_IS_ADDR_MULTICAST(&addr);
  uint32_t v4 = ntohl(addr.s6_addr32[3]);
  return v4 >> 24 != 0 && !IN_MULTICAST(v4) && v4 != INADDR_BROADCAST;
}

usiw_cm_tuple cm_tuple(const Tuple& t) {
  usiw_cm_tuple out{};
  std::memcpy(out.local, &t.local.addr, sizeof out.local);
  std::memcpy(out.remote, &t.remote.addr, sizeof out.remote);
  out.local_port = t.local.port;
  out.remote_port = t.remote.port;
  out.scope = t.local.scope != 0 ? t.local.scope : t.remote.scope;
  return out;
}

int endpoint_from(const sockaddr_storage& sa, Endpoint& out) {
  out = {};
  if (sa.ss_family == AF_INET) {
    const auto& sin = reinterpret_cast<const sockaddr_in&>(sa);
    out = endpoint_any(true);
    out.addr.s6_addr32[3] = sin.sin_addr.s_addr;
    out.port = sin.sin_port;
    return 0;
  }
  if (sa.ss_family == AF_INET6) {
    const auto& sin6 = reinterpret_cast<const sockaddr_in6&>(sa);
    out.addr = sin6.sin6_addr;
    out.port = sin6.sin6_port;
    if (IN6_IS_ADDR_LINKLOCAL(&out.addr)) out.scope = sin6.sin6_scope_id;
    return 0;
  }
  return -EAFNOSUPPORT;
}

socklen_t endpoint_to(const Endpoint& e, sockaddr_storage& sa) {
  sa = {};
  if (e.ipv4()) {
    auto& sin = reinterpret_cast<sockaddr_in&>(sa);
    sin.sin_family = AF_INET;
    sin.sin_addr.s_addr = e.addr.s6_addr32[3];
    sin.sin_port = e.port;
    return sizeof sin;
  }
  auto& sin6 = reinterpret_cast<sockaddr_in6&>(sa);
  sin6.sin6_family = AF_INET6;
  sin6.sin6_addr = e.addr;
  sin6.sin6_port = e.port;
  sin6.sin6_scope_id = e.scope;
  return sizeof sin6;
}

Endpoint endpoint_any(bool ipv4, uint16_t port) {
  Endpoint e;
  if (ipv4) e.addr.s6_addr32[2] = htonl(0xffff);
  e.port = port;
  return e;
}

bool parse_address(const std::string& text, Endpoint& out) {
  out = endpoint_any(true);
  return inet_pton(AF_INET, text.c_str(), &out.addr.s6_addr32[3]) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &out.addr) == 1;
}

int route_to(const Endpoint& from, const Endpoint& to, Route& out) {
  const Fd fd = udp_socket(to.family());
  if (fd < 0) return -errno;
  sockaddr_storage sa;
  if (!from.any()) {
    Endpoint source = from;
    source.port = 0;
    socklen_t len = endpoint_to(source, sa);
    if (bind(fd, reinterpret_cast<sockaddr*>(&sa), len) != 0) return -errno;
  }
  Endpoint target = to;
  if (target.port == 0) target.port = htons(9);
  socklen_t len = endpoint_to(target, sa);
  if (connect(fd, reinterpret_cast<sockaddr*>(&sa), len) != 0) {
    if (errno != EACCES) return -errno;
    // The address is a broadcast address, or a route prohibits it. With SO_BROADCAST only the route is in the way.
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    return connect(fd, reinterpret_cast<sockaddr*>(&sa), len) == 0 ? -EINVAL : -errno;
  }
  len = sizeof sa;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&sa), &len) != 0) return -errno;
  endpoint_from(sa, out.local);
  out.local.port = 0;
  int mtu = 0;
  len = sizeof mtu;
  if (getsockopt(fd, to.ipv4() ? IPPROTO_IP : IPPROTO_IPV6, to.ipv4() ? IP_MTU : IPV6_MTU, &mtu, &len) != 0)
    return -errno;
  out.mtu = static_cast<uint32_t>(std::min(mtu, USIW_MAX_MTU));
  return 0;
}

Endpoint device_address(bool ipv4) {
  Endpoint found = endpoint_any(ipv4);
  if (const Endpoint preferred = preferred_source(ipv4); !preferred.any()) return preferred;
  each_address([&](const ifaddrs& i, const Endpoint& have) {
    if (i.ifa_name == the_interface() && have.ipv4() == ipv4 && found.any() && !IN6_IS_ADDR_LINKLOCAL(&have.addr))
      found = have;
  });
  found.port = 0;
  return found;
}

bool device_addresses(std::vector<Endpoint>& found) {
  const bool read = each_address([&](const ifaddrs& i, const Endpoint& have) {
    if (i.ifa_name == the_interface()) found.push_back(have);
  });
  if (!read) return false;
  Endpoint own;
  if (parse_address(settings().address, own))
    std::ranges::stable_partition(found, [&](const Endpoint& e) { return IN6_ARE_ADDR_EQUAL(&e.addr, &own.addr); });
  return true;
}

Endpoint preferred_source(bool ipv4) {
  Endpoint own;
  return parse_address(settings().address, own) && own.ipv4() == ipv4 ? own : endpoint_any(ipv4);
}

bool is_own_address(const Endpoint& e) {
  const Fd fd = udp_socket(e.family());
  sockaddr_storage sa;
  Endpoint any_port = e;
  any_port.port = 0;
  socklen_t len = endpoint_to(any_port, sa);
  return bind(fd, reinterpret_cast<sockaddr*>(&sa), len) == 0;
}

usiw_link_info link_info() {
  usiw_link_info link{};
  const std::string& name = the_interface();
  Interface netdev(name);
  name.copy(link.ifname, sizeof link.ifname - 1);
  link.ifindex = if_nametoindex(name.c_str());
  link.mtu = link.lo_mtu = USIW_MAX_MTU;
  if (netdev.call(SIOCGIFHWADDR) && netdev.r.ifr_hwaddr.sa_family == ARPHRD_ETHER)
    std::memcpy(link.mac, netdev.r.ifr_hwaddr.sa_data, sizeof link.mac);
  if (netdev.call(SIOCGIFMTU)) link.mtu = static_cast<uint32_t>(std::min(netdev.r.ifr_mtu, USIW_MAX_MTU));
  const unsigned flags = netdev.flags();
  link.up = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
  link.is_loopback = (flags & IFF_LOOPBACK) != 0;
  return link;
}

bool link_enabled() { return (Interface(the_interface()).flags() & IFF_UP) != 0; }

uint32_t link_speed() {
  ethtool_cmd settings{};
  settings.cmd = ETHTOOL_GSET;
  Interface netdev(the_interface());
  netdev.r.ifr_data = reinterpret_cast<char*>(&settings);
  const bool known = netdev.call(SIOCETHTOOL);
  const uint32_t mbps = static_cast<uint32_t>(settings.speed_hi) << 16 | settings.speed;
  return known && mbps != static_cast<uint32_t>(SPEED_UNKNOWN) && mbps != 0xffff ? mbps : 0;
}

/// Returns the MAC of the device's interface. Without one, returns a hash of the boot ID and the network namespace, so
/// that all processes of this boot and namespace get the same MAC.
static std::array<uint8_t, 6> make_mac() {
  const std::array<uint8_t, 6> mac = std::to_array(link_info().mac);
  if (mac != std::array<uint8_t, 6>{}) return mac;
  std::string boot_id, netns(64, '\0');
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  ssize_t n = readlink("/proc/thread-self/ns/net", netns.data(), netns.size());
  netns.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return mac_by_hash(boot_id + netns);
}

std::array<uint8_t, 6> device_mac() {
  static const std::array<uint8_t, 6> once = make_mac();
  return once;
}

std::array<uint8_t, 8> node_guid() {
  std::array<uint8_t, 6> m = device_mac();  // EUI-48 to EUI-64
  return {static_cast<uint8_t>(m[0] ^ 2), m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]};
}

}  // namespace usiw::run
