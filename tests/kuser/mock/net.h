// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The host as sockets need it: its addresses and its interfaces.
#pragma once

#include "mock/mock.h"

namespace mock {

inline in6_addr mapped(u32 host_order) {
  in6_addr a;
  ipv6_addr_set_v4mapped(cpu_to_be32(host_order), &a);
  return a;
}

/// Returns the interface that has this address, or null.
net_device* owner_of(const in6_addr& addr);

void reset_sockets();

}  // namespace mock
