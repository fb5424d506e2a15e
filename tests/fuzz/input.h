// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file input.h
/// A fuzzer's input as a program: taken from the front, zeros behind its end, so that a
/// byte changed, inserted or removed anywhere leaves what comes before it as it was.
#ifndef USIW_TESTS_FUZZ_INPUT_H
#define USIW_TESTS_FUZZ_INPUT_H

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// Ends the process with a finding unless @p cond holds.
#define FUZZ_CHECK(cond, what)                                                                    \
  do {                                                                                            \
    if (!(cond)) {                                                                                \
      std::fprintf(stderr, "%s:%d: broken: %s (%s)\n", __FILE__, __LINE__, what, #cond);          \
      std::abort();                                                                               \
    }                                                                                             \
  } while (0)

namespace usiw::fuzz {

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}

  bool done() const { return rest_.empty(); }
  size_t left() const { return rest_.size(); }
  /// The last byte of all, which is taken in its turn all the same: for what was added later, so that inputs of before
  /// mean what they did.
  uint8_t last() const { return rest_.empty() ? uint8_t{0} : rest_.back(); }
  std::span<const uint8_t> take(size_t n) {
    const auto out = rest_.first(std::min(n, rest_.size()));
    rest_ = rest_.subspan(out.size());
    return out;
  }
  template <typename T = uint8_t>
  T get() {
    T v{};
    const auto from = take(sizeof v);
    if (!from.empty()) std::memcpy(&v, from.data(), from.size());
    return v;
  }
  bool flag() { return (get() & 1) != 0; }
  /// 0 to @p n - 1.
  uint32_t below(uint32_t n) { return n <= 256 ? get() % n : get<uint16_t>() % n; }
  /// One of the values given, as a rule one that lies on some limit.
  template <typename T, size_t N>
  T pick(const T (&values)[N]) {
    return values[get() % N];
  }

 private:
  std::span<const uint8_t> rest_;
};

/// The same bytes in memory of exactly their size: AddressSanitizer sees every step beyond.
class Exact {
 public:
  explicit Exact(std::span<const uint8_t> bytes) : data_(new uint8_t[bytes.size()]), size_(bytes.size()) {
    if (!bytes.empty()) std::memcpy(data_.get(), bytes.data(), bytes.size());
  }
  uint8_t* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span<const uint8_t>(data_.get(), size_)); }

 private:
  std::unique_ptr<uint8_t[]> data_;
  size_t size_;
};

}  // namespace usiw::fuzz

#endif  // USIW_TESTS_FUZZ_INPUT_H
