// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "tools/trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/json.h"
#include "tools/pcapng.h"
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
};

bool is_pid(const std::string& what) {
  return !what.empty() && what.size() < 10 &&
         std::all_of(what.begin(), what.end(), [](char c) { return c >= '0' && c <= '9'; });
}

template <typename Number>
bool parse_number(std::string_view text, Number& out) {
  return !text.empty() && std::from_chars(text.data(), text.data() + text.size(), out).ptr == text.data() + text.size();
}

/// Traces that process @p pid has open.
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

/// What a hostile process has open may be anything: never wait for it, never run it.
int open_trace(const std::string& path, int access) {
  return open(path.c_str(), access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/// 0 or an exit status, with a line on stderr.
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

/// Standard output for "-".
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
    // Opened once: at its path there may be another file by the time it is known to be a trace.
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
    std::error_code hidden;  // somebody else's, or gone
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

bool parse_options(std::span<char*> arguments, Options& o) {
  size_t i = 0;
  if (!arguments.empty()) {
    const std::string_view verb = arguments[0];
    if (verb == "on" || verb == "off" || verb == "list" || verb == "show") {
      o.verb = verb;
      i = 1;
    }
  }
  for (; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    const auto value = [&] { return i + 1 < arguments.size() ? std::string_view(arguments[++i]) : ""; };
    if (word == "qp") {
      o.qpn.emplace();
      if (!parse_number(value(), *o.qpn)) return false;
    } else if (word == "-n" || word == "--last") {
      if (!parse_number(value(), o.last) || o.last == 0) return false;
    } else if (word == "-w" || word == "--write") {
      o.capture = value();
      if (o.capture.empty()) return false;
    } else if (!word.starts_with('-') && o.what.empty()) {
      o.what = word;
    } else {
      return false;
    }
  }
  if (o.verb != "show" && (o.qpn || o.last != 0 || !o.capture.empty())) return false;
  return o.what.empty() == (o.verb == "list");
}

}  // namespace

int trace_command(std::span<char*> arguments) {
  Options o;
  if (!parse_options(arguments, o)) {
    std::fprintf(stderr,
                 "usiw: usage: usiw trace [show] PID|FILE [qp QPN] [-n EVENTS] [-w FILE.pcapng]\n"
                 "             usiw trace on|off PID|FILE\n"
                 "             usiw trace list\n"
                 "             ('usiw help trace')\n");
    return 2;
  }
  if (o.verb == "list") return list();
  if (o.verb == "show") return show(o);
  return switch_on(o, o.verb == "on");
}

}  // namespace usiw::tools
