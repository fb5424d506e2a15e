// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sanitized.h
/// AddressSanitizer makes a simulated second some twenty times as expensive. Long tests do less under it:
/// USIW_STORM_SEEDS asks for more, and the fuzzers run the same engine under it for as long as they are let.
#ifndef USIW_TESTS_SUPPORT_SANITIZED_H
#define USIW_TESTS_SUPPORT_SANITIZED_H

#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

#endif  // USIW_TESTS_SUPPORT_SANITIZED_H
