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
  /// The same with the end of a WRITE, for a program that polls its last byte: that byte changes after all others
  /// (memcpy promises no order). A small aligned word changes as a whole where that is not the kernel's copy.
  bool write_end(const std::byte* from, size_t n) const {
    std::atomic_thread_fence(std::memory_order_release);  // earlier segments first
    if (on_demand_) [[unlikely]] return write_end_on_demand(from, n);
    const auto at = reinterpret_cast<uintptr_t>(at_);
    if (n == 8 && at % 8 == 0) {
      uint64_t v;
      std::memcpy(&v, from, 8);
      std::atomic_ref(*reinterpret_cast<uint64_t*>(at_)).store(v, std::memory_order_release);
    } else if (n == 4 && at % 4 == 0) {
      uint32_t v;
      std::memcpy(&v, from, 4);
      std::atomic_ref(*reinterpret_cast<uint32_t*>(at_)).store(v, std::memory_order_release);
    } else {
      std::memcpy(at_, from, n - 1);
      std::atomic_ref(*reinterpret_cast<uint8_t*>(at_ + n - 1))
          .store(std::to_integer<uint8_t>(from[n - 1]), std::memory_order_release);
    }
    return true;
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

  [[gnu::cold, gnu::noinline]] bool read_on_demand(std::byte* out, size_t n) const;
  [[gnu::cold, gnu::noinline]] bool write_on_demand(const std::byte* from, size_t n) const;
  [[gnu::cold, gnu::noinline]] bool write_end_on_demand(const std::byte* from, size_t n) const;
  [[gnu::cold, gnu::noinline]] uint64_t* word_on_demand() const;

  std::byte* at_ = nullptr;
  bool on_demand_ = false;
};

}  // namespace usiw

#endif  // USIW_ENGINE_USER_MEMORY_H
