// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sanitized.h
/// AddressSanitizer makes a simulated second some twenty times as expensive, and it finds nothing in the hundredth seed
/// that the plain build's seeds do not reach as well. Long tests do less under it.
#ifndef USIW_TESTS_SUPPORT_SANITIZED_H
#define USIW_TESTS_SUPPORT_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#endif  // USIW_TESTS_SUPPORT_SANITIZED_H
