// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file real.h
/// libc's own functions behind the ones that this library stands before.
#ifndef USIW_RUN_REAL_H
#define USIW_RUN_REAL_H

#include <dlfcn.h>

/// A function that this library stands before.
#define EXPORT extern "C" __attribute__((visibility("default")))

/// Calls the next definition of @p fn, libc's as a rule: USIW_REAL(open)(path, flags). Looked up once
/// per place of use.
#define USIW_REAL(fn)                                                              \
  ([] {                                                                            \
    static const auto real = reinterpret_cast<decltype(&::fn)>(dlsym(RTLD_NEXT, #fn)); \
    return real;                                                                   \
  }())

#endif  // USIW_RUN_REAL_H
