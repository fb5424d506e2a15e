// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sysfs.h
/// The paths by which programs find RDMA devices: /sys/class/infiniband* and /dev/infiniband.
///
/// A tree of small files in a directory for temporary files holds what these directories hold on a host with the
/// module. Calls that name a path below them get the path of the same place in the tree. So every descriptor, directory
/// stream and working directory that follows is an ordinary one, and relative paths need nothing more. Two kinds of
/// answer still need this library: a device node is an empty file in the tree, which the program must see as a
/// character device; and getcwd(2) must give the name that the program knows.
#ifndef USIW_RUN_SYSFS_H
#define USIW_RUN_SYSFS_H

#include <sys/types.h>

#include <string>

namespace usiw::run {

enum class Node { kNone, kUverbs, kRdmaCm };

/// The path to use in place of @p path: the place in the tree that it means. Empty: the kernel finds @p path itself, as
/// it does every relative one. The tree is made at the first call that needs it.
std::string emulated(const char* path);
/// Turns the name of a place in the tree, as the kernel says it, into the one that the program knows, which is shorter.
void to_program_name(char* path);
/// Whether @p path is "" or null. Not in a header: libc declares that its functions get no null pointer, and so a
/// compiler would drop the question there.
bool is_empty(const char* path);
/// Whether the last part of @p path is the name of a device node. Costs no system call.
bool may_be_node(const char* path);
/// The device node that the file with this name, device and inode is.
Node node_of(const char* path, dev_t device, ino_t inode);
/// The device node at @p path, relative to @p dir as for openat(2).
Node node_at(int dir, const char* path);

/// Around fork(): nobody makes the tree meanwhile.
void tree_lock();
void tree_unlock();

}  // namespace usiw::run

#endif  // USIW_RUN_SYSFS_H
