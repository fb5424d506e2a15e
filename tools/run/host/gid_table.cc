// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/gid_table.h"

#include <algorithm>
#include <cstring>

#include "tools/run/host/never_destroyed.h"

namespace usiw::run {
namespace {

bool is_link_local(const Endpoint& e) { return IN6_IS_ADDR_LINKLOCAL(&e.addr); }

/// Returns a link-local GID for an interface that has none: that of its MAC, as the kernel makes it. It reaches this
/// host only.
Gid make_up() {
  Gid made;
  const auto guid = node_guid();
  made.gid.s6_addr[0] = 0xfe;
  made.gid.s6_addr[1] = 0x80;
  std::memcpy(made.gid.s6_addr + 8, guid.data(), guid.size());
  made.at = endpoint_any(true);
  made.at.addr.s6_addr32[3] = htonl(INADDR_LOOPBACK);
  made.there = made.made_up = true;
  return made;
}

/// Changes @p entries to the GIDs of @p addresses. Returns true if something has changed.
bool update(std::vector<Gid>& entries, const std::vector<Endpoint>& addresses) {
  const auto is = [](const Gid& g, const Endpoint& e) { return g.there && !g.made_up && g.at == e; };
  bool changed = false;
  const auto local = std::ranges::find_if(addresses, is_link_local);
  const Gid first = local == addresses.end() ? make_up() : Gid{.gid = local->addr, .at = *local, .there = true};
  if (!IN6_ARE_ADDR_EQUAL(&first.gid, &entries[0].gid) || first.made_up != entries[0].made_up || !entries[0].there) {
    entries[0] = first;
    changed = true;
  }
  for (size_t i = 1; i < entries.size(); i++) {
    Gid& g = entries[i];
    if (!g.there || std::ranges::any_of(addresses, [&](const Endpoint& e) { return is(g, e); })) continue;
    g = {};
    changed = true;
  }
  for (const Endpoint& e : addresses) {
    if (is_link_local(e) || std::ranges::any_of(entries, [&](const Gid& g) { return is(g, e); })) continue;
    const auto free = std::find_if(entries.begin() + 1, entries.end(), [](const Gid& g) { return !g.there; });
    if (free == entries.end()) break;
    *free = {.gid = e.addr, .at = e, .there = true};
    changed = true;
  }
  return changed;
}

}  // namespace

std::mutex& gid_table_lock() { return never_destroyed<std::mutex>(); }

GidTable gid_table() {
  std::vector<Endpoint> addresses;
  const bool read = device_addresses(addresses);
  std::ranges::stable_partition(addresses, [](const Endpoint& e) { return e.ipv4(); });
  std::lock_guard hold(gid_table_lock());
  static GidTable& table = *new GidTable{std::vector<Gid>(kGidTableLength)};
  if (read && update(table.entries, addresses)) table.changes++;
  return table;
}

}  // namespace usiw::run
