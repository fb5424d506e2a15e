// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file random.h
/// Random numbers that nobody can guess.
#ifndef USIW_RUN_RANDOM_H
#define USIW_RUN_RANDOM_H

#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "base/random_bytes.h"

namespace usiw::run {

/// Returns a random number, such as an ISN or the key of an STag. Ends the process if the system has no random numbers:
/// if others could guess the numbers, they could send into connections of this process.
inline uint32_t random_u32() {
  uint32_t value = 0;
  if (random_bytes(&value, sizeof value)) return value;
  fputs("usiw-run: no random numbers: getrandom(2) is forbidden and /dev/urandom cannot be read; allow one of them in "
        "the seccomp profile or the container\n",
        stderr);
  _exit(126);
}

}  // namespace usiw::run

#endif  // USIW_RUN_RANDOM_H
