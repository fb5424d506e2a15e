// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file try_connection.h
/// `usiw-run --check` makes a connection by each port that it promises, as a program under usiw-run would.
#ifndef USIW_RUN_TRY_CONNECTION_H
#define USIW_RUN_TRY_CONNECTION_H

#include <string>

#include "provider/port/choice.h"
#include "tools/run/launcher/parts.h"

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

}  // namespace usiw::run

#endif  // USIW_RUN_TRY_CONNECTION_H
