// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file two_hosts.h
/// Two network namespaces with a pair of veth devices between them, for a trial of raw packets. They vanish with the
/// processes in them. Each call returns an empty string, or the step that failed and why.
#ifndef USIW_RUN_TWO_HOSTS_H
#define USIW_RUN_TWO_HOSTS_H

#include <string>

namespace usiw::run {

/// Addresses of the two ends.
inline constexpr char kHostAddress[2][16] = {"192.0.2.1", "192.0.2.2"};
/// Leaves this network namespace for a new one. Without the right to do so, enters a new user namespace, too.
std::string leave_network();
/// Connects this network namespace and that of the process @p other with a pair of veth devices.
std::string connect_hosts(int other);
/// Sets up lo and the device of @p end (0 or 1), and gives the device its address. Waits up to 2 s until the device
/// exists, and up to 2 s until it is running.
std::string set_up_host(int end);

}  // namespace usiw::run

#endif  // USIW_RUN_TWO_HOSTS_H
