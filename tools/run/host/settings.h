// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file settings.h
/// What usiw-run hands to the programs it starts, through their environment.
#ifndef USIW_RUN_SETTINGS_H
#define USIW_RUN_SETTINGS_H

#include <string>

#include "provider/port/choice.h"

namespace usiw::run {

inline constexpr char kDeviceVariable[] = "USIW_RUN_DEVICE";
inline constexpr char kAddressVariable[] = "USIW_RUN_ADDRESS";
inline constexpr char kRunPortVariable[] = "USIW_RUN_PORT";
/// The provider's own: provider/port/fault_port.h.
inline constexpr char kFaultsVariable[] = "USIW_FAULTS";
inline constexpr char kWatcherVariable[] = "USIW_RUN_WATCHER";

struct Settings {
  std::string device;   ///< name of the RDMA device
  std::string address;  ///< source address where the program leaves it open, or empty: the route's
  /// --port. Sockets reach everyone, so they are always one of the ways: kPacket is as kAuto, but usiw-run starts
  /// nothing if raw packets are not permitted.
  PortWish port = PortWish::kAuto;
  std::string watcher;  ///< path of usiw-run itself, or empty
};

/// Read from the environment once.
const Settings& settings();

}  // namespace usiw::run

#endif  // USIW_RUN_SETTINGS_H
