// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file user_memory.h
/// Memory of the program that an STag names: the one way in which the engine reads and writes it.
///
/// As a rule that is a copy. Memory of regions that are registered on demand may be mapped, or not, at any moment: the
/// kernel copies there, page by page, and says so where nothing is. That costs a system call for each datagram, and the
/// time in which the kernel brings a page in.
#ifndef USIW_ENGINE_USER_MEMORY_H
#define USIW_ENGINE_USER_MEMORY_H

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace usiw {

class UserMemory {
 public:
  /// None.
  constexpr UserMemory() = default;
  static constexpr UserMemory mapped(std::byte* at) { return {at, false}; }
  static constexpr UserMemory on_demand(std::byte* at) { return {at, true}; }

  explicit operator bool() const { return at_ != nullptr; }
  std::byte* address() const { return at_; }
  /// Where it can be accessed; nullptr: there is none, or by the methods below only.
  std::byte* direct() const { return on_demand_ ? nullptr : at_; }

  /// Copies @p n bytes from it. false: some of them are not there, and nothing is known of what @p out has.
  bool read(std::byte* out, size_t n) const {
    if (on_demand_) [[unlikely]] return read_on_demand(out, n);
    std::memcpy(out, at_, n);
    return true;
  }
  /// Copies @p n bytes to it. false: some of them are not there, and others may have been written.
  bool write(const std::byte* from, size_t n) const {
    if (on_demand_) [[unlikely]] return write_on_demand(from, n);
    std::memcpy(at_, from, n);
    return true;
  }
  /// As write(), for the last segment of a WRITE: a program may poll the trailing word of the message instead of its
  /// CQ. The last last_word() bytes change by one store, after all other bytes of the message. (On demand, where the
  /// kernel copies, they are the last bytes to change, but not by one store.) docs/protocol.md, section 7, has where less
  /// is promised. @p n is not 0.
  bool write_end(const std::byte* from, size_t n) const {
    std::atomic_thread_fence(std::memory_order_release);  // earlier segments first
    if (on_demand_) [[unlikely]] return write_end_on_demand(from, n);
    if (n < 8 || (reinterpret_cast<uintptr_t>(at_) + n) % 8 != 0) [[unlikely]] return write_short_word(from, n);
    // memcpy promises no order, so it must not touch the word.
    if (n != 8) std::memcpy(at_, from, n - 8);
    store_word<uint64_t>(at_ + n - 8, from + n - 8);
    return true;
  }
  /// Length in bytes of the trailing word of @p n bytes at @p at: the largest of 8, 4, 2 and 1 that divides the end
  /// address and is not more than @p n.
  static size_t last_word(const std::byte* at, size_t n) {
    const uintptr_t end = reinterpret_cast<uintptr_t>(at) + n;
    size_t word = size_t{1} << std::countr_zero(end | 8);
    while (word > n) word /= 2;
    return word;
  }

  /// The aligned word of 8 bytes there, for an atomic; nullptr: it cannot be written now. No kernel does such an
  /// operation for a process: one that unmaps memory at the moment at which a peer does an atomic there gets SIGSEGV.
  uint64_t* word() const {
    if (on_demand_) [[unlikely]] return word_on_demand();
    return reinterpret_cast<uint64_t*>(at_);
  }

  /// The kernel copies for this process at all. (A seccomp filter may forbid it.)
  static bool can_be_on_demand();

 private:
  constexpr UserMemory(std::byte* at, bool on_demand) : at_(at), on_demand_(on_demand) {}

  /// @p to is aligned.
  template <typename Word>
  static void store_word(std::byte* to, const std::byte* from) {
    Word v;
    std::memcpy(&v, from, sizeof v);
    std::atomic_ref(*reinterpret_cast<Word*>(to)).store(v, std::memory_order_release);
  }

  [[gnu::noinline]] bool write_short_word(const std::byte* from, size_t n) const;
  [[gnu::cold, gnu::noinline]] bool read_on_demand(std::byte* out, size_t n) const;
  [[gnu::cold, gnu::noinline]] bool write_on_demand(const std::byte* from, size_t n) const;
  [[gnu::cold, gnu::noinline]] bool write_end_on_demand(const std::byte* from, size_t n) const;
  [[gnu::cold, gnu::noinline]] uint64_t* word_on_demand() const;

  std::byte* at_ = nullptr;
  bool on_demand_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_USER_MEMORY_H
