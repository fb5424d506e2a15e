// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/port_wish.h"

#include <cstdlib>
#include <string>

#include "base/say.h"
#include "port/permitted.h"
#include "runtime/glue.h"

namespace usiw {

PortWish port_wish() {
  PortWish wish = PortWish::kAuto;
  if (const char* name = getenv(kPortVariable); name != nullptr && *name != 0 && !parse_port_wish(name, wish))
    say_once(std::string(kPortVariable) + ": " + kPortNames + ", not '" + name + "'; auto is taken");
  return wish;
}

}  // namespace usiw

uint64_t usiw_own_caps(uint64_t all) { return usiw::caps_of(all, usiw::port_wish(), usiw::packets_permitted()); }
