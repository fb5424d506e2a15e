// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.h
/// The decision whether connections may use raw packets. packets.cc also follows the routes of connections that may.
#ifndef USIW_RUN_PACKETS_H
#define USIW_RUN_PACKETS_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Makes all later connections do without raw packets, which have proved impossible in this process.
void packets_give_up();
/// [big lock] Returns true if raw packets can go from one end to the other: packets are requested and permitted, and
/// the route leaves by the device's interface, which is Ethernet.
bool packets_reach(const Tuple& tuple);
/// [big lock] In a child of fork(): forgets the connections, and gives up raw packets, because DPDK is the parent's
/// too.
void packets_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_PACKETS_H
