// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file failing_new.h
/// operator new that can be made to fail once in a thread. What is deleted is overwritten, so that a use of it later
/// ends the test. Defines the operators of the whole program: for one file of it.
#ifndef USIW_TESTS_FAILING_NEW_H
#define USIW_TESTS_FAILING_NEW_H

#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace usiw {

class FailingNew {
 public:
  /// Call number @p n of this thread from here on fails, 0 for the next one.
  explicit FailingNew(uint32_t n) { left_ = n + 1; }
  ~FailingNew() { left_ = 0; }
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  /// False: there were not so many calls.
  static bool has_failed() { return left_ == 0; }
  static bool fails() { return left_ != 0 && --left_ == 0; }

 private:
  static inline thread_local uint32_t left_ = 0;
};

namespace failing_new {

inline void* allocate(size_t size, size_t alignment) {
  void* at = FailingNew::fails() ? nullptr : std::aligned_alloc(alignment, (size + alignment - 1) & ~(alignment - 1));
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
inline void release(void* at) {
  if (at == nullptr) return;
  std::memset(at, 0xdd, malloc_usable_size(at));
  std::free(at);
}

}  // namespace failing_new
}  // namespace usiw

void* operator new(size_t size) { return usiw::failing_new::allocate(size, alignof(std::max_align_t)); }
void* operator new(size_t size, std::align_val_t alignment) {
  return usiw::failing_new::allocate(size, static_cast<size_t>(alignment));
}
void operator delete(void* at) noexcept { usiw::failing_new::release(at); }
void operator delete(void* at, size_t) noexcept { usiw::failing_new::release(at); }
void operator delete(void* at, std::align_val_t) noexcept { usiw::failing_new::release(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { usiw::failing_new::release(at); }

#endif  // USIW_TESTS_FAILING_NEW_H
