// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file run_stat.h
/// Reads the counters of programs under usiw-run. The real kernel does not know them. Each program keeps its counters
/// in a memfd (tools/run/conn/stat_page.h), which this code opens as far as ptrace(2)'s rules permit.
#ifndef USIW_TOOLS_RUN_STAT_H
#define USIW_TOOLS_RUN_STAT_H

#include <string>

#include "tools/stat_sample.h"

namespace usiw::tools {

/// Returns the devices, sorted by name. Processes whose devices have the same name share one entry. @p proc is the path
/// of /proc.
Sample run_sample(const std::string& proc = "/proc");

/// Reads the memfd of one context, does not trust its contents, and adds its device's name, counters and QPs to
/// @p device. Returns false if @p fd is not such a memfd, or if the memfd is not that of process @p pid. @p pid is the
/// number of the process in its own PID namespace.
bool read_run_context(int fd, uint32_t pid, DeviceSample& device);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_RUN_STAT_H
