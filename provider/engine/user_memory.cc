// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file user_memory.cc
/// What process_vm_readv(2) does for a debugger it does for the process itself, too: it brings pages in as an access
/// would and obeys their protection, and where nothing is mapped it returns an error in place of SIGSEGV.
#include "engine/user_memory.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>

#include "base/machine.h"

namespace usiw {

namespace {

iovec piece(const std::byte* at, size_t n) { return {const_cast<std::byte*>(at), n}; }

}  // namespace

/// As write_end() of what has a trailing word of less than 8 bytes.
bool UserMemory::write_short_word(const std::byte* from, size_t n) const {
  const size_t word = last_word(at_, n), before = n - word;
  if (before != 0) std::memcpy(at_, from, before);
  if (word == 4)
    store_word<uint32_t>(at_ + before, from + before);
  else if (word == 2)
    store_word<uint16_t>(at_ + before, from + before);
  else
    store_word<uint8_t>(at_ + before, from + before);
  return true;
}

bool UserMemory::read_on_demand(std::byte* out, size_t n) const {
  const iovec here = piece(out, n), there = piece(at_, n);
  return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(n);
}

bool UserMemory::write_on_demand(const std::byte* from, size_t n) const {
  const iovec here = piece(from, n), there = piece(at_, n);
  return process_vm_writev(getpid(), &here, 1, &there, 1, 0) == static_cast<ssize_t>(n);
}

/// The kernel copies the pieces one after the other. Where a processor's stores may become visible in another order,
/// the pieces are two calls with a fence between them.
bool UserMemory::write_end_on_demand(const std::byte* from, size_t n) const {
  const iovec here = piece(from, n);
  const size_t word = last_word(at_, n), before = n - word;
  if constexpr (!kTotalStoreOrder) {
    if (before != 0 && !write_on_demand(from, before)) return false;
    std::atomic_thread_fence(std::memory_order_release);
    return UserMemory(at_ + before, true).write_on_demand(from + before, word);
  }
  const std::array there = {piece(at_, before), piece(at_ + before, word)};
  return process_vm_writev(getpid(), &here, 1, there.data(), there.size(), 0) == static_cast<ssize_t>(n);
}

uint64_t* UserMemory::word_on_demand() const {
  const uintptr_t page = page_size(), at = reinterpret_cast<uintptr_t>(at_);
  if (madvise(reinterpret_cast<void*>(at / page * page), page, MADV_POPULATE_WRITE) != 0) return nullptr;
  return reinterpret_cast<uint64_t*>(at_);
}

bool UserMemory::can_be_on_demand() {
  std::byte from{1}, to{0};
  const UserMemory memory = on_demand(&from);
  return memory.read(&to, 1) && memory.write(&to, 1);
}

}  // namespace usiw
