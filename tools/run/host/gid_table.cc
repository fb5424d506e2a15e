// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/gid_table.h"

#include <algorithm>
#include <cstring>

namespace usiw::run {
namespace {

bool is_link_local(const Endpoint& e) { return IN6_IS_ADDR_LINKLOCAL(&e.addr); }

/// Returns a link-local GID for an interface that has none: that of its MAC, as the kernel makes it. It reaches this
/// host only.
Gid make_up() {
  Gid made{};
  const auto guid = node_guid();
  made.gid.s6_addr[0] = 0xfe;
  made.gid.s6_addr[1] = 0x80;
  std::memcpy(made.gid.s6_addr + 8, guid.data(), guid.size());
  made.at = endpoint_any(true);
  made.at.addr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
  made.made_up = true;
  return made;
}

}  // namespace

std::vector<Gid> gid_table() {
  std::vector<Gid> table{make_up()};
  std::vector<Endpoint> addresses = device_addresses();
  // IPv4 first, and the link-local IPv6 address in place of the one that is made up.
  std::ranges::stable_partition(addresses, [](const Endpoint& e) { return e.ipv4(); });
  for (const Endpoint& e : addresses) {
    if (is_link_local(e)) {
      if (table[0].made_up) table[0] = {.gid = e.addr, .at = e};
    } else if (table.size() < kGidTableLength) {
      table.push_back({.gid = e.addr, .at = e});
    }
  }
  return table;
}

}  // namespace usiw::run
