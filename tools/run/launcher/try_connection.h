// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file try_connection.h
/// The trials of `usiw-run --check`. A trial makes a connection by one port, as a program under usiw-run would.
#ifndef USIW_RUN_TRY_CONNECTION_H
#define USIW_RUN_TRY_CONNECTION_H

#include <string>

#include "provider/port/choice.h"
#include "tools/run/launcher/parts.h"

namespace usiw::run {

/// The hidden option by which usiw-run starts itself as a trial. The name of a port and an address follow.
inline constexpr char kTryArgument[] = "--try-connection";

/// The result of a trial.
struct Tried {
  enum { kWorks, kFails, kNotTried } outcome;
  std::string why;  ///< one line, empty if it works
};

/// Runs a trial: connects two processes of this host by @p kind, and sends and compares messages in both directions. If
/// @p kind is shared memory or sockets, the processes connect to @p address. If @p kind is raw packets, the processes
/// are in two new network namespaces, because the kernel accepts no raw packets from its own addresses. Takes a few
/// seconds at most.
Tried try_connection(const Parts& parts, PortKind kind, const std::string& address);
/// Carries out a trial, as the main function of `usiw-run --try-connection`. Returns 0. If the trial fails, prints the
/// fault as the last line of the output and ends the process with another status. SIGALRM ends a trial that hangs.
int try_connection_main(const std::string& port, const std::string& address);

}  // namespace usiw::run

#endif  // USIW_RUN_TRY_CONNECTION_H
