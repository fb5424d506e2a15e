// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file contexts.h
/// The open contexts of a runtime, and the page of counters that the engine adds to. Under the registry's lock
/// (process.h).
#ifndef USIW_RUNTIME_CONTEXTS_H
#define USIW_RUNTIME_CONTEXTS_H

#include <cstdint>
#include <vector>

#include "runtime/context.h"
#include "runtime/engine_gate.h"

namespace usiw {

class ContextSet {
 public:
  /// Maps a page for the counters; std::bad_alloc if there is none.
  ContextSet();
  ~ContextSet();
  ContextSet(const ContextSet&) = delete;
  ContextSet& operator=(const ContextSet&) = delete;

  uint64_t* counters() const { return counters_; }
  bool empty() const { return contexts_.empty(); }

  void add(Context& context, EngineGate& gate);
  void remove(Context& context, EngineGate& gate);
  /// Acts on what the kernel has said to each.
  void read_events();
  /// Do connections of all of them bring data sockets?
  bool take_sockets() const;

 private:
  void point_counters(const EngineGate::Held& held);

  uint64_t* counters_;  ///< a page: a context's, or anonymous
  std::vector<Context*> contexts_;  ///< the first owns the page
};

}  // namespace usiw

#endif  // USIW_RUNTIME_CONTEXTS_H
