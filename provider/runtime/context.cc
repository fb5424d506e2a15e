// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/context.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "base/backoff.h"
#include "base/lock_rank.h"
#include "runtime/kernel_methods.h"
#include "runtime/runtime.h"

namespace usiw {

Context::Context(ibv_context* ctx, int fd, int events, const usiw_alloc_ucontext_resp& resp)
    : ibv(ctx),
      cmd_fd(fd),
      event_fd(events),
      counters_offset(resp.counters_offset),
      counters_size(resp.counters_size),
      caps(resp.caps),
      port_kind(resp.port_kind) {
  fcntl(event_fd, F_SETFL, fcntl(event_fd, F_GETFL) | O_NONBLOCK);
}

Context::~Context() { close(event_fd); }

static Progress& progress_of(void* engine) { return *static_cast<Progress*>(engine); }

void Context::lend_engine() {
  if (usiw_run_lend == nullptr || usiw_run_take_back == nullptr) return;  // with the module
  loan_.engine = &runtime->progress();
  loan_.begin = [](void* engine) { progress_of(engine).begin_blocking(); };
  loan_.end = [](void* engine) { progress_of(engine).end_blocking(); };
  loan_.changed = [](void* engine, const std::atomic<uint32_t>* word) { progress_of(engine).changed(*word); };
  loan_.drive_until = [](void* engine, const std::atomic<uint32_t>* word, uint32_t seen) {
    switch (progress_of(engine).drive_until(*word, seen)) {
      case Progress::Blocked::kChanged:
        return 0;
      case Progress::Blocked::kSignal:
        return EINTR;
      default:
        return EAGAIN;
    }
  };
  lent_ = usiw_run_lend(cmd_fd, &loan_);
}

void Context::take_engine_back() {
  if (lent_) usiw_run_take_back(&loan_);
  lent_ = false;
}

Context& Context::of(ibv_context* ctx) {
  static_assert(offsetof(usiw_context, ibv) == 0);
  return *static_cast<Context*>(reinterpret_cast<usiw_context*>(ctx)->state);
}

void Context::settle_events() const {
  lock_rank::assert_none_up_to(LockRank::kEngine);
  const uint32_t now = reading_.load(std::memory_order_seq_cst);
  if (now % 2 == 0) return;
  for (Backoff backoff; reading_.load(std::memory_order_seq_cst) == now;) backoff.wait();
}

bool Context::ready(int fd, short revents) {
  usiw_event events[8];
  reading_.fetch_add(1, std::memory_order_seq_cst);
  ssize_t n = read(fd, events, sizeof events);
  const int error = errno;
  for (size_t i = 0; n > 0 && i < static_cast<size_t>(n) / sizeof events[0]; i++) runtime->on_event(*this, events[i]);
  reading_.fetch_add(1, std::memory_order_seq_cst);
  if (n > 0) return true;
  errno = error;
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return (revents & (POLLHUP | POLLERR | POLLNVAL)) == 0;
  return false;  // the end: the device is gone
}

}  // namespace usiw

using usiw::Context;

extern "C" int usiw_context_open(usiw_context* ctx, int cmd_fd, const usiw_alloc_ucontext_resp* resp) {
  const int event_fd = usiw::kernel_event_file(cmd_fd);
  if (event_fd < 0) return -event_fd;
  auto* context = new (std::nothrow) Context(&ctx->ibv, cmd_fd, event_fd, *resp);
  if (context == nullptr) {
    close(event_fd);
    return ENOMEM;
  }
  int rc = usiw::Process::attach(*context, resp->link);
  if (rc != 0) {
    delete context;
    return rc;
  }
  ctx->state = context;
  context->lend_engine();
  return 0;
}

extern "C" void usiw_context_close(usiw_context* ctx) {
  auto* context = static_cast<Context*>(ctx->state);
  if (context->runtime->dead()) return;  // a child of fork(): all of it is the parent's
  context->take_engine_back();
  usiw::Process::detach(*context);
  delete context;
}
