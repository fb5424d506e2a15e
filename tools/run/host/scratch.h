// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file scratch.h
/// The directory for temporary files in which usiw-run makes its trees, and the names and the keep time of the trees. A
/// tree emulates the RDMA directories of /sys and /dev (tools/run/entry/sysfs.h).
#ifndef USIW_RUN_SCRATCH_H
#define USIW_RUN_SCRATCH_H

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <string>

namespace usiw::run {

/// The directories that are tried, in this order.
inline constexpr char kScratchPlaces[] = "$TMPDIR, /tmp, /var/tmp, /dev/shm, $XDG_RUNTIME_DIR";

/// Returns the first of kScratchPlaces that is an absolute path and that this user may write to, or an empty string.
inline std::string scratch_directory() {
  for (const char* place : {static_cast<const char*>(getenv("TMPDIR")), "/tmp", "/var/tmp", "/dev/shm",
                            static_cast<const char*>(getenv("XDG_RUNTIME_DIR"))})
    if (place != nullptr && *place == '/' && faccessat(AT_FDCWD, place, W_OK | X_OK, AT_EACCESS) == 0) return place;
  return {};
}

/// Returns the prefix of the names of this user's trees.
inline std::string tree_prefix() { return "usiw-run-" + std::to_string(geteuid()) + "-"; }

/// Name of the lock file in a tree. Each process that uses the tree locks the file (shared), and updates the time of
/// the file when it begins.
inline constexpr char kTreeLock[] = "lock";

/// The least time for which a tree is kept after the last process has begun to use it, s. So programs that run one
/// after another share a tree.
inline constexpr time_t kTreeKeepS = 3600;

}  // namespace usiw::run

#endif  // USIW_RUN_SCRATCH_H
