// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/stat_sample.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "uapi/usiw_abi.h"
#include "uapi/usiw_names.h"

namespace usiw::tools {
namespace {

#define USIW_NAME(id, text) text,
constexpr std::string_view kGauges[] = {USIW_GAUGE_NAMES(USIW_NAME)};
constexpr const char* kStates[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};

Values minus(const Values& now, const Values* before) {
  Values out = now;
  if (before == nullptr) return out;
  for (auto& [name, value] : out) {
    if (is_gauge(name)) continue;
    const auto old = std::find_if(before->begin(), before->end(),
                                  [&key = name](const auto& v) { return v.first == key; });
    if (old != before->end()) value = value >= old->second ? value - old->second : 0;
  }
  return out;
}

}  // namespace

const char* state_name(uint8_t state) { return state < std::size(kStates) ? kStates[state] : "?"; }

bool is_gauge(const std::string& name) {
  return std::find(std::begin(kGauges), std::end(kGauges), name) != std::end(kGauges);
}

Sample difference(const Sample& now, const Sample& before) {
  Sample out = now;
  for (DeviceSample& device : out) {
    const auto old = std::find_if(before.begin(), before.end(), [&](const auto& d) {
      return d.name == device.name && std::string_view(d.by) == device.by;
    });
    if (old == before.end()) continue;
    device.counters = minus(device.counters, &old->counters);
    for (QpSample& qp : device.qps) {
      const auto was = std::find_if(old->qps.begin(), old->qps.end(), [&](const auto& q) {
        return q.info.qpn == qp.info.qpn && q.info.pid == qp.info.pid;
      });
      qp.info.values = minus(qp.info.values, was == old->qps.end() ? nullptr : &was->info.values);
    }
  }
  return out;
}

}  // namespace usiw::tools
