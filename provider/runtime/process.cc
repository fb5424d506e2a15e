// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/process.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <vector>

#include "runtime/runtime.h"

namespace usiw {

std::atomic<uint32_t> Process::g_generation{0};

namespace {

/// Never destroyed: threads of the application may still be inside while the process exits.
std::vector<Runtime*>& registry() {
  static auto& list = *new std::vector<Runtime*>;
  return list;
}

}  // namespace

Process::Lock& Process::registry_lock() {
  static Lock& lock = *new Lock;
  return lock;
}

// ---- fork and exit ------------------------------------------------------------------

namespace {

/// Exit handlers and static destructors of the program use verbs like any other code: they have run by now, and so have
/// the ends of libraries that depend on this one. DPDK's, which this one depends on, come next.
[[gnu::destructor]] void library_ends() { Process::finish(); }

}  // namespace

void Process::before_fork() { registry_lock().lock(); }
void Process::after_fork_parent() { registry_lock().unlock(); }
void Process::after_fork_child() {
  g_generation.fetch_add(1, std::memory_order_relaxed);
  registry().clear();  // leaked on purpose: nothing in it may be touched
  registry_lock().unlock();
}

void Process::finish() {
  if (!registry_lock().try_lock()) return;
  for (Runtime* r : registry()) {
    r->progress().posted();  // what waits for the next run: there is none
    if (r->progress().freeze()) r->acknowledge_all();
  }
  registry_lock().unlock();
}

// ---- Contexts ---------------------------------------------------------------------------

int Process::attach(Context& context, const usiw_link_info& link) try {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(before_fork, after_fork_parent, after_fork_child);
  });
  std::lock_guard hold(registry_lock());
  const char* name = context.ibv->device->name;
  auto& list = registry();
  auto it = std::find_if(list.begin(), list.end(), [&](Runtime* r) { return r->serves(name, link.ifindex); });
  Runtime* runtime;
  if (it != list.end()) {
    runtime = *it;
  } else {
    list.reserve(list.size() + 1);
    runtime = new Runtime(name, link, context.port_kind);
    list.push_back(runtime);
  }
  runtime->contexts().add(context, runtime->gate());
  context.runtime = runtime;
  runtime->progress().watch(context.event_fd, Progress::Kind::kControl, context);
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

void Process::detach(Context& context) {
  Runtime* runtime = context.runtime;
  runtime->progress().unwatch(context.event_fd);
  bool last;
  {
    std::lock_guard hold(registry_lock());
    runtime->contexts().remove(context, runtime->gate());
    last = runtime->contexts().empty();
    if (last) std::erase(registry(), runtime);
  }
  if (last) delete runtime;
}

}  // namespace usiw
