// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "settings.h"

#include <cstdlib>

namespace usiw::run {

/// auto: memory reaches who has it as well, sockets everyone, and neither needs rights. Packets never
/// by themselves: docs/kernel-less.md says why.
bool port_kind_of(const std::string& name, usiw_port_kind& out) {
  if (name == "auto" || name == "shm") out = USIW_PORT_SHM;
  else if (name == "socket") out = USIW_PORT_SOCKET;
  else if (name == "packet") out = USIW_PORT_PACKET;
  else return false;
  return true;
}

const Settings& settings() {
  static const Settings& once = *new Settings([] {
    auto get = [](const char* name, const char* otherwise) -> std::string {
      const char* value = getenv(name);
      return value != nullptr && *value != '\0' ? value : otherwise;
    };
    Settings s;
    s.device = get(kDeviceVariable, "usiw0");
    s.address = get(kAddressVariable, "");
    if (!port_kind_of(get(kPortVariable, "auto"), s.port)) s.port = USIW_PORT_SHM;
    s.watcher = get(kWatcherVariable, "");
    return s;
  }());
  return once;
}

}  // namespace usiw::run
