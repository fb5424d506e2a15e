// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file failing_new.h
/// A test can make one call of operator new fail in its thread. Deleted memory is overwritten, so that a later use of
/// it ends the test. This header defines the operators of the whole program, so only one of its files includes it.
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

inline void* try_allocate(size_t size, size_t alignment) {
  if (FailingNew::fails()) return nullptr;
  return std::aligned_alloc(alignment, (size + alignment) & ~(alignment - 1));  // never 0 bytes
}
inline void* allocate(size_t size, size_t alignment) {
  void* const at = try_allocate(size, alignment);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
inline void release(void* at) {
  if (at == nullptr) return;
  std::memset(at, 0xdd, malloc_usable_size(at));
  std::free(at);
}

constexpr size_t kUsual = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
constexpr size_t bytes(std::align_val_t alignment) { return static_cast<size_t>(alignment); }

}  // namespace failing_new
}  // namespace usiw

// All of them: those that are missing would be the sanitizers', which do not let others free what they gave.
#define USIW_FAILING_NEW(suffix)                                                                              \
  void* operator new suffix(size_t n) { return usiw::failing_new::allocate(n, usiw::failing_new::kUsual); }   \
  void* operator new suffix(size_t n, const std::nothrow_t&) noexcept {                                       \
    return usiw::failing_new::try_allocate(n, usiw::failing_new::kUsual);                                     \
  }                                                                                                           \
  void* operator new suffix(size_t n, std::align_val_t a) {                                                   \
    return usiw::failing_new::allocate(n, usiw::failing_new::bytes(a));                                       \
  }                                                                                                           \
  void* operator new suffix(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {                   \
    return usiw::failing_new::try_allocate(n, usiw::failing_new::bytes(a));                                   \
  }                                                                                                           \
  void operator delete suffix(void* at) noexcept { usiw::failing_new::release(at); }                          \
  void operator delete suffix(void* at, size_t) noexcept { usiw::failing_new::release(at); }                  \
  void operator delete suffix(void* at, std::align_val_t) noexcept { usiw::failing_new::release(at); }        \
  void operator delete suffix(void* at, size_t, std::align_val_t) noexcept { usiw::failing_new::release(at); }
USIW_FAILING_NEW()
USIW_FAILING_NEW([])
#undef USIW_FAILING_NEW

#endif  // USIW_TESTS_FAILING_NEW_H
