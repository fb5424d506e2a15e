// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "runtime/contexts.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace usiw {
namespace {

uint64_t* map_page(void* at, int flags, int fd, uint64_t offset, size_t size) {
  void* p = mmap(at, size, PROT_READ | PROT_WRITE, flags | (at != nullptr ? MAP_FIXED : 0), fd,
                 static_cast<off_t>(offset));
  return p == MAP_FAILED ? nullptr : static_cast<uint64_t*>(p);
}

}  // namespace

ContextSet::ContextSet() : counters_(map_page(nullptr, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, USIW_COUNTERS_SIZE)) {
  if (counters_ == nullptr) throw std::bad_alloc();
}

ContextSet::~ContextSet() { munmap(counters_, USIW_COUNTERS_SIZE); }

void ContextSet::add(Context& context, EngineGate& gate) {
  lock_rank::assert_held(LockRank::kRegistry);
  contexts_.push_back(&context);
  if (contexts_.size() == 1) point_counters(gate.hold());
}

void ContextSet::remove(Context& context, EngineGate& gate) {
  lock_rank::assert_held(LockRank::kRegistry);
  const bool owned_page = contexts_.front() == &context;
  std::erase(contexts_, &context);
  if (owned_page) point_counters(gate.hold());
}

void ContextSet::read_events() {
  lock_rank::assert_held(LockRank::kRegistry);
  for (Context* c : contexts_) c->ready(c->event_fd, 0);
}

bool ContextSet::take_sockets() const {
  return std::all_of(contexts_.begin(), contexts_.end(),
                     [](const Context* c) { return (c->caps & USIW_CAP_DATA_SOCKET) != 0; });
}

/// The engine adds to one page for all contexts: that of the first living context, which
/// the kernel sums up for the device. When its owner closes, the next one's page takes its
/// address.
void ContextSet::point_counters(const EngineGate::Held&) {
  if (!contexts_.empty()) {
    const Context& c = *contexts_.front();
    if (c.counters_size == USIW_COUNTERS_SIZE &&
        map_page(counters_, MAP_SHARED, c.cmd_fd, c.counters_offset, USIW_COUNTERS_SIZE) != nullptr) {
      madvise(counters_, USIW_COUNTERS_SIZE, MADV_DONTFORK);
      return;
    }
  }
  if (map_page(counters_, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0, USIW_COUNTERS_SIZE) == nullptr)
    abort();  // MAP_FIXED may have unmapped the page that the engine writes
}

}  // namespace usiw
