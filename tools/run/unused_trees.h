// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file unused_trees.h
/// The trees that play /sys (sysfs.h) outlive the programs that look there, which may end in any way. The next usiw-run
/// of the same user removes those that no process has locked any more.
#ifndef USIW_RUN_UNUSED_TREES_H
#define USIW_RUN_UNUSED_TREES_H

#include <ctime>

namespace usiw::run {

/// Seconds since its last user began: one that is shared by programs that come one after another is not made for each.
inline constexpr time_t kTreeKeepS = 3600;

/// Whatever cannot be removed stays, without a word.
void remove_unused_trees();

}  // namespace usiw::run

#endif  // USIW_RUN_UNUSED_TREES_H
