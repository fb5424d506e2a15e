// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_file.h
/// Where the engine's trace lies: in a memfd, which costs nothing until `usiw trace on` finds
/// it by /proc/PID/fd and switches it on, or in a file, which outlives the process.
#ifndef USIW_RUNTIME_TRACE_FILE_H
#define USIW_RUNTIME_TRACE_FILE_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "uapi/usiw_trace.h"

namespace usiw {

/// USIW_TRACE=DIRECTORY[,events=N][,stop-on-error]
struct TraceSpec {
  std::string directory;  ///< empty: not recording, memfd
  uint32_t events = kTraceEvents;
  bool stop_on_error = false;
  std::string complaint;  ///< what could not be understood, or empty

  static TraceSpec parse(const char* text);
};

class TraceFile {
 public:
  /// nullptr, and @p why, when there can be none; the program runs on without.
  static std::unique_ptr<TraceFile> create(const TraceSpec& spec, const std::string& device, std::string& why);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  std::span<std::byte> memory() const { return memory_; }

 private:
  TraceFile(int fd, std::span<std::byte> memory) : fd_(fd), memory_(memory) {}

  const int fd_;  ///< stays open: `usiw trace` comes by it
  const std::span<std::byte> memory_;
};

}  // namespace usiw

#endif  // USIW_RUNTIME_TRACE_FILE_H
