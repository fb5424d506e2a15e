// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "settings.h"

#include <cstdlib>

namespace usiw::run {

bool ports_of(const std::string& name, Ports& out) {
  if (name == "auto") out = Ports::kAuto;
  else if (name == "shm") out = Ports::kShm;
  else if (name == "socket") out = Ports::kSocket;
  else if (name == "packet") out = Ports::kPacket;
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
    if (!ports_of(get(kPortVariable, "auto"), s.ports)) s.ports = Ports::kAuto;
    s.watcher = get(kWatcherVariable, "");
    return s;
  }());
  return once;
}

}  // namespace usiw::run
