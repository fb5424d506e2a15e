// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_port.h
/// A function that claims a shared UDP port. Sockets of several processes may be bound to such a port
/// (RDMA_OPTION_ID_REUSEADDR). After a claim, no process of another user receives the datagrams of the port.
#ifndef USIW_RUN_SHARED_PORT_H
#define USIW_RUN_SHARED_PORT_H

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// Claims the UDP port of @p local for this process. @p fd is bound to @p local, and other sockets may be bound to the
/// same port (SO_REUSEADDR). Returns 0 if from now on no process of another user can receive datagrams to @p local.
/// Returns -errno if the port stays shared: -EADDRINUSE if another socket may receive these datagrams, or if the
/// sockets cannot be listed. Ignores sockets whose inode is in @p own. Only tests pass @p between: claim_port() calls
/// it after it has excluded new sockets and before it lists the present sockets.
int claim_port(int fd, const Endpoint& local, const std::vector<ino_t>& own,
               const std::function<void()>& between = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_SHARED_PORT_H
