// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// If a process is killed under the module, the kernel notifies its peers. Under usiw-run the watcher does. It is a
/// second, tiny process, which sleeps until the first one is gone, sends RESET for each open connection, and ends.
#ifndef USIW_RUN_WATCH_H
#define USIW_RUN_WATCH_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Enters a connection in the table, and starts the watcher with the first one. Returns the number of the
/// entry, or -1 if there is no watcher: then the peers detect the end by their own timeouts.
int watch_add(const Tuple& tuple, uint32_t local_isn, uint32_t peer_isn);
/// [big lock] Frees an entry; -1 is ignored.
void watch_remove(int entry);
/// [big lock] In a child of fork(): the watcher is the parent's.
void watch_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_H
