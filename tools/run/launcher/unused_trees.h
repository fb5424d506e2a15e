// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file unused_trees.h
/// The removal of trees that are not used any more. The trees emulate /sys (entry/sysfs.h). They outlive the programs
/// that read them, because a program may be killed. The next usiw-run of the same user removes the trees that no
/// process has locked, or has begun to use within kTreeKeepS.
#ifndef USIW_RUN_UNUSED_TREES_H
#define USIW_RUN_UNUSED_TREES_H

namespace usiw::run {

/// Removes the unused trees of this user. A tree that cannot be removed stays, without a message.
void remove_unused_trees();

}  // namespace usiw::run

#endif  // USIW_RUN_UNUSED_TREES_H
