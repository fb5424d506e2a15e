// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file parts.h
/// The parts of usiw that a program needs: the library to preload and the provider. Their places relative to usiw-run
/// are fixed, in a build directory and in an installation.
#ifndef USIW_RUN_PARTS_H
#define USIW_RUN_PARTS_H

#include <string>

namespace usiw::run {

inline constexpr char kRdmaCoreVersions[] =
    "this usiw is for rdma-core 34 to 65; install a newer usiw, or an rdma-core of these";

/// Paths of the parts. The path of a missing part is empty.
struct Parts {
  std::string self;      ///< path of usiw-run
  std::string library;   ///< path of the library to preload
  std::string provider;  ///< path of the provider
  std::string drivers;   ///< value of RDMAV_DRIVERS: the provider without its suffix
  std::string missing;   ///< the missing part and the remedy, in one line; or empty
};

/// Finds the parts by the path of usiw-run.
Parts find_parts();
/// Sets the environment of a program that is about to be executed: the library to preload, the provider, and the
/// program to start as the watcher.
void set_environment(const Parts& parts);

}  // namespace usiw::run

#endif  // USIW_RUN_PARTS_H
