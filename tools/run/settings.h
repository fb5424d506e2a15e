// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file settings.h
/// What usiw-run hands to the programs it starts, through their environment.
#ifndef USIW_RUN_SETTINGS_H
#define USIW_RUN_SETTINGS_H

#include <string>

namespace usiw::run {

inline constexpr char kDeviceVariable[] = "USIW_RUN_DEVICE";
inline constexpr char kAddressVariable[] = "USIW_RUN_ADDRESS";
inline constexpr char kPortVariable[] = "USIW_RUN_PORT";
/// What says it with the module: provider/port/choice.h.
inline constexpr char kProviderPortVariable[] = "USIW_PORT";
/// The provider's own: provider/port/fault_port.h.
inline constexpr char kFaultsVariable[] = "USIW_FAULTS";
inline constexpr char kWatcherVariable[] = "USIW_RUN_WATCHER";

/// --port: which ways data may go. Sockets reach everyone, so they are always one of them.
enum class Ports {
  kAuto,    ///< memory and raw packets, each where it can be
  kShm,     ///< memory
  kSocket,
  kPacket,  ///< as auto, but usiw-run starts nothing if raw packets are not permitted
};

struct Settings {
  std::string device;   ///< name of the RDMA device
  std::string address;  ///< source address where the program leaves it open, or empty: the route's
  Ports ports;
  std::string watcher;  ///< path of usiw-run itself, or empty
};

/// Read from the environment once.
const Settings& settings();

/// What --port NAME asks for. False: there is no such name.
bool ports_of(const std::string& name, Ports& out);
inline constexpr char kPortNames[] = "auto, socket, packet or shm";

}  // namespace usiw::run

#endif  // USIW_RUN_SETTINGS_H
