// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file try_connection.h
/// `usiw-run --check` makes a connection by each port that it promises, as a program under usiw-run would.
#ifndef USIW_RUN_TRY_CONNECTION_H
#define USIW_RUN_TRY_CONNECTION_H

#include <string>

#include "provider/port/choice.h"
#include "tools/run/launcher/parts.h"

namespace usiw::run {

/// The hidden option by which usiw-run starts itself as a trial. The name of a port follows.
inline constexpr char kTryArgument[] = "--try-connection";

struct Tried {
  enum { kWorks, kFails, kNotTried } outcome;
  std::string why;  ///< one line, empty if it works
};

/// Connects two processes of this host by @p kind, and sends and compares messages both ways. By shared memory and
/// sockets they connect to @p address. By raw packets they are in two network namespaces that exist for this only,
/// because the kernel takes no raw packets from its own addresses. Takes a few seconds at most.
Tried try_connection(const Parts& parts, PortKind kind, const std::string& address);
/// The trial itself. Returns its exit status; the last line of its output is the fault.
int try_connection_main(const std::string& port, const std::string& address);

}  // namespace usiw::run

#endif  // USIW_RUN_TRY_CONNECTION_H
