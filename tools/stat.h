// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file stat.h
/// `usiw stat`: counters of devices and QPs.
#ifndef USIW_TOOLS_STAT_H
#define USIW_TOOLS_STAT_H

#include <optional>
#include <span>
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
  const char* by = kByModule;  ///< module or usiw-run, because each may have a device of this name
  Values counters = {};
  std::vector<QpSample> qps = {};
};

using Sample = std::vector<DeviceSample>;

/// True for a gauge, which is a present value. Everything else only grows.
bool is_gauge(const std::string& name);

/// Name of a value of enum ibv_qp_state.
const char* state_name(uint8_t state);

/// Returns the counts since @p before: counters become differences (0 if one has gone backwards), gauges stay.
Sample difference(const Sample& now, const Sample& before);

std::string stat_text(const Sample& sample);  ///< several lines, without zeros
std::string stat_json(const Sample& sample);  ///< one line, everything

/// Returned by a command in place of an exit status: print its help.
inline constexpr int kShowHelp = -1;

/// Runs "stat" with its arguments; arguments[0] is the word "stat". Returns the exit status or kShowHelp.
int stat_command(std::span<char*> arguments);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_STAT_H
