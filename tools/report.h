// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file report.h
/// `usiw report`: the facts that a bug report needs, as text on stdout.
#ifndef USIW_TOOLS_REPORT_H
#define USIW_TOOLS_REPORT_H

#include <span>
#include <string>

namespace usiw::tools {

/// Returns the message of a record of /dev/kmsg with its time, "[   12.345678] usiw: ...". Returns an empty string if
/// the record is malformed, if the kernel did not write it, or if the message does not contain "usiw".
std::string kernel_line(const std::string& record);

/// Runs "report" with its arguments; arguments[0] is the word "report". Returns the exit status or kShowHelp (stat.h).
int report_command(std::span<char*> arguments);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_REPORT_H
