// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file check.h
/// `usiw-run --check`: a test whether programs can be run on this host.
#ifndef USIW_RUN_CHECK_H
#define USIW_RUN_CHECK_H

#include <string>

#include "tools/run/launcher/parts.h"

namespace usiw::run {

/// Checks the settings against this host. Returns an empty string, or the fault in one line.
std::string check_settings();
/// Carries out `--check`: prints a line about each part, and in the last line whether programs can be run. If no fault
/// has been found until then, opens the device, and connects by each port that the lines promise. Returns 0, or 1 if
/// programs cannot be run or a connection fails.
int check(const Parts& parts);

}  // namespace usiw::run

#endif  // USIW_RUN_CHECK_H
