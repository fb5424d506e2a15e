// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file context.h
/// An open device (ibv_context): its event stream from the kernel and its share of the
/// runtime.
#ifndef USIW_RUNTIME_CONTEXT_H
#define USIW_RUNTIME_CONTEXT_H

#include <atomic>
#include <infiniband/verbs.h>

#include <cstddef>

#include "base/engine_loan.h"
#include "progress/progress.h"
#include "uapi/usiw_abi.h"
#include "runtime/glue.h"

namespace usiw {

class Runtime;

class Context final : public Watcher {
 public:
  Context(ibv_context* ibv, int cmd_fd, int event_fd, const usiw_alloc_ucontext_resp& resp);
  ~Context() override;

  /// Of a context that usiw_context_open() has seen.
  static Context& of(ibv_context* ibv);

  /// [progress thread] Events of the kernel.
  bool ready(int fd, short revents) override;

  ibv_context* const ibv;
  const int cmd_fd;
  const int event_fd;
  const uint64_t counters_offset;
  const uint32_t counters_size;
  const uint64_t caps;       ///< USIW_CAP_* that the kernel half has agreed to
  const uint32_t port_kind;  ///< enum usiw_port_kind
  Runtime* runtime = nullptr;

  /// Waits until the events that the progress thread has read by now have been handled.
  void settle_events() const;

  /// Lends the runtime's engine to threads that block in this context's channels, where that is possible.
  void lend_engine();
  /// When it returns none of them is in there.
  void take_engine_back();

 private:
  std::atomic<uint32_t> reading_{0};  ///< odd while events are read and handled
  usiw_engine_loan loan_{};
  bool lent_ = false;
};

}  // namespace usiw

#endif  // USIW_RUNTIME_CONTEXT_H
