// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file try_connection.h
/// `usiw-run --check` makes a connection by each port that it promises, as a program under usiw-run would.
#ifndef USIW_RUN_TRY_CONNECTION_H
#define USIW_RUN_TRY_CONNECTION_H

#include <string>

#include "provider/port/choice.h"
#include "tools/run/launcher/check.h"

namespace usiw::run {

/// The hidden option by which usiw-run starts itself as that program; a port's name follows.
inline constexpr char kTryArgument[] = "--try-connection";

struct Tried {
  enum { kWorks, kFails, kNotTried } outcome;
  std::string why;  ///< one line, unless it works
};

/// Two processes of this host connect by @p kind, and messages go both ways and are compared. By shared memory and
/// sockets to @p address; by raw packets between two network namespaces that exist for this only, because the kernel
/// takes no raw packets of its own addresses. Takes a second, and a few at most.
Tried try_connection(const Parts& parts, PortKind kind, const std::string& address);
/// That program. Its exit status; what is wrong is the last line of its output.
int try_connection_main(const std::string& port, const std::string& address);

/// Parts for two processes that pass for hosts (two_hosts.cc). Each returns an empty string, or what failed.
inline constexpr char kHostAddress[2][16] = {"192.0.2.1", "192.0.2.2"};
/// Leaves this network namespace for a new one.
std::string leave_network();
/// Connects this network namespace and that of the process @p other with a pair of veth devices.
std::string connect_hosts(int other);
/// Gives this end, 0 or 1, its address, and waits until it is up.
std::string set_up_host(int end);

}  // namespace usiw::run

#endif  // USIW_RUN_TRY_CONNECTION_H
