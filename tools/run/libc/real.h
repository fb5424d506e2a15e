// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file real.h
/// Access to libc's own functions, for the functions of this library that programs call in place of libc's.
#ifndef USIW_RUN_REAL_H
#define USIW_RUN_REAL_H

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstddef>

/// Declares a function that other code can call in this library, as a rule in place of libc's function.
#define EXPORT extern "C" __attribute__((visibility("default")))

/// Exports such a function also under its second name, such as open64() for open(). On a 64-bit processor both do the
/// same. EXPORT_64_AS is for second names that libc's headers do not declare: they get the type of the function
/// @p type.
#define EXPORT_64(fn) EXPORT_64_AS(fn##64, fn)
#define EXPORT_64_AS(type, fn) EXPORT decltype(::type) fn##64 __attribute__((alias(#fn)))

namespace usiw::run {

template <size_t size>
struct FunctionName {
  char text[size];
  constexpr FunctionName(const char (&name)[size]) { std::copy_n(name, size, text); }
};

/// The next definition of the function @p name, as dlsym(3) finds it. All definitions are looked up when this library
/// is loaded. A later dlsym(3) would take locks, and would discard an error that the program has yet to fetch by
/// dlerror(3). Therefore get() calls dlsym(3) only if the constructor of another library calls get() before that
/// look-up, or if the look-up found no definition.
template <FunctionName name>
class NextFunction {
 public:
  static void* get() {
    void* at = at_.load(std::memory_order_relaxed);
    if (at == nullptr) at_.store(at = look_up(), std::memory_order_relaxed);
    return at;
  }

 private:
  static void* look_up() {
    void* at = dlsym(RTLD_NEXT, name.text);
    if (at == nullptr) dlerror();  // an older libc does not have the function
    return at;
  }
  static inline std::atomic<void*> at_{look_up()};
};

}  // namespace usiw::run

/// The next definition of @p fn, which is libc's as a rule. Example: USIW_REAL(open)(path, flags).
#define USIW_REAL(fn) (reinterpret_cast<decltype(&::fn)>(::usiw::run::NextFunction<#fn>::get()))

#endif  // USIW_RUN_REAL_H
