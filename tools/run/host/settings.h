// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file settings.h
/// Settings that usiw-run passes in the environment to the programs that it starts.
#ifndef USIW_RUN_SETTINGS_H
#define USIW_RUN_SETTINGS_H

#include <cstdlib>
#include <string>

#include "provider/port/choice.h"

namespace usiw::run {

inline constexpr char kDeviceVariable[] = "USIW_RUN_DEVICE";
inline constexpr char kAddressVariable[] = "USIW_RUN_ADDRESS";
inline constexpr char kRunPortVariable[] = "USIW_RUN_PORT";
inline constexpr char kFaceVariable[] = "USIW_FACE";
/// A variable of the provider: provider/port/fault_port.h.
inline constexpr char kFaultsVariable[] = "USIW_FAULTS";
inline constexpr char kWatcherVariable[] = "USIW_RUN_WATCHER";

/// The kind of device that programs see (docs/face.md).
enum class FaceKind {
  kIwarp,  ///< an RNIC, which connects by rdma_cm
  kRoce,   ///< a RoCE device, whose QPs also connect by GID and QP number
};

/// Parses the value of --face. Returns false if there is no such face.
inline bool parse_face(const std::string& name, FaceKind& out) {
  out = name == "roce" ? FaceKind::kRoce : FaceKind::kIwarp;
  return name == "roce" || name == "iwarp";
}

struct Settings {
  std::string device;   ///< name of the RDMA device
  std::string address;  ///< source address of connections whose program names none; empty: the route decides
  /// The requested port, by --port or USIW_PORT. Sockets reach every peer, so a connection may always use them. kPacket
  /// has the same meaning as kAuto, but usiw-run starts no program if this host or user cannot use raw packets.
  PortWish port = PortWish::kAuto;
  FaceKind face = FaceKind::kIwarp;
  std::string watcher;  ///< program to start as the watcher, which is usiw-run; empty: none
};

/// Returns the settings. The first call reads them from the environment.
inline const Settings& settings() {
  static const Settings& once = *new Settings([] {
    auto get = [](const char* name, const char* otherwise) -> std::string {
      const char* value = getenv(name);
      return value != nullptr && *value != '\0' ? value : otherwise;
    };
    Settings s;
    s.device = get(kDeviceVariable, "usiw0");
    s.address = get(kAddressVariable, "");
    parse_port_wish(get(kRunPortVariable, "auto"), s.port);
    parse_face(get(kFaceVariable, "iwarp"), s.face);
    s.watcher = get(kWatcherVariable, "");
    return s;
  }());
  return once;
}

}  // namespace usiw::run

#endif  // USIW_RUN_SETTINGS_H
