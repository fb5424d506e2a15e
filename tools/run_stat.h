// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file run_stat.h
/// Counters of programs under usiw-run. No kernel knows them: each program keeps them in memory of its own
/// (tools/run/conn/stat_page.h), and they are read there, as far as ptrace(2)'s rules permit.
#ifndef USIW_TOOLS_RUN_STAT_H
#define USIW_TOOLS_RUN_STAT_H

#include <string>

#include "tools/stat_sample.h"

namespace usiw::tools {

/// Returns the devices by name. Processes whose devices have the same name share one. @p proc is the path of /proc.
Sample run_sample(const std::string& proc = "/proc");

/// Reads one context's memory, in which nothing is trusted, and adds its device's name, counters and QPs to @p device.
/// Returns false if it is no such memory, or not that of the process whose number is @p pid in its own PID namespace.
bool read_run_context(int fd, uint32_t pid, DeviceSample& device);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_RUN_STAT_H
