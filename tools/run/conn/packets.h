// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.h
/// Raw packets: which connections may use them. packets.cc also follows the routes of those that do.
#ifndef USIW_RUN_PACKETS_H
#define USIW_RUN_PACKETS_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Raw packets have proved impossible here: all later connections use sockets alone.
void packets_give_up();
/// [big lock] Returns true if raw packets can go from one end to the other: they are wanted and permitted, and the
/// route leaves by the device's interface, which is an Ethernet.
bool packets_reach(const Tuple& tuple);
/// [big lock] In a child of fork(): the connections are the parent's, and so is DPDK.
void packets_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_PACKETS_H
