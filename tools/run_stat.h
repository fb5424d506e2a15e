// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file run_stat.h
/// Counters of programs under usiw-run, which no kernel knows: read from the memory that each of them keeps them in
/// (tools/run/conn/stat_page.h), as far as ptrace(2)'s rules permit.
#ifndef USIW_TOOLS_RUN_STAT_H
#define USIW_TOOLS_RUN_STAT_H

#include <string>

#include "tools/stat.h"

namespace usiw::tools {

/// Their devices, by name, one for all processes that call theirs so; @p proc is where /proc is.
Sample run_sample(const std::string& proc = "/proc");

/// One context's memory: what stands there is believed in nothing. False: it is none, or not that of the process whose
/// number is @p pid in its own PID namespace. Else @p device has its device's name and counters added, and its QPs.
bool read_run_context(int fd, uint32_t pid, DeviceSample& device);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_RUN_STAT_H
