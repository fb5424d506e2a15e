// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch_table.h
/// The table that a process shares with its watcher. It lists the open connections, whose peers get a RESET if the
/// process is killed. The process writes the table while it runs, and the watcher reads it afterwards.
#ifndef USIW_RUN_WATCH_TABLE_H
#define USIW_RUN_WATCH_TABLE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/run/host/host.h"

namespace usiw::run {

/// An open connection of the process.
struct WatchEntry {
  std::atomic<uint32_t> live;  ///< 1: the other members are valid. Set last, cleared first
  uint32_t local_isn, peer_isn;
  Tuple ends;
};

/// The usual number of entries, and the least number. If RLIMIT_FSIZE does not permit the usual number, the table has
/// fewer. The size of the shared memory shows the number.
inline constexpr size_t kWatchEntries = 16384;  // USIW_MAX_QP
inline constexpr size_t kLeastWatchEntries = 32;

/// The watcher's descriptors. Only the process has the other end of the socket, so the socket shows when the process
/// has ended. The memory contains the table.
inline constexpr int kWatchSocket = 3, kWatchMemory = 4;
inline constexpr char kWatchArgument[] = "--watch";

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_TABLE_H
