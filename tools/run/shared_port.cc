// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "shared_port.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace usiw::run {
namespace {

/// An address as /proc/net/udp and udp6 print it: words of 32 bits in hexadecimal, then the port. False: it is none.
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

/// A socket on all addresses of IPv6 may get datagrams of IPv4, too; but those go to a socket of IPv4 first.
bool overlap(const Endpoint& a, const Endpoint& b) {
  return a.port == b.port && a.ipv4() == b.ipv4() && (a.any() || b.any() || IN6_ARE_ADDR_EQUAL(&a.addr, &b.addr));
}

bool listed(const char* path, const Endpoint& local, const std::vector<ino_t>& own) {
  std::ifstream sockets(path);
  std::string line, slot, bound, word;
  if (!std::getline(sockets, line)) return true;
  while (std::getline(sockets, line)) {
    std::istringstream fields(line);
    ino_t inode = 0;
    Endpoint at;
    // Its number, the two ends, then six fields before the inode.
    fields >> slot >> bound;
    for (int i = 0; i < 7; i++) fields >> word;
    if (!(fields >> inode)) return true;
    if (!parse_bound(bound, at) || !overlap(at, local)) continue;
    if (std::find(own.begin(), own.end(), inode) == own.end()) return true;
  }
  return false;
}

}  // namespace

bool port_is_shared(const Endpoint& local, const std::vector<ino_t>& own) {
  if (local.ipv4() && listed("/proc/thread-self/net/udp", local, own)) return true;
  // Of IPv4 here are the sockets of IPv6 that are bound to a mapped address.
  return std::ifstream("/proc/thread-self/net/udp6").good() ? listed("/proc/thread-self/net/udp6", local, own)
                                                            : !local.ipv4();
}

}  // namespace usiw::run
