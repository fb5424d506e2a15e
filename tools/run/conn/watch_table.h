// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch_table.h
/// The table that a process shares with its watcher. It lists the open connections of the process. The process writes
/// the table while it runs. After the end of the process, the watcher reads the table, and sends RESET for each
/// connection in it.
#ifndef USIW_RUN_WATCH_TABLE_H
#define USIW_RUN_WATCH_TABLE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/run/host/host.h"

namespace usiw::run {

/// An open connection of the process.
struct WatchEntry {
  std::atomic<uint32_t> live;  ///< 1: the other members are valid. The process sets it last and clears it first
  uint32_t local_isn, peer_isn;
  Tuple ends;
};

/// The usual and the least number of entries in the table. If RLIMIT_FSIZE does not permit the usual number, the table
/// has fewer. The watcher computes the number from the size of the shared memory.
inline constexpr size_t kWatchEntries = 16384;  // USIW_MAX_QP
inline constexpr size_t kLeastWatchEntries = 32;

/// Numbers of the watcher's two descriptors. kWatchSocket is a socket whose other end only the process has, so it
/// reports end of file when the process has ended. kWatchMemory is the memory with the table.
inline constexpr int kWatchSocket = 3, kWatchMemory = 4;
inline constexpr char kWatchArgument[] = "--watch";

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_TABLE_H
