// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "engine/trace.h"

#include <algorithm>
#include <cstring>

#include "base/link_local.h"

namespace usiw {

const uint32_t Tracer::kNever = 0;

void Tracer::format(std::span<std::byte> memory, uint32_t events, bool on, uint32_t flags, uint32_t pid,
                    uint64_t wall_ns, const char* device) {
  auto* header = reinterpret_cast<TraceHeader*>(memory.data());
  header->event_bytes = sizeof(TraceEvent);
  header->events = events;
  header->flow_bytes = sizeof(TraceFlow);
  header->flows = kTraceFlows;
  header->pid = pid;
  header->on = on ? 1 : 0;
  header->flags = flags;
  header->wall_ns = wall_ns;
  std::strncpy(header->device, device, sizeof header->device - 1);
  // A reader that sees the magic sees the rest.
  __atomic_store_n(&header->magic, kTraceMagic, __ATOMIC_RELEASE);
}

void Tracer::attach(std::span<std::byte> memory) {
  header_ = reinterpret_cast<TraceHeader*>(memory.data());
  flows_ = reinterpret_cast<TraceFlow*>(memory.data() + kTraceHeaderBytes);
  events_ = reinterpret_cast<TraceEvent*>(flows_ + kTraceFlows);
  mask_ = header_->events - 1;
  flags_ = header_->flags;
  next_ = header_->next;
  on_ = &header_->on;
}

uint32_t Tracer::connection(uint32_t qpn, const Path& path) {
  if (header_ == nullptr) return 0;
  if (++last_flow_ == 0) ++last_flow_;
  TraceFlow& f = flows_[last_flow_ % kTraceFlows];
  __atomic_store_n(&f.id, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  f.qpn = qpn;
  std::memcpy(f.local_addr, path.flow.local_addr.data(), 16);
  if (path.marked) take_link(f.local_addr);
  std::memcpy(f.remote_addr, path.flow.remote_addr.data(), 16);
  std::memcpy(f.local_port, &path.flow.local_port, 2);
  std::memcpy(f.remote_port, &path.flow.remote_port, 2);
  std::memcpy(f.local_mac, path.local_mac.data(), 6);
  std::memcpy(f.remote_mac, path.remote_mac.data(), 6);
  __atomic_store_n(&f.id, last_flow_, __ATOMIC_RELEASE);
  return last_flow_;
}

/// The slot is invalid from here to commit(): who reads it meanwhile finds another number
/// before or behind its copy.
TraceEvent& Tracer::begin(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow) {
  TraceEvent& e = events_[next_ & mask_];
  __atomic_store_n(&e.number, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  e.time_ns = now;
  e.qpn = qpn;
  e.flow = flow;
  e.kind = kind;
  e.len = 0;
  e.kept = 0;
  return e;
}

void Tracer::commit(TraceEvent& e) {
  ++next_;
  __atomic_store_n(&e.number, next_, __ATOMIC_RELEASE);
  __atomic_store_n(&header_->next, next_, __ATOMIC_RELEASE);
}

[[gnu::cold, gnu::noinline]] void Tracer::packet(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow,
                                                std::span<const std::byte> head, std::span<const std::byte> rest) {
  TraceEvent& e = begin(kind, now, qpn, flow);
  e.len = static_cast<uint32_t>(head.size() + rest.size());
  e.kept = static_cast<uint16_t>(std::min<size_t>(e.len, kTraceKept));
  const size_t from_head = std::min<size_t>(e.kept, head.size());
  std::memcpy(e.bytes, head.data(), from_head);
  if (from_head < e.kept) std::memcpy(e.bytes + from_head, rest.data(), e.kept - from_head);
  commit(e);
}

[[gnu::cold, gnu::noinline]] void Tracer::note(TraceKind kind, uint64_t now, uint32_t qpn, uint32_t flow, uint64_t a,
                                uint64_t b, uint64_t c) {
  TraceEvent& e = begin(kind, now, qpn, flow);
  e.arg = {a, b, c};
  commit(e);
}

/// Stopping keeps what led here, at no cost: the trace is its own dump.
[[gnu::cold]] bool Tracer::failed() {
  if ((flags_ & kTraceStopOnError) != 0) __atomic_store_n(&header_->on, 0, __ATOMIC_RELAXED);
  return on();
}

}  // namespace usiw
