// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mr_table.h
/// What STags name: regions of registered memory, and windows that are bound to parts of them. The one place where an
/// STag and an address become memory: every access of the engine to user memory is checked here, each time.
///
/// Indices below USIW_MAX_MR are those of regions, the USIW_MAX_MW next ones those of windows. A window that is not
/// bound names nothing. Work requests name regions only, peers name both.
#ifndef USIW_ENGINE_MR_TABLE_H
#define USIW_ENGINE_MR_TABLE_H

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "engine/types.h"
#include "engine/user_memory.h"
#include "uapi/usiw_abi.h"
#include "uapi/usiw_wire.h"

namespace usiw {

class MrTable {
 public:
  // ---- Regions ----

  /// 0, EEXIST (the index is taken), EINVAL (index too large, range wraps) or ENOMEM.
  int add(const MrAttr& mr) {
    if (index_of(mr.stag) >= kRegions || wraps(mr)) return EINVAL;
    Entry* e = make(mr.stag);
    if (e == nullptr) return ENOMEM;
    if (e->kind != Kind::kFree) return EEXIST;
    *e = open(mr, Kind::kRegion);
    return 0;
  }

  /// A region without memory: what is read is zeros, what is written vanishes, and peers have no rights. As add().
  int add_null(uint32_t stag, uint32_t pd) {
    if (!null_) {
      null_.reset(new (std::nothrow) Null{});
      if (!null_) return ENOMEM;
    }
    const int rc = add({.stag = stag, .pd = pd, .access = kAccessLocalWrite, .addr = 0, .length = 0, .iova = 0});
    if (rc == 0) make(stag)->kind = Kind::kNull;
    return rc;
  }

  /// No window is bound to the region from here on. 0, ENOENT, or EBUSY: one is.
  int close(uint32_t stag) {
    Entry* e = region(stag);
    if (e == nullptr) return ENOENT;
    if (e->link != 0) return EBUSY;
    e->closed = true;
    return 0;
  }
  void reopen(uint32_t stag) {
    if (Entry* e = region(stag)) e->closed = false;
  }
  /// The region that was @p stag, and to which no window is bound, becomes @p now, of the same index, and is open.
  /// 0, ENOENT, EBUSY or EINVAL.
  int change(uint32_t stag, const MrAttr& now) {
    Entry* e = region(stag);
    if (e == nullptr) return ENOENT;
    if (index_of(stag) != index_of(now.stag) || wraps(now)) return EINVAL;
    if (e->link != 0) return EBUSY;
    *e = open(now, e->kind);
    return 0;
  }
  /// 0, ENOENT, or EBUSY: a window is bound to it.
  int remove(uint32_t stag) {
    Entry* e = region(stag);
    if (e == nullptr) return ENOENT;
    if (e->link != 0) return EBUSY;
    *e = {};
    return 0;
  }

  // ---- Windows ----

  /// Any key; it is not bound. 0, EEXIST, EINVAL (not a window's index) or ENOMEM.
  int add_window(const WindowAttr& window) {
    const uint32_t index = index_of(window.stag);
    if (index < kRegions || index >= kRegions + kWindows) return EINVAL;
    Entry* e = make(window.stag);
    if (e == nullptr) return ENOMEM;
    if (e->kind != Kind::kFree) return EEXIST;
    *e = {.kind = window.type2 ? Kind::kWindow2 : Kind::kWindow1};
    e->mr.stag = window.stag;
    e->mr.pd = window.pd;
    return 0;
  }
  /// Whatever its key is by now. 0 or ENOENT.
  int remove_window(uint32_t stag) {
    Entry* e = window(stag);
    if (e == nullptr) return ENOENT;
    unbind(*e);
    *e = {};
    return 0;
  }

  /// Binds, for a QP of @p pd, of which @p stream is the connection. false: not permitted, and nothing has changed.
  ///
  /// Type 1 may be bound already, and is unbound by a length of 0. Type 2 must not be, and belongs to the connection.
  bool bind(const WindowBind& b, uint32_t pd, uint64_t stream) {
    Entry* w = window(b.stag);
    if (w == nullptr || w->mr.pd != pd) return false;
    if (w->kind == Kind::kWindow2 ? w->valid || b.length == 0 : b.type2) return false;
    if (b.length == 0) {
      unbind(*w);
      w->mr.stag = b.stag;
      return true;
    }
    Entry* r = region(b.region);
    if (r == nullptr || r->kind != Kind::kRegion || r->closed || r->mr.pd != pd) return false;
    if ((r->mr.access & kAccessMwBind) == 0) return false;
    if ((b.access & kRemoteWriters) != 0 && (r->mr.access & kAccessLocalWrite) == 0) return false;
    const uint64_t offset = b.addr - r->mr.iova;
    if (b.addr < r->mr.iova || offset > r->mr.length || b.length > r->mr.length - offset) return false;
    unbind(*w);
    w->mr = {.stag = b.stag,
             .pd = pd,
             .access = b.access & (kRemoteWriters | kAccessRemoteRead),
             .addr = r->mr.addr + offset,
             .length = b.length,
             .iova = (b.access & kAccessZeroBased) != 0 ? 0 : b.addr};
    w->direct = r->direct != 0 ? b.length : 0;
    w->link = b.region;
    w->stream = w->kind == Kind::kWindow2 ? stream : 0;
    w->valid = true;
    ++r->link;
    return true;
  }

  /// Unbinds a window of type 2 that is bound by that name, PD and connection. false: there is none, and nothing has
  /// changed. Regions of a program cannot be invalidated.
  bool invalidate(uint32_t stag, uint32_t pd, uint64_t stream) {
    Entry* w = window(stag);
    if (w == nullptr || w->kind != Kind::kWindow2 || !w->valid || w->mr.stag != stag) return false;
    if (w->mr.pd != pd || w->stream != stream) return false;
    unbind(*w);
    return true;
  }

  // ---- Access ----

  /// Checks @p len > 0 bytes at @p to of a region for all rights in @p access; none and @p fault when they are not
  /// there. What it says is good until the next change. Of a region without memory no more than kNullBytes
  /// can be accessed; of more it says that they are there.
  UserMemory resolve(uint32_t stag, uint32_t pd, uint32_t access, uint64_t to, uint32_t len, MrFault& fault) const {
    const Entry* e = find(stag, kRegions);
    if (e == nullptr) return fail(fault, MrFault::kStag);
    return within(*e, pd, access, to, len, fault);
  }
  /// Who asks from the other end of a connection.
  struct Peer {
    uint32_t pd;      ///< of this end's QP
    uint32_t rights;  ///< that the QP leaves it
    uint64_t stream;  ///< the connection
  };
  /// The same of what a peer names: regions and windows.
  UserMemory resolve_remote(uint32_t stag, const Peer& peer, uint32_t access, uint64_t to, uint32_t len,
                            MrFault& fault) const {
    const Entry* e = find(stag, kRegions + kWindows);
    if (e == nullptr) return fail(fault, MrFault::kStag);
    if (e->stream != 0 && e->stream != peer.stream) return fail(fault, MrFault::kPd);
    return within(*e, peer.pd, access, to, len, fault, peer.rights);
  }

  static constexpr uint32_t kNullBytes = 16384;
  static_assert(kNullBytes >= USIW_MAX_MTU, "what one datagram takes");

 private:
  enum class Kind : uint8_t { kFree, kRegion, kNull, kWindow1, kWindow2 };
  struct Entry {
    MrAttr mr{};  ///< of a window as it is bound; else its STag and PD
    Kind kind = Kind::kFree;
    bool valid = false;    ///< names memory
    bool closed = false;  ///< region: no window may be bound
    uint32_t link = 0;    ///< region: how many windows are bound to it; window that is bound: to which region
    uint64_t direct = 0;  ///< bytes: all, or none of what is not mapped all the time
    uint64_t stream = 0;  ///< window of type 2 that is bound: whose it is
  };
  static_assert(sizeof(Entry) == 64);
  static constexpr uint32_t kRegions = USIW_MAX_MR, kWindows = USIW_MAX_MW;
  static constexpr uint32_t kRemoteWriters = kAccessRemoteWrite | kAccessRemoteAtomic;
  static constexpr uint32_t kChunk = 1024;
  using Chunk = std::array<Entry, kChunk>;
  struct Null {
    std::byte zeros[kNullBytes]{};
    std::byte sink[kNullBytes]{};
  };

  static uint32_t index_of(uint32_t stag) { return stag >> 8; }
  static Entry open(const MrAttr& mr, Kind kind) {
    return {.mr = mr,
            .kind = kind,
            .valid = true,
            .direct = (mr.access & kAccessOnDemand) != 0 ? 0 : mr.length};
  }
  static bool wraps(const MrAttr& mr) { return mr.addr + mr.length < mr.addr || mr.iova + mr.length < mr.iova; }

  /// The place of an index that there can be; nullptr when out of memory.
  Entry* make(uint32_t stag) {
    auto& chunk = chunks_[index_of(stag) / kChunk];
    if (!chunk) chunk.reset(new (std::nothrow) Chunk{});
    return chunk ? &(*chunk)[index_of(stag) % kChunk] : nullptr;
  }
  Entry* at(uint32_t stag) const {
    const uint32_t index = index_of(stag);
    if (index >= kRegions + kWindows) return nullptr;
    const auto& chunk = chunks_[index / kChunk];
    return chunk ? &(*chunk)[index % kChunk] : nullptr;
  }
  Entry* region(uint32_t stag) const {
    Entry* e = at(stag);
    if (e == nullptr || e->mr.stag != stag) return nullptr;
    return e->kind == Kind::kRegion || e->kind == Kind::kNull ? e : nullptr;
  }
  /// Whatever its key is.
  Entry* window(uint32_t stag) const {
    Entry* e = at(stag);
    return e != nullptr && (e->kind == Kind::kWindow1 || e->kind == Kind::kWindow2) ? e : nullptr;
  }
  void unbind(Entry& w) {
    if (!w.valid) return;
    w.valid = false;
    w.stream = 0;
    if (Entry* r = region(w.link)) --r->link;
  }

  const Entry* find(uint32_t stag, uint32_t indices) const {
    const uint32_t index = index_of(stag);
    if (index >= indices) return nullptr;
    const auto& chunk = chunks_[index / kChunk];
    if (!chunk) return nullptr;
    const Entry& e = (*chunk)[index % kChunk];
    return e.valid && e.mr.stag == stag ? &e : nullptr;
  }
  UserMemory within(const Entry& e, uint32_t pd, uint32_t access, uint64_t to, uint32_t len, MrFault& fault,
                    uint32_t rights = ~0u) const {
    if (e.mr.pd != pd) return fail(fault, MrFault::kPd);
    if ((e.mr.access & rights & access) != access) return fail(fault, MrFault::kAccess);
    // Of what is before iova the offset is beyond any length, as iova + length does not wrap. Nor then does to + len.
    const uint64_t offset = to - e.mr.iova;
    if (offset > e.direct || len > e.direct - offset) [[unlikely]] return elsewhere(e, access, to, len, fault);
    fault = MrFault::kNone;
    return UserMemory::mapped(reinterpret_cast<std::byte*>(e.mr.addr + offset));
  }
  /// What is not simply there.
  [[gnu::cold, gnu::noinline]] UserMemory elsewhere(const Entry& e, uint32_t access, uint64_t to, uint32_t len,
                                                    MrFault& fault) const {
    fault = MrFault::kNone;
    if (e.kind == Kind::kNull) {
      std::byte* at = (access & kAccessLocalWrite) != 0 ? null_->sink : null_->zeros;
      return len <= kNullBytes ? UserMemory::mapped(at) : UserMemory::on_demand(at);
    }
    const uint64_t offset = to - e.mr.iova;
    if (offset > e.mr.length || len > e.mr.length - offset)
      return fail(fault, to + len < to ? MrFault::kWrap : MrFault::kBounds);
    const uint64_t at = e.mr.addr + offset;
    if (at == 0) return fail(fault, MrFault::kBounds);  // in the region of all addresses
    return UserMemory::on_demand(reinterpret_cast<std::byte*>(at));
  }
  static UserMemory fail(MrFault& out, MrFault why) {
    out = why;
    return {};
  }

  std::array<std::unique_ptr<Chunk>, (USIW_MAX_MR + USIW_MAX_MW) / kChunk> chunks_;
  std::unique_ptr<Null> null_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_MR_TABLE_H
