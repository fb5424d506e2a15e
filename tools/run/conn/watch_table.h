// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file watch_table.h
/// Memory that a process shares with its watcher: the open connections, whose peers get a RESET if the process is
/// killed. The process writes it while it lives, and the watcher reads it afterwards.
#ifndef USIW_RUN_WATCH_TABLE_H
#define USIW_RUN_WATCH_TABLE_H

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tools/run/host/host.h"

namespace usiw::run {

struct WatchEntry {
  std::atomic<uint32_t> live;  ///< 1: the other members are valid. Set last, cleared first
  uint32_t local_isn, peer_isn;
  Tuple ends;
};

/// Entries of the table. Where RLIMIT_FSIZE forbids so many, there are fewer, and the size of the memory shows the
/// number.
inline constexpr size_t kWatchEntries = 16384;  // USIW_MAX_QP
inline constexpr size_t kLeastWatchEntries = 32;

/// The watcher's descriptors: a socket whose other end only the process has, and the table.
inline constexpr int kWatchSocket = 3, kWatchMemory = 4;
inline constexpr char kWatchArgument[] = "--watch";

}  // namespace usiw::run

#endif  // USIW_RUN_WATCH_TABLE_H
