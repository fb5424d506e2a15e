// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace_reader.h
/// Reads a trace (uapi/usiw_trace.h) that another process writes, perhaps at this moment,
/// perhaps with ill will: whatever stands in it, the result is a list of events of known kinds
/// with lengths that are true.
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
  std::vector<TraceEvent> events;  ///< oldest first; number counts from 0 here
  std::unordered_map<uint32_t, TraceFlow> flows;  ///< by id

  const TraceFlow* flow_of(const TraceEvent& event) const {
    const auto it = flows.find(event.flow);
    return it == flows.end() ? nullptr : &it->second;
  }
};

/// From three copies of the same file, made one after the other: an event is whole when its
/// number is the same in all of them, and then the middle copy of it is.
/// "" or what is wrong.
std::string parse_trace(std::span<const std::byte> first, std::span<const std::byte> middle,
                        std::span<const std::byte> last, Trace& out);

/// Reads an open regular file. "" or what is wrong.
std::string read_trace(int fd, Trace& out);

}  // namespace usiw::tools

#endif  // USIW_TOOLS_TRACE_READER_H
