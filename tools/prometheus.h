// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file prometheus.h
/// `usiw stat --prometheus`: the text form of Prometheus, for a textfile collector or whatever scrapes a command.
#ifndef USIW_TOOLS_PROMETHEUS_H
#define USIW_TOOLS_PROMETHEUS_H

#include <string>

#include "tools/stat.h"

namespace usiw::tools {

/// Metrics usiw_device_NAME_total {device, by}, and of QPs usiw_qp_NAME_total, usiw_qp_NAME (gauges) {device, by, qpn,
/// pid, comm}. A gauge that is a word is 1 with the word as label `value`; so is the state. All of a metric stands
/// together, as the form demands.
std::string stat_prometheus(const Sample& sample);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PROMETHEUS_H
