// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file prometheus.h
/// `usiw stat --prometheus`: counters and gauges in the text format of Prometheus, which its textfile collector reads.
#ifndef USIW_TOOLS_PROMETHEUS_H
#define USIW_TOOLS_PROMETHEUS_H

#include <string>

#include "tools/stat_sample.h"

namespace usiw::tools {

/// Returns the sample in the text format of Prometheus. Counters of a device are usiw_device_NAME_total with the labels
/// device and by. Counters of a QP are usiw_qp_NAME_total, and its gauges are usiw_qp_NAME, both with the additional
/// labels qpn, pid and comm. The QP state, and a gauge whose value has a name, is 1 with that name in the label
/// `value`. A gauge that has not been measured is left out. All lines of a metric are together, as the format requires.
std::string stat_prometheus(const Sample& sample);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_PROMETHEUS_H
