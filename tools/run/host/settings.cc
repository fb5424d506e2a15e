// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run/host/settings.h"

#include <cstdlib>

namespace usiw::run {

const Settings& settings() {
  static const Settings& once = *new Settings([] {
    auto get = [](const char* name, const char* otherwise) -> std::string {
      const char* value = getenv(name);
      return value != nullptr && *value != '\0' ? value : otherwise;
    };
    Settings s;
    s.device = get(kDeviceVariable, "usiw0");
    s.address = get(kAddressVariable, "");
    parse_port_wish(get(kRunPortVariable, "auto"), s.port);
    s.watcher = get(kWatcherVariable, "");
    return s;
  }());
  return once;
}

}  // namespace usiw::run
