// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file gid_table.h
/// The GIDs of the device on the RoCE face: the addresses of its interface (docs/face.md).
#ifndef USIW_RUN_GID_TABLE_H
#define USIW_RUN_GID_TABLE_H

#include <netinet/in.h>

#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// Number of entries that the device reports. Those after the addresses of the interface are empty.
inline constexpr uint32_t kGidTableLength = 32;

struct Gid {
  in6_addr gid;
  Endpoint at;           ///< the address that datagrams have; its port is 0
  bool made_up = false;  ///< no interface has the address @p gid, and @p at is a loopback address
};

/// Returns the GIDs of the device: index 0 is the link-local one. At most kGidTableLength.
std::vector<Gid> gid_table();

}  // namespace usiw::run

#endif  // USIW_RUN_GID_TABLE_H
