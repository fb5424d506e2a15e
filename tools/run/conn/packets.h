// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.h
/// Functions that decide whether connections may use raw packets. packets.cc also follows the routes of the connections
/// that may.
#ifndef USIW_RUN_PACKETS_H
#define USIW_RUN_PACKETS_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Excludes all later connections of this process from raw packets. Call it when raw packets have failed.
void packets_give_up();
/// [big lock] Returns true if a connection with the 4-tuple @p tuple can use raw packets: no other port was requested,
/// the process may open raw ports and has not given up raw packets, the device's interface is Ethernet, and the route
/// leaves through that interface without encapsulation.
bool packets_reach(const Tuple& tuple);
/// [big lock] In a child of fork(): forgets the connections and gives up raw packets, because the connections and DPDK
/// belong to the parent.
void packets_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_PACKETS_H
