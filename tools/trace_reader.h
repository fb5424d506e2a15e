// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_reader.h
/// Reads a trace (uapi/usiw_trace.h). Another process writes the trace, perhaps at this moment, and may be hostile.
/// Whatever the file contains, the result is an error, or a list of events of known kinds with consistent lengths.
#ifndef USIW_TOOLS_TRACE_READER_H
#define USIW_TOOLS_TRACE_READER_H

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "uapi/usiw_trace.h"

namespace usiw::tools {

struct Trace {
  std::string device;
  uint32_t pid = 0;
  bool on = false;
  uint64_t wall_ns = 0;
  std::vector<TraceEvent> events;                 ///< oldest first; TraceEvent::number counts from 0 here
  std::unordered_map<uint32_t, TraceFlow> flows;  ///< by id

  const TraceFlow* flow_of(const TraceEvent& event) const {
    const auto it = flows.find(event.flow);
    return it == flows.end() ? nullptr : &it->second;
  }
};

/// Parses three copies of the same file, made one after the other. If an event has the same number in all of them, its
/// middle copy is whole. Returns "" or what is wrong.
std::string parse_trace(std::span<const std::byte> first, std::span<const std::byte> middle,
                        std::span<const std::byte> last, Trace& out);

/// Reads the trace in an open regular file. Returns "" or what is wrong.
std::string read_trace(int fd, Trace& out);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_TRACE_READER_H
