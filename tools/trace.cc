// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/arguments.h"
#include "tools/json.h"
#include "tools/pcapng.h"
#include "tools/stat.h"
#include "tools/trace_reader.h"
#include "tools/trace_text.h"

namespace usiw::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "usiw-trace.";

struct Options {
  std::string verb = "show";  ///< show, on, off, list
  std::string what;           ///< PID or file
  std::optional<uint32_t> qpn;
  uint64_t last = 0;    ///< events; 0: all
  std::string capture;  ///< file to write
  bool help = false;
};

bool is_pid(const std::string& what) {
  return !what.empty() && what.size() < 10 &&
         std::all_of(what.begin(), what.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns the paths below /proc/PID/fd of those open files of process @p pid that are named like a trace. Does not look
/// into the files. @p error is set if the descriptors cannot be listed.
std::vector<std::string> traces_of(const std::string& pid, std::error_code& error) {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator("/proc/" + pid + "/fd", error)) {
    std::error_code gone;
    const std::string target = fs::read_symlink(entry.path(), gone).string();
    const size_t slash = target.rfind("/");
    const std::string_view name = std::string_view(target).substr(slash == std::string::npos ? 0 : slash + 1);
    if (name.starts_with(kMark) || name.starts_with("memfd:" + std::string(kMark)))
      out.push_back(entry.path().string());
  }
  return out;
}

/// Opens a file that may be a trace. A hostile process may offer a FIFO or a terminal, so open(2) must not block
/// (O_NONBLOCK) or set a controlling terminal (O_NOCTTY). read_trace() accepts regular files only.
int open_trace(const std::string& path, int access) {
  return open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/// Sets @p paths to the file that the user has named, or to the files of the process that are named like a trace.
/// Returns 0, or an exit status after a line on stderr.
int find(const Options& o, std::vector<std::string>& paths) {
  if (!is_pid(o.what)) {
    paths = {o.what};
    return 0;
  }
  std::error_code error;
  paths = traces_of(o.what, error);
  if (error) {
    std::fprintf(stderr, "usiw: process %s: %s\n", o.what.c_str(), error.message().c_str());
    return 1;
  }
  if (paths.empty()) {
    std::fprintf(stderr, "usiw: process %s has no trace: it has no QP on a usiw device\n", o.what.c_str());
    return 1;
  }
  return 0;
}

int complain(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "usiw: %s: %s\n", path.c_str(), why.c_str());
  return 1;
}

int load(const std::string& path, Trace& trace) {
  const int fd = open_trace(path, O_RDONLY);
  std::string why = fd < 0 ? strerror(errno) : read_trace(fd, trace);
  if (fd >= 0) close(fd);
  return why.empty() ? 0 : complain(path, why);
}

void select(Trace& trace, const Options& o) {
  if (o.qpn) std::erase_if(trace.events, [&](const TraceEvent& e) { return e.qpn != *o.qpn; });
  if (o.last != 0 && trace.events.size() > o.last)
    trace.events.erase(trace.events.begin(), trace.events.end() - static_cast<ptrdiff_t>(o.last));
}

void print(const Trace& trace) {
  std::printf("# device %s pid %u recording %s, %zu events\n", printable(trace.device).c_str(), trace.pid,
              trace.on ? "on" : "off", trace.events.size());
  for (const TraceEvent& e : trace.events) {
    std::printf("%s", line_of(trace, e).c_str());
    const TraceFlow* flow = e.kind == TraceKind::kConnect ? trace.flow_of(e) : nullptr;
    std::printf(flow != nullptr ? ", %s\n" : "%s\n", flow != nullptr ? describe(*flow).c_str() : "");
  }
}

/// Writes @p bytes to a file, or to standard output if @p path is "-". Returns 0 or an exit status.
int save(const std::string& path, const std::vector<std::byte>& bytes) {
  FILE* file = path == "-" ? stdout : std::fopen(path.c_str(), "we");
  bool good = file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (file != nullptr && file != stdout) good &= std::fclose(file) == 0;
  if (!good) std::fprintf(stderr, "usiw: %s: %s\n", path.c_str(), strerror(errno));
  return good ? 0 : 1;
}

int show(const Options& o) {
  std::vector<std::string> paths;
  if (int status = find(o, paths); status != 0) return status;
  std::vector<std::byte> capture;
  for (const std::string& path : paths) {
    Trace trace;
    if (int status = load(path, trace); status != 0) return status;
    select(trace, o);
    if (o.capture.empty()) {
      print(trace);
    } else {
      const auto section = to_pcapng(trace);
      capture.insert(capture.end(), section.begin(), section.end());
    }
  }
  return o.capture.empty() ? 0 : save(o.capture, capture);
}

int switch_on(const Options& o, bool on) {
  std::vector<std::string> paths;
  if (int status = find(o, paths); status != 0) return status;
  for (const std::string& path : paths) {
    // The file is opened only once. A second open(2) of the path, after the check, might open another file.
    const int fd = open_trace(path, O_RDWR);
    Trace trace;
    std::string why = fd < 0 ? strerror(errno) : read_trace(fd, trace);
    const uint32_t value = on ? 1 : 0;
    if (why.empty() && pwrite(fd, &value, sizeof value, offsetof(TraceHeader, on)) != sizeof value)
      why = strerror(errno);
    if (fd >= 0) close(fd);
    if (!why.empty()) return complain(path, why);
  }
  return 0;
}

int list() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const std::string pid = entry.path().filename().string();
    if (!is_pid(pid)) continue;
    std::error_code hidden;  // set if the process is another user's, or gone
    for (const std::string& path : traces_of(pid, hidden)) {
      Trace trace;
      const int fd = open_trace(path, O_RDONLY);
      if (fd < 0) continue;
      if (read_trace(fd, trace).empty())
        std::printf("pid %s device %s recording %s events %zu file %s\n", pid.c_str(), printable(trace.device).c_str(),
                    trace.on ? "on" : "off", trace.events.size(),
                    printable(fs::read_symlink(path, hidden).string()).c_str());
      close(fd);
    }
  }
  return 0;
}

constexpr option kNames[] = {{"last", required_argument, nullptr, kLong + 'n'},
                             {"write", required_argument, nullptr, kLong + 'w'},
                             {"help", no_argument, nullptr, kLong + 'h'},
                             {}};

bool parse_options(std::span<char*> arguments, Options& o, std::string& wrong) {
  const auto count = static_cast<int>(arguments.size());
  optind = 0;
  for (int letter; (letter = next_option(count, arguments.data(), "-:n:w:h", kNames, wrong)) != -1;) {
    bool good = letter != '?';
    if (letter == 'h') return o.help = true;
    if (letter == 'n') good = parse_number(optarg, o.last) && o.last != 0;
    if (letter == 'w') good = !(o.capture = optarg).empty();
    const std::string_view word = letter == 1 ? optarg : "";
    if (word == "qp")
      good = optind < count && parse_number(arguments.data()[optind++], o.qpn.emplace());
    else if (optind == 2 && (word == "on" || word == "off" || word == "list" || word == "show"))
      o.verb = word;
    else if (letter == 1)
      good = std::exchange(o.what, word).empty();
    if (!good) return false;
  }
  if (o.verb != "show" && (o.qpn || o.last != 0 || !o.capture.empty())) return false;
  return o.what.empty() == (o.verb == "list");
}

}  // namespace

int trace_command(std::span<char*> arguments) {
  Options o;
  std::string wrong = "usage: usiw trace [show] PID|FILE [qp QPN] [-n EVENTS] [-w FILE.pcapng]\n"
                      "             usiw trace on|off PID|FILE\n"
                      "             usiw trace list\n"
                      "            ";
  if (!parse_options(arguments, o, wrong)) {
    std::fprintf(stderr, "usiw: %s ('usiw help trace')\n", wrong.c_str());
    return 2;
  }
  if (o.help) return kShowHelp;
  if (o.verb == "list") return list();
  if (o.verb == "show") return show(o);
  return switch_on(o, o.verb == "on");
}

}  // namespace usiw::tools
