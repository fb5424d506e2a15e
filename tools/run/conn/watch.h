// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// The watcher of this process, and the connections for which it is responsible. If a process is killed, its peers must
/// be notified. With the module the kernel does that, and under usiw-run the watcher does. The watcher is a second,
/// tiny process. It sleeps until the first process has ended, sends RESET for each open connection, and ends.
#ifndef USIW_RUN_WATCH_H
#define USIW_RUN_WATCH_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Adds a connection to the table that the watcher reads. The first call starts the watcher. Returns the
/// number of the entry, or -1 if there is no watcher or no free entry. Without an entry, the peer detects the end of
/// this process by its own timeout.
int watch_add(const Tuple& tuple, uint32_t local_isn, uint32_t peer_isn);
/// [big lock] Frees an entry; -1 is ignored.
void watch_remove(int entry);
/// [big lock] In a child of fork(): releases the table and the socket of the watcher, which are the parent's.
void watch_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_H
