// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch.h
/// Functions that start the watcher of this process, and maintain the table of open connections that the watcher reads.
/// The watcher is a second, tiny process, which notifies the peers if this process is killed. It sleeps until this
/// process has ended, sends RESET for each open connection, and exits. With the module, the kernel notifies the peers.
#ifndef USIW_RUN_WATCH_H
#define USIW_RUN_WATCH_H

#include "tools/run/host/host.h"

namespace usiw::run {

/// [big lock] Adds a connection to the table that the watcher reads. The first call starts the watcher. Returns the
/// index of the new entry, or -1 if there is no watcher or no free entry. If this process is killed, the peer of a
/// connection without an entry notices that only by its own peer timeout.
int watch_add(const Tuple& tuple, uint32_t local_isn, uint32_t peer_isn);
/// [big lock] Frees the entry with the index @p entry. Ignores -1.
void watch_remove(int entry);
/// [big lock] In a child of fork(): unmaps the table and closes the socket of the parent's watcher.
void watch_abandon();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_H
