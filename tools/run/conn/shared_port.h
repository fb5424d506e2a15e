// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_port.h
/// UDP ports that several processes may be bound to (RDMA_OPTION_ID_REUSEADDR), and how one of them gets the port
/// alone.
#ifndef USIW_RUN_SHARED_PORT_H
#define USIW_RUN_SHARED_PORT_H

#include <sys/types.h>

#include <functional>
#include <vector>

#include "tools/run/host/host.h"

namespace usiw::run {

/// Claims the UDP port to which @p fd is bound at @p local, and to which others may be bound too (SO_REUSEADDR), for
/// this process. Afterwards no other user gets datagrams to it, whatever he asks of the kernel. Returns 0, or
/// -EADDRINUSE if another socket might get them; those of the inodes @p own do not count. Then the port stays shared.
/// It also stays shared if the sockets cannot be listed. @p between, for tests, is called between the two steps.
int claim_port(int fd, const Endpoint& local, const std::vector<ino_t>& own,
               const std::function<void()>& between = nullptr);

}  // namespace usiw::run

#endif  // USIW_RUN_SHARED_PORT_H
