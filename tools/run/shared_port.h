// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file shared_port.h
/// UDP ports that several processes may be bound to (RDMA_OPTION_ID_REUSEADDR): who else is there?
#ifndef USIW_RUN_SHARED_PORT_H
#define USIW_RUN_SHARED_PORT_H

#include <sys/types.h>

#include <vector>

#include "host.h"

namespace usiw::run {

/// Is a UDP socket of this network namespace, other than those of the inodes @p own, bound where it would get datagrams
/// to @p local? Yes if that cannot be found out.
bool port_is_shared(const Endpoint& local, const std::vector<ino_t>& own);

}  // namespace usiw::run

#endif  // USIW_RUN_SHARED_PORT_H
