// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/prometheus.h"

#include <cctype>
#include <map>
#include <string_view>

#include "tools/gauge_words.h"

namespace usiw::tools {
namespace {

/// Collects the lines of each metric, so that text() returns them together.
class Metrics {
 public:
  void counter(const std::string& metric, const std::string& labels, uint64_t value) {
    add(metric + "_total", "counter", labels, value);
  }
  void gauge(const std::string& metric, const std::string& labels, uint64_t value) {
    add(metric, "gauge", labels, value);
  }
  std::string text() const {
    std::string out;
    for (const auto& [metric, lines] : metrics_) out += "# TYPE " + metric + " " + lines;
    return out;
  }

 private:
  void add(const std::string& metric, const char* type, const std::string& labels, uint64_t value) {
    std::string& lines = metrics_[metric];
    if (lines.empty()) lines = std::string(type) + "\n";
    lines += metric + "{" + labels + "} " + std::to_string(value) + "\n";
  }
  std::map<std::string, std::string> metrics_;
};

/// Returns @p name as a part of a metric's name: each character that is not a letter or digit becomes '_'.
std::string part(std::string_view name) {
  std::string out;
  for (const char c : name) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

std::string label(const char* name, std::string_view value) {
  std::string out = std::string(name) + "=\"";
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '?' : c;
  }
  return out + "\"";
}

void add_qp(Metrics& metrics, const std::string& of_device, const QpSample& qp) {
  const std::string labels = of_device + "," + label("qpn", std::to_string(qp.info.qpn)) + "," +
                             label("pid", std::to_string(qp.info.pid)) + "," + label("comm", qp.process);
  metrics.gauge("usiw_qp_state", labels + "," + label("value", state_name(qp.info.state)), 1);
  for (const auto& [name, value] : qp.info.values) {
    const std::string metric = "usiw_qp_" + part(name);
    if (!is_gauge(name))
      metrics.counter(metric, labels, value);
    else if (const char* word = gauge_word(name, value); word != nullptr)
      metrics.gauge(metric, labels + "," + label("value", word), 1);
    else if (!gauge_is_missing(name, value))
      metrics.gauge(metric, labels, value);
  }
}

}  // namespace

std::string stat_prometheus(const Sample& sample) {
  Metrics metrics;
  for (const DeviceSample& device : sample) {
    const std::string labels = label("device", device.name) + "," + label("by", device.by);
    for (const auto& [name, value] : device.counters) metrics.counter("usiw_device_" + part(name), labels, value);
    for (const QpSample& qp : device.qps) add_qp(metrics, labels, qp);
  }
  return metrics.text();
}

}  // namespace usiw::tools
