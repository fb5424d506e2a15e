// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
#include "region.h"

#include <cerrno>
#include <cstring>
#include <new>

#include "tap.h"

namespace {

uint64_t pattern_word(uint64_t seed, uint64_t index) {
  uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15ull + index * 0xd1342543de82ef95ull;
  return x ^ (x >> 29);
}

}  // namespace

void fill_pattern(void* at, size_t length, uint64_t seed) {
  auto* out = static_cast<uint8_t*>(at);
  size_t i = 0;
  for (; i + 8 <= length; i += 8) {
    const uint64_t word = pattern_word(seed, i / 8);
    std::memcpy(out + i, &word, 8);
  }
  const uint64_t word = pattern_word(seed, i / 8);
  std::memcpy(out + i, &word, length - i);
}

size_t pattern_mismatch(const void* at, size_t length, uint64_t seed) {
  const auto* in = static_cast<const uint8_t*>(at);
  for (size_t i = 0; i < length; i += 8) {
    const uint64_t word = pattern_word(seed, i / 8);
    const size_t n = length - i < 8 ? length - i : 8;
    if (std::memcmp(in + i, &word, n) == 0) continue;
    const auto* wanted = reinterpret_cast<const uint8_t*>(&word);
    for (size_t k = 0; k < n; ++k)
      if (in[i + k] != wanted[k]) return i + k;
  }
  return length;
}

Region::Region(ibv_pd* pd, size_t length, unsigned access) : length_(length) {
  base_ = new uint8_t[length + 2 * kGuard];
  data_ = base_ + kGuard;
  std::memset(base_, kGuardByte, kGuard);
  std::memset(data_ + length, kGuardByte, kGuard);
  clear();
  // Verbs cannot register nothing: a region of 0 bytes for the caller is one of 1 byte here.
  mr_ = ibv_reg_mr(pd, data_, length ? length : 1, static_cast<int>(access));
  if (!mr_) {
    const int error = errno;
    delete[] base_;
    FAIL("ibv_reg_mr of %zu bytes: %s", length, std::strerror(error));
  }
}

Region::~Region() {
  if (mr_) ibv_dereg_mr(mr_);
  delete[] base_;
}

void Region::clear() { std::memset(data_, kClearByte, length_); }

void Region::deregister() {
  const int error = ibv_dereg_mr(mr_);
  mr_ = nullptr;
  if (error) FAIL("ibv_dereg_mr: %s", std::strerror(error));
}

void Region::check_guards() const {
  for (size_t i = 0; i < kGuard; ++i) {
    if (base_[i] != kGuardByte) FAIL("byte %zu before the region was overwritten", kGuard - i);
    if (data_[length_ + i] != kGuardByte) FAIL("byte %zu behind the region was overwritten", i);
  }
}

void Region::check(uint64_t seed, size_t offset, size_t length) const {
  const size_t at = pattern_mismatch(data_ + offset, length, seed);
  if (at != length)
    FAIL("byte %zu of %zu (at offset %zu) is wrong: 0x%02x", at, length, offset, data_[offset + at]);
}

void Region::check_clear(size_t offset, size_t length) const {
  for (size_t i = offset; i < offset + length; ++i)
    if (data_[i] != kClearByte) FAIL("byte %zu was written to, but nothing belongs there", i);
}
