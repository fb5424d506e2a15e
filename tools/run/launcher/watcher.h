// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watcher.h
/// `usiw-run --watch`: the watcher of one process (conn/watch.h).
#ifndef USIW_RUN_WATCHER_H
#define USIW_RUN_WATCHER_H

namespace usiw::run {

/// Waits until the process of conn/watch_table.h has ended for whatever reason, and sends RESET for each of its open
/// connections. Returns the exit status.
int watcher_main();

}  // namespace usiw::run

#endif  // USIW_RUN_WATCHER_H
