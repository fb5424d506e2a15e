// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat.h
/// `usiw stat`: prints the counters of devices and QPs.
#ifndef USIW_TOOLS_STAT_H
#define USIW_TOOLS_STAT_H

#include <span>
#include <string>

#include "tools/stat_sample.h"

namespace usiw::tools {

std::string stat_text(const Sample& sample);  ///< several lines, without zeros
std::string stat_json(const Sample& sample);  ///< one line, with zeros, without gauges that have no value yet

/// Returned by a command in place of an exit status: the caller prints the command's help.
inline constexpr int kShowHelp = -1;

/// Runs "stat" with its arguments; arguments[0] is the word "stat". Returns the exit status or kShowHelp.
int stat_command(std::span<char*> arguments);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_STAT_H
