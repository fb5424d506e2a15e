// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file time_units.h
/// Nanoseconds.
#ifndef USIW_TESTS_ENGINE_TIME_UNITS_H
#define USIW_TESTS_ENGINE_TIME_UNITS_H

#include <cstdint>

namespace usiw {

constexpr uint64_t kUs = 1'000, kMs = 1'000'000, kSec = 1'000'000'000;

}  // namespace usiw

#endif
