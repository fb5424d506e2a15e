// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file trace.h
/// Records what the engine does. While it is off an event costs one load and one branch;
/// nothing here takes a lock, allocates or makes a system call.
#ifndef USIW_ENGINE_TRACE_H
#define USIW_ENGINE_TRACE_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "uapi/usiw_trace.h"
#include "engine/port.h"

namespace usiw {

class Tracer {
 public:
  /// Makes @p memory, which holds trace_bytes(@p events) zeros, an empty trace.
  static void format(std::span<std::byte> memory, uint32_t events, bool on, uint32_t flags, uint32_t pid,
                     uint64_t wall_ns, const char* device);

  /// Records into @p memory from now on. What format() wrote is read here and never again:
  /// whoever scribbles over the header only spoils the trace. The memory stays the caller's.
  void attach(std::span<std::byte> memory);

  bool on() const { return __atomic_load_n(on_, __ATOMIC_RELAXED) != 0; }

  /// Remembers a connection, recording or not; returns its TraceFlow::id.
  uint32_t connection(uint32_t qpn, const Path& path);

  void packet(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow, std::span<const std::byte> head,
              std::span<const std::byte> rest);
  void note(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow, uint64_t a, uint64_t b, uint64_t c);
  /// A QP has failed, and that has been noted. Returns whether recording goes on.
  bool failed();

 private:
  TraceEvent& begin(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow);
  void commit(TraceEvent& event);

  static const uint32_t kNever;
  const uint32_t* on_ = &kNever;
  TraceHeader* header_ = nullptr;
  TraceFlow* flows_ = nullptr;
  TraceEvent* events_ = nullptr;
  uint32_t mask_ = 0;
  uint32_t flags_ = 0;
  uint32_t last_flow_ = 0;
  uint64_t next_ = 0;
};

}  // namespace usiw

#endif  // USIW_ENGINE_TRACE_H
