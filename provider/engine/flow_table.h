// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file flow_table.h
/// From a datagram's 4-tuple to its QP: open addressing with linear probing, at most
/// half full, grown only on the control path.
#ifndef USIW_ENGINE_FLOW_TABLE_H
#define USIW_ENGINE_FLOW_TABLE_H

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

#include "engine/port.h"

namespace usiw {

template <typename T>
class FlowTable {
 public:
  /// @p seed: anything that a peer cannot know.
  explicit FlowTable(uint64_t seed) : seed_(seed | 1), entries_(64) {}

  T* find(const FlowKey& key) const {
    for (size_t i = home(key);; i = next(i)) {
      if (entries_[i].value == nullptr) return nullptr;
      if (entries_[i].key == key) return entries_[i].value;
    }
  }

  /// The key is not in the table. May throw std::bad_alloc, and then nothing has changed.
  void insert(const FlowKey& key, T* value) {
    if ((count_ + 1) * 2 > entries_.size()) grow();
    put(key, value);
    ++count_;
  }

  /// false when it is not there.
  bool erase(const FlowKey& key) {
    size_t hole = home(key);
    while (true) {
      if (entries_[hole].value == nullptr) return false;
      if (entries_[hole].key == key) break;
      hole = next(hole);
    }
    // Move later members of the run back, so that no tombstones are needed.
    for (size_t i = next(hole); entries_[i].value != nullptr; i = next(i)) {
      const size_t want = home(entries_[i].key);
      const bool stays = hole <= i ? (hole < want && want <= i) : (hole < want || want <= i);
      if (stays) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole].value = nullptr;
    --count_;
    return true;
  }

  size_t size() const { return count_; }

 private:
  struct Entry {
    FlowKey key{};
    T* value = nullptr;
  };

  size_t home(const FlowKey& key) const {
    uint64_t words[4];
    uint32_t ports;
    std::memcpy(words, &key, sizeof words);
    std::memcpy(&ports, reinterpret_cast<const char*>(&key) + sizeof words, sizeof ports);
    uint64_t h = seed_;
    for (uint64_t w : words) h = mix(h ^ w);
    h = mix(h ^ ports);
    return h & (entries_.size() - 1);
  }
  uint64_t mix(uint64_t x) const {
    const auto wide = static_cast<unsigned __int128>(x ^ seed_) * 0x9e3779b97f4a7c15u;
    return static_cast<uint64_t>(wide) ^ static_cast<uint64_t>(wide >> 64);
  }
  size_t next(size_t i) const { return (i + 1) & (entries_.size() - 1); }

  void put(const FlowKey& key, T* value) {
    size_t i = home(key);
    while (entries_[i].value != nullptr) i = next(i);
    entries_[i] = {key, value};
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& e : old)
      if (e.value != nullptr) put(e.key, e.value);
  }

  uint64_t seed_;
  std::vector<Entry> entries_;  ///< a power of two of them
  size_t count_ = 0;
};

}  // namespace usiw

#endif  // USIW_ENGINE_FLOW_TABLE_H
