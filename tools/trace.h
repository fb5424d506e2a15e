// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace.h
/// `usiw trace`: finds the traces of a process, switches recording on and off, and prints or saves the events.
#ifndef USIW_TOOLS_TRACE_H
#define USIW_TOOLS_TRACE_H

#include <span>

namespace usiw::tools {

/// Runs "trace" with its arguments; arguments[0] is the word "trace". Returns the exit status or kShowHelp (stat.h).
int trace_command(std::span<char*> arguments);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_TRACE_H
