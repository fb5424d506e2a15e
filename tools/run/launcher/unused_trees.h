// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file unused_trees.h
/// The removal of trees that are not used any more. The trees emulate /sys (entry/sysfs.h). The programs that read a
/// tree do not remove it: a program may be killed, and later programs share the tree. Before usiw-run executes a
/// program, it removes this user's trees that no process has locked, and that no process has begun to use within
/// kTreeKeepS.
#ifndef USIW_RUN_UNUSED_TREES_H
#define USIW_RUN_UNUSED_TREES_H

namespace usiw::run {

/// Removes the unused trees of this user in scratch_directory(). A tree that cannot be removed stays; no message is
/// printed.
void remove_unused_trees();

}  // namespace usiw::run

#endif  // USIW_RUN_UNUSED_TREES_H
