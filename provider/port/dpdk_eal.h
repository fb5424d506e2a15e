// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file dpdk_eal.h
/// DPDK's environment layer, once per process.
#ifndef USIW_PORT_DPDK_EAL_H
#define USIW_PORT_DPDK_EAL_H

#include <string>

namespace usiw {

/// Initialises EAL unless it is: no hugepages, no PCI, no shared configuration, no
/// telemetry, no worker thread, nothing on stdout. The calling thread's affinity, signal
/// mask and name are not touched (a thread of its own does it, with all signals blocked,
/// so that EAL's interrupt thread never runs the application's handlers).
///
/// Returns "" or what went wrong. A child of fork() gets an error: EAL's memory and
/// threads are its parent's. [any thread]
std::string eal_init();

/// The last error line that DPDK wrote since the last call ("" when none).
std::string eal_last_error();

}  // namespace usiw

#endif  // USIW_PORT_DPDK_EAL_H
