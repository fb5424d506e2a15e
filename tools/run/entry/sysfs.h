// SPDX-License-Identifier: GPL-2.0 OR Linux-OpenIB
/// @file sysfs.h
/// The paths by which programs find RDMA devices: /sys/class/infiniband* and /dev/infiniband.
///
/// A tree of small files in a directory for temporary files has the contents of these directories on a host with the
/// module. A call that names a path below them gets the path of the same file in the tree. So every descriptor,
/// directory stream and working directory that follows is an ordinary one, and relative paths need nothing more. Two
/// kinds of answers still need this library. A device node is an empty file in the tree, which the program must see as
/// a character device. And getcwd(2) must return the name that the program knows.
#ifndef USIW_RUN_SYSFS_H
#define USIW_RUN_SYSFS_H

#include <sys/types.h>

#include <mutex>
#include <string>

namespace usiw::run {

enum class Node { kNone, kUverbs, kRdmaCm };

/// Returns the path in the tree that @p path means, to be used in its place. Returns an empty string if the kernel
/// finds @p path itself, as it does every relative path. The first call that needs the tree makes it.
std::string emulated(const char* path);

/// The path that a call of libc gets in place of the program's.
class Path {
 public:
  explicit Path(const char* path) : in_tree_(emulated(path)), path_(in_tree_.empty() ? path : in_tree_.c_str()) {}
  Path(const Path&) = delete;
  operator const char*() const { return path_; }

 private:
  const std::string in_tree_;
  const char* const path_;
};

/// Turns a path in the tree, which the kernel has returned, into the one that the program knows. That one is shorter.
void to_program_name(char* path);
/// Returns true if @p path is "" or null. The function is not in a header: libc declares that its functions get no null
/// pointer, so a compiler would remove the test there.
bool is_empty(const char* path);
/// Returns true if the last part of @p path is the name of a device node. Costs no system call.
bool may_be_node(const char* path);
/// Returns the device node that the file with this name, device and inode is.
Node node_of(const char* path, dev_t device, ino_t inode);
/// Returns the device node at @p path, relative to @p dir as for openat(2).
Node node_at(int dir, const char* path);

/// Held while the tree is made. No thread holds this lock and the big lock at a time, except around fork().
std::mutex& making_tree();

}  // namespace usiw::run

#endif  // USIW_RUN_SYSFS_H
