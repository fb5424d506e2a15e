// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/stat.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "tools/arguments.h"
#include "tools/gauge_words.h"
#include "tools/json.h"
#include "tools/prometheus.h"
#include "tools/run_stat.h"

namespace usiw::tools {
namespace {

constexpr size_t kLineWidth = 96;

std::string process_name(uint32_t pid) {
  std::ifstream comm("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(comm, name);
  return name;
}

/// Appends "name value" pairs to @p out, as many on a line as fit. Leaves out values of 0.
void append_values(std::string& out, const Values& values, size_t indent) {
  std::string line;
  for (const auto& [name, value] : values) {
    if (value == 0) continue;
    const char* is_word = gauge_word(name, value);
    const std::string word = printable(name) + " " + (is_word != nullptr ? is_word : std::to_string(value));
    if (!line.empty() && indent + line.size() + 2 + word.size() > kLineWidth) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : "  ") + word;
  }
  if (!line.empty()) out += std::string(indent, ' ') + line + "\n";
}

std::string json_values(const Values& values, bool gauges) {
  std::string out = "{";
  for (const auto& [name, value] : values) {
    if (is_gauge(name) != gauges || gauge_is_missing(name, value)) continue;
    if (out.size() > 1) out += ",";
    const char* is_word = gauge_word(name, value);
    out += json_string(name) + ":" + (is_word != nullptr ? json_string(is_word) : std::to_string(value));
  }
  return out + "}";
}

struct Options {
  std::string device;
  std::optional<uint32_t> qpn;
  double interval = 0;  ///< seconds; 0: once
  uint64_t count = 0;   ///< number of intervals; 0: for ever
  bool json = false;
  bool prometheus = false;  ///< counters since the beginning, once: the reader takes differences
  bool help = false;
};

/// Adds the devices of the module to @p out. Returns 0 or an errno value.
int take_module_sample(Nldev& nldev, const Options& options, Sample& out) {
  std::vector<Device> devices;
  if (int rc = nldev.devices(devices); rc != 0) return rc;
  for (const Device& device : devices) {
    if (!options.device.empty() && device.name != options.device) continue;
    DeviceSample sample{.name = device.name};
    std::vector<QpInfo> qps;
    // The device may have gone meanwhile (ENODEV). Any error leaves it out.
    if (nldev.statistics(device, sample.counters) != 0 || nldev.qps(device, qps) != 0) continue;
    for (QpInfo& qp : qps) {
      if (options.qpn && qp.qpn != *options.qpn) continue;
      std::string process = process_name(qp.pid);
      sample.qps.push_back({std::move(qp), std::move(process)});
    }
    out.push_back(std::move(sample));
  }
  return 0;
}

/// Adds the devices of the module and those of programs under usiw-run to @p out. If @p kernel_error is not 0, RDMA
/// netlink does not work, and the module's devices are left out. Returns 0 or an errno value.
int take_sample(Nldev& nldev, int kernel_error, const Options& options, Sample& out) {
  if (kernel_error == 0)
    if (int rc = take_module_sample(nldev, options, out); rc != 0) return rc;
  Sample run = run_sample();
  for (DeviceSample& device : run) {
    if (!options.device.empty() && device.name != options.device) continue;
    std::erase_if(device.qps, [&](const QpSample& qp) { return options.qpn && qp.info.qpn != *options.qpn; });
    for (QpSample& qp : device.qps) qp.process = process_name(qp.info.pid);
    out.push_back(std::move(device));
  }
  return 0;
}

constexpr option kNames[] = {{"interval", required_argument, nullptr, kLong + 'i'},
                             {"count", required_argument, nullptr, kLong + 'c'},
                             {"json", no_argument, nullptr, kLong + 'j'},
                             {"prometheus", no_argument, nullptr, kLong + 'p'},
                             {"help", no_argument, nullptr, kLong + 'h'},
                             {}};

bool parse_options(std::span<char*> arguments, Options& o, std::string& wrong) {
  const auto count = static_cast<int>(arguments.size());
  optind = 0;
  for (int letter; (letter = next_option(count, arguments.data(), "-:i:c:jh", kNames, wrong)) != -1;) {
    bool good = letter != '?';
    if (letter == 'j') o.json = true;
    if (letter == 'p') o.prometheus = true;
    if (letter == 'h') return o.help = true;
    if (letter == 'i') good = parse_number(optarg, o.interval) && o.interval >= 0.01 && o.interval <= 86'400;
    if (letter == 'c') good = parse_number(optarg, o.count) && o.count != 0;
    if (letter == 1 && std::string_view(optarg) == "qp")
      good = optind < count && parse_number(arguments.data()[optind++], o.qpn.emplace());
    else if (letter == 1)
      good = std::exchange(o.device, optarg).empty();
    if (!good) return false;
  }
  return !o.prometheus || (!o.json && o.interval == 0);
}

/// Checks that the named device or QP exists. Returns 0 or the exit status.
int check_found(const Sample& sample, const Options& o) {
  if (!o.device.empty() && sample.empty()) {
    std::fprintf(
        stderr,
        "usiw: no usiw device %s ('rdma link' lists the module's, 'usiw stat' those in use under usiw-run, too)\n",
        o.device.c_str());
    return 1;
  }
  const bool any = std::any_of(sample.begin(), sample.end(), [](const auto& d) { return !d.qps.empty(); });
  if (o.qpn && !any) {
    std::fprintf(stderr, "usiw: no QP %u ('usiw stat' lists them)\n", *o.qpn);
    return 1;
  }
  return 0;
}

void print(const Sample& sample, const Options& o) {
  const std::string out = o.prometheus ? stat_prometheus(sample) : o.json ? stat_json(sample) : stat_text(sample);
  std::fwrite(out.data(), 1, out.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

std::string stat_text(const Sample& sample) {
  std::string out;
  for (const DeviceSample& device : sample) {
    out +=
        "link " + printable(device.name) + "/1" + (device.by == std::string_view(kByUsiwRun) ? " by usiw-run\n" : "\n");
    append_values(out, device.counters, 4);
    for (const QpSample& qp : device.qps) {
      out += "  qp " + std::to_string(qp.info.qpn) + " state " + state_name(qp.info.state) + " pid " +
             std::to_string(qp.info.pid) + " comm " + (qp.process.empty() ? "?" : printable(qp.process)) + "\n";
      append_values(out, qp.info.values, 4);
    }
  }
  return out;
}

std::string stat_json(const Sample& sample) {
  std::string out = "[";
  for (const DeviceSample& device : sample) {
    if (out.size() > 1) out += ",";
    out += "{\"device\":" + json_string(device.name) + ",\"by\":" + json_string(device.by) +
           ",\"port\":1,\"counters\":" + json_values(device.counters, false) + ",\"qps\":[";
    bool first = true;
    for (const QpSample& qp : device.qps) {
      if (!first) out += ",";
      first = false;
      out += "{\"qpn\":" + std::to_string(qp.info.qpn) + ",\"state\":" + json_string(state_name(qp.info.state)) +
             ",\"pid\":" + std::to_string(qp.info.pid) + ",\"comm\":" + json_string(qp.process) +
             ",\"counters\":" + json_values(qp.info.values, false) +
             ",\"gauges\":" + json_values(qp.info.values, true) + "}";
    }
    out += "]}";
  }
  return out + "]\n";
}

int stat_command(std::span<char*> arguments) {
  Options o;
  std::string wrong = "usage: usiw stat [DEV] [qp QPN] [-i SECONDS] [-c COUNT] [-j | --prometheus]";
  if (!parse_options(arguments, o, wrong)) {
    std::fprintf(stderr, "usiw: %s ('usiw help stat')\n", wrong.c_str());
    return 2;
  }
  if (o.help) return kShowHelp;
  Nldev nldev;
  Sample now;
  std::vector<Device> ignored;
  int kernel_error = nldev.open();
  if (kernel_error == 0) kernel_error = nldev.devices(ignored);
  int rc = take_sample(nldev, kernel_error, o, now);
  if (rc == 0 && now.empty() && o.device.empty()) rc = kernel_error;
  if (rc != 0) {
    std::fprintf(stderr, "usiw: RDMA netlink: %s%s\n", strerror(rc),
                 rc == EPROTONOSUPPORT || rc == EINVAL
                     ? " (is the module ib_core loaded?), and no program of yours uses RDMA under usiw-run" : "");
    return 1;
  }
  if (const int status = check_found(now, o); status != 0) return status;
  if (o.interval == 0) {
    print(now, o);
    return 0;
  }
  auto next = std::chrono::steady_clock::now();
  for (uint64_t n = 0; o.count == 0 || n < o.count; ++n) {
    next += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(o.interval));
    std::this_thread::sleep_until(next);
    const Sample before = std::move(now);
    now.clear();
    if (rc = take_sample(nldev, kernel_error, o, now); rc != 0) {
      std::fprintf(stderr, "usiw: RDMA netlink: %s\n", strerror(rc));
      return 1;
    }
    if (!o.json && n != 0) std::fputc('\n', stdout);
    print(difference(now, before), o);
  }
  return 0;
}

}  // namespace usiw::tools
