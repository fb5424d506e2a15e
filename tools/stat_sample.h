// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat_sample.h
/// The counters of all devices and QPs at one moment. nldev.h reads those of the module, run_stat.h those of programs
/// under usiw-run. stat.h and prometheus.h print both.
#ifndef USIW_TOOLS_STAT_SAMPLE_H
#define USIW_TOOLS_STAT_SAMPLE_H

#include <cstdint>
#include <string>
#include <vector>

#include "tools/nldev.h"

namespace usiw::tools {

struct QpSample {
  QpInfo info;
  std::string process;  ///< name, not to be trusted; empty: the process is gone or not visible
};

inline constexpr char kByModule[] = "module", kByUsiwRun[] = "usiw-run";

struct DeviceSample {
  std::string name = {};
  const char* by = kByModule;  ///< kByModule or kByUsiwRun: both may have a device of this name
  Values counters = {};
  std::vector<QpSample> qps = {};
};

using Sample = std::vector<DeviceSample>;

/// Returns true if @p name is a gauge, which shows a present value. All other values are counters.
bool is_gauge(const std::string& name);

/// Returns the name of a value of enum ibv_qp_state, or "?".
const char* state_name(uint8_t state);

/// Returns the counts since @p before: counters become differences (0 if one has gone backwards), gauges stay. A counter
/// of a device goes backwards if a program under usiw-run ends. A device or QP that @p before does not have keeps its
/// counts.
Sample difference(const Sample& now, const Sample& before);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_STAT_SAMPLE_H
