// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
// The report is a list of parts. Each part is a function that prints to stdout in a child process (bounded.h). So if a
// part crashes, hangs or lacks rights, the other parts are still printed. kHeader announces what the report contains.
// No part may print a host name, or a variable of the environment other than USIW_*.
#include "tools/report.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>
#include <vector>

#include "tools/arguments.h"
#include "tools/bounded.h"
#include "tools/json.h"
#include "tools/nldev.h"
#include "tools/stat.h"
#include "uapi/usiw_abi.h"
#include "uapi/usiw_version.h"

namespace usiw::tools {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr char kHeader[] =
    "Report of usiw, for a bug report. It has addresses (IP, MAC), paths, and the names and IDs of processes that use\n"
    "RDMA. It has no host name, and of the environment only USIW_*. Read it before you publish it.\n";
constexpr size_t kKernelLines = 200;

void line(const char* what, const std::string& value) { std::printf("%-14s %s\n", what, printable(value).c_str()); }

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string text;
  std::getline(in, text);
  return text;
}

/// Returns the folder of this program.
fs::path here() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

int versions() {
  line("usiw", std::string(USIW_VERSION) + " (ABI " + std::to_string(USIW_ABI_VERSION) + ")");
  utsname kernel;
  if (uname(&kernel) == 0) line("kernel", std::string(kernel.release) + " " + kernel.machine);
  std::ifstream release("/etc/os-release");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  for (std::string text; std::getline(release, text);)
    if (text.starts_with(kKey)) line("distribution", text.substr(kKey.size()));
  return 0;
}

int environment() {
  for (char** variable = environ; *variable != nullptr; variable++)
    if (std::string_view(*variable).starts_with("USIW_")) std::printf("%s\n", printable(*variable).c_str());
  return 0;
}

/// Returns the folders that may contain the provider: those near this program in a build tree or in an installation,
/// and the folder that the driver file of libibverbs names.
std::vector<fs::path> provider_folders() {
  std::vector<fs::path> folders = {here() / "../provider"};
  for (const char* lib : {"../lib/" USIW_MULTIARCH, "../lib64", "../lib"})
    folders.push_back(here() / lib / "libibverbs");
  std::ifstream driver("/etc/libibverbs.d/usiw.driver");
  std::string word, path;
  if (driver >> word >> path) folders.push_back(fs::path(path).parent_path());
  return folders;
}

int files() {
  std::set<fs::path> found;
  std::error_code error;
  for (const fs::path& folder : provider_folders())
    for (const auto& entry : fs::directory_iterator(folder, error))
      if (entry.path().filename().string().starts_with("libusiw-")) found.insert(fs::canonical(entry.path(), error));
  for (const fs::path& file : found) line("provider", file);
  if (found.empty()) line("provider", "not found");
  // The name of the library's file ends with the version of rdma-core, here 44.0: libibverbs.so.1.14.44.0.
  void* const verbs = dlopen("libibverbs.so.1", RTLD_LAZY);
  link_map* map = nullptr;
  if (verbs != nullptr && dlinfo(verbs, RTLD_DI_LINKMAP, &map) == 0)
    line("libibverbs", fs::canonical(map->l_name, error));
  else
    line("libibverbs", dlerror());
  return 0;
}

int module() {
  const fs::path folder = "/sys/module/usiw";
  std::error_code error;
  if (!fs::exists(folder, error)) {
    line("module", "not loaded");
    return 0;
  }
  line("module", first_line(folder / "version"));
  for (const auto& entry : fs::directory_iterator(folder / "parameters", error))
    line("parameter", entry.path().filename().string() + "=" + first_line(entry.path()));
  return 0;
}

int devices() {
  constexpr const char* kStates[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};
  Nldev nldev;
  std::vector<Device> all;
  int rc = nldev.open();
  if (rc == 0) rc = nldev.devices(all);
  if (rc != 0) std::printf("RDMA netlink: %s\n", strerror(rc));
  for (const Device& device : all) {
    PortInfo port;
    if (nldev.port(device, port) != 0) continue;  // the device may have gone meanwhile
    std::printf("link %s/1 state %s netdev %s\n", printable(device.name).c_str(),
                port.state < std::size(kStates) ? kStates[port.state] : "?", printable(port.netdev).c_str());
  }
  return 0;
}

int counters() {
  char word[] = "stat";
  char* arguments[] = {word};
  return stat_command(arguments);
}

int check() {
  for (const fs::path& program : {here() / "usiw-run", here() / "../run/usiw-run"}) {
    if (access(program.c_str(), X_OK) != 0) continue;
    execl(program.c_str(), "usiw-run", "--check", nullptr);
    std::printf("usiw-run: %s\n", strerror(errno));
    return 1;
  }
  std::printf("usiw-run is not beside usiw\n");
  return 0;
}

int kernel_log() {
  const int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  std::deque<std::string> lines;
  char record[8192];
  ssize_t n;
  errno = 0;
  while (fd >= 0 && ((n = read(fd, record, sizeof record)) > 0 || errno == EPIPE)) {  // EPIPE: records were overwritten
    errno = 0;
    if (n <= 0) continue;
    const std::string text = kernel_line(std::string(record, static_cast<size_t>(n)));
    if (!text.empty()) lines.push_back(text);
    if (lines.size() > kKernelLines) lines.pop_front();
  }
  if (errno != EAGAIN)
    std::printf("not read: %s; as root: dmesg | grep usiw\n", strerror(errno));
  else if (lines.empty())
    std::printf("no line names usiw\n");
  for (const std::string& text : lines) std::printf("%s\n", text.c_str());
  return 0;
}

constexpr struct {
  const char* title;
  int (*print)();
  seconds limit;
} kParts[] = {{"versions", versions, seconds(5)},
              {"environment", environment, seconds(5)},
              {"files", files, seconds(10)},
              {"module", module, seconds(5)},
              {"devices", devices, seconds(10)},
              {"counters (usiw stat)", counters, seconds(10)},
              {"usiw-run --check", check, seconds(30)},
              {"kernel log", kernel_log, seconds(5)}};

}  // namespace

std::string kernel_line(const std::string& record) {
  unsigned level = 0;
  unsigned long long number = 0, us = 0;
  const size_t message = record.find(';');
  if (std::sscanf(record.c_str(), "%u,%llu,%llu", &level, &number, &us) != 3 || message == std::string::npos) return {};
  const std::string text = record.substr(message + 1, record.find('\n', message) - message - 1);
  constexpr unsigned kLevels = 8;  // the number is level + 8 * facility, and the kernel's facility is 0
  if (level >= kLevels || text.find("usiw") == std::string::npos) return {};
  char time[32];
  std::snprintf(time, sizeof time, "[%5llu.%06llu] ", us / 1'000'000, us % 1'000'000);
  return time + printable(text);
}

int report_command(std::span<char*> arguments) {
  constexpr option kNames[] = {{"help", no_argument, nullptr, kLong + 'h'}, {}};
  std::string wrong = "usage: usiw report";
  optind = 0;
  const int letter = next_option(static_cast<int>(arguments.size()), arguments.data(), "-:h", kNames, wrong);
  if (letter == 'h') return kShowHelp;
  if (letter != -1) {
    std::fprintf(stderr, "usiw: %s ('usiw help report')\n", wrong.c_str());
    return 2;
  }
  std::fputs(kHeader, stdout);
  for (const auto& part : kParts) {
    std::printf("\n== %s\n", part.title);
    std::fputs(bounded(part.print, part.limit).c_str(), stdout);
    std::fflush(stdout);
  }
  return std::ferror(stdout) != 0 ? 1 : 0;
}

}  // namespace usiw::tools
