// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file gid_table.h
/// The GIDs of the device on the RoCE face: the addresses of its interface (docs/face.md). An address keeps its index
/// for as long as the interface has it, as in the kernel. Each process has a table of its own.
#ifndef USIW_RUN_GID_TABLE_H
#define USIW_RUN_GID_TABLE_H

#include <netinet/in.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// Number of entries that the device reports.
inline constexpr uint32_t kGidTableLength = 32;

struct Gid {
  in6_addr gid{};
  Endpoint at;           ///< the address that datagrams have; its port is 0
  bool there = false;    ///< false: the entry is empty
  bool made_up = false;  ///< no interface has the address @p gid, and @p at is a loopback address
};

/// The table, of kGidTableLength entries.
struct GidTable {
  std::vector<Gid> entries;
  uint64_t changes = 0;  ///< how often the table has changed so far
};

/// Looks up the addresses of the interface, and returns the table. Index 0 is the link-local GID.
GidTable gid_table();
/// The lock of the table, a leaf. Held around fork().
std::mutex& gid_table_lock();

}  // namespace usiw::run

#endif  // USIW_RUN_GID_TABLE_H
