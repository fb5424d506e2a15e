// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/run_stat.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

#include "tools/run/conn/stat_page.h"
#include "uapi/usiw_names.h"

namespace usiw::tools {
namespace {

namespace fs = std::filesystem;
using run::StatKind;
using run::StatPage;

#define USIW_NAME_COUNTER(id, text) {USIW_CNT_##id, text},
#define USIW_NAME_GAUGE(id, text) {USIW_GAUGE_##id, text},
constexpr std::pair<uint32_t, const char*> kCounters[] = {USIW_COUNTER_NAMES(USIW_NAME_COUNTER)};
constexpr std::pair<uint32_t, const char*> kGauges[] = {USIW_GAUGE_NAMES(USIW_NAME_GAUGE)};
static_assert(std::size(kCounters) == USIW_CNT_MAX && std::size(kGauges) == USIW_GAUGE_MAX);

bool read_page(int fd, uint64_t page, StatPage& out) {
  return pread(fd, &out, sizeof out, run::stat_page_at(page)) == static_cast<ssize_t>(sizeof out) &&
         out.mark.magic == run::kStatMagic;
}

void add(Values& to, const uint64_t* counters) {
  if (to.empty())
    for (auto& [id, name] : kCounters) to.emplace_back(name, 0);
  for (size_t i = 0; i < to.size(); ++i) to[i].second += counters[kCounters[i].first];
}

/// Returns the number of a process in its own PID namespace: the last number in the line NSpid of its status file.
/// Returns 0 if there is no such line, for example because the process has gone.
uint32_t inner_pid(const std::string& process) {
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("NSpid:")) continue;
    const std::string_view last = std::string_view(line).substr(line.find_last_of(" \t") + 1);
    uint32_t pid = 0;
    std::from_chars(last.data(), last.data() + last.size(), pid);
    return pid;
  }
  return 0;
}

/// Opens what may be a memfd of another process. Returns a descriptor, or -1 if the file cannot be opened or is not a
/// regular file on tmpfs. A hostile process may offer a FIFO or a terminal, so open(2) must not block (O_NONBLOCK) or
/// set a controlling terminal (O_NOCTTY).
int open_memory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct statfs where;
  struct stat st;
  if (fd >= 0 && fstatfs(fd, &where) == 0 && where.f_type == TMPFS_MAGIC && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

/// Adds the contexts of one process to @p out. Duplicates of a descriptor count as one context.
void add_process(const std::string& process, uint32_t pid, Sample& out) {
  static const std::string target = std::string("/memfd:") + run::kCountersMemfd + " (deleted)";
  std::set<std::pair<dev_t, ino_t>> seen;
  std::error_code error;
  fs::directory_iterator entry(process + "/fd", error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code gone;
    if (fs::read_symlink(entry->path(), gone) != target) continue;
    const int fd = open_memory(entry->path());
    if (fd < 0) continue;
    struct stat st;
    DeviceSample found{.by = kByUsiwRun};
    if (fstat(fd, &st) == 0 && seen.emplace(st.st_dev, st.st_ino).second &&
        read_run_context(fd, inner_pid(process), found)) {
      auto device = std::find_if(out.begin(), out.end(), [&](const auto& d) { return d.name == found.name; });
      if (device == out.end()) device = out.insert(out.end(), DeviceSample{.name = found.name, .by = kByUsiwRun});
      for (size_t i = 0; i < device->counters.size(); ++i) device->counters[i].second += found.counters[i].second;
      if (device->counters.empty()) device->counters = found.counters;
      for (QpSample& qp : found.qps) {
        qp.info.pid = pid;
        device->qps.push_back(std::move(qp));
      }
    }
    close(fd);
  }
}

}  // namespace

bool read_run_context(int fd, uint32_t pid, DeviceSample& device) {
  StatPage page;
  struct stat st;
  if (fstat(fd, &st) != 0 || !read_page(fd, 0, page)) return false;
  if (page.mark.kind != static_cast<uint32_t>(StatKind::kContext) || page.mark.pid != pid || pid == 0) return false;
  const char* const name = page.mark.device;
  device.name.assign(name, std::find(name, name + sizeof page.mark.device, '\0'));
  add(device.counters, page.counters);
  add(device.counters, page.retired);
  const auto there = static_cast<uint64_t>(st.st_size / run::stat_page_at(1));
  const uint64_t pages = std::min<uint64_t>(there, uint64_t{1} + USIW_MAX_QP);
  for (uint64_t i = 1; i < pages; ++i) {
    if (!read_page(fd, i, page) || page.mark.kind != static_cast<uint32_t>(StatKind::kQp)) continue;
    QpInfo qp{.qpn = page.mark.qpn, .state = static_cast<uint8_t>(std::min(page.mark.state, uint32_t{UINT8_MAX}))};
    add(qp.values, page.counters);
    add(device.counters, page.counters);
    for (auto& [id, text] : kGauges) qp.values.emplace_back(text, page.gauges[id]);
    qp.values.emplace_back("cm_ignored", page.mark.ignored);
    device.qps.push_back({std::move(qp), {}});
  }
  return true;
}

Sample run_sample(const std::string& proc) {
  Sample out;
  std::error_code error;
  fs::directory_iterator entry(proc, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    uint32_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ptr != name.data() + name.size() || pid == 0)
      continue;
    add_process(entry->path(), pid, out);
  }
  for (DeviceSample& device : out)
    std::sort(device.qps.begin(), device.qps.end(), [](const QpSample& a, const QpSample& b) {
      return std::pair(a.info.pid, a.info.qpn) < std::pair(b.info.pid, b.info.qpn);
    });
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return out;
}

}  // namespace usiw::tools
