// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file region.h
/// Registered memory with guard bytes, and a cheap pattern to verify contents by.
#ifndef USIW_TESTS_REGION_H
#define USIW_TESTS_REGION_H

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

/// Writes @p length bytes that depend on @p seed and the position.
void fill_pattern(void* at, size_t length, uint64_t seed);
/// Position of the first byte that differs from fill_pattern(), or @p length.
size_t pattern_mismatch(const void* at, size_t length, uint64_t seed);

inline constexpr unsigned kAllAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

/// A memory region of @p length bytes between two guards that nobody may touch.
class Region {
 public:
  Region(ibv_pd* pd, size_t length, unsigned access = kAllAccess);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  uint8_t* data() const { return data_; }
  size_t size() const { return length_; }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  uint32_t lkey() const { return mr_->lkey; }
  uint32_t rkey() const { return mr_->rkey; }
  ibv_mr* mr() const { return mr_; }
  ibv_sge sge(size_t offset, size_t length) const {
    return {addr() + offset, static_cast<uint32_t>(length), mr_->lkey};
  }
  ibv_sge sge() const { return sge(0, length_); }

  void fill(uint64_t seed) { fill_pattern(data_, length_, seed); }
  void clear();
  /// Deregisters now; the memory stays until the destructor. Fails the case on an error.
  void deregister();
  /// Fails the case if a guard byte has changed.
  void check_guards() const;
  /// Fails the case unless [offset, offset + length) holds the pattern of @p seed from its start.
  void check(uint64_t seed, size_t offset, size_t length) const;
  /// Fails the case unless [offset, offset + length) holds what clear() wrote.
  void check_clear(size_t offset, size_t length) const;

 private:
  static constexpr size_t kGuard = 4096;
  static constexpr uint8_t kGuardByte = 0xa7;
  static constexpr uint8_t kClearByte = 0x5c;
  uint8_t* base_ = nullptr;
  uint8_t* data_ = nullptr;
  size_t length_;
  ibv_mr* mr_ = nullptr;
};

#endif  // USIW_TESTS_REGION_H
