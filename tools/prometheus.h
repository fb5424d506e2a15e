// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file prometheus.h
/// `usiw stat --prometheus`: the text form of Prometheus, for a textfile collector or another reader of a command's
/// output.
#ifndef USIW_TOOLS_PROMETHEUS_H
#define USIW_TOOLS_PROMETHEUS_H

#include <string>

#include "tools/stat_sample.h"

namespace usiw::tools {

/// Returns the metrics usiw_device_NAME_total {device, by}, and for QPs usiw_qp_NAME_total and usiw_qp_NAME (gauges)
/// {device, by, qpn, pid, comm}. A gauge that is a word has the value 1 and the word as label `value`, and so has the
/// state. The lines of a metric are together, as the form demands.
std::string stat_prometheus(const Sample& sample);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PROMETHEUS_H
