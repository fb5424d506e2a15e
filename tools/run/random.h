// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file random.h
#ifndef USIW_RUN_RANDOM_H
#define USIW_RUN_RANDOM_H

#include <sys/random.h>

#include <cstdint>

namespace usiw::run {

/// Not to be guessed: initial PSNs and STag keys are made of it.
inline uint32_t random_u32() {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != sizeof value) {
  }
  return value;
}

}  // namespace usiw::run

#endif  // USIW_RUN_RANDOM_H
