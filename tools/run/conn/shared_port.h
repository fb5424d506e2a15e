// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_port.h
/// UDP ports to which several processes may be bound (RDMA_OPTION_ID_REUSEADDR). A process can claim such a port, so
/// that it alone receives the datagrams.
#ifndef USIW_RUN_SHARED_PORT_H
#define USIW_RUN_SHARED_PORT_H

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// Claims a UDP port for this process. @p fd is bound to the port at @p local, and other sockets may be bound to it too
/// (SO_REUSEADDR). Returns 0 if from now on no process of another user can receive datagrams to @p local. Returns
/// -errno if the port stays shared: -EADDRINUSE if another socket may receive them, or if the sockets cannot be listed.
/// Sockets with an inode in @p own do not count. Tests pass @p between, which is called after new sockets are kept out
/// and before the present ones are listed.
int claim_port(int fd, const Endpoint& local, const std::vector<ino_t>& own,
               const std::function<void()>& between = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_SHARED_PORT_H
