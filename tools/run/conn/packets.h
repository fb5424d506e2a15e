// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file packets.h
/// Raw packets: which connections may go by them, and how these follow their routes: conn_packets.cc.
#ifndef USIW_RUN_PACKETS_H
#define USIW_RUN_PACKETS_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] They have proved impossible here: sockets for all from now on.
void packets_give_up();
/// [big lock] True if packets between these ends can go raw: that is wanted and permitted, and the route leaves by the
/// device's interface, an Ethernet.
bool packets_reach(const Tuple& tuple);

/// [big lock] True if a connection of this process may use raw packets.
bool packets_possible();

/// [big lock, cm thread] The kernel has reported a change of routes, neighbours or interfaces.
void packets_ready();
/// [big lock] When packets_run_timers() has something to do, us; 0: never.
uint64_t packets_next_deadline_us();
/// [big lock, cm thread]
void packets_run_timers();
/// [big lock] In a child of fork(): the connections are the parent's, and so is DPDK.
void packets_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_PACKETS_H
