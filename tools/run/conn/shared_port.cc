// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/conn/shared_port.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace usiw::run {
namespace {

/// Parses an address in the form of /proc/net/udp and udp6: words of 32 bits in hexadecimal, then the port. Returns
/// false if @p text is not an address.
bool parse_bound(const std::string& text, Endpoint& out) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return false;
  out = endpoint_any(colon == 8);
  for (size_t word = 0; word < colon / 8; word++)
    out.addr.s6_addr32[colon == 8 ? 3 : word] =
        static_cast<uint32_t>(std::strtoul(text.substr(word * 8, 8).c_str(), nullptr, 16));
  out.port = htons(static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 16)));
  return true;
}

/// The address of a socket, and whether the socket is connected.
struct Bound {
  Endpoint at;
  bool ipv6 = false;  ///< true for an IPv6 socket, even if its address is IPv4-mapped
  bool connected = false;
};

/// Returns true if the socket @p other may receive datagrams to @p local, now or after a connect(2) on that socket.
bool overlap(const Bound& other, const Endpoint& local) {
  if (other.at.port != local.port) return false;
  // Assume that a socket at the IPv6 wildcard address also receives IPv4 datagrams, because /proc does not show whether
  // it is IPv6-only. The kernel prefers an IPv4 socket, but a connected IPv6 socket gets all datagrams from its peer.
  if (other.at.any()) return !other.at.ipv4() || local.ipv4();
  // Treat a connected socket like one at the wildcard address, because connect(2) may have chosen its address. When
  // such a socket is disconnected, it gets the wildcard address back, even if another socket has been bound to the
  // wildcard address meanwhile.
  if (other.connected) return other.ipv6 || local.ipv4();
  return local.any() ? local.ipv4() == other.at.ipv4() : IN6_ARE_ADDR_EQUAL(&other.at.addr, &local.addr);
}

/// Returns true if a socket in the list @p path, other than those of the inodes @p own, may receive datagrams to
/// @p local. Returns true as well if the list cannot be read.
bool listed(const char* path, bool ipv6, const Endpoint& local, const std::vector<ino_t>& own) {
  std::ifstream sockets(path);
  std::string line;
  if (!std::getline(sockets, line)) return true;
  while (std::getline(sockets, line)) {
    // The fields are the number of the socket, its local and remote address, and six others before the inode.
    constexpr char kFields[] = "%*s %63s %63s %*s %*s %*s %*s %*s %*s %lu";
    char bound[64], peer[64];
    ino_t inode;
    Endpoint at, to;
    if (sscanf(line.c_str(), kFields, bound, peer, &inode) != 3) return true;
    if (!parse_bound(bound, at) || !parse_bound(peer, to)) return true;
    if (!overlap({.at = at, .ipv6 = ipv6, .connected = to.port != 0 || !to.any()}, local)) continue;
    if (std::find(own.begin(), own.end(), inode) == own.end()) return true;
  }
  return false;
}

/// Returns true if a UDP socket of this network namespace, other than those of the inodes @p own, may receive datagrams
/// to @p local. Returns true as well if the sockets cannot be listed. Without a list of IPv6 sockets, only IPv4 sockets
/// count for an IPv4 address, because a host without IPv6 has no such list.
bool port_is_shared(const Endpoint& local, const std::vector<ino_t>& own) {
  if (local.ipv4() && listed("/proc/thread-self/net/udp", false, local, own)) return true;
  return std::ifstream("/proc/thread-self/net/udp6").good() ? listed("/proc/thread-self/net/udp6", true, local, own)
                                                            : !local.ipv4();
}

int set_reuse(int fd, int value) {
  return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) == 0 ? 0 : -errno;
}

}  // namespace

/// Clears SO_REUSEADDR of @p fd first, so that no new socket of another user can bind to the port. Then searches the
/// sockets that are already bound. If two processes claim the port at the same time, at most one of them finds no other
/// socket.
int claim_port(int fd, const Endpoint& local, const std::vector<ino_t>& own, const std::function<void()>& between) {
  if (int error = set_reuse(fd, 0); error != 0) return error;
  if (between) between();
  if (!port_is_shared(local, own)) return 0;
  set_reuse(fd, 1);
  return -EADDRINUSE;
}

}  // namespace usiw::run
