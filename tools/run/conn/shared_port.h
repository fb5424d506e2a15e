// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_port.h
/// UDP ports that several processes may be bound to (RDMA_OPTION_ID_REUSEADDR): who else is there?
#ifndef USIW_RUN_SHARED_PORT_H
#define USIW_RUN_SHARED_PORT_H

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// The UDP port to which @p fd is bound at @p local, and to which others may be bound too (SO_REUSEADDR), is this
/// process's alone from now on: no other user gets what comes there, whatever he asks of the kernel. 0; -EADDRINUSE:
/// there is another socket than those of the inodes @p own that might, and the port stays shared; so it does when that
/// cannot be found out. @p between, for tests: called between the two steps.
int claim_port(int fd, const Endpoint& local, const std::vector<ino_t>& own,
               const std::function<void()>& between = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_SHARED_PORT_H
