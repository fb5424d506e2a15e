// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file check.h
/// What usiw-run needs and finds.
#ifndef USIW_RUN_CHECK_H
#define USIW_RUN_CHECK_H

#include <string>

namespace usiw::run {

struct Parts {
  std::string self;      ///< usiw-run
  std::string library;   ///< to preload
  std::string provider;  ///< the file
  std::string drivers;   ///< for RDMAV_DRIVERS
  std::string missing;   ///< what is not there, and what to do, in one line; or empty
};

/// The parts beside this program: in a build directory, or as installed.
Parts find_parts();
/// Empty, or what is wrong with the settings on this host, in one line.
std::string check_settings();
/// For a program that is about to be executed: what to preload, and the provider.
void set_environment(const Parts& parts);
/// `--check`: a line about each thing, of which the last says whether programs can be run. Opens the device and
/// connects by each port that it promises. 0, or 1 if programs cannot be run or a port does not work.
int check(const Parts& parts);

}  // namespace usiw::run

#endif  // USIW_RUN_CHECK_H
