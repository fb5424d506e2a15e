// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file mr_table.h
/// Registered memory by STag, and the one place where an STag and an address become
/// a pointer: every access of the engine to user memory is checked here, each time.
#ifndef USIW_ENGINE_MR_TABLE_H
#define USIW_ENGINE_MR_TABLE_H

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "engine/types.h"
#include "uapi/usiw_abi.h"

namespace usiw {

enum class MrFault : uint8_t { kNone, kStag, kPd, kAccess, kBounds, kWrap };

class MrTable {
 public:
  /// 0, EEXIST (the index is taken), EINVAL (index too large, range wraps) or ENOMEM.
  int add(const MrAttr& mr) {
    const uint32_t index = mr.stag >> 8;
    if (index >= USIW_MAX_MR) return EINVAL;
    if (mr.addr + mr.length < mr.addr || mr.iova + mr.length < mr.iova) return EINVAL;
    auto& chunk = chunks_[index / kChunk];
    if (!chunk) {
      chunk.reset(new (std::nothrow) Chunk{});
      if (!chunk) return ENOMEM;
    }
    Entry& e = (*chunk)[index % kChunk];
    if (e.used) return EEXIST;
    e = {mr, true};
    return 0;
  }

  /// 0 or ENOENT.
  int remove(uint32_t stag) {
    Entry* e = const_cast<Entry*>(find(stag));
    if (e == nullptr) return ENOENT;
    *e = {};
    return 0;
  }

  /// Checks @p len > 0 bytes at @p to for all rights in @p access; nullptr and @p fault when
  /// they are not there. The pointer is good until the next remove().
  std::byte* resolve(uint32_t stag, uint32_t pd, uint32_t access, uint64_t to, uint32_t len,
                     MrFault& fault) const {
    const Entry* e = find(stag);
    if (e == nullptr) return fail(fault, MrFault::kStag);
    if (e->mr.pd != pd) return fail(fault, MrFault::kPd);
    if ((e->mr.access & access) != access) return fail(fault, MrFault::kAccess);
    if (to + len < to) return fail(fault, MrFault::kWrap);
    const uint64_t offset = to - e->mr.iova;
    if (to < e->mr.iova || offset > e->mr.length || len > e->mr.length - offset)
      return fail(fault, MrFault::kBounds);
    fault = MrFault::kNone;
    return reinterpret_cast<std::byte*>(e->mr.addr + offset);
  }

 private:
  struct Entry {
    MrAttr mr{};
    bool used = false;
  };
  static constexpr uint32_t kChunk = 1024;
  using Chunk = std::array<Entry, kChunk>;

  const Entry* find(uint32_t stag) const {
    const uint32_t index = stag >> 8;
    if (index >= USIW_MAX_MR) return nullptr;
    const auto& chunk = chunks_[index / kChunk];
    if (!chunk) return nullptr;
    const Entry& e = (*chunk)[index % kChunk];
    return e.used && e.mr.stag == stag ? &e : nullptr;
  }
  static std::byte* fail(MrFault& out, MrFault why) {
    out = why;
    return nullptr;
  }

  std::array<std::unique_ptr<Chunk>, USIW_MAX_MR / kChunk> chunks_;
};

}  // namespace usiw

#endif  // USIW_ENGINE_MR_TABLE_H
