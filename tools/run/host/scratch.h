// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file scratch.h
/// Where a small directory can be made: what plays /sys is in one.
#ifndef USIW_RUN_SCRATCH_H
#define USIW_RUN_SCRATCH_H

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace usiw::run {

/// The places that are tried, in this order.
inline constexpr char kScratchPlaces[] = "$TMPDIR, /tmp, /var/tmp, /dev/shm, $XDG_RUNTIME_DIR";

/// The first of them that this user may write to, or empty.
inline std::string scratch_directory() {
  for (const char* place : {static_cast<const char*>(getenv("TMPDIR")), "/tmp", "/var/tmp", "/dev/shm",
                            static_cast<const char*>(getenv("XDG_RUNTIME_DIR"))})
    if (place != nullptr && *place == '/' && faccessat(AT_FDCWD, place, W_OK | X_OK, AT_EACCESS) == 0) return place;
  return {};
}

/// What the names of a user's trees there begin with.
inline std::string tree_prefix() { return "usiw-run-" + std::to_string(geteuid()) + "-"; }

/// The file in a tree that its users have locked (shared), and changed when they began.
inline constexpr char kTreeLock[] = "lock";

/// Seconds since its last user began: one that is shared by programs that come one after another is not made for each.
inline constexpr time_t kTreeKeepS = 3600;

}  // namespace usiw::run

#endif  // USIW_RUN_SCRATCH_H
